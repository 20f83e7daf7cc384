"""What optimisations that are off would do, on the traffic that is there: drafters and a prefix cache beside the real
decode, at a cost that is bounded and recorded."""

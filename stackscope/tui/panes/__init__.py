"""The panes of the live screen, one file each: pure functions of a snapshot."""

"""What limits: evidence of the last seconds, one function per cause, and the one that is named.

`tally` adds steps up, `machine` sums up readings and probes, `predicted` asks the time model, and `gather` makes
`evidence` of all three. `slices` is the wall time that causes take their shares from, `causes_*` look at one cause
each, `judge` asks them all, and `naming` names one.
"""

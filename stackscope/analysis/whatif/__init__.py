"""What each change would buy here: predictions from the time model, the recent work and what shadows measured.

`working_point` is what the engine has been doing lately, `transforms` makes the same work's steps under another
configuration, `evaluate` times them, `predict` compares two, `candidates` and `ranking` look for the best, and
`breakevens` says where an optimisation begins to lose. `baselines` are simpler predictors that all this has to beat.
"""

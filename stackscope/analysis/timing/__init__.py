"""Time from bytes and FLOPs: the ledger's counts times what was measured of this machine.

`shapes` is a step as the model sees it, `terms` its time in parts, `model` a prediction with its uncertainty, and `fit`
what learns from steps.
"""

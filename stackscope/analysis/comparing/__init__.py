"""Sessions held against each other: what each amounts to in a few arrays, what differs, and by how much.

`collecting` streams a session into a `Digest`; `comparison` makes a `Comparison` of several. `figures` are the numbers
that are compared, `intervals` how sure their ratios are, `differences` what was not the same and whether a comparison
means anything, `moved` where the time of a step went, `thresholds` what `--fail-if` says.
"""

"""Does the explainer tell the truth? Faults and toggles are staged on the real engine, recorded, and scored blindly.

`python -m benchmarks.validate` stages `scenarios` (`naming` and `measuring` say which) by `stage`, whose recordings
have numbers for names and hold no label, and keeps in `state` what is done. The scores (`score_*`) read recordings
alone and are put beside those of simpler predictors; `mutants` are wrong accountings that the `checks` must catch.
"""

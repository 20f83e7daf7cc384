"""Speed of Stackscope itself, and against the bare engine, as ratios in one run."""

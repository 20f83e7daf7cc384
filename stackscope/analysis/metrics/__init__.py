"""What Stackscope measures: one class per metric, with its formula, unit and needs beside the code that computes it."""

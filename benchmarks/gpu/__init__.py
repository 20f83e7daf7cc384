"""The stages of `benchmarks.gpu_check`, each a program of its own."""

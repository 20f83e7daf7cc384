"""What a model is, from its file: the bundled lab pair, header checks, geometry, variants, downloads."""

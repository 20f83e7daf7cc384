"""The verbs of the command line, a module for each kind. Each imports what it needs when it runs."""

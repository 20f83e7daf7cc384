"""Widgets: they paint what pure code has made, and turn keys into messages."""

"""The screen: panes as strings, the app without a terminal."""

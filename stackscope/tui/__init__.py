"""The live screen. Panes are pure: from a snapshot and a size to lines of styled text; widgets only paint them."""

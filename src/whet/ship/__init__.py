"""Release: a proven Bundle goes live."""

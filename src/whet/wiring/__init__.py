"""Wiring whet into somebody's repository: read it without running it, propose changes, and name what is missing."""

"""Rows and tasks to learn from: read, recorded or made, and split so that nothing leaks into the gate."""

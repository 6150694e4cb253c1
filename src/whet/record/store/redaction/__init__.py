"""Secrets out of what is written: the rules, the Redactor that applies them, and the one that a process uses."""

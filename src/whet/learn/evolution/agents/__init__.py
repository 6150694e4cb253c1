"""Somebody's agent: what of it may change, and how a candidate of it is called."""

"""Prompts: what went wrong is reflected on, rewritten, raced and proven."""

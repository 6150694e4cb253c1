"""The loop without a hand on it: issues become proven repairs that are tried, put live, watched, and taken back."""

"""Somebody's repository as text: its files, the Python in them, and changes that keep every other byte."""

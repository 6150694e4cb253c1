"""Permissions of an agent's tools: rules that allow, deny or ask before a call is made.

`rules.py` decides, `parts.py`, `commands.py`, `shell.py`, `paths.py`, `urls.py` and `statements.py` read what a call
touches, `files.py` loads a rule file, `enforcement.py` keeps tools, environments and the gateway to it.
"""

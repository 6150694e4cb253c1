"""Permissions of an agent's tools: rules that allow, deny or ask before a call is made.

`rules.py` decides.  What a call touches is read by `parts.py`; its commands by `shell.py`, `commands.py`, `operands.py`
and `programs.py`; the rest by `paths.py`, `urls.py` and `statements.py`.  `files.py` loads a rule file, `draft.py`
drafts one, `enforcement.py` holds tools, environments and the gateway to it, `reversing.py` takes back what was done.
"""

"""A user's repository as text: its files, the Python in them, and changes that keep every other byte.

`files.py`, `modules.py`, `syntax.py` and `text.py` read and splice; `scan.py`, `propose.py` and `diagnose.py` wire
an agent up with it (`whet init`, `whet doctor`).  Nothing of the repository is imported or run.
"""

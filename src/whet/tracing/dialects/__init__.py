"""One normaliser for every way in which agents are traced.

`read(spans)` gives Trajectories; `form` is the plain form in which they are shown.  One module per
dialect reads a span alone, `tree.py` finds what belongs together, `trajectories.py` writes it down.
"""

from .form import form
from .messages import Message, messages
from .trajectories import NO_MODEL_CALL, Survey, read, survey, trajectory_id

__all__ = ["NO_MODEL_CALL", "Message", "Survey", "form", "messages", "read", "survey", "trajectory_id"]

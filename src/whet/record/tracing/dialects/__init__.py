"""One normaliser for every way in which agents are traced.

`survey(spans)` gives Trajectories; `form` is the plain form in which they are shown.  One module per dialect reads
a span alone, `tree.py` groups spans into steps, `trajectories.py` makes a Trajectory of these.
"""

from .form import form
from .messages import messages
from .trajectories import NO_MODEL_CALL, survey, trajectory_id

__all__ = ["NO_MODEL_CALL", "form", "messages", "survey", "trajectory_id"]

"""A process reward model from a command: steps are labelled by the recorded runs that share them."""

from __future__ import annotations

from collections.abc import Sequence

from ...loop import Rollout
from ...optimizers.prm import PRM as PRM
from ...optimizers.prm import PRMOptions as PRMOptions
from ...training.process_labels import Continued
from ...types import Group


def rollout(options: PRMOptions, groups: Sequence[Group]) -> Rollout:
    """The recorded runs that begin with the same steps, as completions of these."""
    return Continued(groups)

"""A reward learned from outcomes over features that one can read: the runtime, without what trained it.

`learn/optimizers/outcome_model.py` makes the Version; here it becomes a Reward.  The features are the caller's
function, given again: code never travels inside a Version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..errors import InputError
from ..models.heads import Forest
from ..types import Outcome, Score, Trajectory, Version

Features = Callable[[Trajectory], Mapping[str, float | None] | None]
"""Run → the features that a scorer may see; None where there is nothing to score."""


class OutcomeReward:
    """The probability that a run is right, by boosted trees over its features: an outcome reward model.

    Args:
        version: of kind `reward`, as `OutcomeModel` makes it.
        features: the function that it was learned with.
        name: of the Score; the resource's name if None.

    Raises:
        InputError: another kind of Version.
    """

    def __init__(self, version: Version, features: Features, *, name: str | None = None) -> None:
        content = version.content
        if version.kind != "reward" or not isinstance(content, Mapping) or "model" not in content:
            raise InputError(
                f"{version.resource} {version.id} is a {version.kind} without trees; "
                "`OutcomeModel` makes what is wanted here"
            )
        self._forest = Forest(content["model"])
        self._names: list[str] = list(content["features"])
        self._features = features
        self.version = version
        self.__name__ = name or version.resource

    def __call__(self, trajectory: Trajectory) -> Score:
        """A probability in [0, 1]; None where a machine failed or there is nothing to score.

        Raises:
            InputError: the features lack one that the model was learned with.
        """
        if trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR:
            return Score(self.__name__, None, "infrastructure error", self.version.id)
        features = self._features(trajectory)
        if features is None:
            return Score(self.__name__, None, "nothing to score", self.version.id)
        if absent := [name for name in self._names if name not in features]:
            raise InputError(
                f"{self.__name__} was learned with {len(self._names)} features, and {absent[0]!r} is not among those "
                "given; pass the function that it was learned with"
            )
        value = self._forest.predict([features[name] for name in self._names])
        return Score(self.__name__, value, "", self.version.id)

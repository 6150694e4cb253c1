"""Values of an environment as JSON, and JSON as members of Gymnasium's spaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from ..errors import EnvError
from ..types import Json


def as_json(value: Any) -> Json:
    """A value of an environment as JSON: arrays as lists, numbers of numpy as numbers.

    Raises:
        EnvError: it has no JSON form.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if callable(getattr(value, "tolist", None)):  # an array or a number of numpy
        return as_json(value.tolist())
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain(value)
    if isinstance(value, Mapping):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [as_json(inner) for inner in value]
    if is_dataclass(value) and not isinstance(value, type):
        return as_json(asdict(value))
    raise EnvError(
        f"an observation holds a {type(value).__name__}, which has no JSON form; wrap the environment so that it "
        "gives text, numbers, lists or dicts (gymnasium.ObservationWrapper)"
    )


def as_member(space: Any, value: Json) -> Any:
    """A JSON value as the member of a space: lists as arrays of its kind; what does not fit stays as it is."""
    kinds = {kind.__name__ for kind in type(space).__mro__}
    if "Dict" in kinds and isinstance(value, dict):
        return {
            key: as_member(space.spaces[key], inner) for key, inner in value.items() if key in space.spaces
        }
    if "Tuple" in kinds and isinstance(value, list):
        return tuple(as_member(inner, item) for inner, item in zip(space.spaces, value, strict=False))
    if kinds & {"Box", "MultiBinary", "MultiDiscrete"} and isinstance(value, list | int | float):
        import numpy  # there is an array space, so it is installed

        return numpy.asarray(value, dtype=space.dtype)
    return value

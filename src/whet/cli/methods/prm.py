"""A process reward model from a command.

Steps are labelled by the recorded runs that share them, or by people: `--data` may be a file in PRM800K's
form, whose solutions are text and are read as the model's tokenizer reads them (a tiny model: byte by byte).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ...errors import InputError
from ...escapes import read_json
from ...learn.optimizers.prm import PRM as PRM
from ...learn.training.options import PRMOptions
from ...learn.training.process_labels import Labelled, prm800k, recorded
from ...learn.training.templates import tokenizer_of
from ...types import Group


def of_record(options: PRMOptions, groups: Sequence[Group]) -> list[Labelled]:
    """Recorded runs, each step labelled by the runs that begin with the same steps; none if none was judged."""
    judged = [t for group in groups for t in group.trajectories if t.outcome.counts]
    chosen = sorted(judged, key=lambda trajectory: trajectory.id)[: options.trajectories]
    return recorded(chosen, groups, completions=options.completions)


def labelled(path: Path, model: str) -> list[Labelled] | None:
    """The rated solutions of a file in PRM800K's form, None for a file that is not.

    Args:
        model: whose tokenizer reads them.

    Raises:
        InputError: a later line is not in that form, or the model has no tokenizer.
    """
    if not path.is_file():
        return None
    with open(path, "rb") as lines:
        first = next((line for line in lines if line.strip()), b"")
        try:
            record = read_json(msgspec.json.decode, first)
        except msgspec.DecodeError:
            return None
        if not (isinstance(record, dict) and {"question", "label"} <= set(record)):
            return None
        lines.seek(0)
        return prm800k(lines, _reader(model))


def _reader(model: str) -> Callable[[str], Sequence[int]]:
    if model == "tiny":
        return str.encode
    tokenizer = tokenizer_of(model)
    if tokenizer is None:
        raise InputError(
            f"{model} has no tokenizer, and PRM800K's solutions are text; give a model that has one"
        )
    return lambda text: list(tokenizer(text, add_special_tokens=False)["input_ids"])

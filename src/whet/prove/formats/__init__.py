"""Files of per-task results that other programs write → `Outcomes`: one `TaskResult` per task, and what was lost.

A format is one module: `claims(file)` says whether a file is of it, by its content and not by its name, and
`read(file)` gives its rows. What is the same for all stands in `outcomes.py`: the metric that decides, its range,
groups, repeated runs, and how many broken rows are too many. Files are not trusted: nothing of them is run, imported
or opened, and no size, depth or number in them is believed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...errors import InputError
from . import inspect_log, junit, langfuse, lm_eval, mlflow, opik, own, promptfoo, strands, table
from .file import ResultFile
from .rows import Reading


@dataclass(frozen=True, slots=True)
class Format:
    """How files of one kind are told and read."""

    claims: Callable[[ResultFile], bool]
    read: Callable[[ResultFile], Reading]


FORMATS = {
    "inspect": Format(inspect_log.claims, inspect_log.read),
    "junit": Format(junit.claims, junit.read),
    "promptfoo": Format(promptfoo.claims, promptfoo.read),
    "mlflow": Format(mlflow.claims, mlflow.read),
    "langfuse": Format(langfuse.claims, langfuse.read),
    "opik": Format(opik.claims, opik.read),
    "strands": Format(strands.claims, strands.read),
    "lm-eval": Format(lm_eval.claims, lm_eval.read),
    "whet": Format(own.claims, own.read),
    "table": Format(table.claims, table.read),
}
"""Name → format, in the order in which they are asked; a table is what no other claims."""


def read_rows(file: ResultFile, *, format: str = "", metric: str = "", id: str = "") -> Reading:
    """The rows of a file by the format that is named, or that claims it.

    Args:
        metric, id: columns of a table.

    Raises:
        InputError: there is no such format, none claims the file, or it cannot be read.
        MissingExtra: it is packed by a method for which a package is missing.
    """
    if format and format not in FORMATS:
        raise InputError(f"there is no format {format!r}; read are {', '.join(FORMATS)}")
    name = format or next((name for name, known in FORMATS.items() if known.claims(file)), "")
    if not name and file.start in (b"{", b"["):
        list(file.objects())  # says why, where it is not JSON
    if not name:
        raise InputError(
            f"{file.path}: no format of results that is known has such content; read are {', '.join(FORMATS)}. "
            'One JSON object per line with "task" and "success" always does'
        )
    if name == "table" or (id and name == "whet"):
        return table.read(file, id=id, metric=metric)
    return FORMATS[name].read(file)

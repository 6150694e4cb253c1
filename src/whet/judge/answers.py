"""Rewards for an answer, by what its task knows: the same letters, words in common, the same JSON, a schema, a form.

`rules.exact` (also named `normalised`) and `rules.number` (`numeric`) are the plain ones.  These compare as the metrics
of a table do (`metrics.py`), give partial credit where the metric does, and take the best of several right answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..errors import InputError
from ..sandbox import Pool
from ..types import Json, Score, Trajectory, canonical, digest
from .base import Reward, reward
from .code import Passes
from .json_schema import conformance
from .metrics import PLAIN, parsed
from .rules import NO_ANSWER, number

_NO_SCHEMA = (
    "the task has no JSON Schema; give one in its meta['schema'], or name a reward of your own: schema({...})"
)
_NO_FORM = (
    'the task asks for no form; say it in its meta[\'format\'], such as {"json": true} or {"max_words": 50}'
)
_NO_TESTS = (
    "the task has no tests for the answered program; give them as its answer or meta['tests']: "
    '{"function": name, "cases": [[[argument, ...], result], ...]}'
)


def compared(metric: str, *, name: str = "") -> Reward:
    """A metric of a table as a reward: `exact` (letter by letter), `f1`, `json` and the others.

    Of a task whose answer is a list of texts each of them is right, and the nearest counts.

    Raises:
        InputError: there is no such metric, or it needs a table's labels or a model.
    """
    if metric not in PLAIN:
        raise InputError(f"no metric {metric!r} compares one answer; there are {', '.join(PLAIN)}")
    compare = PLAIN[metric][1]

    @reward(name=name or metric, version=f"1:{metric}", unjudged=NO_ANSWER)
    def judge(trajectory: Trajectory) -> Score | None:
        if not trajectory.task.answer_known:
            return None
        right = trajectory.task.answer
        several = isinstance(right, list | tuple) and right and all(isinstance(text, str) for text in right)
        value, reason = max(
            (compare(each, trajectory.output) for each in (right if several else [right])),
            key=lambda pair: pair[0],
        )
        return Score(name or metric, value, reason, f"1:{metric}")

    return judge


VERBATIM = compared("exact", name="verbatim")
F1 = compared("f1")
JSON = compared("json")
NUMERIC = number()


def schema(wanted: Mapping[str, Json] | None = None) -> Reward:
    """The share of a JSON Schema's demands that the answer meets; 0.0 for what is not JSON.

    Args:
        wanted: the schema; the task's `meta["schema"]` if None, whose `pattern`s are not tried, for a pattern that
            comes with a task can be made to run forever.
    """
    version = "1" if wanted is None else f"1:{digest(wanted, 12)}"

    @reward(name="schema", version=version, unjudged=_NO_SCHEMA)
    def judge(trajectory: Trajectory) -> Score | None:
        asked: Any = trajectory.task.meta.get("schema") if wanted is None else wanted
        if asked is None:
            return None
        try:
            answered = parsed(trajectory.output)
        except msgspec.DecodeError as error:
            return Score("schema", 0.0, f"not JSON: {error}"[:200], version)
        if trajectory.output is None:
            return Score("schema", 0.0, "nothing was answered", version)
        held = conformance(answered, asked, patterns=wanted is not None)
        return Score("schema", held.share, "; ".join(held.missed)[:300], version)

    return judge


SCHEMA = schema()


@reward(name="format", version="1", unjudged=_NO_FORM)
def formatted(trajectory: Trajectory) -> Score | None:
    """The share of the demands of the task's `meta["format"]` that the answer's form meets; 0.0 for no answer.

    Demands: `json` (true), `max_words`, `min_words`, `max_characters`, `lines`, `starts_with`, `ends_with`,
    `includes` and `excludes` (lists of texts), `one_of` (a list of whole answers).

    Raises:
        InputError: a demand is none of these.
    """
    form: Any = trajectory.task.meta.get("format")
    if not form:
        return None
    text = trajectory.output_text.strip()
    if not text:
        return Score("format", 0.0, "nothing was answered", "1")
    held = [(name, _holds(name, wanted, text)) for name, wanted in form.items()]
    broken = [name for name, holds in held if not holds]
    return Score("format", 1.0 - len(broken) / len(held), f"not {', '.join(broken)}" if broken else "", "1")


def _holds(name: str, wanted: Any, text: str) -> bool:
    match name:
        case "json":
            try:
                msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError):
                return not wanted
            return bool(wanted)
        case "max_words":
            return bool(len(text.split()) <= wanted)
        case "min_words":
            return bool(len(text.split()) >= wanted)
        case "max_characters":
            return bool(len(text) <= wanted)
        case "lines":
            return bool(len(text.splitlines()) == wanted)
        case "starts_with":
            return text.startswith(str(wanted))
        case "ends_with":
            return text.endswith(str(wanted))
        case "includes":
            return all(str(part) in text for part in wanted)
        case "excludes":
            return not any(str(part) in text for part in wanted)
        case "one_of":
            return text in [part if isinstance(part, str) else canonical(part).decode() for part in wanted]
    raise InputError(f"meta['format'] has no demand {name!r}")


class TestsPass:
    """The share of the task's tests that the answered program passes, each run in the sandbox: see `Passes`.

    The tests stand in the task's answer or its `meta["tests"]`.  A sandbox is opened for each program; to judge many,
    open a Pool and use `Passes`.
    """

    __test__ = False  # not a class of tests, whatever pytest makes of its name

    def __init__(self) -> None:
        self.name, self.version, self.is_async = "tests", "1", True

    async def __call__(self, trajectory: Trajectory) -> Score:
        """The score; None where the task has no tests, or the sandbox failed."""
        tests: Any = trajectory.task.meta.get("tests") or trajectory.task.answer
        if not isinstance(tests, Mapping) or not tests.get("cases"):
            return Score(self.name, None, _NO_TESTS, self.version)
        async with Pool() as pool:
            return await Passes(pool, name=self.name).by(tests, trajectory.output)


TESTS = TestsPass()

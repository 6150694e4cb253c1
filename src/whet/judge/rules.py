"""Rewards that are rules: what was answered, how it went, what it cost, what people said.

Those that judge an answer give 1.0 or 0.0, and None where the task has no answer to judge by.
Those that price a run (`fewer_steps`, `latency`, `cost`) are zero or negative, and mean something
only beside one that judges: put them together with Compound.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..errors import InputError
from ..models.prices import known_prices
from ..record.costs import dollars_of
from ..record.tracing.signals import IMPLICIT, telling
from ..record.tracing.tool_calls import decisions
from ..types import Feedback, Json, Outcome, Trajectory, canonical
from .base import Reward, reward

NO_ANSWER = (
    "the task has no answer to compare with; give the Task one, or correct the run "
    "(whet.feedback(run, correction=...)) and take its task from whet.tasks(store)"
)
_NO_NUMBER = (
    "the task has no answer that holds a number; give the Task one, or judge its text (whet.judge.exact)"
)
_NO_OUTCOME = (
    "nothing has judged how this run ended: its outcome is unknown until an Env or a success_checker says so "
    "(what people say is whet.judge.thumbs)"
)
_NO_REWARD = (
    "no step of this run has a reward: it was not made in an Env; name a reward that judges the run, "
    "such as whet.judge.thumbs"
)
_NO_THUMB = "no person gave this run a thumb; give one with whet.feedback(run, 1) or POST /api/feedback"
_NO_VALUE = "no person gave this run a value; give one with whet.feedback(run, value) or POST /api/feedback"
NO_DECISIONS = (
    "its spans are functions of the program's own, which do not tell a model's or a tool's call; use an "
    "instrumentor, @whet.step or the gateway"
)
_NO_SIGNAL = (
    "nothing showed what the user thought: the run names no session (whet.run(session=...), x-whet-session, "
    "session.id), or nobody went on after it"
)
_NO_SECONDS = "how long this run took was not recorded; trace it, or record Trajectory.seconds"
_NO_DOLLARS = (
    "what a model call cost is not known; record Usage.dollars, or name a file of prices in WHET_PRICES: "
    '{"MODEL": {"prompt": 0.15, "output": 0.6}}'
)
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|(?<=\d))(?:[eE][-+]?\d+)?(?!\w)")

_NO_DIGITS = "".join(character for character in map(chr, range(128)) if not character.isdigit())


def _answers(trajectory: Trajectory) -> list[Json]:
    """The answers that count as right; none where the task does not say."""
    answer = trajectory.task.answer
    if isinstance(answer, list | tuple):
        return list(answer)
    return [] if answer is None else [answer]


def normal_text(value: Json) -> str:
    """Text without case, accents' encoding, runs of space and closing punctuation."""
    text = value if isinstance(value, str) else canonical(value).decode()
    if not text.isascii():  # which normalising leaves as it is
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split()).strip(" .!?\"'")


@reward(version="2", unjudged=NO_ANSWER)
def exact(trajectory: Trajectory) -> float | None:
    """1.0 if the output is the task's answer (or one of them), but for case, spacing and a final point."""
    if trajectory.task.answer is None and trajectory.task.answer_known:
        return float(trajectory.output is None)
    answers = _answers(trajectory)
    if not answers:
        return None
    output = trajectory.output
    answered = {normal_text("" if output is None else output)}
    if isinstance(output, list | tuple):
        # A list of texts is right as the list, and as the one text that a generator gave in pieces.
        answered.add(normal_text(trajectory.output_text))
    return float(any(normal_text(answer) in answered for answer in answers))


@reward(version="2", unjudged=NO_ANSWER)
def contains(trajectory: Trajectory) -> float | None:
    """1.0 if the task's answer (or one of them) occurs in the output, whatever the case.

    An agent can satisfy it by saying everything: `check_reward` refuses it for that.
    """
    # An empty answer occurs in every output.
    words = [text for answer in _answers(trajectory) if (text := normal_text(answer))]
    if not words:
        return None
    answered = normal_text(trajectory.output_text)
    return float(any(word in answered for word in words))


def matches(pattern: str) -> Reward:
    """1.0 if the regular expression is found in the output.

    Args:
        pattern: trusted; a pattern can be made to run forever, so take none from outside.

    Raises:
        InputError: it is not a regular expression.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(f"{pattern!r} is not a regular expression: {error}.") from error

    # The pattern is in the version: a hash of the source would be the same for all of them.
    @reward(name="matches", version=f"1:{pattern}")
    def judge(trajectory: Trajectory) -> float:
        return float(compiled.search(trajectory.output_text) is not None)

    return judge


def number(tolerance: float = 0.0, *, relative: float = 1e-9) -> Reward:
    """1.0 if the last number in the output is the task's answer.

    Args:
        tolerance: absolute difference that is still right, in the answer's unit.
        relative: the same as a share of the answer; the larger of the two counts.
    """
    if tolerance < 0 or relative < 0:
        raise InputError(f"A tolerance is not negative; given tolerance={tolerance}, relative={relative}.")

    @reward(name="number", version=f"1:{tolerance:g}:{relative:g}", unjudged=_NO_NUMBER)
    def judge(trajectory: Trajectory) -> float | None:
        numbers = [last_number(answer) for answer in _answers(trajectory)]
        right_numbers = [number for number in numbers if number is not None]
        if not right_numbers:
            return None
        answered = last_number(trajectory.output)
        if answered is None:
            return 0.0
        return float(
            any(abs(answered - right) <= max(tolerance, relative * abs(right)) for right in right_numbers)
        )

    return judge


def last_number(value: Json) -> float | None:
    """The number that a value is, or the last one in its text: "1,234.5 in 3 rows" → 3.0."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    text = value if isinstance(value, str) else canonical(value).decode()
    if not text.isascii():  # which has digits of other scripts
        return _last_in(text)
    end = len(text.rstrip(_NO_DIGITS))
    # No number goes over these characters, so what stands after the last of them says the same.
    cut = max(text.rfind(character, 0, end) for character in ' "=')
    number = _last_in(text[max(cut, 0) : end + 1])
    return _last_in(text) if number is None and cut > 0 else number


def _last_in(text: str) -> float | None:
    numbers = _NUMBER.findall(text)
    return float(numbers[-1].replace(",", "")) if numbers else None


def fields(wanted: Mapping[str, Any]) -> Reward:
    """The share of fields that the output, a JSON object or the text of one, has as wanted.

    Args:
        wanted: field name → a type that its value must have, or the value itself.  A bool is not
            an int here, and an int is a float.

    Raises:
        InputError: no field.
    """
    if not wanted:
        raise InputError("fields({}) would accept every answer. Name at least one field.")
    shown = {name: kind.__name__ if isinstance(kind, type) else kind for name, kind in wanted.items()}

    @reward(name="fields", version=f"2:{canonical(shown).decode()}")
    def judge(trajectory: Trajectory) -> float:
        output = trajectory.output
        if not isinstance(output, Mapping):
            try:
                output = msgspec.json.decode(trajectory.output_text)
            except msgspec.DecodeError:
                return 0.0
        if not isinstance(output, Mapping):
            return 0.0
        right = sum(name in output and _fits(output[name], kind) for name, kind in wanted.items())
        return right / len(wanted)

    return judge


def _fits(value: Json, kind: Any) -> bool:
    if not isinstance(kind, type):
        return type(value) is type(kind) and bool(value == kind)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


@reward(version="1", unjudged=_NO_OUTCOME)
def solved(trajectory: Trajectory) -> float | None:
    """1.0 for success, 0.0 for any other ending that counts, None where nothing has judged it."""
    return float(trajectory.outcome is Outcome.SUCCESS) if trajectory.outcome.counts else None


@reward(version="1", unjudged=_NO_REWARD)
def env_reward(trajectory: Trajectory) -> float | None:
    """The environment's own: the sum over the steps, None if no step has one."""
    return trajectory.reward


@reward(version="1", unjudged=_NO_THUMB)
def thumbs(trajectory: Trajectory) -> float | None:
    """1.0 if the last thumb that people gave is up, 0.0 if it is down, None if there is none.

    A thumb of 0 takes the ones before it back.
    """
    last = _last([note for note in trajectory.feedback if note.kind == "thumb" and note.value is not None])
    return float(last > 0) if last else None


@reward(version="2", unjudged=_NO_VALUE)
def rated(trajectory: Trajectory) -> float | None:
    """The last value that people gave to the run as a whole, as it is; None if there is none.

    Where nobody said anything it is what the user let show in the session (`implied`).
    """
    return _last(telling(note for note in trajectory.feedback if note.step is None))


@reward(version="1", unjudged=_NO_SIGNAL)
def implied(trajectory: Trajectory) -> float | None:
    """1.0 or -1.0 by what the user let show in the session and did not say (`whet.record.tracing.signals`).

    They asked again in other words, left an apology, praised, blamed, or went on to something else.  None where
    nothing showed, or the run is of no session.
    """
    return _last([note for note in trajectory.feedback if note.kind.startswith(IMPLICIT)])


def _last(notes: Sequence[Feedback]) -> float | None:
    # By its time and not its place: feedback may arrive late.
    last = max(notes, key=lambda note: note.at, default=None)
    return None if last is None else last.value


def fewer_steps(penalty: float = 0.01) -> Reward:
    """−penalty for each decision: a tool call, an answer, or another turn; of an Env its actions.

    It is the same for one agent however it was recorded (`record.tracing.tool_calls`); an action within which an agent
    called tools counts as these calls and its answer.
    """
    _check_penalty(penalty)

    @reward(name="fewer_steps", version=f"2:{penalty:g}", unjudged=NO_DECISIONS, higher_is_better=True)
    def judge(trajectory: Trajectory) -> float | None:
        spans = [step for step in trajectory.steps if "span_ids" in step.info]
        if spans and all(step.kind == "function" for step in spans):
            return None
        return -penalty * decisions(trajectory)

    return judge


def latency(penalty: float = 0.01) -> Reward:
    """−penalty for each second that the run took; None where that was not measured."""
    _check_penalty(penalty)

    @reward(name="latency", version=f"1:{penalty:g}", unjudged=_NO_SECONDS, higher_is_better=True)
    def judge(trajectory: Trajectory) -> float | None:
        return None if trajectory.seconds is None else -penalty * trajectory.seconds

    return judge


def cost(penalty: float = 1.0) -> Reward:
    """−penalty for each dollar that the model calls cost; None where that is not known.

    Dollars are those that were recorded with a call, else its tokens at the price that `models.prices` knows of its
    model. Tokens of a model without a price have no cost that is known, and 0 would call them free.
    """
    _check_penalty(penalty)

    @reward(name="cost", version=f"3:{penalty:g}", unjudged=_NO_DOLLARS, higher_is_better=True)
    def judge(trajectory: Trajectory) -> float | None:
        dollars, unpriced = dollars_of(trajectory, known_prices())
        if unpriced or all(step.usage is None for step in trajectory.steps):
            return None
        return -penalty * dollars

    return judge


def _check_penalty(penalty: float) -> None:
    # A negative penalty pays for waste, and NaN would only show at the first score.
    if not 0 <= penalty < float("inf"):
        raise InputError(f"A penalty is a finite number >= 0; given {penalty}.")


COST = cost()
"""The reward that is named `cost`: −1 for each dollar."""
FEWER_STEPS = fewer_steps()
"""The reward that is named `fewer_steps`: −0.01 for each decision."""
LATENCY = latency()
"""The reward that is named `latency`: −0.01 for each second."""

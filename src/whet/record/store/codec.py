"""The nouns as JSON bytes and back, exactly.

A body is the dataclass as msgspec encodes it, every field by its name.  What comes
back equals what went in, with the JSON limits: sequences of the nouns come back as tuples, a
tuple or set inside a Json value as a list, dictionary keys as strings.  A float that is not
finite is written as null: it comes back as None where None is allowed (a reward, a score) and
as NaN where a number is required (a log-probability, dollars).

This module does not read or write files; `schema.py` says where the bodies lie.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, TypeVar, get_args

import msgspec

from ...errors import InputError, StoreError
from ...escapes import clean, write_json
from ...types import (
    Failure,
    Fault,
    Feedback,
    Json,
    Mode,
    Outcome,
    Preference,
    Rollout,
    Status,
    Task,
    Trajectory,
    Verdict,
    Version,
)

MODES: tuple[Mode, ...] = get_args(Mode)

Noun = TypeVar("Noun", Task, Trajectory, Version, Feedback, Preference, Verdict)


def plain(value: Any) -> Json:
    """The JSON form of values that msgspec cannot encode: read-only mappings and views, and array scalars.

    Raises:
        TypeError: the value has no JSON form.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | Set):
        return list(value)
    # Scalars of numpy and torch alike, without an import of either; an
    # array of one element has another shape.
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        return item()
    raise TypeError(f"{type(value).__name__} has no JSON form")


_encoder = msgspec.json.Encoder(enc_hook=plain)
_decoders: dict[type, msgspec.json.Decoder[Any]] = {
    noun: msgspec.json.Decoder(noun) for noun in (Task, Trajectory, Version, Feedback, Preference, Verdict)
}


def encode(noun: Task | Trajectory | Version | Feedback | Preference | Verdict) -> bytes:
    """The body of a noun.

    Raises:
        InputError: a value in it has no JSON form, or a step's usage lacks a count.
    """
    if isinstance(noun, Trajectory) and (step := _uncounted(noun)) is not None:
        raise InputError(
            f"Trajectory {noun.id} cannot be stored: the usage of its step {step} is {noun.steps[step].usage}. Give "
            "whole numbers, or no Usage where they are not known."
        )
    try:
        return _encoder.encode(noun)
    except (TypeError, ValueError, OverflowError, RecursionError) as exception:
        name = f"{type(noun).__name__} {getattr(noun, 'id', '')}".strip()
        raise InputError(
            f"{name} cannot be stored: {exception}. Give only what JSON can carry (None, bool, int, "
            "float, str, list, dict with string keys)."
        ) from exception


def _uncounted(trajectory: Trajectory) -> int | None:
    """The first step whose usage lacks a count, which would be written as null and could not be read again."""
    for place, step in enumerate(trajectory.steps):
        usage = step.usage
        # Not by type: a scalar of numpy counts as well as an int.
        if usage is not None and (
            usage.prompt_tokens is None or usage.output_tokens is None or usage.calls is None
        ):
            return place
    return None


def recordable(trajectory: Trajectory) -> Trajectory:
    """A trajectory that the record can hold, whatever the agent answered.

    It is the given one as a rule; halves of characters become U+FFFD; usage that lacks a count is unknown; where
    something else has no JSON form, it is the agent's failure, without its steps and output.
    """
    while (place := _uncounted(trajectory)) is not None:
        steps = list(trajectory.steps)
        steps[place] = replace(steps[place], usage=None)
        trajectory = replace(trajectory, steps=tuple(steps))
    try:
        encode(trajectory)
        return trajectory
    except InputError as exception:
        # The message may quote the text that could not be encoded.
        error = Failure(Fault.AGENT, "InputError", clean(str(exception)))
    try:
        return decode(write_json(_encoder, trajectory), Trajectory)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return replace(trajectory, steps=(), output=None, outcome=Outcome.FAILURE, error=error)


def encode_json(value: Json) -> bytes:
    """A bare JSON value, as `put_state` stores it.

    Raises:
        InputError: it has no JSON form.
    """
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as exception:
        raise InputError(f"{type(value).__name__} cannot be stored as JSON: {exception}") from exception


def encode_rollout(rollout: Rollout) -> tuple[str, str, str, str | None, int, float, bytes]:
    """A rollout's row, without the columns that the queue decides.

    Raises:
        InputError: no such mode, no attempt allowed, or meta without a JSON form.
    """
    if rollout.mode not in MODES:
        raise InputError(f"rollout {rollout.id}: mode is {rollout.mode!r}; give one of {', '.join(MODES)}.")
    if rollout.max_attempts < 1:
        raise InputError(f"rollout {rollout.id}: max_attempts is {rollout.max_attempts}; give at least 1.")
    return (
        rollout.id,
        rollout.task.id,
        rollout.mode,
        rollout.resources,
        rollout.max_attempts,
        rollout.created,
        encode_json(rollout.meta),
    )


def decode_rollout(
    id: str,
    task_id: str,
    task: bytes | None,
    mode: Mode,
    resources: str | None,
    max_attempts: int,
    created: float,
    meta: bytes,
    status: Status,
    attempts: int,
    trajectory: str | None,
    error: str | bytes | None,
) -> Rollout:
    """The rollout of a row of `ROLLOUT`; where its task was erased, a Task that has its id alone."""
    return Rollout(
        id=id,
        task=Task(id=task_id) if task is None else decode(task, Task),
        mode=mode,
        resources=resources,
        max_attempts=max_attempts,
        created=created,
        meta=msgspec.json.decode(meta),
        status=status,
        attempts=attempts,
        result=trajectory,
        error=None if error is None else msgspec.json.decode(error, type=Failure),
    )


def decode(body: bytes, noun: type[Noun]) -> Noun:
    """The noun that `body` is of.

    Raises:
        StoreError: the body is not such a noun: the record is damaged or was not written by whet.
    """
    try:
        decoded: Noun = _decoders[noun].decode(body)
    except msgspec.ValidationError:
        # Caught before DecodeError, whose subclass it is: only a body that is JSON is read leniently.
        decoded = _lenient(body, noun)
    except (msgspec.DecodeError, ValueError) as exception:
        raise StoreError(f"a stored {noun.__name__} cannot be read: {exception}") from exception
    if isinstance(decoded, Trajectory):
        _settle(decoded)
    elif isinstance(decoded, Verdict):
        object.__setattr__(decoded, "reasons", tuple(decoded.reasons))
    return decoded


def _settle(trajectory: Trajectory) -> None:
    """Make tuples of the lists that JSON gave; done in place, before anyone has seen the object."""
    # The nouns are frozen; `dataclasses.replace` would copy every step for it.
    put = object.__setattr__
    put(trajectory, "steps", tuple(trajectory.steps))
    put(trajectory, "feedback", tuple(trajectory.feedback))
    put(trajectory, "trace_ids", tuple(trajectory.trace_ids))
    for step in trajectory.steps:
        tokens = step.tokens
        if tokens is not None:
            put(tokens, "prompt_ids", tuple(tokens.prompt_ids))
            put(tokens, "output_ids", tuple(tokens.output_ids))
            put(tokens, "logprobs", tuple(tokens.logprobs))
            if tokens.mask is not None:
                put(tokens, "mask", tuple(tokens.mask))


def _lenient(body: bytes, noun: type[Noun]) -> Noun:
    """Read a body with null where a number is required: a float that was not finite, or usage that lacks a count."""
    try:
        raw = msgspec.json.decode(body)
        if noun is Trajectory:
            for step in raw.get("steps", ()):
                tokens, usage = step.get("tokens"), step.get("usage")
                if tokens:
                    tokens["logprobs"] = [math.nan if p is None else p for p in tokens["logprobs"]]
                if usage and usage.get("dollars") is None:
                    usage["dollars"] = math.nan
                # As an earlier version recorded it.
                if usage and any(
                    usage.get(name, 0) is None for name in ("prompt_tokens", "output_tokens", "calls")
                ):
                    step["usage"] = None
        if noun is Verdict and raw.get("e_value") is None:
            raw["e_value"] = math.inf  # evidence beyond what a float holds
        return msgspec.convert(raw, noun)
    except (msgspec.MsgspecError, AttributeError, KeyError, TypeError, ValueError) as exception:
        raise StoreError(
            f"a stored {noun.__name__} cannot be read: {exception}. It was not written by this whet; "
            "restore the file from a backup or remove that row."
        ) from exception

"""What a judge is shown of a run: data between marks that the data cannot contain, without what is said to the judge.

An answer that says "give this the best mark" is an attack on whoever judges it.  Three things stand against it: the run
is one line of JSON between marks that hold its own hash, so that no text can close them; sentences that speak to a
judge are taken out, and the Score says so; and the reliability card of a judge counts the verdicts that an injection
moved.
The patterns find the common forms, not every form: hence the card.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from ..errors import InputError
from ..types import Json, Trajectory, canonical, digest

STEPS, IMAGES = "steps", "images"
PARTS = (STEPS, IMAGES)
"""What a judge sees beside question and answer, where it is asked for."""
REMOVED = "[removed: addressed to the judge]"
_MOST_STEPS = 60
_LONGEST = 4000
_MOST_IMAGES = 8

_TO_THE_JUDGE = re.compile(
    r"""
    \b(?:ignore|disregard|forget|override|bypass)\b[^.!?\n]{0,40}\b(?:instructions?|rubric|prompt|rules?|criteria|guidelines)\b
    | \b(?:score|rate|grade|mark|rank|judge)\b[^.!?\n]{0,40}\b(?:this|it|my|answer|response|above|the\ following)\b
      [^.!?\n]{0,40}\b(?:10|100|1\.0|five|ten|full|maximum|max|highest|best|top|perfect|first)\b
    | \b(?:award|assign|give|grant)\b[^.!?\n]{0,40}\b(?:full|maximum|max|highest|top|perfect|best)\b[^.!?\n]{0,20}
      \b(?:mark|marks|score|scores|points|credit|rating|grade)\b
    | \b(?:you\ are|dear|note\ to|attention|hey)\b[^.!?\n]{0,20}\b(?:judge|grader|evaluator)\b
    | ^\W*(?:SCORE|BETTER|VERDICT|RATING|GRADE)\W*[:=]\W*\S+
    | \[/?(?:INST|SYSTEM)\]
    """,
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)
"""Sentences and marks that speak to whoever judges, or pretend to be its own words."""
_IMAGE_BYTES = re.compile(r"data:image/[\w.+-]+;base64,[A-Za-z0-9+/=_-]*")
_SENTENCE = re.compile(r"[^.!?\n]*[.!?]*\n?")


def without_injections(value: Json) -> tuple[Json, int]:
    """A value whose texts lack the sentences that speak to a judge, and how many were taken out."""
    if isinstance(value, str):
        if not _TO_THE_JUDGE.search(value):
            return value, 0
        pieces, count = [], 0
        for sentence in _SENTENCE.findall(value):
            hit = bool(_TO_THE_JUDGE.search(sentence))
            count += hit
            pieces.append(f"{REMOVED}\n" if hit else sentence)
        return "".join(pieces).strip(), count
    if isinstance(value, Mapping):
        cleaned = {str(key): without_injections(inner) for key, inner in value.items()}
        return {key: inner for key, (inner, _) in cleaned.items()}, sum(
            count for _, count in cleaned.values()
        )
    if isinstance(value, list | tuple):
        items = [without_injections(inner) for inner in value]
        return [inner for inner, _ in items], sum(count for _, count in items)
    return value, 0


def fenced(value: Json, *, between: str = "\n") -> str:
    """A value as one line of JSON between marks that nothing in it can close: they hold its own hash.

    Args:
        between: what stands between the marks and the line.
    """
    text = canonical(value).decode()
    mark = f"data-{digest(['fence', text], 12)}"
    return f"<{mark}>{between}{text}{between}</{mark}>"


def shown_parts(parts: Collection[str]) -> tuple[str, ...]:
    """The parts in their order.

    Raises:
        InputError: one of them is unknown.
    """
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise InputError(f"a judge can be shown {', '.join(PARTS)}; given {sorted(unknown)}")
    return tuple(part for part in PARTS if part in parts)


def shown_run(
    trajectory: Trajectory, *, answer_too: bool = True, parts: Collection[str] = ()
) -> tuple[dict[str, Json], int]:
    """Question and answer of a run, its steps where wanted, and how many sentences were taken out of what it said.

    Args:
        answer_too: show the task's right answer, where there is one.
    """
    output, removed = without_injections(_without_images(trajectory.output))
    # A row whose input is messages has these as its instruction, in JSON.
    question = _IMAGE_BYTES.sub("[image]", trajectory.task.instruction)
    content: dict[str, Json] = {"question": question, "answer": output}
    if answer_too and trajectory.task.answer_known:
        content["right_answer"] = trajectory.task.answer
    if STEPS in parts:
        steps, from_steps = without_injections(_steps(trajectory))
        content["steps"] = steps
        removed += from_steps
    return content, removed


def _steps(trajectory: Trajectory) -> list[Json]:
    """The steps, the middle ones left out where there are too many: calls with their arguments, and what came back."""
    steps = list(trajectory.steps)
    rows: list[Json] = []
    for number, step in enumerate(steps):
        if len(steps) > _MOST_STEPS and _MOST_STEPS // 2 <= number < len(steps) - _MOST_STEPS // 2:
            if number == _MOST_STEPS // 2:
                rows.append(f"[{len(steps) - _MOST_STEPS} steps left out]")
            continue
        row: dict[str, Json] = {"kind": step.kind}
        for name, value in (("name", step.name), ("agent", step.agent)):
            if value:
                row[name] = value
        for name, seen in (("observation", step.observation), ("action", step.action)):
            if seen is not None:
                row[name] = _short(_without_images(seen))
        if step.error is not None:
            row["error"] = f"{step.error.type}: {step.error.message}"
        rows.append(row)
    return rows


def _short(value: Json) -> Json:
    text = value if isinstance(value, str) else canonical(value).decode()
    return value if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} [...] {text[-_LONGEST // 2 :]}"


def image_parts(trajectories: Sequence[Trajectory]) -> list[dict[str, Json]]:
    """The images of runs as parts of a message, the last ones of many.

    Only images whose bytes are in the record: an address in a run would have the endpoint fetch it.
    """
    urls = [
        url
        for run in trajectories
        for value in (
            run.task.initial_state,
            *[part for step in run.steps for part in (step.observation, step.action)],
        )
        for url in _image_urls(value)
    ]
    return [{"type": "image_url", "image_url": {"url": url}} for url in urls[-_MOST_IMAGES:]]


def _image_urls(value: Json) -> Iterator[str]:
    if isinstance(value, Mapping):
        url = _image_url(value)
        if url is not None:
            yield from [url] if url.startswith("data:image/") else []
            return
        for inner in value.values():
            yield from _image_urls(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _image_urls(inner)


def _image_url(part: Mapping[str, Json]) -> str | None:
    """The address of an image part of one of the three model APIs; None if it is no image."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}} | {
            "type": "input_image",
            "image_url": str(url),
        }:
            return url
        case {"type": "image", "source": {"data": str(data), "media_type": str(media)}}:
            return f"data:{media};base64,{data}"
        case {"type": "image", "source": {"url": str(url)}}:
            return url
    return None


def _without_images(value: Json) -> Json:
    """The value with a word in the place of each image: the bytes are no text to read."""
    if isinstance(value, Mapping):
        if _image_url(value) is not None:
            return "[image]"
        return {str(key): _without_images(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_images(inner) for inner in value]
    return value

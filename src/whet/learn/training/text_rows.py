"""Rows of text as what is trained on, in the formats of TRL's datasets.

`{"prompt", "completion"}` and `{"messages"}` are demonstrations, with a boolean `label` judged answers (KTO), and
`{"prompt", "chosen", "rejected"}` is a preference (DPO).  A prompt is text or messages.  The model's own tokenizer and
chat template write the ids, once: these rows are nobody's recorded samples, whose text is never tokenised again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import InputError
from ...record.exchange.text_rows import is_text_row
from ...types import Json, Outcome, Preference, Step, Task, Tokens, Trajectory, digest
from ..datasets.dynamics import example_of_pair
from .serving.text import TemplateText, TextCodec


@dataclass(slots=True)
class TextRows:
    """The rows as ids."""

    trajectories: list[Trajectory] = field(default_factory=list)
    preferences: list[Preference] = field(default_factory=list)


def tokenised(rows: Sequence[Mapping[str, Json]], text: TextCodec, *, system: str = "") -> TextRows:
    """The rows as token ids of a model.

    Args:
        text: the model's.
        system: system message of prompts that are text.

    Raises:
        InputError: a row has another format, or cannot be rendered; says which.
    """
    done = TextRows()
    for number, row in enumerate(rows, 1):
        try:
            _add(done, row, text, system)
        except (InputError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"row {number} of {len(rows)}: {error}") from error
    return done


def _add(done: TextRows, row: Mapping[str, Json], text: TextCodec, system: str) -> None:
    if not is_text_row(row):
        raise InputError(
            "it has none of the formats prompt and completion (with a boolean label for KTO), messages, or prompt, "
            f"chosen and rejected; its keys are {', '.join(sorted(map(str, row)))}"
        )
    if "chosen" in row:
        prompt = _messages(row["prompt"], system)
        chosen, rejected = (_answer(text, _content(row[side])) for side in ("chosen", "rejected"))
        example = example_of_pair(row["prompt"], row["chosen"], row["rejected"])
        done.preferences.append(
            Preference(prompt=_prompt(text, prompt), chosen=chosen, rejected=rejected, example=example)
        )
        return
    turns = _messages(row["messages"] if "messages" in row else row["prompt"], system)
    if "completion" in row:
        turns.append({"role": "assistant", "content": _content(row["completion"])})
    label = row.get("label", True)
    if not isinstance(label, bool):
        raise InputError(f"label must be true or false, not {label!r}")
    steps = [
        Step(
            observation=turns[place - 1]["content"] if place else "",
            action=turn["content"],
            tokens=Tokens(tuple(_prompt(text, turns[:place])), tuple(_answer(text, turn["content"])), ()),
            id=str(place),
        )
        for place, turn in enumerate(turns)
        if turn["role"] == "assistant"
    ]
    if not steps:
        raise InputError("it has no answer: no message of the role assistant")
    asked = [turn for turn in turns if turn["role"] == "user"][:1]
    task = Task(
        instruction=str(asked[0]["content"]) if asked else "", meta={"prompt": digest(turns[:-1], 16)}
    )
    outcome = Outcome.SUCCESS if label else Outcome.FAILURE
    done.trajectories.append(Trajectory(task=task, steps=steps, output=turns[-1]["content"], outcome=outcome))


def _messages(prompt: Json, system: str) -> list[dict[str, Json]]:
    if isinstance(prompt, list):
        return [dict(message) for message in prompt]
    if not isinstance(prompt, str):
        raise InputError(f"a prompt is text or messages, not {type(prompt).__name__}")
    before: list[dict[str, Json]] = [{"role": "system", "content": system}] if system else []
    return [*before, {"role": "user", "content": prompt}]


def _content(answer: Json) -> str:
    """The text of an answer, which may stand as the only message of a list."""
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]["content"]
    if not isinstance(answer, str):
        raise InputError(f"an answer is text or one message, not {answer!r:.60}")
    return answer


def _prompt(text: TextCodec, messages: Sequence[Mapping[str, Json]]) -> list[int]:
    return text.encode(text.render(messages, ()))


def _answer(text: TextCodec, answer: str) -> list[int]:
    """Ids of an answer, its end included."""
    end = stop_of(text)
    return [*text.encode(answer), *([] if end is None else [end])]


def stop_of(text: TextCodec) -> int | None:
    """The id that ends an answer; the tokenizer's own where the model has several."""
    if isinstance(text, TemplateText) and text.tokenizer.eos_token_id is not None:
        return int(text.tokenizer.eos_token_id)
    return min(text.eos, default=None)

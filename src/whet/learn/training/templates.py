"""A check that answers survive being sent as text: tokenizers and chat templates.

A policy that is trained on token ids and called with messages reads its own earlier answers through its
tokenizer and its chat template.  Where those change an answer (lower case, a dropped thought, trimmed
space), training is on one conversation and use on another.  `round_trip` looks at one answer,
`require` at recorded ones before a model is trained on them, `caution` at a few before one is served.

It mends nothing, and says nothing of an agent that sends token ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InputError, MissingExtra, TrainingRefused
from ...types import Json, Trajectory
from .importing import importing

LOOKED_AT = 64
"""Recorded answers that are tried, evenly over all of them."""
LOST = 0.1
"""Share of them that may come back changed: a sampled answer can end within a character."""
FILES = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """An answer's way through a chat template and back."""

    survives: bool
    first: int | None = None
    """Index of the first id that differs, None if none does."""
    reason: str = ""


def round_trip(
    tokenizer: Any, messages: Sequence[Mapping[str, Json]], output_ids: Sequence[int]
) -> RoundTrip:
    """Check that an answer generated as `output_ids` is still those ids when the template renders it.

    Agents send messages, not tokens: if the next turn's prompt holds other ids for the answer than were
    sampled, its calls fork instead of merging, and training on text would train on what was never said.

    Args:
        tokenizer: of transformers, with a chat template.
        messages: what the answer followed.
        output_ids: of the answer, end-of-turn token included or not.

    Raises:
        InputError: the tokenizer has no chat template, or the template cannot render these messages.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise InputError(
            "this tokenizer has no chat template, so messages cannot become tokens; set tokenizer.chat_template"
        )
    ends = {tokenizer.eos_token_id}
    answer = [number for number in output_ids if number not in ends]
    text = tokenizer.decode(answer, skip_special_tokens=False)

    def rendered(conversation: Sequence[Mapping[str, Json]], *, open_: bool) -> list[int]:
        prompt_text = tokenizer.apply_chat_template(
            list(conversation), tokenize=False, add_generation_prompt=open_
        )
        ids: list[int] = tokenizer(prompt_text, add_special_tokens=False)["input_ids"]
        return ids

    try:
        prompt = rendered(messages, open_=True)
        rendered_ids = rendered([*messages, {"role": "assistant", "content": text}], open_=False)
    except Exception as error:  # templates raise whatever jinja raises
        raise InputError(f"the chat template cannot render these messages: {error}") from error
    expected = [*prompt, *answer]
    for index, id in enumerate(expected):
        if index >= len(rendered_ids) or rendered_ids[index] != id:
            where = "prompt" if index < len(prompt) else "answer"
            instead = (
                tokenizer.decode(rendered_ids[index : index + 3]) if index < len(rendered_ids) else "nothing"
            )
            return RoundTrip(
                False,
                index,
                f"the {where} differs from id {index} on: {tokenizer.decode([id])!r} was sampled or "
                f"prompted, the template gives {instead!r}. Send token ids, or mend the template.",
            )
    return RoundTrip(True)


def tokenizer_of(source: str | Path) -> Any | None:
    """The tokenizer beside a model's weights, None where it has none.

    Raises:
        InputError: there is one and it cannot be read.
        MissingExtra: transformers is not installed.
    """
    folder = Path(source)
    if folder.is_dir() and not any((folder / name).is_file() for name in FILES):
        return None
    try:
        with importing():
            from transformers import AutoTokenizer  # seconds to import
    except ImportError as error:
        raise MissingExtra("transformers", "train") from error
    try:
        return AutoTokenizer.from_pretrained(str(source), trust_remote_code=False)
    except (OSError, ValueError) as error:
        if not folder.is_dir():
            return None  # a name whose weights are in the cache alone
        raise InputError(f"the tokenizer in {folder} cannot be read: {error}") from error


def encoder(model: str) -> Callable[[Any], Sequence[int]] | None:
    """Token ids of a preference's text, by the model's tokenizer; None if it has no tokenizer."""
    tokenizer = None if model == "tiny" else tokenizer_of(model)
    if tokenizer is None:
        return None
    return lambda text: list(tokenizer(str(text), add_special_tokens=False)["input_ids"])


def require(source: str | Path, trajectories: Iterable[Trajectory]) -> None:
    """Refuse to train a model on answers that its own tokenizer or chat template would change.

    An answer is tried as the tokenizer itself would cut it up: that a sampled one was cut up otherwise
    costs a fork and no text.

    Args:
        source: folder or name of the model.

    Raises:
        TrainingRefused: more than a tenth of the recorded answers do not come back as they were.
        InputError: the tokenizer cannot be read, or its template cannot render a question and an answer.
    """
    tokenizer = tokenizer_of(source)
    answers = [
        step.tokens.output_ids
        for trajectory in trajectories
        for step in trajectory.steps
        if step.tokens is not None
    ]
    if tokenizer is None or not answers:
        return
    # Rounded up, so that no more than LOOKED_AT are tried.
    answers = answers[:: -(-len(answers) // LOOKED_AT)]
    losses = [why for ids in answers if (why := _lost(tokenizer, ids))]
    if len(losses) > LOST * len(answers):
        raise TrainingRefused(
            f"the tokenizer of {source} does not give back what was sampled: {len(losses)} of {len(answers)} "
            f"recorded answers change on their way through text, the first so: {losses[0]} An agent that "
            "sends messages would go on from other words than the policy is trained on. Mend tokenizer or "
            "chat template; give --ids-only where the agent sends token ids"
        )


SPOKEN = ("Yes.", " Two words", "<think>Let me see.</think>\n\nIt is 42.", "A list:\n- one\n- two\n")
"""Answers that are tried where none are recorded: plain, with a blank before it, with a thought, with line ends."""


def caution(tokenizer: Any) -> str:
    """What will be lost on the way of messages through this tokenizer and template, in a sentence; empty if nothing."""
    if not getattr(tokenizer, "chat_template", None):
        return (
            "this model's tokenizer has no chat template, so chat requests will be refused and /v1/completions alone "
            "answers; give the folder a chat_template.jinja"
        )
    try:
        losses = [why for text in SPOKEN if (why := _lost(tokenizer, _ids(tokenizer, text)))]
    except InputError as error:
        return f"{error}; chat requests will be refused until the template is mended"
    if not losses:
        return ""
    why = losses[0].removesuffix(" Send token ids, or mend the template.")
    return (
        f"this model's chat template does not give back every answer as it was sampled ({why}), so such a conversation "
        "is recorded as one sequence for each call and goes on from other words than were sampled; mend the template, "
        "or have the agent send token ids to /v1/completions"
    )


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _lost(tokenizer: Any, ids: Sequence[int]) -> str:
    """The loss in words of an answer's way through text; empty if there is none."""
    special = set(tokenizer.all_special_ids)
    text = tokenizer.decode(
        [id for id in ids if id not in special and 0 <= id < len(tokenizer)],
        skip_special_tokens=False,
        clean_up_tokenization_spaces=False,
    )
    again = tokenizer(text, add_special_tokens=False)["input_ids"]
    back = tokenizer.decode(again, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    if back != text:
        return f"{text[:60]!r} is read as {back[:60]!r}."
    if not getattr(tokenizer, "chat_template", None):
        return ""
    return round_trip(tokenizer, [{"role": "user", "content": "hello"}], again).reason

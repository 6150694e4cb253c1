"""The facts that an episode is judged by, and the two rewards computed from them.

`published_reward` is the table of the ART-E case study (OpenPipe, "ART·E"), its
terms added in the order in which the table lists them.  It pays for saying
"unknown" on any question, which feeds a collapse to always saying so;
`training_reward` is what this package trains with by default.
The gate uses neither: it uses `success` and `hallucination`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...types import Task
from .entities import Kind, same

_UNKNOWN = re.compile(
    r"\b(?:(?:i|we)\s+(?:do\s*n[o']?t|don[’']t|cannot|can\s*not|can[’']t|could\s*n[o']?t|couldn[’']t|was\s+not\s+able"
    r"|wasn[’']t\s+able|am\s+unable|was\s+unable|have\s+no\s+(?:idea|answer)|did\s*n[o']?t\s+find|didn[’']t\s+find"
    r"|found\s+no(?:thing)?)\b"
    r"|(?:no|not)\s+(?:such\s+)?(?:answer|idea|information|evidence|(?:matching\s+)?(?:e-?)?mails?)\b"
    r"|unknown|unanswerable|not\s+(?:found|sure|certain|known|available|mentioned|stated|given)"
    r"|nothing\s+(?:was\s+)?found|unable\s+to|n/a)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """The facts of one episode that its rewards are computed from."""

    answer_correct: bool = False
    sources_correct: bool = False
    """The evidence is among the sources given."""
    attempted_answer: bool = False
    """An answer other than unknown was given."""
    returned_unknown: bool = False
    ran_out_of_turns: bool = False
    unparseable_call: bool = False
    bad_tool_name: bool = False
    bad_tool_arguments: bool = False
    found_right_mail: bool = False
    """A search returned the evidence."""
    read_right_mail: bool = False
    read_invalid_mail: bool = False
    """An id was read that does not exist, or is withheld."""
    sources: int = 0
    turns: int = 0
    answerable: bool = True

    @property
    def success(self) -> bool:
        """Right value, or unknown where there is none to find."""
        return self.answer_correct or (self.returned_unknown and not self.answerable)

    @property
    def hallucination(self) -> bool:
        """A value was given and is not right, on an answerable question or not."""
        return self.attempted_answer and not self.answer_correct


def published_reward(rubric: Rubric, max_turns: int) -> float:
    """The published ART-E table.

    Bands, which never overlap: malformed call -2 to -1.4; wrong answer -1 to -0.6; unknown or out of
    turns 0 to 0.4; right answer 1 to under 1.5.  The table does not say what an episode that ended in none
    of these ways (it stopped without a word) is worth; here it counts as out of turns.

    Args:
        max_turns: the episode's limit; above 0.
    """
    partial = 0.0
    partial += 0.1 if rubric.found_right_mail else 0
    partial += 0.1 if rubric.read_right_mail else 0
    partial += 0.1 if not rubric.read_invalid_mail else 0
    partial += 0.1 if rubric.sources_correct else 0
    if rubric.unparseable_call:
        return -2 + partial
    if rubric.bad_tool_name:
        return -1.9 + partial
    if rubric.bad_tool_arguments:
        return -1.8 + partial
    if rubric.attempted_answer and not rubric.answer_correct:
        return -1 + partial
    if not rubric.answer_correct or rubric.returned_unknown or rubric.ran_out_of_turns:
        return 0 + partial
    reward = 1.0
    reward += 0.3 if rubric.sources_correct else 0
    reward += 0.1 / rubric.sources if rubric.sources > 0 else 0
    reward += 0.1 * (1 - rubric.turns / max_turns)
    return reward


def training_reward(rubric: Rubric) -> float:
    """The default reward of training: correct 1, right unknown .5, unknown on an answerable -.2, wrong -1,
    out of turns or malformed -.6, and -.02 a turn."""
    cost = 0.02 * rubric.turns
    if rubric.answer_correct:
        return 1.0 - cost
    if rubric.attempted_answer:
        return -1.0 - cost
    if rubric.returned_unknown:
        return (-0.2 if rubric.answerable else 0.5) - cost
    return -0.6 - cost


def says_unknown(answer: str | None) -> bool:
    """True if an answer in plain text says that there is none: "I don't know", "no such mail was found"."""
    return answer is None or not answer.strip() or _UNKNOWN.search(answer.replace("’", "'")) is not None


def checked(task: Task, answer: str | None, sources: Sequence[str] = (), turns: int = 0) -> Rubric:
    """Judge a final answer in plain text.

    An answer that names the expected value is judged as that answer even if it hedges
    ("I'm not sure, but it is 713-853-1234"); one that names no value of the kind and says
    that it does not know is unknown.

    Args:
        task: as `derive` makes it: `answer` None where there is nothing to find.
        answer: the agent's; None or empty is unknown.
        sources: ids of the mails that it gave as evidence.
        turns: tool calls, the answer included.
    """
    answerable = task.answer is not None
    kind: Kind = task.meta["kind"]
    correct = answerable and answer is not None and same(kind, answer, str(task.answer))
    unknown = not correct and says_unknown(answer)
    evidence = task.meta.get("evidence")
    return Rubric(
        answer_correct=correct,
        sources_correct=evidence is not None and evidence in sources,
        attempted_answer=not unknown,
        returned_unknown=unknown,
        sources=len(set(sources)),
        turns=turns,
        answerable=answerable,
    )

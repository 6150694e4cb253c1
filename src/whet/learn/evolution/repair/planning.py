"""What may repair one weak part of an agent, and who can judge it; nothing is spent on it.

`plan_repair` takes the recorded runs of one part of the traffic, chooses the pieces of the source that may be at fault,
and says who can judge a change there: a reward fitted to people's thumbs, where they follow what an answer shows; else
people alone, on real traffic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from pathlib import Path

from ....judge.fitted import Noise, ThumbAgreement, agreement
from ....record.influence import Influence
from ....record.rows import as_text
from ....repository.scan import scan
from ....types import Sampling, Split, Task, digest
from ...datasets.recorded import asked_by
from ...datasets.signatures import Signature
from ...datasets.thumbs import RatedRun, ThumbEvidence, ThumbRows, rated_runs, thumb_rows
from ..agents.agent import RepositoryAgent
from ..agents.agent_prompt import entry_of, placed
from .code_search import SEARCHED
from .steering import AnswersElsewhere
from .suspects import Suspect, WeakPart, suspects_of, telling_words

LEAST_VARIANTS = 3
"""Variants of one issue that are tried at the least, where its pieces have so many."""
_KEPT = 40
"""Liked answers from elsewhere that a variant is held to."""
_RATED = 90
"""Rated runs of the part that a reward is fitted to: its time grows with their third power."""
_CONTROLS = 1 / 3
"""Rows from elsewhere for each row of the issue: a repair that breaks the rest is none."""
_FEWEST_PAIRS = 6
_FEWEST_THUMBS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairSettings:
    """How it is repaired."""

    agent: Path
    """The agent's file."""
    entry: str | None = None
    """`module:function`; found in the file if None."""
    calls: int = 480
    """Most calls of the agent: of search and proof together."""
    proposals: int = 48
    """Most calls of the model that proposes."""
    seed: int = 0
    regime: Sampling = "new-group"
    output: Path = Path("whet_output")


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What will be done, before anything is spent."""

    part: WeakPart
    settings: RepairSettings
    agent: RepositoryAgent
    suspects: Sequence[Suspect]
    rows: ThumbRows
    agreed: ThumbAgreement | None
    sentences: Sequence[str]
    words: Collection[str] = ()
    """That tell this part of the traffic from the rest."""
    liked: Sequence[Task] = ()
    """Questions from elsewhere, each with the answer that somebody liked."""
    own: Collection[str] = ()
    """Inputs of the part."""
    wrong: float = 0.1
    """Share of wrong thumbs, by those that several people gave to one answer."""
    elsewhere: AnswersElsewhere = field(default_factory=lambda: AnswersElsewhere(()))
    """How people take answers outside of the part."""
    refused: str = ""
    """Why nothing can be done now; "" where something can."""
    fitted: bool = False
    """The reward that is fitted to the thumbs may judge; else people alone do, on real traffic."""
    waits: bool = False
    """More traffic may mend what it is refused for."""

    @property
    def source(self) -> str:
        """Digest of the agent's files: after a change of them the plan is out of date."""
        return self.agent.source

    @property
    def rollouts(self) -> int:
        """Calls of the agent to search with."""
        return self.settings.calls - 2 * self.rows.gate_inputs * self.fitted


class RatedTraffic:
    """What of a record may be learned from, and what people said of each entry's runs in it.

    Every plan of a night asks that of the whole record, and only traffic that comes meanwhile makes it another one.
    """

    def __init__(self, influence: Influence) -> None:
        self.influence = influence
        self._asked: dict[tuple[Signature, str], tuple[ThumbEvidence, float]] = {}

    def of(self, signature: Signature, qualname: str) -> tuple[ThumbEvidence, float]:
        """What people said of a function's runs, and the share of wrong thumbs (`RepairPlan.wrong`)."""
        key = signature, qualname
        if key not in self._asked:
            asked = _asked_by(rated_runs(signature, qualname, self.influence), signature)
            self._asked[key] = asked, Noise.estimated(asked.thumbs).rate
        return self._asked[key]


def plan_repair(
    part: WeakPart,
    settings: RepairSettings,
    traffic: RatedTraffic,
    *,
    unseen: Collection[str],
    fitted: bool | None = None,
) -> RepairPlan:
    """Choose what may change and who judges it; spends nothing.

    Args:
        traffic: what of the record may be learned from, of the part's runs and of others.
        unseen: people whom no search of this night sees: the gate's.
        fitted: whether a fitted reward may judge, where that was measured before; it is measured if None.

    Raises:
        InputError: the agent cannot be read, or has no entry.
    """
    runs = traffic.influence.runs
    root, module = placed(settings.agent)
    found = scan(root)
    entry = settings.entry or entry_of(found, settings.agent, root, module, runs)
    words = telling_words(part, runs)
    suspects = suspects_of(root, entry, part, runs, words)
    agent = RepositoryAgent(root, [suspect.name for suspect in suspects] or [entry], entry, network=True)
    assert agent.entry is not None
    callee = agent.callees[agent.entry]
    asked, wrong = traffic.of(callee.signature, callee.entry.partition(":")[2])
    evidence = _sliced(asked, part, settings.seed)
    rows = thumb_rows(evidence, agent.entry, most=int(settings.calls / 4), seed=settings.seed, unseen=unseen)
    rows = replace(rows, tasks=_searchable(rows, part))
    # Of the part alone: a reward that knows which questions go wrong, by the others beside them, knows no answer.
    thumbs = [thumb for run in evidence.runs if run.run in part.runs for thumb in run.thumbs()]
    measured = fitted is None and any(thumb.error is None for thumb in thumbs)
    agreed = agreement(thumbs) if measured else None
    sentences = [
        f"in this part of the traffic {evidence.sentence}",
        "may change: " + (", ".join(f"{each.name} ({each.kind})" for each in suspects) or "nothing"),
    ]
    if agreed is not None:
        sentences.append(agreed.sentence)
    refused, waits = _refusal(suspects, rows, settings)
    if fitted is None:
        # To the reward of a repair shortness alone may be worth something.
        able = agreed is not None and agreed.admitted and not agreed.short
        fitted = able and rows.gate_inputs >= _FEWEST_PAIRS
    if not refused and not fitted:
        sentences.append("so people alone can judge a change here, by their thumbs on real traffic")
    return RepairPlan(
        part,
        settings,
        agent,
        suspects,
        rows,
        agreed,
        sentences,
        words=tuple(words),
        liked=_liked(asked, part, agent.entry, settings.seed),
        own=frozenset(run.question for run in evidence.runs if run.run in part.runs),
        wrong=wrong,
        elsewhere=AnswersElsewhere(
            (run.answer, run.up) for run in asked.runs if run.up is not None and run.run not in part.runs
        ),
        refused=refused,
        fitted=fitted,
        waits=waits,
    )


def _searchable(rows: ThumbRows, part: WeakPart) -> list[Task]:
    """The rows, with as many of the search's as the learners see: those of the issue first."""
    search = [task for task in rows.tasks if task.split is Split.TRAIN]
    own = [task for task in search if not part.runs.isdisjoint(task.meta["runs"])]
    others = [task for task in search if task not in own]
    chosen = own[:SEARCHED]
    # As many: a change that spoils everything else would else win by what it changes here.
    chosen += others[: len(chosen)]
    return [*chosen, *rows.gate]


def _asked_by(evidence: ThumbEvidence, signature: Signature) -> ThumbEvidence:
    """The evidence, whose inputs say who asks where the agent's entry wants to know it.

    A gateway records the person of a run beside its question, and the same question of another one is another input.
    """
    runs = []
    for run in evidence.runs:
        input = asked_by(signature, run.input, run.person)
        runs.append(run if input == run.input else replace(run, input=input, question=as_text(input)))
    return replace(evidence, runs=runs)


def _sliced(evidence: ThumbEvidence, part: WeakPart, seed: int) -> ThumbEvidence:
    """What was said in the part, and of some runs elsewhere: a repair may not break those."""
    own = sorted(
        (run for run in evidence.runs if run.run in part.runs and run.told),
        key=lambda run: digest(["part", seed, run.run]),
    )[:_RATED]
    others = sorted(
        (run for run in evidence.runs if run.run not in part.runs and run.told),
        key=lambda run: digest(["control", seed, run.run]),
    )
    return replace(evidence, runs=[*own, *others[: round(_CONTROLS * len(own))]], recorded=len(part.runs))


def _liked(evidence: ThumbEvidence, part: WeakPart, function: str, seed: int) -> list[Task]:
    """Questions from outside of the part whose answer somebody liked, each once, and of as many answers as there are.

    What is asked most often would stand there many times, and what a variant does to the rest would be seen by few.
    """
    runs = {run.question: run for run in evidence.runs if run.up and run.run not in part.runs}
    by_answer = dict[str, list[RatedRun]]()
    for run in sorted(runs.values(), key=lambda run: digest(["liked", seed, run.run])):
        by_answer.setdefault(run.answer, []).append(run)
    turns = (run for turn in zip_longest(*by_answer.values()) for run in turn if run is not None)
    chosen = list(islice(turns, _KEPT))
    return [
        Task(
            id=digest(["liked", run.run], 16),
            instruction=run.question,
            initial_state={"function": function, "input": run.input},
            split=Split.TRAIN,
            meta={"liked": run.answer},
        )
        for run in chosen
    ]


def _refusal(suspects: Sequence[Suspect], rows: ThumbRows, settings: RepairSettings) -> tuple[str, bool]:
    """What is missing, and whether more traffic brings it."""
    if not suspects:
        return "nothing of the source that could change has to do with it", False
    if len(rows.search) < _FEWEST_THUMBS:
        return f"{len(rows.search)} thumbs of people whom a search may see are too few to go by", True
    if not any(task.split is Split.TRAIN for task in rows.tasks):
        return "no question of this part was rated by people whom a search may see", True
    if not any(not thumb.up for thumb in rows.search):
        return "the people whom a search may see liked every answer", True
    if settings.calls - 2 * rows.gate_inputs < 2 * LEAST_VARIANTS:
        return f"{settings.calls} calls of the agent leave none to search with", False
    return "", False

"""What one repair does by itself: answers given again without it.

Of a trial, before it ships; and of what is live, before it is taken back.

People's thumbs compare everything that was on trial with everything that is live.  Where another repair of the trial
mends the same questions, one that does nothing is proven with it (a confounder).  So before a repair ships, some
questions of its part whose answers people liked on the trial are answered by the agent as it is live, with all that
its trial tries, and with all of that but it (leave one out).  An answer is its own doing where it says another thing
without it, for a question has mostly one right answer; or where it is only worded otherwise, and the others do nothing
to it.

Nothing of it is released or served.  The agent is asked as in a search (`networked.py`): code that a model wrote runs
in the sandbox, each answer is kept, and each call is counted before it is made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..learn.datasets.recorded import asked_by, instruction_arguments
from ..learn.evolution.agents.agent import RepositoryAgent
from ..learn.evolution.agents.agent_prompt import entry_of, placed
from ..learn.evolution.agents.networked import Networked
from ..learn.evolution.agents.outside import CallTarget
from ..learn.evolution.editing.program import Program
from ..learn.evolution.repair.same_answer import says_the_same
from ..learn.evolution.repair.suspects import PieceKind
from ..record.influence import person_of
from ..record.rows import as_text
from ..record.store import Log
from ..repository.scan import scan
from ..sandbox import Pool
from ..types import Bundle, Fault, Json, Trajectory, digest
from .trial import AgentSource
from .work import Workshop

QUESTIONS = 16
"""Questions of its part by which it is seen what a repair does by itself."""
MOST_CALLS = 4 * QUESTIONS
"""Of the agent, to see that."""
_FEWEST = 8
"""Questions that both sides answered, below which nothing is said."""
_MOSTLY = 0.5
"""Share of the effect that people proved which has to be its own doing."""
_HARDLY = 0.75
"""Share of disliked answers that are the same without a repair, from which on it is not what is wrong with them."""
_WORDS = 4
"""Words of two answers that stand in one of them alone, from which on the same facts are worded otherwise."""
_SECONDS = 120.0
"""Of one call."""


@dataclass(frozen=True, slots=True)
class OwnShare:
    """How many of the answers that people liked on a trial are the doing of one of its repairs."""

    asked: int
    """Questions that were answered on all sides."""
    changed: int
    """Of those, answers that are others without it, by a word."""
    own: int
    """Of those, answers that are surely its own doing."""

    @property
    def told(self) -> bool:
        """True if enough questions were answered to say anything."""
        return self.asked >= _FEWEST

    def does(self, effect: float, liked: float) -> bool | None:
        """Whether the effect that people proved is its own: True for most, False for none, None if nobody knows.

        Args:
            effect: by which more answers of its part are liked on the trial.
            liked: share of them that is.
        """
        if not self.told:
            return None
        if not self.changed:
            return False
        # Of the liked answers effect / liked would not be liked as it is live.
        return True if self.own * liked >= _MOSTLY * effect * self.asked else None

    @property
    def sentence(self) -> str:
        """The counts in words."""
        if not self.told:
            return f"{self.asked} questions of its part could be asked with it and without it"
        if not self.changed:
            return f"without it all {self.asked} answers of its part are what they are with it"
        return (
            f"of {self.asked} answers of its part that people liked {self.changed} are others without it, and "
            f"{self.own} surely its own doing"
        )


@dataclass(frozen=True, slots=True)
class Idle:
    """How many of the answers that people dislike where a repair is live would be the same without it."""

    asked: int
    """Questions that were answered on both sides."""
    same: int

    def __bool__(self) -> bool:
        """True if taking the repair back would hardly change them, so that something else is wrong with them."""
        return self.asked >= _FEWEST and self.same >= _HARDLY * self.asked

    @property
    def sentence(self) -> str:
        """The counts in words."""
        return f"{self.same} of {self.asked} answers that people dislike there are the same without it"


@dataclass
class LeaveOneOut:
    """The agent as it is live, as a trial serves it, and with some of the trial's repairs."""

    workshop: Workshop
    root: Path
    """The agent's folder."""
    shipped: Sequence[Mapping[str, Any]]
    """Work on repairs that are live."""
    tried: Mapping[str, Mapping[str, Any]]
    """Id of an issue → work on its repair: all that a trial tries and that stand, or one that is live."""
    served: Bundle = field(default_factory=Bundle)
    """All that the trial serves, also what was decided against since."""
    places: Sequence[Sequence[str]] = ()
    """Of what it serves: resource, path, qualified name, and how the piece is marked."""
    _agent: RepositoryAgent = field(init=False)
    _target: CallTarget = field(init=False)

    def __post_init__(self) -> None:
        bench = self.workshop
        entry = bench.settings.entry
        if entry is None:
            root, module = placed(bench.settings.agent)
            runs = bench.runs(bench.night.now)
            entry = entry_of(scan(root), bench.settings.agent, root, module, runs)
        works = [*self.shipped, *self.tried.values()]
        places = [*self.places, *(place for work in works for place in work["pieces"])]
        names = dict.fromkeys(f"{path}:{name}" if name else path for _, path, name, _ in places)
        self._agent = RepositoryAgent(self.root, list(names), entry, network=True)
        assert self._agent.entry is not None
        self._target = self._agent.target(self._agent.entry)

    def _program(self, tried: Iterable[str]) -> Program:
        """The pieces with what is live, and the repairs of these issues."""
        source = AgentSource.live(self.workshop.store, self.root, self.shipped)
        for id in tried:
            source.take(self.workshop.store, self.tried[id])
        texts = {piece.part: source.piece(piece.mark) for piece in self._agent.pieces}
        return Program(texts, self._agent.start.main)

    def _as_served(self) -> Program:
        """The pieces as whoever is drawn into the trial is served them."""
        texts = dict(self._program(()).parts)
        of = {(path, name): resource for resource, path, name, _ in self.places}
        for piece in self._agent.pieces:
            resource = of.get((piece.mark.path, piece.mark.qualname))
            if resource is not None and resource in self.served:
                texts[piece.part] = str(self.served[resource].content)
        return Program(texts, self._agent.start.main)

    def _taken_out(self) -> Program | None:
        """The pieces with what is live but for what is tried, merged or not; None where it cannot be taken out."""
        store = self.workshop.store
        source = AgentSource.live(store, self.root, self.shipped)
        if not all(source.drop(store, work) or source.lacks(store, work) for work in self.tried.values()):
            return None
        texts = {piece.part: source.piece(piece.mark) for piece in self._agent.pieces}
        return Program(texts, self._agent.start.main)

    @contextmanager
    def _network(self) -> Iterator[Networked]:
        bench = self.workshop
        # A process of the sandbox for each piece of code that an agent has in it, and all of them at once.
        pool = Pool(workers=1 + sum(piece.code for piece in self._agent.pieces))
        with closing(pool):
            network = Networked(
                self._agent,
                pool,
                seconds=_SECONDS,
                without=[bench.settings.output],
                meter=bench.night.meter,
                log=Log(bench.store, f"answers/{self._agent.source}"),
                as_came=True,
            )
            try:
                yield network
            finally:
                network.end()

    def _asked(self, questions: Sequence[Trajectory]) -> dict[str, Json]:
        """Digest of an input → input, of the first questions."""
        inputs = {digest(each): each for each in map(self._input, questions)}
        return dict(list(inputs.items())[:QUESTIONS])

    async def idle_on(self, questions: Sequence[Trajectory]) -> Idle:
        """Ask the questions with what is tried, which is live, and without it.

        Args:
            questions: recorded runs whose answers people disliked.

        Raises:
            BudgetExceeded: the night's calls are used up.
        """
        without = self._taken_out()
        if without is None:
            return Idle(0, 0)
        asked = self._asked(questions)
        with self._network() as network:
            before = await self._answers(network, without, asked)
            both = {key: each for key, each in asked.items() if key in before}
            now = await self._answers(network, self._program(self.tried), both)
        return Idle(len(now), sum(_plain(before[key]) == _plain(answer) for key, answer in now.items()))

    async def share_of(self, issues: Collection[str], questions: Sequence[Trajectory]) -> OwnShare:
        """Ask the questions with the repairs of these issues and without them.

        Args:
            questions: recorded runs of their part.

        Raises:
            BudgetExceeded: the night's calls are used up.
        """
        rest = [id for id in self.tried if id not in issues]
        asked = self._asked(questions)
        # A prompt words all answers anew, and which of the new words mend something no text tells.
        worded = any(self.tried[id]["learner"] == PieceKind.PROMPT for id in rest)
        sides = {
            "without": self._program(rest),
            "with": self._program(self.tried),
            "served": self._as_served(),
        }
        answers: dict[str, dict[str, str]] = {}
        with self._network() as network:
            for side, program in sides.items():
                # One side after the other, a process each; what one could not answer nobody else is asked.
                answers[side] = await self._answers(network, program, asked)
                asked = {key: each for key, each in asked.items() if key in answers[side]}
            without, with_it, served = answers.values()
            changed = [key for key in asked if _plain(with_it[key]) != _plain(without[key])]
            # What was decided against since has no part in it.
            stand = [key for key in changed if _alike(with_it[key], served[key], worded=worded)]
            others = [key for key in stand if not says_the_same(without[key], with_it[key])]
            # Where it is only worded otherwise, who else changes it has to be known.
            reworded = {key: asked[key] for key in stand if key not in others}
            live = await self._answers(network, self._program(()), reworded)
        alike = [key for key in live if _alike(without[key], live[key], worded=worded)]
        return OwnShare(len(asked), len(changed), len(others) + len(alike))

    def _input(self, run: Trajectory) -> Json:
        """What the entry is called with: the question, and who asks where it wants to know."""
        signature = self._target.signature
        person = person_of(run) or run.id
        return asked_by(signature, instruction_arguments(signature, run.task.instruction), person)

    async def _answers(
        self, network: Networked, program: Program, inputs: Mapping[str, Json]
    ) -> dict[str, str]:
        """Digest of an input → answer, or that the agent failed; of a failure of the machine there is none."""
        answers = {}
        async with network.open(self._target, program) as caller:
            for key, each in inputs.items():
                result = await caller.call(self._target.arguments(each))
                if result.failure is None:
                    answers[key] = as_text(result.value)
                elif result.failure.fault is not Fault.SANDBOX:
                    answers[key] = f"failed: {result.failure.type}"
        return answers


def _plain(answer: str) -> str:
    return " ".join(answer.casefold().split())


def _alike(one: str, other: str, *, worded: bool) -> bool:
    """True if two answers are the same for whoever reads them.

    A model that is asked twice words its answer otherwise, in many words; what a tool or a table changes is a number,
    a yes or no, or a word or two.

    Args:
        worded: any change of words may be what is looked for.
    """
    if _plain(one) == _plain(other):
        return True
    apart = {*_plain(one).split()} ^ {*_plain(other).split()}
    return not worded and len(apart) >= _WORDS and says_the_same(one, other) and says_the_same(other, one)

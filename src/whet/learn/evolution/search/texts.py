"""Texts and functions of a Bundle evolve: prompts that an agent reads, and functions that it calls.

One search (`engine.py`) over all of them together, by whatever environment the Experiment has; the best few
are compared on the validation tasks, and a tie keeps the incumbent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....errors import TrainingRefused
from ....models import RecordedModel
from ....models.base import Model
from ....models.budget import Meter
from ....record.tracing.resources import FunctionResource, resources
from ....types import Budget, Bundle, Task, Version, digest
from ...loop import Context, Update
from ..agents.candidates import ProgramCodec
from ..agents.functions import Functions
from ..editing.blocks import BLOCKS
from ..editing.edits import EDITS
from ..editing.program import Program
from .engine import Search, SearchOptions
from .population import population_of
from .proposers import Proposer, Proposes
from .records import opened
from .rows import RowJudge, finalist

FINALISTS = 4
"""Candidates of a search that are compared on the validation tasks, the start not counted."""
FEWEST = 24
"""Tasks that a search is made on even where it then ends before all its proposals."""
IN_FLIGHT = 8
"""Rounds of proposals that a search has at least: proposals of one round cannot build on each other."""


@dataclass
class Texts:
    """The texts of a Bundle that a search may change.

    Args:
        names: of the resources; those that the bundle lacks are declared in this process.
        score: name of the Score to raise, `success` or `reward`.
        model: proposes beside the edits.
        proposers: others that do.
        options: of the search.
        tasks: at most so many training tasks are searched on.
        validation_share: at most this share of the rollouts left is kept for validation.
        code: resources that are Python, beside the functions that this process declares.
    """

    names: Sequence[str]
    score: str
    model: Model | None = None
    proposers: Sequence[Proposes] = ()
    options: SearchOptions = field(default_factory=SearchOptions)
    tasks: int = 240
    validation_share: float = 0.3
    code: Collection[str] = ()
    functions: Functions = field(init=False, default_factory=Functions)

    async def improve(self, bundle: Bundle, context: Context) -> Update:
        """One search, and the best Bundle of its finalists.

        Raises:
            TrainingRefused: no training tasks.
            InputError: a function that cannot be called by JSON, or nothing to propose with.
        """
        if not context.train:
            raise TrainingRefused("evolve: no training tasks to run candidates on")
        full = Bundle([self._version(name, bundle) for name in self.names])
        form = self._form(full)
        start = form.start

        def bundle_of(program: Program) -> Bundle:
            return bundle.put(*form.bundle(program).values())

        tasks, validation_tasks, meter = self._afforded(context)
        judge = RowJudge(context.rollout, tasks, bundle_of, ", ".join(self.names), score_name=self.score)
        proposers = list(self.proposers)
        if self.model is not None:
            proposers.append(Proposer(RecordedModel(self.model, context.log)))
        code = any(part.endswith(".py") for part in start.parts)
        made_of = {
            "the texts": start.id,
            "what they stand in": bundle.id,
            "tasks": digest([[task.id, task.answer] for task in tasks]),
            "score": self.score,
            "who proposes": digest([proposer.identity for proposer in proposers]),
            "seed": str(self.options.seed),
        }
        population = population_of("auto", code=code)
        search = await Search(
            start,
            judge,
            population,
            options=replace(self.options, in_flight=self._in_flight()),
            proposers=proposers,
            records=opened(context.log, digest(made_of), ", ".join(self.names), made_of),
            meter=meter,
            progress=lambda record: context.progress("evolve", record.number, self.options.iterations),
        ).run()
        # The start first: `finalist` settles ties by this order.
        finalists = [search.start, *population.members()[:FINALISTS]]
        best, before, after = await finalist(
            judge,
            [candidate.program for candidate in finalists],
            validation_tasks,
            [candidate.score for candidate in finalists],
        )
        metrics = {
            "start": before,
            "best": after,
            "proposals": float(search.iterations),
            "evaluations": float(search.evaluations),
            "duplicates": float(search.duplicates),
        }
        moved = f"{before:.3f} → {after:.3f}" if after > before else "the incumbent stays"
        reason = f"{search.iterations} proposals, stopped by {search.stopped}; {moved}"
        return Update(bundle=bundle_of(best), metrics=metrics, done=True, reason=reason)

    def _afforded(self, context: Context) -> tuple[Sequence[Task], Sequence[Task], Meter]:
        """Training tasks that all proposals can be run on, validation tasks, and the meter of the search.

        A search that used the budget up would have nothing left to tell its finalists apart with, nor would whoever
        compares the winner with the start.
        """
        rollouts_left = context.meter.left("rollouts")
        train, validation = list(context.train), list(context.validation)
        if rollouts_left is None:
            return _drawn(context, train, self.tasks), validation, context.meter
        runs = FINALISTS + 2  # the start and, once more, the winner
        # Before the training tasks: the order of draws is part of what a seed reproduces.
        validation_tasks = _drawn(context, validation, int(self.validation_share * rollouts_left / runs))
        spend = int(rollouts_left) - runs * len(validation_tasks)
        count = self.tasks
        if self.options.iterations:
            # Besides all tasks a candidate runs on a quarter first (`RowJudge.most`).
            count = min(count, max(FEWEST, int(spend / (1.25 * self.options.iterations + 1))))
        chosen = _drawn(context, train, count)
        # The start's own runs are over when a search counts what it may spend.
        proposals = Budget(rollouts=max(0, spend - len(chosen)))
        return chosen, validation_tasks, Meter(proposals, parent=context.meter)

    def _in_flight(self) -> int:
        options = self.options
        if options.iterations is None:
            return options.in_flight
        return max(options.workers, min(options.in_flight, options.iterations // IN_FLIGHT))

    def _version(self, name: str, bundle: Bundle) -> Version:
        """A resource as it stands, a function as its bare text."""
        handle, held = resources().get(name), bundle.get(name)
        if isinstance(handle, FunctionResource):
            self.functions.use(handle)
            if held is None or not isinstance(held.content, str):
                return Version(resource=name, content=self.functions.text(handle), kind=handle.kind)
        if held is None:
            assert handle is not None
            return handle.default_version
        return held

    def _form(self, full: Bundle) -> ProgramCodec:
        handles = resources()
        python = {name for name in full if isinstance(handles.get(name), FunctionResource)} | {*self.code}
        ends = {name: ".py" if name in python else ".txt" for name in full}
        names: Mapping[str, str] = {f"{name}{end}": name for name, end in ends.items()}
        parts = {part: full[name].content for part, name in names.items()}
        kinds = {part: full[name].kind for part, name in names.items()}
        return ProgramCodec(Program(parts, next(iter(parts))), names, kinds)


def _drawn(context: Context, tasks: list[Task], count: int) -> list[Task]:
    """At most so many tasks, in their order."""
    if count >= len(tasks):
        return tasks
    return [tasks[index] for index in sorted(context.rng.sample(range(len(tasks)), count))]


def edits_for(names: Sequence[str]) -> tuple[str, ...]:
    """Edits that fit these resources: of Python, of texts, or both."""
    handles = resources()
    code = any(isinstance(handles.get(name), FunctionResource) for name in names)
    text = any(not isinstance(handles.get(name), FunctionResource) for name in names)
    return (*EDITS,) * code + (*BLOCKS,) * text

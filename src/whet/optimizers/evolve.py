"""`Evolve`: searches the knobs of readable resources by running the candidates on training tasks.

A candidate is one content for each of the named resources (a rule, a parser's settings), held as
Versions of a Bundle and run through `context.rollout`, so an agent in any framework is run as it
is.  One step is one generation of a (mu + lambda) evolution strategy with four economies:

1. a content is never tried twice, and a child that behaves on a few probe tasks like one already
   tried is dropped before its full evaluation;
2. the others race on growing task subsets (successive halving);
3. all comparisons are paired on the same tasks and seeds;
4. the winner is chosen on `context.validation`, where the incumbent always stands and keeps ties.

It tunes what stands in the resource and has no ideas of its own; proposing new code is another
optimizer's work.  It ignores the recorded groups: they were not run with the candidates' seeds.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import BudgetExceeded, NotFoundError, TrainingRefused
from ..evolution.archive import (
    Archive,
    Candidate,
    Member,
    decode_member,
    encode_member,
    paired,
    rungs,
    survivors,
)
from ..evolution.operators import Knob, crossover, knobs, merge, mutate, sweep
from ..evolution.targets import Domain, Path
from ..loop import Context, Update
from ..types import Bundle, Group, Json, Task, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolveOptions:
    """Settings of the search; the defaults suit ten knobs and a few thousand rollouts."""

    generations: int = 20
    """Steps after which the search is done."""
    children: int = 12
    """Candidates proposed per generation (lambda)."""
    parents: int = 10
    """Candidates kept as parents (mu)."""
    tasks: int = 240
    """At most so many training tasks are searched on, drawn once."""
    probe: int = 24
    """Tasks on which behaviour is compared before anything else is spent; also the first rung."""
    growth: int = 3
    """Each rung has so many times the tasks of the one before, and 1 in so many candidates goes on."""
    n: int = 1
    """Rollouts per task and candidate; more only where the agent itself is random."""
    crossover: float = 0.4
    """Share of children with two parents: half of them merged, half crossed."""
    strength: float = 1.5
    """Mean number of knobs changed beyond the first."""
    together: bool = True
    """Change several resources in one child, or only one of them at a time."""
    finalists: int = 3
    """How many of the best are run on validation before the search ends."""
    validation_share: float = 0.3
    """At most this share of the rollouts left at the start is kept for validation."""
    patience: int | None = None
    """Generations without a better candidate after which the search is done; None: never."""


@dataclass(slots=True)
class _Search:
    """All that a search knows; its JSON form is the optimizer's state."""

    seed: int
    tasks: list[str]
    validation: list[str]
    start: str = ""
    """Id of the incumbent that the search began with."""
    bundle: str = ""
    """Id of the Bundle that the last step returned: another one means the world has changed."""
    archive: Archive = field(default_factory=Archive)
    validated: dict[str, Member] = field(default_factory=dict)
    """Member id → its record on the validation tasks."""
    generation: int = 0
    improved: int = 0
    """Generation of the last better candidate."""
    rollouts: int = 0
    repeats: int = 0
    """Children whose content had been tried: proposed again at no cost."""
    duplicates: int = 0
    """Children whose behaviour had been seen: skipped after the probe."""

    def encode(self) -> Json:
        plain = ("seed", "tasks", "validation", "start", "bundle", "generation", "improved")
        counts = ("rollouts", "repeats", "duplicates")
        return {
            **{name: getattr(self, name) for name in plain + counts},
            "archive": self.archive.encode(),
            "validated": [encode_member(member) for member in self.validated.values()],
        }

    @staticmethod
    def decode(data: Json) -> _Search:
        rest = {key: value for key, value in data.items() if key not in ("archive", "validated")}
        validated = [decode_member(each) for each in data["validated"]]
        return _Search(
            **rest, archive=Archive.decode(data["archive"]), validated={each.id: each for each in validated}
        )


class Evolve:
    """Optimizer that tunes the literal contents of one or several resources.

    Args:
        resources: names of Versions in the Bundle whose content is plain JSON.
        score: what to maximise: a Score's name, `success` or `reward`.
        domains: resource → path → Domain, usually `targets.find(source, "RULE").domains`; what has
            none is inferred from its type.

    >>> Evolve(("rule", "parser"), options=EvolveOptions(generations=8))  # doctest: +SKIP
    """

    name = "evolve"
    group_size = 0
    on_policy = False
    ordered = False

    def __init__(
        self,
        resources: Sequence[str] = ("rule", "parser"),
        score: str = "success",
        *,
        domains: Mapping[str, Mapping[Path, Domain]] | None = None,
        options: EvolveOptions | None = None,
    ) -> None:
        self.resources = tuple(resources)
        self.score = score
        self.domains = domains or {}
        self.options = options or EvolveOptions()

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """One generation.

        The first step also runs the incumbent. When the budget would be overshot the search ends
        with the best so far and `done`. A Bundle other than the one last returned, or training
        tasks that are gone, start a new search: old records would not be comparable.

        Raises:
            TrainingRefused: no tasks, no knobs, or no rollout of the incumbent has the score.
            NotFoundError: the Bundle has no Version of one of the resources.
        """
        places = self._places(bundle)
        search = self._resumed(bundle, context) or self._begun(bundle, context)
        run = _Run(self, bundle, context, search)
        reason = ""
        try:
            if not search.start:
                await run.incumbent(self._candidate(bundle))
            if not await run.generation(places):
                reason = "every candidate within reach has been tried"
        except BudgetExceeded as error:
            reason = f"the budget ends the search: {error}"
        idle = search.generation - search.improved
        if not reason and search.generation >= self.options.generations:
            reason = f"{search.generation} generations are done"
        if not reason and self.options.patience is not None and idle >= self.options.patience:
            reason = f"no better candidate in {idle} generations"
        await run.validate(1 if not reason else self.options.finalists, final=bool(reason))
        return run.update(reason)

    def _candidate(self, bundle: Bundle) -> Candidate:
        return {name: bundle[name].content for name in self.resources}

    def _places(self, bundle: Bundle) -> list[Knob]:
        missing = [name for name in self.resources if name not in bundle]
        if missing:
            raise NotFoundError(
                f"evolve: the bundle has no {', '.join(missing)}; it holds {', '.join(bundle) or 'nothing'}"
            )
        unknown = set(self.domains) - set(self.resources)
        if unknown:
            raise NotFoundError(
                f"evolve: domains given for {', '.join(sorted(unknown))}, which is not evolved"
            )
        stated = {
            (name, *path): domain for name in self.domains for path, domain in self.domains[name].items()
        }
        places = knobs(self._candidate(bundle), stated)
        if not places:
            raise TrainingRefused(
                f"evolve: nothing in {', '.join(self.resources)} can vary: text needs a hint with its choices"
            )
        return places

    def _resumed(self, bundle: Bundle, context: Context) -> _Search | None:
        if context.state is None:
            return None
        search = _Search.decode(context.state)
        train = {task.id for task in context.train}
        validation = {task.id for task in context.validation}
        same = search.bundle == bundle.id and train.issuperset(search.tasks)
        return search if same and validation.issuperset(search.validation) else None

    def _begun(self, bundle: Bundle, context: Context) -> _Search:
        if not context.train:
            raise TrainingRefused("evolve: no training tasks to run candidates on")
        options = self.options
        seed = context.rng.getrandbits(31)
        rng = random.Random(f"{seed}:tasks")
        tasks = rng.sample([task.id for task in context.train], min(options.tasks, len(context.train)))
        room = len(context.validation)
        left = context.meter.left("rollouts")
        if left is not None:
            room = min(room, int(options.validation_share * left / ((options.finalists + 1) * options.n)))
        validation = rng.sample([task.id for task in context.validation], room)
        return _Search(seed=seed, tasks=tasks, validation=validation, bundle=bundle.id)


class _Run:
    """One step's work on a search."""

    def __init__(self, evolve: Evolve, bundle: Bundle, context: Context, search: _Search) -> None:
        self.options = evolve.options
        self.score = evolve.score
        self.resources = evolve.resources
        self.base = bundle
        self.context = context
        self.search = search
        self.train = {task.id: task for task in context.train}
        self.held = {task.id: task for task in context.validation}

    @property
    def start(self) -> Member:
        return self.search.archive.members[self.search.start]

    async def incumbent(self, candidate: Candidate) -> None:
        """Run the candidate that the search begins with on all its tasks."""
        search = self.search
        member = Member(candidate)
        await self._extend(member, search.tasks)
        if member.mean() is None:
            raise TrainingRefused(
                f"evolve: none of {len(search.tasks)} rollouts of the incumbent has a score {self.score!r}; "
                "add a reward of that name or give another score"
            )
        search.archive.fresh(candidate)
        search.start = member.id
        search.archive.admit([member], member, self.options.parents)

    async def generation(self, places: Sequence[Knob]) -> bool:
        """Propose, probe, race and admit; False if there was nothing new to propose."""
        search, options = self.search, self.options
        rng = random.Random(f"{search.seed}:{search.generation}")
        children = self._proposed(places, rng)
        if not children:
            return False
        # Each generation probes other tasks, so that no knob stays invisible for good.
        order = rng.sample(search.tasks, len(search.tasks))
        sizes = rungs(len(order), options.probe, options.growth)
        best = search.archive.members[search.archive.population[0]]
        before = search.duplicates
        try:
            racers = await self._race(children, order, sizes, best)
        except BudgetExceeded:
            # As if never proposed: with a larger budget the generation is run again, and the same.
            search.archive.seen.difference_update(child.id for child in children)
            search.duplicates = before
            raise
        search.archive.admit(racers, self.start, options.parents)
        search.generation += 1
        if search.archive.population[0] != best.id:
            search.improved = search.generation
        leader = search.archive.members[search.archive.population[0]].mean()
        self.context.progress(
            "evolve",
            search.generation,
            options.generations,
            best=round(leader or 0.0, 4),
            rollouts=search.rollouts,
            duplicates=search.duplicates,
        )
        return True

    async def _race(
        self, children: Sequence[Member], order: Sequence[str], sizes: Sequence[int], best: Member
    ) -> list[Member]:
        """Those children that are new in behaviour and survive every rung, with complete records."""
        racers: list[Member] = []
        probe = order[: sizes[0]]
        for child in children:
            await self._extend(child, probe)
            shown = any(self._alike(child, other, probe) for other in racers)
            if shown or self.search.archive.twin(child, probe):
                self.search.duplicates += 1
            else:
                racers.append(child)
        for size, larger in itertools.pairwise(sizes):
            racers = survivors(racers, best, order[:size], self.options.growth)
            for racer in racers:
                await self._extend(racer, order[size:larger])
        return racers

    async def validate(self, count: int, *, final: bool) -> None:
        """Run the best `count` and the incumbent on validation, as far as the budget goes."""
        search = self.search
        if not search.start or not search.validation:
            return
        for id in [search.start, *search.archive.population[:count]]:
            if id in search.validated:
                continue
            member = Member(search.archive.members[id].candidate, id=id)
            try:
                await self._extend(member, search.validation, held=True, final=final)
            except BudgetExceeded:
                return
            search.validated[id] = member

    def update(self, reason: str) -> Update:
        """What the step returns: the winner so far, the state and the figures."""
        search, archive = self.search, self.search.archive
        if not search.start:
            return Update(bundle=self.base, state=None, metrics={"rollouts": 0.0}, done=True, reason=reason)
        winner, lift, error = self._winner()
        bundle = self.base.put(*self._versions(winner, lift))
        search.bundle = bundle.id
        means = [mean for id in archive.population if (mean := archive.members[id].mean()) is not None]
        metrics = {
            "generation": search.generation,
            "best": means[0] if means else 0.0,
            "mean": sum(means) / len(means) if means else 0.0,
            "start": self.start.mean() or 0.0,
            "lift": lift,
            "lift_error": error,
            "candidates": len(archive.seen),
            "duplicates": search.duplicates,
            "repeats": search.repeats,
            "rollouts": search.rollouts,
            "missing": sum(member.missing for member in archive.members.values()),
        }
        if reason:
            where = "validation" if search.validation else "the training tasks (there is no validation)"
            verdict = "the incumbent stays" if winner.id == search.start else f"{lift:+.3f} ± {error:.3f}"
            reason = f"{reason}; on {where}: {verdict}"
        return Update(
            bundle=bundle,
            state=search.encode(),
            metrics={key: float(value) for key, value in metrics.items()},
            done=bool(reason),
            reason=reason,
        )

    def _proposed(self, places: Sequence[Knob], rng: random.Random) -> list[Member]:
        """New contents; in the first generation one per knob, so that no main effect waits for its turn."""
        search, options = self.search, self.options
        born = search.generation + 1
        children: list[Member] = []
        if born == 1:
            every = sweep(self.start.candidate, places, rng)
            children = [Member(child, born, "sweep") for child in every if search.archive.fresh(child)]
        for _ in range(options.children * 20):
            if len(children) >= options.children:
                break
            child, move = self._child(places, rng)
            if search.archive.fresh(child):
                children.append(Member(child, born, move))
            else:
                search.repeats += 1
        return children

    def _child(self, places: Sequence[Knob], rng: random.Random) -> tuple[Candidate, str]:
        search, options = self.search, self.options
        parents = [search.archive.members[id].candidate for id in search.archive.population]
        child = rng.choices(parents, [1.0 / (rank + 1) for rank in range(len(parents))])[0]
        if len(parents) > 1 and rng.random() < options.crossover:
            other = rng.choice(parents)
            if rng.random() < 0.5:
                return merge(child, other, self.start.candidate, places), "merge"
            child = crossover(child, other, places, rng)
            if rng.random() < 0.5:
                return child, "crossover"
        part = places
        if not options.together:
            name = rng.choice(sorted({str(knob.path[0]) for knob in places}))
            part = [knob for knob in places if knob.path[0] == name]
        return mutate(child, part, rng, strength=options.strength), "mutate"

    @staticmethod
    def _alike(one: Member, other: Member, tasks: Sequence[str]) -> bool:
        return all(one.record[task].behaviour == other.record[task].behaviour for task in tasks)

    def _versions(self, member: Member, lift: float) -> list[Version]:
        made = []
        for name in self.resources:
            old = self.base[name]
            content = member.candidate[name]
            if content != old.content:
                meta = {"optimizer": "evolve", "score": self.score, "seed": self.search.seed}
                figures = {"born": member.born, "move": member.move, "validation_lift": lift}
                made.append(
                    Version(
                        resource=name, content=content, kind=old.kind, parent=old.id, meta={**meta, **figures}
                    )
                )
        return made

    def _winner(self) -> tuple[Member, float, float]:
        """The best validated member with its paired lift over the incumbent and its standard error."""
        search = self.search
        records = search.validated if search.validation else dict(search.archive.members)
        if search.start not in records:
            return self.start, 0.0, 0.0
        best, lift, error = self.start, 0.0, 0.0
        for id, record in records.items():
            mean, deviation, n = paired(record, records[search.start])
            if n and mean > lift + 1e-12:  # strictly: a tie keeps what is there
                best, lift, error = search.archive.members[id], mean, deviation if n > 1 else 0.0
        return best, lift, error

    async def _extend(
        self, member: Member, tasks: Sequence[str], *, held: bool = False, final: bool = False
    ) -> None:
        """Run a member on more tasks; BudgetExceeded before anything is spent."""
        search, options = self.search, self.options
        if not tasks:
            return
        cost = len(tasks) * options.n
        left = self.context.meter.left("rollouts")
        kept = 0 if final else self._reserve()
        if left is not None and left - kept < cost:
            raise BudgetExceeded(
                f"rollouts: {left:g} left, {kept} kept for validation, {cost} more asked for by one candidate"
            )
        source = self.held if held else self.train
        chosen: list[Task] = [source[task] for task in tasks]
        trial = self.base.put(*self._trial(member))
        # One seed for every candidate: luck is shared, and pairs are pairs.
        seed = search.seed + 1 if held else search.seed
        member.add(await self.context.rollout(trial, chosen, options.n, seed=seed), self.score)
        search.rollouts += cost

    def _trial(self, member: Member) -> list[Version]:
        return [
            Version(resource=name, content=member.candidate[name], kind=self.base[name].kind)
            for name in self.resources
            if member.candidate[name] != self.base[name].content
        ]

    def _reserve(self) -> int:
        """Rollouts to keep for the last validation: the incumbent's and the finalists'."""
        due = self.options.finalists + (self.search.start not in self.search.validated)
        return due * len(self.search.validation) * self.options.n

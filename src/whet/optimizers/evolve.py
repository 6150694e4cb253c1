"""`Evolve`: searches the knobs of readable resources by running the candidates on training tasks.

A candidate is one content for each of the named resources (a rule, a parser's settings), held as
Versions of a Bundle and run through `context.rollout`, so an agent in any framework is run as it
is.  One step is one generation:

1. children are drawn: most from what every setting has been worth so far (`evolution.effects`,
   Thompson sampling; the first generation at random over all knobs), the others by mutation and
   crossover of the best, which also moves numbers finely;
2. all run on a few probe tasks, others in each generation, and the effects are estimated anew.  A
   comparison of two candidates on 300 tasks is wrong by two points and more, and choosing the
   luckiest of many made it worse; a setting's effect rests on thousands;
3. every few generations the most promising, by the estimate and not by its own luck, runs on all
   search tasks, as long as it is not clearly worse than the best; a content is never tried twice,
   and one that behaves on the probe like one already tried goes no further;
4. comparisons are paired on the same tasks and seeds;
5. the winner is chosen among those that are better than the incumbent on `context.validation`, by
   their lift over all tasks; the incumbent always stands and keeps ties.

It tunes what stands in the resource and has no ideas of its own; proposing new code is another
optimizer's work.  It ignores the recorded groups: they were not run with the candidates' seeds.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import BudgetExceeded, NotFoundError, TrainingRefused
from ..evolution.archive import (
    Candidate,
    Member,
    clearly_worse,
    paired,
    rungs,
)
from ..evolution.effects import Effects, Trial, compared
from ..evolution.operators import Knob, crossover, knobs, merge, mutate
from ..evolution.search_state import SearchState
from ..evolution.targets import Domain, Path
from ..loop import Context, Update
from ..types import Bundle, Group, Task, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolveOptions:
    """Settings of the search; the defaults suit ten knobs and a few thousand rollouts."""

    generations: int = 20
    """Steps after which the search is done."""
    children: int = 16
    """Candidates proposed per generation; twice as many in the first."""
    drawn: float = 0.9
    """Share of the children that come from the estimated effects; the others are bred."""
    parents: int = 6
    """Candidates to breed from."""
    tasks: int = 240
    """At most so many training tasks are searched on, drawn once."""
    probe: int = 24
    """Tasks that every child of a generation is run on."""
    finish: int = 4
    """After every so many generations, and after the last, the most promising candidate runs on all tasks."""
    growth: int = 3
    """It runs on so many times the tasks each time before it is asked whether it is clearly worse."""
    n: int = 1
    """Rollouts per task and candidate; more only where the agent itself is random."""
    crossover: float = 0.4
    """Share of bred children with two parents: half of them merged, half crossed."""
    strength: float = 1.5
    """Mean number of knobs changed beyond the first."""
    finalists: int = 3
    """How many of the best are run on validation before the search ends."""
    validation_share: float = 0.3
    """At most this share of the rollouts left at the start is kept for validation."""
    patience: int | None = None
    """Generations without a better candidate after which the search is done; None: never."""


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

    def _resumed(self, bundle: Bundle, context: Context) -> SearchState | None:
        if context.state is None:
            return None
        search = SearchState.decode(context.state)
        train = {task.id for task in context.train}
        validation = {task.id for task in context.validation}
        same = search.bundle == bundle.id and train.issuperset(search.tasks)
        return search if same and validation.issuperset(search.validation) else None

    def _begun(self, bundle: Bundle, context: Context) -> SearchState:
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
        return SearchState(seed=seed, tasks=tasks, validation=validation, bundle=bundle.id)


class _Run:
    """One step's work on a search."""

    def __init__(self, evolve: Evolve, bundle: Bundle, context: Context, search: SearchState) -> None:
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
        """Propose, probe, learn the effects and admit; False if there was nothing new to propose."""
        search, options = self.search, self.options
        rng = random.Random(f"{search.seed}:{search.generation}")
        seen, before = set(search.archive.seen), search.duplicates
        children = self._proposed(places, rng)
        if not children:
            return False
        # Each generation probes other tasks: what is learned of a setting holds for all of them.
        order = rng.sample(search.tasks, len(search.tasks))
        best = search.archive.population[0]
        try:
            trials, novel = await self._probed(children, order[: options.probe], places)
            finished: list[Member] = []
            if (search.generation + 1) % options.finish == 0 or search.generation + 1 == options.generations:
                finished = await self._finished(novel, order, self._effects(places, trials))
        except BudgetExceeded:
            # As if never proposed: with a larger budget the generation is run again, and the same.
            search.archive.seen, search.duplicates = seen, before
            raise
        search.trials += trials
        search.archive.admit(finished, self.start, options.parents)
        search.generation += 1
        if search.archive.population[0] != best:
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

    def _effects(self, places: Sequence[Knob], more: Sequence[Trial] = ()) -> Effects:
        """What each setting is worth by the trials so far and `more`."""
        search = self.search
        return Effects(
            places, self.start.candidate, [*search.trials, *more], generation=search.generation + bool(more)
        )

    async def _probed(
        self, children: Sequence[Member], probe: Sequence[str], places: Sequence[Knob]
    ) -> tuple[list[Trial], list[Member]]:
        """The children's trials, and those children that do something new."""
        novel: list[Member] = []
        for child in children:
            await self._extend(child, probe)
            shown = any(self._alike(child, other, probe) for other in novel)
            if shown or self.search.archive.twin(child, probe):
                self.search.duplicates += 1
            else:
                novel.append(child)
        lifts = compared([{task: child.record[task].value for task in probe} for child in children])
        effects = Effects(places, self.start.candidate)
        trials = [
            Trial(effects.levels(child.candidate), *lift, self.search.generation)
            for child, lift in zip(children, lifts, strict=True)
            if lift is not None
        ]
        return trials, novel

    async def _finished(
        self, novel: Sequence[Member], order: Sequence[str], effects: Effects
    ) -> list[Member]:
        """The most promising by the effects, run on all tasks unless they prove clearly worse."""
        search = self.search
        best = search.archive.members[search.archive.population[0]]
        expected = Member(effects.expected(best.candidate), search.generation + 1, "expected")
        # What has been seen is never tried twice; where the expected one was, it has had its chance.
        others = [expected] if search.archive.fresh(expected.candidate) else []
        ranked = sorted([*others, *novel], key=lambda member: -effects.predict(member.candidate))
        if not ranked:
            return []
        member = ranked[0]
        for size in rungs(len(order), self.options.probe, self.options.growth):
            await self._extend(member, [task for task in order[:size] if task not in member.record])
            if clearly_worse(member, best, order[:size]):
                return []
        return [member]

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
        """New contents: at random over all knobs at first, then drawn from the effects or bred."""
        search, options = self.search, self.options
        born, effects = search.generation + 1, self._effects(places)
        parents = [search.archive.members[id].candidate for id in search.archive.population]
        count = options.children if search.generation else 2 * options.children
        children: list[Member] = []
        for _ in range(count * 20):
            if len(children) >= count:
                break
            base = rng.choices(parents, [1.0 / (rank + 1) for rank in range(len(parents))])[0]
            if not search.generation:
                child, move = effects.scattered(base, rng), "random"
            elif rng.random() < options.drawn:
                child, move = effects.drawn(base, rng), "drawn"
            else:
                child, move = self._bred(base, parents, places, rng)
            if search.archive.fresh(child):
                children.append(Member(child, born, move))
            else:
                search.repeats += 1
        return children

    def _bred(
        self, child: Candidate, parents: Sequence[Candidate], places: Sequence[Knob], rng: random.Random
    ) -> tuple[Candidate, str]:
        options = self.options
        if len(parents) > 1 and rng.random() < options.crossover:
            other = rng.choice(parents)
            if rng.random() < 0.5:
                return merge(child, other, self.start.candidate, places), "merge"
            child = crossover(child, other, places, rng)
            if rng.random() < 0.5:
                return child, "crossover"
        return mutate(child, places, rng, strength=options.strength), "mutate"

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
        """The best member, with its paired lift over the incumbent on validation and its standard error.

        Who is not better there is out: what the search itself has seen flatters what it chose.  Among the
        others everything that is known decides, the search's tasks and validation together.
        """
        search = self.search
        records = search.validated if search.validation else dict(search.archive.members)
        if search.start not in records:
            return self.start, 0.0, 0.0
        best, most, lift, error = self.start, 0.0, 0.0, 0.0
        for id, record in records.items():
            mean, deviation, n = paired(record, records[search.start])
            if not n or mean <= 1e-12:  # a tie keeps what is there
                continue
            searched, _, tasks = paired(search.archive.members[id], self.start)
            whole = mean if not search.validation else (n * mean + tasks * searched) / (n + tasks)
            if whole > most + 1e-12:
                best, most = search.archive.members[id], whole
                lift, error = mean, deviation if n > 1 else 0.0
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

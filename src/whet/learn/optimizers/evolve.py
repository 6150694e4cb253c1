"""`Evolve`: searches the knobs of readable resources by running the candidates on training tasks.

A candidate is one content for each of the named resources (a rule, a parser's settings), held as
Versions of a Bundle and run through `context.rollout`, so an agent in any framework is run as it
is.  One step is one generation:

1. children are drawn: most from what every setting has been worth so far (`learn.evolution.effects`,
   Thompson sampling; the first generation at random over all knobs), the others by mutation and
   crossover of the best, which also moves numbers finely;
2. all run on a few probe tasks, others in each generation, and the effects are estimated anew.  A
   comparison of two candidates on 300 tasks is wrong by two points and more, and choosing the
   luckiest of many made it worse; a setting's effect rests on thousands;
3. every few generations the most promising, by the estimate and not by its own luck, runs on all
   search tasks, as long as it is not clearly worse than the best; a content is never tried twice,
   and one that behaves on the probe like one already tried goes no further; up to three knobs are
   climbed as well, by steps of all sizes from the best, and each generation's best runs on all;
4. comparisons are paired on the same tasks and seeds;
5. the winner is chosen among those that are better than the incumbent on `context.validation`, by
   their lift over all tasks; the incumbent always stands and keeps ties.

So contents that are plain JSON are tuned. A text, a prompt or a function marked with `@whet.evolve`, is searched as
a program is (`learn.evolution.texts`): by edits, and by a model if there is one; one step is the whole search then.
It ignores the recorded groups: they were not run with the candidates' seeds.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import msgspec

from ...errors import BudgetExceeded, NotFoundError, TrainingRefused
from ...models.base import Model
from ...record.tracing.resources import resources
from ...types import Bundle, Group, Version, digest
from ..evolution.agents.functions import refusal
from ..evolution.editing.operators import Knob, knobs
from ..evolution.editing.targets import Domain, Path
from ..evolution.search.effects import Effects, Trial, compared
from ..evolution.search.engine import SearchOptions
from ..evolution.search.proposers import Proposes
from ..evolution.search.search_state import (
    FEW,
    Candidate,
    EvolveOptions,
    Member,
    SearchState,
    clearly_worse,
    paired,
    proposed,
    rungs,
)
from ..evolution.search.texts import Texts, edits_for
from ..loop import Context, Update

__all__ = ["Evolve", "EvolveOptions"]


class Evolve:
    """Optimizer that improves the contents of one or several resources.

    Args:
        resources: names; everything in the bundle that can vary and whatever `@whet.evolve` and `whet.resource`
            declared in this process if None. Texts first, then what is plain JSON.
        score: to maximise: a Score's name, `success` or `reward`.
        domains: resource → path → Domain, usually `targets.find(source, "RULE").domains`; what has
            none is inferred from its type.
        model: proposes changes of texts and functions.
        proposers: others that do (`learn.evolution.proposers.Proposes`).

    >>> Evolve(("rule", "parser"), options=EvolveOptions(generations=8))  # doctest: +SKIP
    """

    name = "evolve"
    group_size = 0
    takes_groups = False
    on_policy = False
    ordered = False

    def __init__(
        self,
        resources: Sequence[str] | None = None,
        score: str = "success",
        *,
        model: Model | None = None,
        proposers: Sequence[Proposes] = (),
        domains: Mapping[str, Mapping[Path, Domain]] | None = None,
        options: EvolveOptions | None = None,
    ) -> None:
        self.named = None if resources is None else tuple(resources)
        self.resources: tuple[str, ...] = self.named or ()
        self.score = score
        self.model, self.proposers = model, tuple(proposers)
        self.domains = domains or {}
        self.options = options or EvolveOptions()

    @property
    def identity(self) -> str:
        """Digest of what decides its results."""
        domains = [[name, *map(str, self.domains[name].items())] for name in sorted(self.domains)]
        who = [
            self.model.name if self.model is not None else "",
            *(proposer.identity for proposer in self.proposers),
        ]
        return digest([self.named, self.score, asdict(self.options), domains, who])

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """One generation.

        The first step also runs the incumbent. When the budget would be overshot the search ends
        with the best so far and `done`. A Bundle other than the one last returned, or training
        tasks that are gone, start a new search: old records would not be comparable.

        Raises:
            TrainingRefused: no tasks, no knobs, or no rollout of the incumbent has the score.
            NotFoundError: the Bundle has no Version of one of the resources.
        """
        texts, self.resources = self._divided(bundle)
        if texts and context.state is None:
            update = await self._texts(texts).improve(bundle, context)
            return replace(
                update, state={"texts": "done"} if self.resources else None, done=not self.resources
            )
        if context.state == {"texts": "done"}:
            # The texts are done: what follows is a search of knobs, which begins with no state.
            context.state = None
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

    def _divided(self, bundle: Bundle) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The resources that are texts, and those that are tuned."""
        declared = resources()
        names = self.named if self.named is not None else tuple(dict.fromkeys((*bundle, *declared)))
        texts = []
        for name in names:
            content = bundle[name].content if name in bundle else None
            if content is None and name in declared:
                content = declared[name].default_version.content
            if isinstance(content, str) and name not in self.domains:
                texts.append(name)
        if self.named is None:  # a method, say, cannot be called by JSON: nobody asked for it by name
            texts = [name for name in texts if not refusal(declared.get(name))]
        rest = [name for name in names if name not in texts]
        if self.named is None:  # of what nobody asked for, only what can vary
            rest = [
                name
                for name in rest
                if name in bundle and knobs({name: bundle[name].content}, self._stated((name,)))
            ]
            if not texts and not rest:
                raise TrainingRefused(
                    "evolve: the bundle holds nothing that can vary, and nothing is declared with @whet.evolve or "
                    "whet.resource"
                )
        return tuple(texts), tuple(rest)

    def _texts(self, names: Sequence[str]) -> Texts:
        options = self.options
        search = SearchOptions(
            iterations=options.proposals,
            edits=edits_for(names) if options.edits else (),
            patience=options.patience,
        )
        return Texts(
            names,
            self.score,
            self.model,
            self.proposers,
            search,
            tasks=options.tasks,
            validation_share=options.validation_share,
        )

    def _stated(self, names: Sequence[str]) -> dict[Path, Domain]:
        """The domains that were given, by resource and path."""
        return {
            (name, *path): domain for name in names for path, domain in self.domains.get(name, {}).items()
        }

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
        places = knobs(self._candidate(bundle), self._stated(self.resources))
        if not places:
            raise TrainingRefused(
                f"evolve: nothing in {', '.join(self.resources)} can vary: text needs a hint with its choices"
            )
        return places

    def _resumed(self, bundle: Bundle, context: Context) -> SearchState | None:
        if context.state is None:
            return None
        try:
            search = SearchState.decode(context.state)
        except msgspec.ValidationError:  # of an earlier version: its records are not comparable either
            return None
        train = {task.id for task in context.train}
        validation = {task.id for task in context.validation}
        same = search.bundle == bundle.id and train.issuperset(search.tasks)
        return search if same and validation.issuperset(search.validation) else None

    def _begun(self, bundle: Bundle, context: Context) -> SearchState:
        if not context.train:
            raise TrainingRefused("evolve: no training tasks to run candidates on")
        options = self.options
        # Drawn once for the whole search and kept in its state: a resumed search draws the same children.
        seed = context.rng.getrandbits(31)
        # Apart from the streams of generations: a change of `tasks` leaves those as they are.
        rng = random.Random(f"{seed}:tasks")
        tasks = rng.sample([task.id for task in context.train], min(options.tasks, len(context.train)))
        room = len(context.validation)
        remaining = context.meter.left("rollouts")
        if remaining is not None:
            room = min(
                room, int(options.validation_share * remaining / ((options.finalists + 1) * options.n))
            )
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
        # A stream for each generation: one that the budget cut off is run again with the same children.
        rng = random.Random(f"{search.seed}:{search.generation}")
        # A copy: `proposed` adds to `seen` as it goes.
        proposed_before, before = set(search.archive.seen), search.duplicates
        start = self.start.candidate
        children = proposed(search, start, places, self._effects(places), options, rng)
        if not children:
            return await self._closed(places, rng)
        # Each generation probes other tasks, so that an effect holds for all of them.
        order = rng.sample(search.tasks, len(search.tasks))
        best = search.archive.population[0]
        try:
            trials, novel = await self._probed(children, order[: options.probe], places)
            effects, finished = self._effects(places, trials), list[Member]()
            if len(places) <= FEW:
                finished = await self._climbed(novel, order)
            ends = search.generation + 1 == options.generations
            if not finished and (ends or (search.generation + 1) % options.finish == 0):
                finished = await self._finished(novel, order, effects)
        except BudgetExceeded:
            # As if never proposed: with a larger budget the generation is run again, and the same.
            search.archive.seen, search.duplicates = proposed_before, before
            raise
        # Kept only once the generation is whole: no rollout follows that could overshoot the budget.
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
        """The worth of each setting by the trials so far and `more`."""
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
            if self.search.archive.twin(child, probe, novel):
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
        expected = Member(effects.expected(self._leader.candidate), search.generation + 1, "expected")
        # What has been seen is never tried twice; where the expected one was, it has had its chance.
        others = [expected] if search.archive.fresh(expected.candidate) else []
        ranked = sorted([*others, *novel], key=lambda member: -effects.predict(member.candidate))
        return await self._raced(ranked[0], order) if ranked else []

    async def _climbed(self, novel: Sequence[Member], order: Sequence[str]) -> list[Member]:
        """The best on the probe, if it is better there than the best so far, on all tasks."""
        probe = order[: self.options.probe]
        best = self._leader
        ahead = [member for member in novel if paired(member, best, probe)[0] > 0.0]
        if not ahead:
            return []
        return await self._raced(max(ahead, key=lambda member: paired(member, best, probe)[0]), order)

    async def _closed(self, places: Sequence[Knob], rng: random.Random) -> bool:
        """If nothing new is within reach, the most promising probed candidate runs on all tasks.

        Returns:
            Whether it leads now: from there other candidates are within reach.
        """
        search, best = self.search, self._leader
        effects = self._effects(places)
        expected = Member(effects.expected(best.candidate), search.generation, "expected")
        if expected.id in search.archive.members:
            return False
        raced = await self._raced(expected, rng.sample(search.tasks, len(search.tasks)))
        search.archive.admit(raced, self.start, self.options.parents)
        if self._leader.id == best.id:
            return False
        search.generation += 1
        search.improved = search.generation
        return True

    @property
    def _leader(self) -> Member:
        return self.search.archive.members[self.search.archive.population[0]]

    async def _raced(self, member: Member, order: Sequence[str]) -> list[Member]:
        """A candidate run on all tasks; nothing of one that proves clearly worse than the best."""
        best = self._leader
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
        # The incumbent first: without its values the others have nothing to be compared with.
        for id in [search.start, *search.archive.population[:count]]:
            if id in search.validated:
                continue
            # A record of its own: values on validation must not stand among those of the search's tasks.
            member = Member(search.archive.members[id].candidate, id=id)
            try:
                await self._extend(member, search.validation, held=True, final=final)
            except BudgetExceeded:
                return
            search.validated[id] = member

    def update(self, reason: str) -> Update:
        """The step's Update: the winner so far, the state and the figures."""
        search, archive = self.search, self.search.archive
        if not search.start:
            return Update(bundle=self.base, state=None, metrics={"rollouts": 0.0}, done=True, reason=reason)
        winner, lift, error = self._winner()
        bundle = self.base.put(*self._versions(winner, lift))
        # By this `_resumed` knows that the next step goes on from here.
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

    def _versions(self, member: Member, lift: float) -> list[Version]:
        meta = {
            "optimizer": "evolve",
            "score": self.score,
            "seed": self.search.seed,
            "born": member.born,
            "move": member.move,
            "validation_lift": lift,
        }
        return [
            replace(version, parent=self.base[version.resource].id, meta=meta)
            for version in self._trial(member)
        ]

    def _winner(self) -> tuple[Member, float, float]:
        """The best member, with its paired lift over the incumbent on validation and its standard error.

        A member that is not better there is out: the search's own tasks flatter its choices.  Among the
        others the search's tasks and validation decide together.
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
            overall = mean if not search.validation else (n * mean + tasks * searched) / (n + tasks)
            if overall > most + 1e-12:
                best, most = search.archive.members[id], overall
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
        remaining = self.context.meter.left("rollouts")
        # The last validation may spend what was kept for it.
        reserved = 0 if final else self._reserve()
        # Before anything is spent: half a candidate's rollouts would be paid for and compared with nothing.
        if remaining is not None and remaining - reserved < cost:
            raise BudgetExceeded(
                f"rollouts: {remaining:g} left, {reserved} kept for validation, {cost} more asked for by one candidate"
            )
        source = self.held if held else self.train
        chosen = [source[task] for task in tasks]
        trial = self.base.put(*self._trial(member))
        # One seed for every candidate: luck is shared, and pairs are pairs.
        seed = search.seed + 1 if held else search.seed
        member.add(await self.context.rollout(trial, chosen, options.n, seed=seed), self.score)
        search.rollouts += cost

    def _trial(self, member: Member) -> list[Version]:
        return [
            Version(resource=name, content=member.candidate[name], kind=self.base[name].kind)
            for name in self.resources
            # What is unchanged keeps its Version, so that a winner names as new only what it changed.
            if member.candidate[name] != self.base[name].content
        ]

    def _reserve(self) -> int:
        """Rollouts to keep for the last validation: the incumbent's and the finalists'."""
        due = self.options.finalists + (self.search.start not in self.search.validated)
        return due * len(self.search.validation) * self.options.n

"""One weak part of an agent repaired by what people said: variants of the pieces that may change, and the proof.

A plan (`planning.py`) says what may change and who judges it.  `Repair.propose` lets each learner that fits a piece
make its variants and races them; `Repair.prove` asks the gate, on people whom nothing saw, where the fitted reward may
judge.

Where it may not, a wrong sum for instance looks like a right one, variants are steered by what is known all the same
(`steering.py`).  That proves nothing, so several that answer differently are kept for real traffic (`variants.py`).

The agent runs as its owner runs it, in a copy of its folder, and is asked each question once: its answers are kept in
the record, so a process that was killed in between asks for none again (`networked.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

from ....errors import BudgetExceeded, GateError, InputError, TrainingRefused
from ....judge.fitted import FittedReward
from ....models.base import Model
from ....models.budget import Meter
from ....prove.guardrails import Guardrail
from ....record.store import Log, Store
from ....record.store.releases import PROGRAM
from ....sandbox import Pool
from ....types import Budget, Bundle, Verdict, Version, digest
from ...experiment import Experiment
from ...improvement import Candidate, Improvement
from ...loop import Progress, quiet
from ..agents.candidates import ProgramCodec
from ..agents.networked import Networked
from ..agents.pieces import Piece, patch
from ..agents.unmarked import functions
from ..prompts.prompt_race import EQUAL
from ..prompts.reflecting import Reflect, ReflectOptions
from ..prompts.thumbed import (
    LIKED,
    LIKED_BY_ALL,
    LIKED_BY_OTHERS,
    MARGIN,
    MOST_OPEN,
    KeptTargets,
    ThumbReward,
    answers_at_all,
)
from .code_search import SEARCHED, CodeSearch
from .planning import LEAST_VARIANTS, RepairPlan
from .rules import AddedRules
from .same_answer import says_the_same
from .steering import Steer
from .suspects import PieceKind, Suspect
from .values import neighbours, values_near
from .variants import VariantPool

_LEAST_ROWS = 12
"""Calls of the agent for each value that is raced."""
_FIRST, _WORST = 2, 4
"""Rows that are surest wrong: a value that moves none of the first is run on no other, nor is one without a gain."""
_AT_ONCE = 10
"""Liked answers from elsewhere that are asked before it is looked whether a variant lost too many."""
_LOST = 0.1
"""Share of them that it may lose beside the agent as it is, whose own answers may vary, too."""
_LIKELIEST, _OFTENER = 2, 3
"""Pieces of which a model is asked for variants so many times as often as of the others."""
_MOST_RULES = 6
"""Rules of a variant of a prompt that are left out in turn, the last ones first."""
_TABLES = (".csv", ".tsv")
_RIGHT = 0.55
_GOOD = 0.75
"""Mean of the search's score from which no further piece is tried."""


def variant_id(version: Version) -> str:
    """Of a text of a resource, whatever it was made from."""
    return digest([version.resource, version.content], 16)


@dataclass(frozen=True, slots=True)
class Proposed:
    """The variants of one issue."""

    improvement: Improvement
    """The best of them by the rows of the search; the agent as it is where none was better."""
    others: Sequence[Bundle]
    """That answer otherwise and may be right where it is not, the likeliest first; none where a reward may judge."""
    variants: int
    """That were tried."""
    searched: Sequence[str]
    """Names of the pieces of which variants were run: none behind one whose variant may well be the repair."""
    failed: Sequence[str] = ()
    """Sentences on learners that could do nothing, with their reason."""


@dataclass
class Repair:
    """A plan at work; made by `opened`."""

    plan: RepairPlan
    experiment: Experiment
    codec: ProgramCodec
    model: Model | None
    start: Bundle
    network: Networked
    names: dict[str, str] = field(default_factory=dict)
    """Suspect → resource."""
    words: Collection[str] = ()
    """That tell this part of the traffic from the rest."""
    pool: VariantPool = field(init=False)
    ideas: list[Version] = field(default_factory=list)
    """All that its searches made and ran, better or not: a model that sees several faults mends any of them."""
    harmful: set[str] = field(default_factory=set)
    """Ids of variants that did harm elsewhere."""

    def __post_init__(self) -> None:
        tasks = [task.id for task in self.plan.rows.tasks]
        self.pool = VariantPool(self.start, LIKED, tasks, self._prompts)
        self.experiment.watch_runs(self.pool.note)

    async def propose(self, ideas: Sequence[Version] = ()) -> Proposed:
        """Let each learner make its variants; race the best of each, or keep those that answer differently.

        Args:
            ideas: of searches for other issues; those of a piece that may be at fault here are tried first.

        Raises:
            TrainingRefused: the agent does not answer at all.
        """
        await answers_at_all(self.experiment, self.start)
        suspects = self.plan.suspects
        tried, better, failed, searched = 0, dict[str, Candidate](), list[str](), list[str]()
        if ideas and not self.plan.fitted:
            pieces = {self.names[suspect.name] for suspect in suspects}
            versions = [idea for idea in ideas if idea.resource in pieces]
            await self._moved([self.start.put(version) for version in versions])
            tried += len(versions)
        likeliest = suspects[:_LIKELIEST]
        unit = self.plan.settings.proposals // max(1, len(suspects) + (_OFTENER - 1) * len(likeliest))
        for place, suspect in enumerate(suspects):
            # The likeliest first, and with half of what is left: a share too small for a search is lost.
            last = place + 1 == len(suspects)
            share = (self.plan.rollouts - self.network.calls) // (1 if last else 2)
            proposals = max(LEAST_VARIANTS, _OFTENER * unit if suspect in likeliest else unit)
            before = len(self.pool.bundles())
            try:
                improvement, variants = await self._learn(suspect, max(8, share), proposals)
            except (TrainingRefused, InputError, BudgetExceeded) as error:
                failed.append(f"{suspect.name} ({suspect.kind}): {error}")
                searched.append(suspect.name)
                continue
            # Where a model had no idea nothing was searched: another time it may have one.
            searched += [suspect.name] * (len(self.pool.bundles()) > before)
            tried += variants
            if not self.plan.fitted:
                # People tell sooner and better whether it is right than what further pieces could say.
                if tried >= LEAST_VARIANTS and await self._mended():
                    break
                continue
            if not self.fresh(improvement.bundle):
                continue
            if harm := await self.harmless(improvement.bundle):
                failed.append(f"{suspect.name} ({suspect.kind}): {harm}")
                continue
            better[suspect.name] = Candidate(
                name=suspect.name, bundle=improvement.bundle, entered=True, reason=improvement.reason
            )
            best = improvement.metrics[-1].get("best", 0.0) if improvement.metrics else 0.0
            if best >= _GOOD and tried >= LEAST_VARIANTS:
                break  # what is left to gain is less than what another piece may break
        if self.plan.fitted:
            chosen = await self._best(better)
            needed, struck = await self.needed(chosen.bundle)
            return Proposed(replace(chosen, bundle=needed), (), tried, searched, [*failed, *struck])
        bundle, others, harms = await self.first_harmless(
            [each for each in self.pool.best() if self.fresh(each)]
        )
        improvement = Improvement(bundle=bundle, parent=self.start, optimizer="repair")
        return Proposed(improvement, others, tried, searched, [*failed, *harms])

    async def _mended(self) -> bool:
        """True if a variant may well be the repair, and does no harm elsewhere."""
        for bundle in list(self.pool.mended()):
            if self.fresh(bundle) and not await self.harmless(bundle):
                return True
        return False

    def fresh(self, bundle: Bundle) -> bool:
        """True if it changes something, and nothing that was tried in vain before."""
        changed = self.changed(bundle)
        return bool(changed) and variant_id(changed[0]) not in self.plan.part.tried

    async def first_harmless(self, bundles: Sequence[Bundle]) -> tuple[Bundle, Sequence[Bundle], list[str]]:
        """The first that does no harm elsewhere, those behind it, and what the ones before it did.

        Returns:
            the agent as it is for the first where none is left.
        """
        harms = list[str]()
        for number, whole in enumerate(bundles, 1):
            bundle, struck = await self.needed(whole)
            harms += struck
            if not self.fresh(bundle):
                harms.append(f"{', '.join(self._names(bundle))}: what is left was tried in vain before")
            elif not (harm := await self.harmless(bundle)):
                return bundle, bundles[number:], harms
            else:
                harms.append(f"{', '.join(self._names(bundle))}: {harm}")
        return self.start, (), harms

    async def needed(self, bundle: Bundle) -> tuple[Bundle, list[str]]:
        """A variant of a prompt without the rules that nothing is lost without on the rows of its part.

        Rules are left out one after the other; what stays worth as much without one does without it. The last one
        stays, for the variant was better than the start by it.

        Returns:
            The variant, as it is where it is none of a prompt, and a sentence on each rule that was struck out.
        """
        changed = self.changed(bundle)
        if len(changed) != 1 or changed[0].resource not in self._prompts:
            return bundle, []
        version, struck = changed[0], list[str]()
        added = AddedRules.of(str(self.start[version.resource].content), str(version.content))
        kept = set(range(len(added.rules)))
        if len(kept) < 2:
            return bundle, []
        try:
            worth = await self._worth(bundle)
            for number in sorted(kept, reverse=True)[:_MOST_RULES]:
                if len(kept) == 1:
                    break
                text = added.text(kept - {number})
                shorter = bundle.put(replace(version, content=text, id=""))
                value = await self._worth(shorter)
                if value >= worth - EQUAL:
                    bundle, worth = shorter, value
                    kept.discard(number)
                    struck.append(
                        f"struck out of {version.resource}, for nothing is lost without it: "
                        f"“{added.rules[number][:160]}”"
                    )
        except BudgetExceeded:
            pass  # what is left of it was not looked at, and stays
        return bundle, struck

    async def _worth(self, bundle: Bundle) -> float:
        """Mean score of a Bundle on all rows of the search."""
        tasks = [*self.experiment.train, *self.experiment.validation]
        groups = await self.experiment.collect(bundle, tasks, label="rules")
        scores = [
            run.scores[LIKED].value for group in groups for run in group.trajectories if LIKED in run.scores
        ]
        values = [value for value in scores if value is not None]
        return fmean(values) if values else 0.0

    @property
    def _prompts(self) -> set[str]:
        """Resources that are prompts."""
        return {self.names[each.name] for each in self.plan.suspects if each.kind is PieceKind.PROMPT}

    def _names(self, bundle: Bundle) -> list[str]:
        return [version.resource for version in self.changed(bundle)]

    async def _best(self, better: dict[str, Candidate]) -> Improvement:
        bundles = {name: candidate.bundle for name, candidate in better.items()}
        if len(bundles) > 1:
            return await self.experiment.choose(
                bundles,
                against=self.start,
                metric=LIKED,
                rollouts=max(2 * len(bundles) + 2, self.plan.rollouts // 3),
            )
        bundle = next(iter(bundles.values()), self.start)
        return Improvement(
            bundle=bundle, parent=self.start, optimizer="repair", candidates=tuple(better.values())
        )

    async def _learn(self, suspect: Suspect, rollouts: int, proposals: int) -> tuple[Improvement, int]:
        """What one learner makes of its piece, and how many variants it tried."""
        if suspect.kind in (PieceKind.PROMPT, PieceKind.CODE):
            return await self._search(suspect, rollouts, proposals)
        values, tried = None, 0
        around = self._neighbours(suspect)
        if len(around) > 1:
            values, tried = await self._values(suspect, around, rollouts // (2 if self.model else 1))
            # Without a reward any other value looks as good as the right one, which may be none of those around.
            if self.model is None or (self.plan.fitted and values.bundle != self.start):
                return values, tried
        if self.model is None:
            raise TrainingRefused("it has no other value to try")
        searched, more = await self._search(suspect, rollouts // (1 if values is None else 2), proposals)
        return searched, tried + more

    def _neighbours(self, suspect: Suspect) -> list[str]:
        """The values around those of a constant or of a file."""
        text = str(self.start[self.names[suspect.name]].content)
        if ":" in suspect.name:
            return neighbours(text)
        if Path(suspect.name).suffix.lower() in _TABLES:
            return values_near(text, self.words, table=True)
        return values_near(text, self.words, functions=self._functions)

    @cached_property
    def _functions(self) -> frozenset[str]:
        """Names of the agent's functions, methods without their class: to find them every module is parsed."""
        return frozenset(piece.name.rpartition(".")[2] for piece in functions(self.plan.agent.root))

    async def _search(self, suspect: Suspect, rollouts: int, proposals: int) -> tuple[Improvement, int]:
        """A search of texts that a model proposes, and of edits."""
        resource, settings = self.names[suspect.name], self.plan.settings
        optimizer: Reflect | CodeSearch
        if suspect.kind is PieceKind.PROMPT:
            if self.model is None:
                raise TrainingRefused("no model proposes texts (--model)")
            # A share of the calls is little, and what is steered proves nothing: the next proposal is worth more than a
            # second look at the last ones.
            options = ReflectOptions(
                rounds=proposals,
                patience=proposals,
                seed=settings.seed,
                tasks=SEARCHED,
                first=4,
                second_looks=False,
            )
            optimizer = Reflect(resource, LIKED, model=self.model, right=_RIGHT, options=options)
        else:
            code = ":" in suspect.name
            optimizer = CodeSearch(
                resource,
                self.model,
                proposals,
                settings.seed,
                code=code,
                edits=code and self.plan.fitted,
                symptom=self.plan.part.symptom,
            )
        before = self.pool.bundles()
        improvement = await self.experiment.improve(
            optimizer,
            bundle=self.start,
            rounds=1,
            label=f"{suspect.kind}-{digest(suspect.name, 8)}",
            budget=Budget(rollouts=rollouts),
            watch=lambda number, metrics: None,
        )
        for id, bundle in self.pool.bundles().items():
            if id not in before:
                self.ideas += self.changed(bundle)
        metrics = improvement.metrics[-1] if improvement.metrics else {}
        return improvement, int(metrics.get("tried", metrics.get("proposals", 0)))

    async def _values(
        self, suspect: Suspect, around: Sequence[str], rollouts: int
    ) -> tuple[Improvement, int]:
        """The best of the values around a constant's."""
        before = self.start[self.names[suspect.name]]
        # A race needs some rows for each.
        most = max(2, rollouts // (_LEAST_ROWS if self.plan.fitted else _WORST))
        bundles = {
            f"{suspect.name} {number}": self.start.put(replace(before, content=text, id="", parent=before.id))
            for number, text in enumerate(around[:most], 1)
            if variant_id(replace(before, content=text)) not in self.plan.part.tried
        }
        if not self.plan.fitted:
            await self._moved(list(bundles.values()))
            return Improvement(bundle=self.start, parent=self.start, optimizer="values"), len(bundles)
        best = await self.experiment.choose(bundles, against=self.start, metric=LIKED, rollouts=rollouts)
        gain = best.candidates[0].gain
        return (best if gain is not None and gain > 0 else replace(best, bundle=self.start)), len(bundles)

    async def _moved(self, bundles: Sequence[Bundle]) -> None:
        """Run each on the rows that are surest wrong, and those that move them on every second other one."""
        tasks = [*self.experiment.train, *self.experiment.validation]
        await self.experiment.collect(self.start, tasks, label="values")
        worst = sorted(tasks, key=self.pool.start_value)
        for bundle in bundles:
            # What moves neither of the two moves hardly any: of most values nothing more is asked.
            await self.experiment.collect(bundle, worst[:_FIRST], label="values")
            if not self.pool.moves(bundle):
                continue
            await self.experiment.collect(bundle, worst[_FIRST:_WORST], label="values")
            if self.pool.gain(bundle) > 0:
                await self.experiment.collect(bundle, worst[_WORST::2], label="values")

    async def harmless(self, bundle: Bundle) -> str:
        """Run a variant in the shadow of recorded traffic from elsewhere: why it does harm there, "" if it does not.

        Repairs are tried together, and each is judged by its own part of the traffic alone: none may touch another's.
        """
        tasks, most = self.plan.liked, _LOST * len(self.plan.liked)
        before = after = 0
        for place in range(0, len(tasks), _AT_ONCE):
            same = []
            for side in (self.start, bundle):
                groups = await self.experiment.collect(side, tasks[place : place + _AT_ONCE], label="shadow")
                runs = [group.trajectories[0] for group in groups]
                same.append(sum(says_the_same(run.output_text, run.task.meta["liked"]) for run in runs))
            before, after = before + same[0], after + same[1]
            if after < before - most:
                asked = min(len(tasks), place + _AT_ONCE)
                self.harmful |= {variant_id(version) for version in self.changed(bundle)}
                return f"of {asked} liked answers elsewhere it keeps {after}, and the agent as it is {before}"
        return ""

    async def prove(self, improvement: Improvement, *, alpha: float) -> Verdict:
        """The gate's verdict, on people whom no search saw.

        Raises:
            GateError: as `Experiment.gate`; or nothing but people can judge here.
        """
        if not self.plan.fitted:
            raise GateError("no reward may judge here: people have to, on real traffic")
        return await self.experiment.gate(
            improvement,
            metric=LIKED_BY_ALL,
            alpha=alpha,
            regime=self.plan.settings.regime,
            guardrails=[Guardrail(LIKED_BY_OTHERS, MARGIN, higher_is_better=True)],
            label="the agent as it is",
        )

    def changed(self, bundle: Bundle) -> list[Version]:
        """The Versions of a Bundle that differ from the start."""
        return [version for name, version in bundle.items() if version.id != self.start[name].id]

    def patch(self, bundle: Bundle) -> str:
        """A patch of the agent's folder, for `git apply` in it."""
        return patch(self.plan.agent.pieces, self.codec.program(bundle), self.plan.agent.repository.written)


@asynccontextmanager
async def opened(
    plan: RepairPlan, store: Store, *, model: Model | None, meter: Meter, progress: Progress = quiet
) -> AsyncIterator[Repair]:
    """A plan at work.

    Args:
        meter: has a rollout reserved for each call of the agent that was not made before.

    Raises:
        TrainingRefused: the plan is refused.
    """
    if plan.refused:
        raise TrainingRefused(plan.refused)
    agent, settings = plan.agent, plan.settings
    settings.output.mkdir(parents=True, exist_ok=True)
    names = {piece.part: _resource(piece) for piece in agent.pieces}
    codec = ProgramCodec(agent.start, names, dict.fromkeys(names, PROGRAM))
    # One for every candidate that is open, and one for the next: else that would wait for them forever.
    pool = Pool(workers=MOST_OPEN + 1)
    network = Networked(
        agent,
        pool,
        seconds=120.0,
        most=None,
        without=[settings.output],
        meter=meter,
        log=Log(store, f"answers/{plan.source}"),
        as_came=True,
    )
    assert agent.entry is not None
    target = agent.target(agent.entry)
    env = KeptTargets({target.name: target}, {target.name: network}, codec)
    rewards: list[ThumbReward | Steer] = [Steer(plan.rows.search, plan.own, plan.wrong, plan.elsewhere)]
    if plan.fitted:
        rewards = [
            ThumbReward(LIKED, FittedReward(plan.rows.search), coarse=True),
            ThumbReward(LIKED_BY_ALL, FittedReward(plan.rows.all), unrated=True),
            ThumbReward(LIKED_BY_OTHERS, FittedReward(plan.rows.unseen), unrated=True),
        ]
    identity = digest(
        [
            plan.part.issue,
            plan.source,
            [task.id for task in plan.rows.tasks],
            [each.version for each in rewards],
        ],
        12,
    )
    experiment = Experiment(
        env=env,
        tasks=plan.rows.tasks,
        rewards=rewards,
        store=store,
        seed=settings.seed,
        name=f"repair/{plan.part.issue}/{identity}",
        concurrency=1,  # a candidate answers one call at a time
        folder=settings.output / "artifacts",
        progress=progress,
    )
    by_mark = {piece.mark: names[piece.part] for piece in agent.pieces}
    suspects = {suspect.name: by_mark[agent.mark(suspect.name)] for suspect in plan.suspects}
    try:
        yield Repair(plan, experiment, codec, model, codec.baseline, network, suspects, plan.words)
    finally:
        await env.close()
        network.end()
        pool.close()


def _resource(piece: Piece) -> str:
    module = ".".join(Path(piece.mark.path).with_suffix("").parts).removeprefix("src.")
    return f"{module}.{piece.mark.qualname}" if piece.mark.qualname else piece.mark.path

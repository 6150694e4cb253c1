"""An agent's prompt, improved by what people said of its recorded answers, or by a table (`agent_table.py`).

`plan_agent` reads the agent's file and the record, fits a reward to the thumbs and tries it on other people's, and
spends nothing; its `sentences` say what can change, from which evidence, what can be proven and what it costs.
`improve_agent` does it: `Reflect` searches by a reward fitted to some people, and the gate judges inputs of the others,
before and after, by one fitted to all, while one fitted to the others alone must not contradict it.

The agent runs as its owner runs it, with its network, in a copy of its folder (`networked.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from ....errors import InputError, TrainingRefused
from ....judge.fitted import RULES, FittedReward, ThumbAgreement, agreement
from ....judge.metrics import JudgeMetric, Metric, kept_marks
from ....judge.rubric import ProvenRubric, RubricReward
from ....judge.rubric import recorded as read_rubric
from ....models import RecordedModel
from ....models.base import Model
from ....models.budget import Meter
from ....prove.guardrails import Guardrail
from ....prove.power import power_in_words
from ....record.influence import weighed
from ....record.rows import as_text
from ....record.store import Log, Store
from ....record.store.bundles import BUNDLE_FILE, write_bundle
from ....record.store.findings import open_findings, withheld
from ....record.store.releases import GATEWAY_PROMPT, PROGRAM
from ....record.tracing.signals import hear
from ....repository.scan import scan
from ....sandbox import Pool
from ....ship.releasing import record, release
from ....stats import gain_for
from ....types import (
    Budget,
    Bundle,
    Group,
    Sampling,
    Score,
    Split,
    Task,
    Trajectory,
    Verdict,
    digest,
)
from ...datasets.thumbs import ThumbEvidence, ThumbRows, rated_runs, thumb_rows
from ...experiment import Experiment
from ...improvement import Improvement
from ...loop import Progress, means, quiet
from ..agents.agent import RepositoryAgent
from ..agents.agent_prompt import entry_of, holds, placed, prompt_of, stands_in, system_prompts
from ..agents.candidates import ProgramCodec
from ..agents.holding import OpenCandidate
from ..agents.live_prompt import LivePrompts, passages_between
from ..agents.networked import Networked
from ..agents.outside import Targets
from ..agents.pieces import Piece, patch
from ..search.settings import folder_in_git
from .improved import ImprovedText, moved, of_hundred
from .reflecting import Reflect, ReflectOptions

LIKED = "liked"
"""Score of the search: the fitted reward of the people whom it sees."""
LIKED_BY_ALL, LIKED_BY_OTHERS = "liked_by_all", "liked_by_others"
KEPT = "liked_numbers_kept"
"""0 where an answer says what people liked on this input with other numbers, 1 where it does not."""
_RIGHT = 0.55
"""From this value on an answer counts as liked."""
PROOF = 0.35
"""Share of the agent's calls that the gate may take."""
LEAST = 24
"""Calls of the agent that a search needs."""
MOST_OPEN = 3
"""Candidates whose processes are kept for their next rows: starting one imports the agent's packages."""
MARGIN = 0.05
"""That the reward of the unseen people alone may be lower after than before, at the gate."""
_FEWEST_PAIRS = 6
_DONE = "done"
"""Under this key the log of an agent's answers says that the run which asked for them came to its end."""
_FEW_PEOPLE = 10
"""People below which it is more of them, and not more thumbs, that tell what people like."""
_NUMBERS_LOST = 0.35
"""Share of the liked numbers that may be others afterwards: thumbs are wrong, and answers vary, now and then."""
_FEWEST_NUMBERS = 8
"""Rows of the gate with liked numbers below which nothing can be shown of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThumbSettings:
    """How an agent is improved by its record."""

    store: Path
    entry: str | None = None
    """`module:function`; found in the file if None."""
    prompt: str | None = None
    """Name of the constant; found if None."""
    calls: int = 400
    """Most calls of the agent: of search and proof together."""
    reflections: int = 32
    """Most calls of the model that proposes."""
    seed: int = 0
    alpha: float = 0.05
    regime: Sampling = "new-group"
    """Whom it is for: more such questions, or people who were not seen; both regimes are told."""
    output: Path = Path("whet_output")
    release: bool = False
    liked_from: float | None = None
    """Ratings on a scale from this value on are thumbs up, and lower ones thumbs down; if None, they are no thumbs."""


class ThumbReward:
    """A Reward: how likely people like an agent's answer, by a reward fitted to thumbs.

    Args:
        coarse: in tenths, for a search.
        unrated: leave out what people said of any answer to the same input, as a proof has to: the answers of before
            are the recorded ones, whose own thumbs make them sure, while new ones are held to be worse than they are.
    """

    def __init__(
        self, name: str, fitted: FittedReward, *, coarse: bool = False, unrated: bool = False
    ) -> None:
        self.name, self._fitted, self._coarse, self._unrated = name, fitted, coarse, unrated
        self.version = f"{fitted.version}, unrated" if unrated else fitted.version

    def __call__(self, trajectory: Trajectory) -> Score:
        """In [0, 1]; 0 where the agent failed or answered nothing."""
        if trajectory.error is not None:
            return Score(self.name, 0.0, f"it failed: {trajectory.error.type}", self.version)
        text = trajectory.output_text
        if not text.strip():
            return Score(self.name, 0.0, "nothing was answered", self.version)
        value = self.of_text(as_text(trajectory.task.initial_state["input"]), text)
        # A search that climbs by hundredths climbs on the reward's own errors.
        return Score(self.name, round(value, 1) if self._coarse else value, "", self.version)

    def of_text(self, question: str, text: str) -> float:
        """The score of any answer to a question: it looks at nothing else."""
        if not text.strip():
            return 0.0
        return self._fitted.unrated(question)(text) if self._unrated else self._fitted(question, text)


class KeptNumbers:
    """A Reward: whether what people liked still has the numbers that it had; None where they liked no number."""

    name = KEPT

    def __init__(self, fitted: FittedReward) -> None:
        self.version, self._fitted = fitted.version, fitted

    def applies(self, task: Task) -> bool:
        """True if people liked an answer with numbers on this input."""
        return self._fitted.keeps(as_text(task.initial_state["input"]), "") is not None

    def __call__(self, trajectory: Trajectory) -> Score | None:
        """None, too, where the agent failed."""
        if trajectory.error is not None:
            return None
        input = as_text(trajectory.task.initial_state["input"])
        kept = self._fitted.keeps(input, trajectory.output_text)
        return None if kept is None else Score(KEPT, float(kept), "", self.version)


class KeptTargets(Targets):
    """Targets whose last candidates stay open from one lap of a race to the next."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: dict[str, AsyncExitStack] = {}

    @asynccontextmanager
    async def held(self, bundle: Bundle) -> AsyncIterator[OpenCandidate]:
        if bundle.id not in self._open:
            stack = self._open[bundle.id] = AsyncExitStack()
            await stack.enter_async_context(super().held(bundle))
        # The one that was used last is the last to be closed.
        self._open[bundle.id] = self._open.pop(bundle.id)
        async with super().held(bundle) as live:
            yield live
        while len(self._open) > MOST_OPEN:
            await self._open.pop(next(iter(self._open))).aclose()

    async def close(self) -> None:
        """End all processes."""
        while self._open:
            await self._open.popitem()[1].aclose()


@dataclass(frozen=True, slots=True)
class TextBeside:
    """A prompt that other calls of the agent's model have than those with the one that the plan is of."""

    piece: Piece
    resource: str
    served: str
    """As it stands: what is live, else what the file says."""


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """What will be done, before anything is spent."""

    found: LocatedPrompt
    evidence: ThumbEvidence
    rows: ThumbRows
    agreed: ThumbAgreement | None
    settings: ThumbSettings
    sentences: Sequence[str]
    refused: str = ""
    """Why nothing can be proven, and what helps; "" where it can."""
    rubric: ProvenRubric | None = None
    """By which a judge marks answers, where the thumbs alone do not tell enough."""
    metric: Metric | JudgeMetric | None = None
    """Compares answers with the right ones, where the rows are a table's and nobody's thumbs count."""

    @property
    def agent(self) -> RepositoryAgent:
        return self.found.agent

    @property
    def resource(self) -> str:
        """What the prompt is called in the Bundle: the gateway's prompt, where that is the whole system prompt."""
        return self.found.resource

    @property
    def beside(self) -> Sequence[TextBeside]:
        """Prompts of the agent's other calls."""
        return self.found.beside

    @property
    def resources(self) -> Sequence[str]:
        """What changes, as the Bundle calls it; the prompt first."""
        return [self.resource, *(each.resource for each in self.beside)]

    @property
    def text(self) -> str:
        """The prompt as it stands: what is live, else what the file says."""
        return self.found.live or self.agent.pieces[0].text

    @property
    def judges(self) -> bool:
        """True if a model marks the answers."""
        return self.rubric is not None or isinstance(self.metric, JudgeMetric)

    @property
    def right(self) -> float:
        """From this value on an answer counts as right."""
        return _RIGHT if self.metric is None else self.metric.right

    @property
    def model_calls(self) -> int:
        """Most calls of models beside the agent's own: of the one that proposes, and of a judge of each answer."""
        return self.settings.reflections + self.settings.calls * self.judges

    @property
    def rollouts(self) -> int:
        """Calls of the agent to search with."""
        return self.settings.calls - 2 * self.rows.gate_inputs


@dataclass(frozen=True, slots=True)
class LocatedPrompt:
    """What of an agent may change, where it stands, and how it goes live."""

    agent: RepositoryAgent
    name: str
    """As `--prompt` calls it."""
    entry: str
    stays: Sequence[str]
    """Other prompts."""
    shared: Sequence[str]
    """Prompts of other calls, which change as well."""
    said: Sequence[str]
    used: Counter[str]
    """Recorded system prompts."""
    resource: str
    passage: bool
    rendered: Sequence[str]
    live: str
    """What the gateway serves in its place; "" where that is what the file says."""
    live_sentence: str
    beside: Sequence[TextBeside]

    @property
    def sentences(self) -> list[str]:
        """What can change, in words."""
        return [
            f"{self.name} can change ({len(self.agent.pieces[0].text):,} characters); {self.entry} answers under it"
            + (f"; not changed: {', '.join(self.stays)}" if self.stays else ""),
            *([_shared(self.shared)] if self.shared else []),
            *self.said,
            *([self.live_sentence] if self.live else []),
        ]

    @property
    def unreleasable(self) -> str:
        """Why it could not go live at the gateway; "" where it could."""
        served = self.resource == GATEWAY_PROMPT or self.passage or self.rendered
        return "" if served else _unreleasable(self.used)


def located(
    path: Path, settings: ThumbSettings, runs: Sequence[Trajectory], released: LivePrompts
) -> LocatedPrompt:
    """Find the entry and the prompt in an agent's file, by its source and what was recorded.

    Raises:
        InputError: there is no entry or no prompt, or nobody can tell which.
    """
    root, module = placed(path)
    found = scan(root)
    entry = settings.entry or entry_of(found, path, root, module, runs)
    used = Counter(released.source(text) for run in runs for text in set(system_prompts(run)))
    chosen = prompt_of(settings.prompt, module, found, used, released.source, entry.partition(":")[2])
    name = chosen.name
    agent = RepositoryAgent(root, [name, *chosen.beside], entry, network=True)
    sent = [
        each
        for each, piece in zip(chosen.beside, agent.pieces[1:], strict=True)
        # Released as passages, texts must stand in the calls as they are written.
        if not piece.code
        and (not settings.release or any(holds(prompt, released.source(piece.text)) for prompt in used))
    ]
    if len(sent) < len(chosen.beside):
        agent = RepositoryAgent(root, [name, *sent], entry, network=True)
    if agent.pieces[0].code:
        raise InputError(
            f"{name} is not a text but code, which would be changed in the place of a prompt: name the file that it is "
            'read from (--prompt FILE, or FILE:KEY), or write the text itself there (NAME = "...")'
        )
    text = agent.pieces[0].text
    source = released.source(text)
    alone = bool(used) and all(
        prompt.strip() == source.strip() or released.by_hand(prompt) for prompt in used
    )
    passage = any(holds(prompt, source) for prompt in used)
    served = released.served(text, alone=alone)
    mark = agent.pieces[0].mark
    own = mark.name if mark.how == "file" else f"{module}.{mark.qualname}"
    return LocatedPrompt(
        agent,
        name,
        entry,
        [*chosen.others, *(each for each in chosen.beside if each not in sent)],
        sent,
        chosen.sentences,
        used,
        GATEWAY_PROMPT if alone else own,
        passage,
        () if alone or passage else tuple(prompt for prompt in used if stands_in(prompt, source)),
        served if served != text else "",
        released.sentence(served) if served != text else "",
        [
            TextBeside(piece, _called(piece), released.served(piece.text, alone=False))
            for piece in agent.pieces[1:]
        ],
    )


def plan_agent(path: Path, settings: ThumbSettings) -> AgentPlan:
    """Read the agent and the record, and try a reward fitted to the thumbs.

    Raises:
        InputError: no entry, no prompt, or no run of this agent in the record.
    """
    with Store(settings.store) as store:
        hear(store)
        runs = list(store.trajectories())
        rubric = read_rubric(store)
        released = LivePrompts.of(store)
    found = located(path, settings, runs, released)
    agent = found.agent
    assert agent.entry is not None
    callee = agent.callees[agent.entry]
    qualname = callee.entry.partition(":")[2]
    evidence = rated_runs(callee.signature, qualname, weighed(runs), liked_from=settings.liked_from)
    if not evidence.recorded:
        raise InputError(
            f"{settings.store} holds no run of {callee.entry}: record some with whet run --store {settings.store} -- "
            "python PROGRAM, where the function is marked with @whet.trace (whet init writes the mark)"
        )
    most = int(PROOF * settings.calls / 2)
    rows = thumb_rows(evidence, agent.entry, most=most, seed=settings.seed)
    thumbs = evidence.thumbs
    agreed = agreement(thumbs) if any(thumb.error is None for thumb in thumbs) else None
    if agreed is None or agreed.admitted:
        rubric = None  # people's own thumbs are nearer to what they like than a judge who reads a rubric
    refused = _refusal(evidence, rows, agreed, settings, rubric)
    sentences = [
        *found.sentences,
        evidence.sentence,
        *(precision.sentence for precision in evidence.signs),
    ]
    if agreed is not None and not _one_sided(evidence):
        sentences.append(agreed.sentence)
    if rubric is not None:
        sentences.append(
            f"that is not enough, so answers are judged by the rubric in the record: {rubric.sentence}"
        )
    plan = AgentPlan(found, evidence, rows, agreed, settings, sentences, refused, rubric)
    if not refused:
        people = len({task.group for task in rows.gate})
        power = power_in_words(len(rows.gate), people, regime=settings.regime)
        sentences += [_standing(rows), power, cost_in_words(plan, runs)]
        if settings.release:
            plan = replace(plan, refused=found.unreleasable)
    return plan


def _called(piece: Piece) -> str:
    """What a text is called in a Bundle."""
    mark = piece.mark
    dotted = ".".join(Path(mark.path).with_suffix("").parts).removeprefix("src.")
    return mark.name if mark.how == "file" else f"{dotted}.{mark.qualname}"


def _shared(names: Sequence[str]) -> str:
    return f"other calls of its model have {' and '.join(names)}, which can change as well, for a share of the calls"


def _refusal(
    evidence: ThumbEvidence,
    rows: ThumbRows,
    agreed: ThumbAgreement | None,
    settings: ThumbSettings,
    rubric: ProvenRubric | None,
) -> str:
    """What is missing, and the command that helps; "" if nothing is."""
    label = f"whet label --store {settings.store}"
    ways = (
        f"Rate more runs ({label}), correct disliked answers (whet feedback RUN --correct TEXT), have a rubric drafted "
        f"for a judge ({label} --rubric --model NAME --base-url URL), or give a table of inputs and right answers "
        "(--data) or a reward of your own (--reward)"
    )
    if agreed is None:
        return f"nobody rated any of {evidence.recorded} recorded runs. {ways}"
    if rubric is None and (lacking := _one_sided(evidence)):
        return f"{lacking}. {ways}"
    if rubric is None and not agreed.admitted:
        if agreed.missing:
            return (
                f"these thumbs do not yet tell what people like, beside {_plain_rule(agreed)}: about {agreed.missing} "
                f"more are needed{_of_more_people(agreed)}. {ways}"
            )
        return (
            f"these thumbs do not tell what people like: a reward fitted to some people's agrees with those of others "
            f"no better than {_plain_rule(agreed)}. {ways}"
        )
    if not any(not thumb.up for thumb in rows.search):
        return "people liked every answer that they rated, so there is nothing to learn from"
    if rows.gate_inputs < _FEWEST_PAIRS:
        return (
            f"{rows.gate_inputs} different inputs would stand behind the gate, and {_FEWEST_PAIRS} prove at the least: "
            f"record more different questions. {ways}"
        )
    if settings.calls - 2 * len(rows.gate) < LEAST:
        return (
            f"--calls {settings.calls}: {2 * len(rows.gate)} of them prove, and {LEAST} are needed to search"
        )
    return ""


def _one_sided(evidence: ThumbEvidence) -> str:
    """What no number of such thumbs would tell; "" where they may."""
    ups = {thumb.up for thumb in evidence.thumbs}
    if len(ups) == 1:
        way = "up" if ups == {True} else "down"
        return f"all thumbs are {way}, so nothing tells liked answers from disliked ones"
    if len(evidence.people) == 1:
        return (
            "all thumbs are of one person, so nothing can be proven for others: the program names who asks with "
            'whet.run(subject="...")'
        )
    return ""


def _of_more_people(agreed: ThumbAgreement) -> str:
    return f", of more people than {agreed.people}" if agreed.people < _FEW_PEOPLE else ""


def _plain_rule(agreed: ThumbAgreement) -> str:
    return RULES[agreed.best_rule]


def _unreleasable(used: Counter[str]) -> str:
    prompts = (
        f"{len(used)} system prompts were recorded"
        if used
        else "no model call with a system prompt is recorded"
    )
    return (
        f"--release would put the prompt live through the gateway, and {prompts}, none of which holds this one: leave "
        "--release out, and apply the patch to the source"
    )


def _standing(rows: ThumbRows) -> str:
    pairs, people = len(rows.gate), len({task.group for task in rows.gate})
    gain = gain_for(pairs, clusters=people)
    shows = (
        f"enough to prove a gain of {gain:.0%} where nothing gets worse"
        if gain is not None
        else "too few to prove a gain"
    )
    search = sum(task.split is Split.TRAIN for task in rows.tasks)
    return (
        f"{search} inputs to search on; behind the gate {pairs} questions of {people} other people, on "
        f"{rows.gate_inputs} inputs that the search does not see: {shows}"
    )


def cost_in_words(plan: AgentPlan, runs: Sequence[Trajectory]) -> str:
    """A sentence on the most that it costs."""
    settings, gate = plan.settings, 2 * plan.rows.gate_inputs
    usage = [run.usage for run in runs if run.usage.calls or run.usage.prompt_tokens]
    tokens = ""
    if usage:
        each = sum(use.prompt_tokens + use.output_tokens for use in usage) / len(usage)
        dollars = sum(use.dollars for use in usage) / len(usage)
        money = f" (${settings.calls * dollars:,.2f})" if dollars else ""
        tokens = (
            f"; about {int(settings.calls * each):,} tokens{money} of the agent's model, by its recorded runs"
        )
    return (
        f"at most {settings.calls} calls of the agent: {plan.rollouts} to search, {gate} to prove; at most "
        f"{settings.reflections} calls of the model that proposes{tokens}"
        + ("; the judge is asked about each answer" if plan.judges else "")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImprovedAgent(ImprovedText):
    """What became of an agent's prompt; its score is the fitted reward, or a metric where a table judges."""

    plan: AgentPlan
    beside: Mapping[str, str]
    """The prompts of other calls, as they are then."""
    agent_calls: int
    asked: int
    """Calls of the model that proposes."""
    released: bool = False
    withheld: str = ""
    """Why it does not ship although its score is proven: a finding that nobody has cleared, or it cannot be served."""

    def sentences(self) -> list[str]:
        """The result in words."""
        lines = self.of_search("inputs")
        if self.gate is not None and self.verdict is not None:
            before, after = self.gate
            liked = (
                f"on {self.verdict.n} questions of people whom the search did not see: {moved(before, after)}; "
                f"people like at least {100 * after:.0f} of 100 answers instead of {100 * before:.0f}, as far as "
                "their thumbs tell"
            )
            right = (
                f"on {self.verdict.n} rows that nothing was chosen on: {moved(before, after)}; "
                f"{of_hundred(before, after)}"
            )
            lines.append(liked if self.plan.metric is None else right)
            lines += [f"  {reason}" for reason in self.verdict.reasons]
        lines += [self.withheld] * bool(self.withheld)
        judged = int(self.spent.get("calls", 0)) - self.asked if self.plan.judges else 0
        lines.append(
            f"spent: {self.agent_calls} calls of the agent, {self.asked} of the model that proposes"
            + (f" and {judged} of the judge" if judged > 0 else "")
            + f" ({self.spent.get('tokens', 0):,.0f} tokens)"
        )
        return lines

    def json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "agent": self.plan.agent.entry,
            "prompt": self.plan.resource,
            "before": self.plan.text,
            "beside": dict(self.beside),
            "agreement": None if self.plan.agreed is None else self.plan.agreed.share,
            **self.plain(),
            "agent_calls": self.agent_calls,
            "model_calls": self.asked,
            "released": self.released,
            "withheld": self.withheld,
            "plan": list(self.plan.sentences),
        }


async def improve_agent(
    plan: AgentPlan,
    model: Model,
    *,
    judge: Model | None = None,
    meter: Meter | None = None,
    progress: Progress = quiet,
) -> ImprovedAgent:
    """Search, prove, write, and put live where that is wanted.

    Args:
        judge: reads the plan's rubric, where thumbs are judged by one: the model that the rubric was proven with.

    Raises:
        TrainingRefused: the plan is refused, the agent does not run, or the model cannot be asked.
    """
    if plan.refused:
        raise TrainingRefused(plan.refused)
    settings, rows = plan.settings, plan.rows
    settings.output.mkdir(parents=True, exist_ok=True)
    piece = plan.agent.pieces[0]
    kind = "prompt" if plan.resource == GATEWAY_PROMPT else PROGRAM
    names = {piece.part: plan.resource, **{each.piece.part: each.resource for each in plan.beside}}
    codec = ProgramCodec(plan.agent.start, names, {piece.part: kind})
    assert plan.agent.entry is not None
    target = plan.agent.target(plan.agent.entry)
    async with AsyncExitStack() as stack:
        store = stack.enter_context(Store(settings.store))
        rewards = _rewards(plan, store, judge)
        identity = digest(
            [
                plan.text,
                *(each.served for each in plan.beside),
                [task.id for task in rows.tasks],
                [each.version for each in rewards],
                *([] if plan.metric is None else [plan.metric.key, [task.answer for task in rows.tasks]]),
            ],
            12,
        )
        answers = _answers(store, f"improve/answers/{plan.agent.source}/{identity}")
        # Texts alone evolve, so nothing runs in this pool.
        network = Networked(
            plan.agent, Pool(), seconds=120.0, most=None, without=[settings.output], log=answers
        )
        stack.callback(network.end)
        env = KeptTargets({target.name: target}, {target.name: network}, codec)
        stack.push_async_callback(env.close)
        experiment = Experiment(
            env=env,
            tasks=rows.tasks,
            rewards=rewards,
            store=store,
            seed=settings.seed,
            name=f"improve/{plan.resource}/{identity}",
            concurrency=1,  # a candidate answers one call at a time
            folder=settings.output / "artifacts",
            progress=progress,
        )
        start = codec.baseline
        if plan.found.live:
            start = start.put(replace(start[plan.resource], content=plan.found.live, id=""))
        for each in plan.beside:
            if each.served != each.piece.text:
                start = start.put(replace(start[each.resource], content=each.served, id=""))
        await answers_at_all(experiment, start)
        rounds = max(1, settings.reflections // len(plan.resources))
        options = ReflectOptions(rounds=rounds, patience=rounds, seed=settings.seed, tasks=40, first=4)
        keeps = KEPT if plan.agreed is not None and plan.rubric is None else None
        reflect = Reflect(plan.resources, LIKED, model=model, right=plan.right, options=options, keeps=keeps)
        improvement = await experiment.improve(
            reflect,
            bundle=start,
            rounds=1,
            budget=Budget(rollouts=plan.rollouts - 1),  # one was to see that it answers
            watch=lambda number, metrics: None,
        )
        progress("proof: the agent before and after", 0)
        verdict, gate = await _judged(experiment, improvement, start, plan)
        # On what was judged: what goes live may be another Bundle, a passage of it.
        findings = open_findings(store.database, improvement.bundle.id)
        proven = verdict is not None and verdict.promote and not findings
        released, unserved = settings.release and proven, ""
        if released:
            assert verdict is not None
            unserved = _release(plan, experiment, improvement, verdict, store)
            released = not unserved
        await asyncio.wrap_future(answers.put(_DONE, True))
    result = ImprovedAgent(
        plan=plan,
        after=str(improvement.bundle[plan.resource].content),
        beside={each.resource: str(improvement.bundle[each.resource].content) for each in plan.beside},
        proven=proven,
        withheld=withheld(findings) if findings and verdict is not None and verdict.promote else unserved,
        reason=improvement.reason,
        dev=(improvement.metrics[-1]["start"], improvement.metrics[-1]["best"]),
        dev_rows=int(improvement.metrics[-1]["rows"]),
        gate=gate,
        verdict=verdict,
        causes=reflect.causes,
        agent_calls=network.calls,
        asked=int(improvement.metrics[-1]["asked"]),
        spent={name: (meter or Meter()).spent[name] for name in ("calls", "tokens", "dollars")},
        released=released,
    )
    return _written(result, improvement, codec)


def _answers(store: Store, name: str) -> Log:
    """The agent's answers of a run that did not come to its end, which need not be paid for twice; else none.

    After its end the agent is asked anew: by then its model may be another.
    """
    number = 0
    while _DONE in (log := Log(store, f"{name}/{number}")):
        number += 1
    return log


def _rewards(plan: AgentPlan, store: Store, judge: Model | None) -> list[Any]:
    """The reward of the search, that of the gate, and those of its guardrails."""
    rows = plan.rows
    if plan.metric is not None:
        metric = kept_marks(plan.metric, store)
        return [replace(metric, name=name) for name in (LIKED, LIKED_BY_ALL)]
    if plan.rubric is not None:
        assert judge is not None
        asked = RecordedModel(judge, Log(store, f"judge/{plan.rubric.model}"))
        return [RubricReward(name, plan.rubric, asked) for name in (LIKED, LIKED_BY_ALL)]
    assert plan.agreed is not None
    by_all = plan.agreed.fit(rows.all)
    return [
        ThumbReward(LIKED, plan.agreed.fit(rows.search), coarse=True),
        ThumbReward(LIKED_BY_ALL, by_all, unrated=True),
        ThumbReward(LIKED_BY_OTHERS, plan.agreed.fit(rows.unseen), unrated=True),
        KeptNumbers(by_all),
    ]


async def answers_at_all(experiment: Experiment, start: Bundle) -> None:
    """See that the agent answers at all, before a model is asked.

    Raises:
        TrainingRefused: it does not.
    """
    (group,) = await experiment.collect(start, list(experiment.train)[:1])
    run = group.trajectories[0]
    if run.error is not None:
        raise TrainingRefused(
            f"the agent does not answer here: {run.error.type}: {run.error.message[-600:]}. It runs with this "
            "interpreter and environment; give it its keys and addresses as always"
        )


async def _judged(
    experiment: Experiment, improvement: Improvement, start: Bundle, plan: AgentPlan
) -> tuple[Verdict | None, tuple[float, float] | None]:
    """The gate's verdict on inputs that nothing was chosen on, and the means before and after."""
    if improvement.bundle == start:
        return None, None
    sides = [await experiment.evaluate(bundle, Split.GATE) for bundle in (start, improvement.bundle)]
    _refuse_failed(sides[0])
    verdict = await experiment.gate(
        improvement,
        metric=LIKED_BY_ALL,
        alpha=plan.settings.alpha,
        regime=plan.settings.regime,
        guardrails=_guardrails(plan, experiment),
        label="the agent as it is",
    )
    before, after = (means(side).get(LIKED_BY_ALL, 0.0) for side in sides)
    return verdict, (before, after)


def _refuse_failed(start: Sequence[Group]) -> None:
    """Raises:
    TrainingRefused: the agent as it stands, which answered before, ended every run in an error.
    """
    errors = [run.error for group in start for run in group.trajectories]
    if errors and all(errors):
        why = "" if errors[-1] is None else f"{errors[-1].type}: {errors[-1].message[-300:]}"
        raise TrainingRefused(
            f"the agent no longer answers: {why}. What it answered is kept: run the same command again once it does"
        )


def _guardrails(plan: AgentPlan, experiment: Experiment) -> list[Guardrail]:
    """What must not get worse while people like more."""
    if plan.rubric is not None or plan.metric is not None:
        return []
    # Of the people whom the search did not see: what it learned of the others' errors is not confirmed by theirs.
    guardrails = [Guardrail(LIKED_BY_OTHERS, MARGIN, higher_is_better=True)]
    numbers = next(reward for reward in experiment.rewards if isinstance(reward, KeptNumbers))
    if sum(numbers.applies(task) for task in plan.rows.gate) >= _FEWEST_NUMBERS:
        guardrails.append(Guardrail(KEPT, _NUMBERS_LOST, higher_is_better=True))
    return guardrails


def _release(
    plan: AgentPlan, experiment: Experiment, improvement: Improvement, verdict: Verdict, store: Store
) -> str:
    """Put the prompt live: as the gateway's, or in place of the passages that it is of the system prompts.

    Returns:
        Why that cannot be; "" where it is live.
    """
    reason = f"whet improve {plan.agent.entry}"
    if plan.resource == GATEWAY_PROMPT:
        experiment.release(verdict, reason=reason)
        return ""
    old, new = plan.agent.pieces[0].text, str(improvement.bundle[plan.resource].content)
    try:
        passages = passages_between(old, new, plan.found.rendered) if plan.found.rendered else {old: new}
        passages |= {each.piece.text: str(improvement.bundle[each.resource].content) for each in plan.beside}
        passages = {before: after for before, after in passages.items() if before != after}
    except InputError as error:
        return f"it is not live, for the gateway sees what was filled in, and {error}: apply the patch to the source"
    bundle = Bundle([LivePrompts.of(store).with_passages(passages)])
    judged = " and ".join(plan.resources)
    note = f"{judged} was judged; it goes live as a passage of the system prompt, at the gateway"
    verdict = replace(verdict, candidate=bundle.id, reasons=(*verdict.reasons, note))
    release(store, bundle, record(store, verdict, [bundle], experiment=experiment.name), reason=reason)
    return ""


def _written(result: ImprovedAgent, improvement: Improvement, codec: ProgramCodec) -> ImprovedAgent:
    """The result with its files: the patch, the Bundle and the verdict."""
    plan, output = result.plan, result.plan.settings.output
    for name in ("agent.patch", "refused.patch", BUNDLE_FILE):
        (output / name).unlink(missing_ok=True)
    repository = plan.agent.repository
    unchanged = improvement.bundle == improvement.parent
    text = (
        ""
        if unchanged  # what is live may differ from the file all the same
        else patch(
            plan.agent.pieces,
            codec.program(improvement.bundle),
            repository.written,
            folder_in_git(repository.root),
        )
    )
    written = None
    if text:
        written = output / ("agent.patch" if result.proven else "refused.patch")
        written.write_bytes(text.encode())
    if result.proven:
        write_bundle(
            output / BUNDLE_FILE,
            improvement.bundle,
            baseline=improvement.parent,
            verdict=result.verdict,
            store=plan.settings.store.resolve(),
        )
    result = replace(result, patch=text, written=written)
    content = msgspec.json.format(msgspec.json.encode(result.json()), indent=2)
    (output / "verdict.json").write_bytes(content)
    return result

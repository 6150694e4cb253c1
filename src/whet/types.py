"""The nouns: frozen dataclasses that every other module speaks in.

Nothing else in the package defines a type that crosses a module boundary.
Construction is cheap (no validation, slots); what must be checked is checked
where data enters: the loaders, the store, the server.  Read `docs/nouns.md`
for one sentence on each, then `env.py`, `loop.py` and `experiment.py` for what acts on them.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import msgspec

Json = Any
"""A value that JSON can carry: None, bool, int, float, str, list, or dict with string keys."""


def canonical(value: Json) -> bytes:
    """The one byte form of a JSON value that ids are hashes of: sorted keys, no spaces."""
    return msgspec.json.encode(value, order="sorted")


def digest(value: Json, length: int = 16) -> str:
    """Hex digest of a JSON value; `length` characters of SHA-256."""
    return hashlib.sha256(canonical(value)).hexdigest()[:length]


def new_id() -> str:
    """A fresh 24-character id that sorts by time of creation (48 bits of milliseconds, 48 random)."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(6).hex()}"


class Outcome(StrEnum):
    """How a trajectory ended.  A failed machine is not a failed policy."""

    SUCCESS = "success"
    FAILURE = "failure"
    TRUNCATED = "truncated"
    TIMEOUT = "timeout"
    BLOCKED = "blocked"
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    INVALID = "invalid"
    UNKNOWN = "unknown"
    """It ended, and nothing has judged it yet: most production traces."""

    @property
    def counts(self) -> bool:
        """False where the policy cannot be held responsible: masked out of group statistics."""
        return self not in (Outcome.INFRASTRUCTURE_ERROR, Outcome.UNKNOWN)


class Split(StrEnum):
    """Which part of the tasks one belongs to.  No optimizer ever sees GATE."""

    TRAIN = "train"
    VALIDATION = "validation"
    GATE = "gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Immutable work item.  `id` is the hash of its content unless given."""

    id: str = ""
    instruction: str = ""
    initial_state: Mapping[str, Json] = field(default_factory=dict)
    success_checker: str | None = None
    """A name like `python:function`, resolved through an explicit allow-list only."""
    answer: Json = None
    """The right answer; None is none known, unless `answer_known` says that None is right."""
    split: Split | None = None
    group: str = ""
    """Splits are made by it: mailbox, database, session, repository.  Never the row."""
    meta: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.id:
            # Neither split nor meta: a task keeps its id when it is divided or learns where it came from.
            content: tuple[Json, ...] = (
                self.instruction,
                dict(self.initial_state),
                self.success_checker,
                self.answer,
                self.group,
            )
            if self.answer is None and self.answer_known:
                # Only where it holds, so that all other tasks keep the ids that they are recorded under.
                content = (*content, "answer_known")
            object.__setattr__(self, "id", digest(content))

    @property
    def answer_known(self) -> bool:
        """True if `answer` is the right one. None is unknown unless `meta["answer_known"]` is true."""
        return self.answer is not None or bool(self.meta.get("answer_known"))


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a model call, as sampled; text is never tokenised again."""

    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    logprobs: Sequence[float]
    """Natural log-probability of each output id under the policy that sampled it."""
    mask: Sequence[bool] | None = None
    """Which output ids the policy chose; None means all of them."""
    policy_version: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of a step or run."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    calls: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.output_tokens + other.output_tokens,
            self.dollars + other.dollars,
            self.calls + other.calls,
        )


class Fault(StrEnum):
    """Whose failure it was, attributed once, at the boundary where it happened."""

    MODEL = "model"
    AGENT = "agent"
    TOOL = "tool"
    SANDBOX = "sandbox"
    ENVIRONMENT = "environment"
    REWARD = "reward"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as data."""

    fault: Fault
    type: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decision: what was seen, what was done, and what came of it."""

    observation: Json = None
    action: Json = None
    reward: float | None = None
    done: bool = False
    kind: str = "action"
    """`action` (an Env step), `llm`, `tool`, `agent`, `function`."""
    name: str = ""
    agent: str = ""
    id: str = ""
    parent: str | None = None
    """`id` of the enclosing step, for nested and multi-agent runs."""
    tokens: Tokens | None = None
    usage: Usage | None = None
    latency: float | None = None
    """Seconds."""
    error: Failure | None = None
    info: Mapping[str, Json] = field(default_factory=dict)


AGENT, LLM, TOOL, FUNCTION = "agent", "llm", "tool", "function"
"""Kinds of a Step; an Env's is an `action`."""

BY_WORKER = "worker:"
"""How the evaluator of a score begins that the worker of a rollout reported: learned from on request, and no proof."""

UNCALIBRATED = "uncalibrated:"
"""How the evaluator of a score begins that a judge gave whom no reliability card admits: it promotes nothing."""


@dataclass(frozen=True, slots=True)
class Score:
    """A named judgement.  `value` None means should have been scored and was not; it is never 0."""

    name: str
    value: float | None
    reason: str = ""
    evaluator: str = ""
    """Version of what judged."""

    @property
    def by_worker(self) -> bool:
        """True if the worker that ran the rollout reported it: no gate takes it for a judge's."""
        return self.evaluator.startswith(BY_WORKER)

    @property
    def uncalibrated(self) -> bool:
        """True if a judge gave it that nobody has measured on labels: no gate promotes by it."""
        return self.evaluator.startswith(UNCALIBRATED)

    @property
    def broke(self) -> bool:
        """The answer broke what judged it, which raised or gave no finite number.

        Unlike a judge that could not be asked, this is the answer's doing: the gate counts it as 0.
        """
        # The reason is kept in the record as it is, and `judge.base.score` puts whose fault it was before it.
        return self.value is None and self.reason.startswith(f"{Fault.REWARD}:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """A person's word on a run, a step of it, or a whole session; it may come late.

    `thumb` and `rating` have a `value` (a thumb 1 or -1, a rating any float); `correction` and `demonstration`
    give in `correction` what should have been answered or done; `preference` gives there an object with
    `chosen` and `rejected`. None as the correction of the kind `correction` says that the right answer is None.
    """

    run: str = ""
    """Id of a run or of a trajectory; "" where a session is meant."""
    value: float | None = None
    comment: str = ""
    correction: Json = None
    kind: str = "thumb"
    """`thumb`, `rating`, `correction`, `demonstration`, `preference`; `implicit.` and a signal
    (`whet.record.tracing.signals`): what a user let show without saying it; `exploit`: a confirmed finding on a hacked
    reward (`whet findings --confirm`), which keeps the run."""
    step: str | None = None
    """Id of the step that is meant, None for the whole run."""
    session: str | None = None
    id: str = field(default_factory=new_id)
    at: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """A Task and what was done about it: a production trace and a training rollout alike."""

    task: Task
    steps: Sequence[Step] = ()
    id: str = field(default_factory=new_id)
    output: Json = None
    """The agent's final answer."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Resource name → id of the Version that produced this."""
    scores: Mapping[str, Score] = field(default_factory=dict)
    feedback: Sequence[Feedback] = ()
    outcome: Outcome = Outcome.UNKNOWN
    error: Failure | None = None
    trace_ids: Sequence[str] = ()
    session: str | None = None
    subject: str | None = None
    seed: int | None = None
    started: float = field(default_factory=time.time)
    """Unix time in seconds."""
    seconds: float | None = None
    meta: Mapping[str, Json] = field(default_factory=dict)

    @property
    def reward(self) -> float | None:
        """Sum of the step rewards, or None if no step has one."""
        rewards = [step.reward for step in self.steps if step.reward is not None]
        return sum(rewards) if rewards else None

    @property
    def output_text(self) -> str:
        """The agent's answer as text: a string as it is, None as "", anything else as JSON.

        A non-empty list of strings is joined: a generator yielded them as the pieces of one text.
        """
        output = self.output
        if output is None or isinstance(output, str):
            return output or ""
        if isinstance(output, list | tuple) and output and all(isinstance(piece, str) for piece in output):
            return "".join(output)
        return canonical(output).decode()

    @property
    def usage(self) -> Usage:
        """Sum of the usage of its steps; a step's own usage already includes that of the steps inside it."""
        by_id = {step.id: step for step in self.steps if step.id}

        def covered(step: Step) -> bool:
            ancestors = {step.id}
            # Spans come from outside, and their parents may go round in a circle.
            while step.parent in by_id and step.parent not in ancestors:
                step = by_id[step.parent]
                ancestors.add(step.id)
                if step.usage is not None:
                    return True
            return False

        return sum((step.usage for step in self.steps if step.usage and not covered(step)), Usage())

    @property
    def by_worker(self) -> bool:
        """True for a rollout of the queue as its worker reported it: its outcome is the worker's word."""
        return "worker" in self.meta and "rollout" in self.meta

    def score(self, name: str) -> float | None:
        """Value of the named Score, None if it is missing or unscored."""
        score = self.scores.get(name)
        return None if score is None else score.value

    def scored(self, *scores: Score) -> Trajectory:
        """A copy with these scores added."""
        return replace(self, scores={**self.scores, **{score.name: score for score in scores}})


class Span(NamedTuple):
    """One OpenTelemetry span, log record or gateway call as it arrived: its raw body beside what is searched.

    A tuple, because a server makes tens of thousands of them a second.
    """

    trace: bytes
    """16 bytes."""
    id: bytes
    """8 bytes; with `trace` and `encoding` what makes a repeated one recognisable.  A log record has none of
    its own and is given the first 8 bytes of its body's hash."""
    parent: bytes
    """8 bytes, or b"" for a root; for a log record or a gateway call the span that it happened in."""
    started: int
    """Unix time in nanoseconds."""
    ended: int
    """Unix time in nanoseconds; 0 while it has not ended."""
    name: str
    body: bytes
    """As `encoding` says; read when it is asked for."""
    encoding: str
    """`span` and `log` (protobuf), `span+json` and `log+json` (OTLP/JSON), `call+json` (the gateway's)."""
    context: bytes = b""
    """Resource and scope in the same encoding; the same for many spans."""
    run: str | None = None
    """Explicit id of the run, where one was given."""


Mode = Literal["train", "val", "test"]
"""The purpose of a rollout, in the words that workers of trainers use."""
Status = Literal["queued", "running", "succeeded", "failed", "cancelled"]
"""Where a rollout stands: from queued to running and back while attempts are left, then one of the last three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A Task to be run by some worker, under one Bundle: what the queue hands out."""

    task: Task
    id: str = field(default_factory=new_id)
    """Given by who adds it, adding is idempotent."""
    mode: Mode = "train"
    resources: str | None = None
    """Id of the Bundle to run under (`Store.bundle`); None is what is live when it is claimed, which the Lease
    then names."""
    status: Status = "queued"
    attempts: int = 0
    """How often it has been claimed."""
    max_attempts: int = 3
    created: float = field(default_factory=time.time)
    """Unix time in seconds."""
    meta: Mapping[str, Json] = field(default_factory=dict)
    result: str | None = None
    """Id of the trajectory that it ended with."""
    error: Failure | None = None
    """Why its last attempt failed; its `fault` tells a lost worker from an agent that raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to run a Rollout until a time: one attempt of one worker."""

    rollout: Rollout
    attempt: int
    """1 for the first."""
    fence: int
    """Strictly increasing over the store's life; a write with an older one is refused."""
    worker: str
    until: float
    """Unix time in seconds; a heartbeat moves it."""


@dataclass(frozen=True, slots=True)
class Group:
    """The trajectories of one task: what group baselines are computed over."""

    task: Task
    trajectories: Sequence[Trajectory]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """Immutable, content-addressed snapshot of one named resource."""

    resource: str
    content: Json
    """The thing itself as JSON: a prompt, knobs, a table, the text of a learned head, or
    `{"path": ..., "sha256": ...}` for weights kept as a safetensors file."""
    kind: str = "value"
    """prompt · value · function · files · router · memory · head · reward · adapter · weights."""
    parent: str | None = None
    meta: Mapping[str, Json] = field(default_factory=dict)
    """Data, options and seed that made it; not part of the id."""
    id: str = ""

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", digest((self.resource, self.kind, self.content)))


class Bundle(Mapping[str, Version]):
    """Resource name → Version: what is live, or what is tried.  Immutable and hashable by `id`."""

    __slots__ = ("_versions", "id")

    def __init__(self, versions: Iterable[Version] | Mapping[str, Version] = ()) -> None:
        items = versions.values() if isinstance(versions, Mapping) else versions
        self._versions: dict[str, Version] = {version.resource: version for version in items}
        self.id: str = digest(sorted(version.id for version in self._versions.values()))

    def __getitem__(self, resource: str) -> Version:
        return self._versions[resource]

    def __iter__(self) -> Iterator[str]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bundle) and other.id == self.id

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={version.id}" for name, version in sorted(self._versions.items()))
        return f"Bundle({inside})"

    def put(self, *versions: Version) -> Bundle:
        """A Bundle with these Versions added or replaced."""
        return Bundle({**self._versions, **{version.resource: version for version in versions}})

    @property
    def ids(self) -> dict[str, str]:
        """Resource name → Version id, as recorded in Trajectory.versions."""
        return {name: version.id for name, version in self._versions.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Of two answers to one prompt, the chosen and the rejected one."""

    prompt: Json
    chosen: Json
    rejected: Json
    annotator: str = ""
    tie: bool = False
    position: str = ""
    """On which side the chosen one was shown: `left` or `right`."""
    example: str = ""
    """Where its texts have become token ids: the digest by which its training dynamics are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits on what may be spent; None means no limit.  `whet.models.budget.Meter` enforces them."""

    rollouts: int | None = None
    calls: int | None = None
    tokens: int | None = None
    dollars: float | None = None
    seconds: float | None = None
    steps: int | None = None
    """Env steps in one rollout."""


Sampling = Literal["exchangeable", "new-group"]
"""How the tasks of a Verdict are taken to have come, which the user declares: any task might have been drawn as well as
any other, or tasks came in groups and the next one is of a new group (a mailbox, a database, a kind of work)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """What the pairs of a Verdict prove if its tasks came in one of the ways of `Sampling`."""

    promote: bool
    effect: float
    """Mean paired difference: over pairs if they are exchangeable, else of a group drawn anew."""
    interval: tuple[float, float]
    """95 %, of the same mean."""
    units: int
    """Independent ones: pairs if they are exchangeable, else groups."""
    needed: int | None = None
    """Units that the effect seen would need; None if it has no sign worth chasing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The gate's decision on one candidate, with its evidence."""

    promote: bool
    effect: float
    """Mean paired difference in the primary metric, candidate minus baseline; where tasks share groups,
    of a group drawn anew (`stats.ClusterMean` says how groups are weighed)."""
    interval: tuple[float, float]
    """95 %, of the same mean, clustered by group."""
    e_value: float
    n: int
    against: str = "baseline"
    margin: float = 0.0
    """0 for superiority; d > 0 for non-inferiority by d."""
    needed: int | None = None
    """Pairs that the effect seen would need; None if it has no sign worth chasing."""
    guardrails: Mapping[str, bool] = field(default_factory=dict)
    reasons: Sequence[str] = ()
    candidate: str = ""
    """Id of the Bundle that was judged; "" where no Bundles were compared, as by `whet verdict`."""
    baseline: str = ""
    """Id of the Bundle that it was judged against."""
    regime: Sampling = "new-group"
    """Which of the two `regimes` decides, as the user declared it."""
    regimes: Mapping[Sampling, Regime] = field(default_factory=dict)
    """What either would say; none in a Verdict from before there were two."""
    sound: bool = True
    """False where something else than evidence forbids to promote: how answers were made, or how many are left out."""
    tried: int = 1
    """Candidates that this one was chosen from, on other tasks than the Verdict's."""
    after_passing: float | None = None
    """The effect without the luck of having passed: median-unbiased given that it did. None where nothing was promoted
    for being better, or where somebody watched."""
    dev_effect: float | None = None
    """The effect on the tasks that it was chosen on, which luck has made too large; None where nothing was chosen."""
    metric: str = ""
    """Name of the Score that decides."""
    evaluator: str = ""
    """Version of what gave that score; "" of a known answer, a checker or the environment."""
    blocks: Mapping[str, str] = field(default_factory=dict)
    """What forbids a release whatever the numbers say → the sentence with what would clear it: `unproven judge`,
    `judge outside its labels`, `unsafe score`, `co-resident score`, `other Versions`."""
    tasks: tuple[str, ...] = ()
    """Of a Verdict on files: digests of the tasks that were judged, so that none counts twice."""
    findings: tuple[str, ...] = ()
    """What looked like a hacked score and nobody had cleared when this was recorded; a release waits until it is."""

    @property
    def releasable(self) -> bool:
        """It promotes, and no finding that is open holds its candidate back."""
        return self.promote and not self.findings

    @property
    def id(self) -> str:
        """Hash of its content."""
        content = msgspec.to_builtins(self)
        # One that was recorded before these existed keeps its id.
        for name, before in _BEFORE.items():
            if content[name] == before:
                del content[name]
        return digest(content)


_BEFORE: dict[str, object] = {
    "regime": "new-group",
    "regimes": {},
    "sound": True,
    "tried": 1,
    "after_passing": None,
    "dev_effect": None,
    "metric": "",
    "evaluator": "",
    "blocks": {},
    "tasks": (),
    "findings": (),
}
"""Fields that a Verdict did not have, as they read in one from before."""

"""The main job: an agent works for users, several learners learn from it, and the best proven one is released.

Each stage is a function of what earlier stages left in the store and of the seed alone, and
its result is stored when it ends; so a job that was stopped at any moment resumes and ends with the
figures it would have had, and two processes can share its stages.  Budgets are counts.  This module
is wiring: the scores are in `scoring.py`, the agents in `agents.py`, the learners in `whet.optimizers`.
"""

from __future__ import annotations

import ctypes
import gc
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from ...errors import InputError
from ...judge import Reward
from ...learn.evolution.editing.targets import ConstantTarget, find
from ...learn.experiment import Experiment
from ...learn.improvement import Improvement
from ...learn.loop import Progress, quiet
from ...learn.training.local import LocalModels
from ...record.env import rollout
from ...record.store import Store
from ...types import Bundle, Group, Json, Split, Task, Trajectory, Version, digest
from ..email import Clues, MailEnv, MailFolder, MailWorld, derive, generate, read_mail, shortage
from ..email.mailbox import distinct_id
from . import scoring
from .agents import MailAgents, agent_folder
from .users import Users

FOLDS = 2


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Budgets of the main job, as counts."""

    users: int = 600
    """Questions that users ask the agent as it came; 40 % get a thumb."""
    later_users: int = 3_000
    """Questions that users ask the tuned agent, and others ask of it with its rule opened in two ways."""
    rollouts: int = 24_000
    """New attempts that each learner may make at most."""
    searched: int = 600
    """Questions that the knob search draws on."""
    generations: int = 80
    """Of the knob search at most."""
    cloned: int = 4_000
    """Recorded runs that the policy is cloned from."""
    grpo: int = 64
    """GRPO steps at most, each of `grpo_tasks` questions with 8 attempts."""
    grpo_tasks: int = 32
    routed: int = 600
    """Questions on which the arms are compared for routing."""
    validation: int = 600
    proposal: int = 1_200
    """Further questions of the validation mailboxes, kept for choosing what is proposed."""
    gate: int = 2_000
    """Questions on mailboxes that nothing trained on, as far as there are: two points over the rule take many."""


SMALL = Sizes(
    users=200,
    later_users=300,
    rollouts=4_000,
    searched=100,
    generations=8,
    cloned=600,
    grpo=4,
    grpo_tasks=8,
    routed=80,
    validation=60,
    proposal=60,
    gate=300,
)
"""A job of half a minute, in which everything happens and little is learned: to try things out."""


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The options of `whet demo`."""

    mail: Path | None = None
    """A maildir, an mbox or a folder of mails; a synthetic company if None."""
    held_out: Path | None = None
    """Judge on the mailboxes of this folder instead of a split."""
    seed: int = 0
    fold: int | None = None
    """Which hand of the mailboxes is judged, of FOLDS; the seed's own choice if None."""
    output: Path = Path("whet-demo")
    sizes: Sizes = Sizes()

    def public(self) -> dict[str, Json]:
        """The options by which the released agent finds its mail again."""
        return {"mail": str(self.mail.resolve()) if self.mail else None, "seed": self.seed}

    def key(self) -> str:
        """A digest that must be equal for a job to be resumed."""
        return digest(
            msgspec.to_builtins([str(self.mail), str(self.held_out), self.seed, self.fold, self.sizes])
        )


def mix(tasks: Sequence[Task], count: int, rng: random.Random) -> list[Task]:
    """At most `count` tasks in the proportion exact : vague : hard = 1 : 1 : 2, fewer where a tier has fewer."""
    by_tier = {tier: [task for task in tasks if task.meta["tier"] == tier] for tier in scoring.WEIGHTS}
    unit = min([count // 4, *(len(by_tier[tier]) // weight for tier, weight in scoring.WEIGHTS.items())])
    chosen = [
        task for tier, weight in scoring.WEIGHTS.items() for task in rng.sample(by_tier[tier], unit * weight)
    ]
    rng.shuffle(chosen)
    return chosen


@dataclass
class Material:
    """The mail and the questions of one job."""

    world: MailWorld
    about: str
    held_out: list[str]
    users: list[Task]
    validation: list[Task]
    proposal: list[Task]
    """Of the validation mailboxes too, but nothing was chosen on them."""
    gate: list[Task]

    @property
    def counts(self) -> str:
        """The numbers of questions, in words."""
        return (
            f"{len(self.users):,} questions to learn from, {len(self.validation):,} for validation, "
            f"{len(self.gate):,} for the gate"
        )


def prepare(options: JobOptions) -> Material:
    """Read or make the mail, split it by mailbox and derive the questions.

    Raises:
        InputError: no mail, or too few mailboxes to hold some out.
    """
    if options.mail is None:
        mails = generate(options.seed)
        about = f"A synthetic company of {len(mails):,} mails"
    else:
        reading = read_mail(options.mail)
        mails = list(reading.mails)
        about = f"{len(mails):,} mails from {options.mail.name}{_problems(reading)}"
    outside: list[str] = []
    if options.held_out is not None:
        judged = read_mail(options.held_out).mails
        outside = sorted({mail.mailbox for mail in judged})
        mails = [*(mail for mail in mails if mail.mailbox not in outside), *judged]
        used_ids: set[str] = set()  # colleagues hold copies of the same mail
        mails = [replace(mail, id=distinct_id(mail.id, mail.mailbox, used_ids)) for mail in mails]
    world = MailWorld(mails)
    parts = _parts(world, options, outside)
    rng = random.Random(options.seed)
    tasks = {
        part: [
            replace(task, split=part)
            for task in derive(
                world,
                mailboxes=names,
                seed=options.seed,
                variants={Split.TRAIN: 6, Split.VALIDATION: 4, Split.GATE: 3}[part],
            )
        ]
        for part, names in parts.items()
    }
    sizes = options.sizes
    # One generator, drawn from in this order: another order gives other questions for the same seed.
    validation = mix(tasks[Split.VALIDATION], sizes.validation, rng)
    held = {task.id for task in validation}
    material = Material(
        world=world,
        about=about,
        held_out=parts[Split.GATE],
        users=mix(tasks[Split.TRAIN], 4 * len(tasks[Split.TRAIN]), rng),
        validation=validation,
        proposal=mix([task for task in tasks[Split.VALIDATION] if task.id not in held], sizes.proposal, rng),
        gate=mix(tasks[Split.GATE], sizes.gate, rng),
    )
    for name, some in (
        ("train", material.users),
        ("validation", material.validation),
        ("gate", material.gate),
    ):
        if len(some) < 40:
            raise InputError(
                f"only {len(some)} questions for {name} from mailboxes {_shown(parts[Split(name)])}, and it "
                f"takes 40: {shortage(world, parts[Split(name)])}. "
                "Give more mail, or leave --mail out for a synthetic mailbox"
            )
    return material


def _shown(names: Iterable[str]) -> str:
    """Names of mailboxes on one line: they are names of folders, which may hold a line break."""
    return ", ".join(name if name.isprintable() else ascii(name) for name in names)


def _parts(world: MailWorld, options: JobOptions, judged: Sequence[str]) -> dict[Split, list[str]]:
    """Mailboxes to learn from, for validation and for the gate; whole mailboxes, never mails.

    `judged` are the held-out ones if they were given.  With a fold the mailboxes are dealt into FOLDS
    hands of about equal size, and that hand is judged: over all folds each mailbox is judged once.
    Else the seed chooses, with as many mailboxes on the gate's side as there are on the others, because
    an interval clustered by mailbox needs several.
    """
    # By what can be asked, not by mails: a mailbox of pictures is large and yields nothing.
    sizes = {
        name: len(derive(world, mailboxes=[name], seed=0, tiers=("exact", "vague"), unanswerable=0))
        for name in world.mailboxes
    }
    rng = random.Random(f"{options.seed}/mailboxes" if options.fold is None else "folds")
    if not judged:
        if len(sizes) < 3:
            raise InputError(
                f"{len(sizes)} mailbox(es) ({_shown(sizes)}) cannot be split into train, validation and gate "
                "without sharing one; give a folder with more mailboxes, or --held-out DIR"
            )
        if options.fold is not None:
            judged = _dealt(sizes, FOLDS, rng)[options.fold % FOLDS]
        else:
            # About half: with three mailboxes to judge on, an effect of 27 points had an interval of ±24.
            judged = _near(sizes, max(1, (len(sizes) + 1) // 2), 0.4, rng)
    unjudged = {name: size for name, size in sizes.items() if name not in judged}
    if len(unjudged) < 2:
        raise InputError(
            f"{len(unjudged)} mailbox(es) to learn from ({_shown(unjudged) or 'none'}): validation needs one of its "
            "own; "
            "give --mail a folder with more mailboxes than --held-out"
        )
    validation = _near(unjudged, max(1, len(unjudged) // 3), 0.3, rng)
    train = [name for name in unjudged if name not in validation]
    return {Split.TRAIN: sorted(train), Split.VALIDATION: sorted(validation), Split.GATE: sorted(judged)}


def _dealt(sizes: Mapping[str, int], hands: int, rng: random.Random) -> list[list[str]]:
    """The mailboxes in hands of about equal size and number, the largest dealt first."""
    names = sorted(sizes)
    rng.shuffle(names)
    dealt: list[list[str]] = [[] for _ in range(hands)]
    for name in sorted(names, key=lambda name: -sizes[name]):
        fewest = min(len(hand) for hand in dealt)
        open_hands = [hand for hand in dealt if len(hand) == fewest]
        min(open_hands, key=lambda hand: sum(sizes[mailbox] for mailbox in hand)).append(name)
    return dealt


def _near(sizes: Mapping[str, int], count: int, share: float, rng: random.Random) -> list[str]:
    """`count` mailboxes that together hold about `share` of the questions: the nearest of 50 random draws."""
    names, total = sorted(sizes), sum(sizes.values()) or 1
    draws = [rng.sample(names, count) for _ in range(50)]
    return min(draws, key=lambda draw: abs(sum(sizes[name] for name in draw) / total - share))


def _problems(reading: MailFolder) -> str:
    notes = []
    if reading.duplicates:
        notes.append(f"{len(reading.duplicates):,} duplicates left out")
    if reading.problems:
        notes.append(f"{len(reading.problems):,} files with problems, first: {reading.problems[0].reason}")
    return f" ({'; '.join(notes)})" if notes else ""


def give_back() -> None:
    """Hand freed memory back to the system: glibc keeps what lies between pieces in use, and others need it."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_loaded() -> None:
    """Spare what is loaded by now, which stays to the end of the job, from the collection behind each stage."""
    gc.collect()
    gc.freeze()


class Stopwatch:
    """The time of a stage, from when this was made."""

    def __init__(self) -> None:
        self._at, self._began, self._cpu = time.time(), time.perf_counter(), time.process_time()

    def row(self, stage: str, **more: float) -> dict[str, Any]:
        """The stage's row of timings; `at` is in Unix time, the same in every process."""
        spent = {"seconds": time.perf_counter() - self._began, "cpu_seconds": time.process_time() - self._cpu}
        return {"stage": stage, "at": self._at, **spent, "rollouts": 0, **more}


def seconds(timings: Iterable[Mapping[str, Any]]) -> float:
    """The time on the clock in which anything of this ran: what two processes do at once counts once."""
    total, until = 0.0, 0.0
    for row in sorted(timings, key=lambda row: float(row["at"])):
        ended = row["at"] + row["seconds"]
        total, until = total + max(0.0, ended - max(row["at"], until)), max(until, ended)
    return total


class MailJob:
    """The main job on one store.

    Args:
        progress: called with the state of the work under way.
    """

    def __init__(self, options: JobOptions, store: Store, *, name: str, progress: Progress = quiet) -> None:
        self.options, self.store, self.name, self.progress = options, store, name, progress
        clock = Stopwatch()
        self.material = prepare(options)
        self.models = LocalModels()
        self.agents = MailAgents(self.material.world, self.models)
        self.agents.true_clues.update(
            {task.instruction: Clues.from_json(task.meta["clues"]) for task in self.material.gate}
        )
        self.users = Users(seed=options.seed)
        self.timings: dict[str, dict[str, Any]] = {"mail": clock.row("mail")}
        """Stage → its start and its duration, in whichever process."""
        self._experiments: dict[str, Experiment] = {}
        self.checked = self.experiment("", scoring.REWARDS)
        self.base = Bundle(
            Version(resource=resource, content=target.value) for resource, target in self.targets().items()
        )

    TARGETS: ClassVar = {"rule": ("agent.py", "RULE"), "parser": ("parsing.py", "PARSER")}
    """Resource → where it stands in the outside program."""

    @classmethod
    def targets(cls) -> dict[str, ConstantTarget]:
        """Resource → its literal in the outside program, with the domains of its knobs."""
        return {
            resource: find((agent_folder() / "mail_agent" / file).read_text(encoding="utf-8"), name)
            for resource, (file, name) in cls.TARGETS.items()
        }

    def experiment(self, label: str, rewards: Sequence[Reward]) -> Experiment:
        """The job's questions, scored by these rewards; another label, another place in the store."""
        if label in self._experiments:
            return self._experiments[label]
        material = self.material
        self._experiments[label] = Experiment(
            env=lambda: MailEnv(material.world),
            policy=self.agents,
            tasks=[*material.users, *material.validation, *material.gate],
            rewards=rewards,
            seed=self.options.seed,
            store=self.store,
            name=f"{self.name}{label}",
            folder=self.options.output / f"{self.name}{label}",
            concurrency=256,
            record=0.02,
            progress=self.progress,
        )
        return self._experiments[label]

    @property
    def _unrecorded(self) -> int:
        return sum(experiment.unrecorded for experiment in self._experiments.values())

    def ended(self, name: str) -> bool:
        """True if that stage's result is in the store."""
        return self.store.state(self._key(name)) is not None

    def _key(self, name: str) -> str:
        return f"{self.name}/stage/{name}"

    async def stage(self, name: str, work: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """The result of `work`, from the store if the stage has ended before."""
        done = self.store.state(self._key(name))
        if done is None:
            clock, before = Stopwatch(), self._unrecorded
            # In the form in which the store gives it back, so that a resumed job goes on from the very same.
            result = msgspec.to_builtins(await work())
            more = {"rollouts": result.get("rollouts", 0), "unrecorded": self._unrecorded - before}
            done = {"result": result, "timing": clock.row(name, **more)}
            give_back()
            self.store.put_state(self._key(name), done)
        self.timings[name] = done["timing"]
        figures: dict[str, Any] = done["result"]
        if "bundle" in figures:
            versions = [msgspec.convert(row, Version) for row in figures["bundle"]]
            figures = {**figures, "bundle": Bundle(versions)}
        return figures

    def recall(
        self, ids: Sequence[str], *, keep: Callable[[Trajectory], Trajectory] | None = None
    ) -> list[Group]:
        """Recorded runs, each as the Group of its task, in this order.

        Args:
            keep: reduces each to what stays in memory; all of it if None.
        """
        runs = {run.id: keep(run) if keep else run for run in self.store.trajectories(ids=ids)}
        return [Group(runs[id].task, (runs[id],)) for id in ids]


def stored(improvement: Improvement, **more: Json) -> dict[str, Any]:
    """An Improvement as a stage's result."""
    return {
        "bundle": list(improvement.bundle.values()),
        "metrics": list(improvement.metrics),
        "rollouts": improvement.rollouts,
        "reason": improvement.reason,
        **more,
    }


async def answer(question: str, bundle: Bundle, job_row: Mapping[str, Json]) -> str:
    """The released agent's answer to a question, from all the mail of the job that it comes from."""
    mails = read_mail(Path(job_row["mail"])).mails if job_row["mail"] else generate(job_row["seed"])
    world = MailWorld(mails)
    task = Task(
        instruction=question, initial_state={"mailboxes": list(world.mailboxes)}, meta={"kind": "date"}
    )
    agents = MailAgents(world, LocalModels())
    run = await rollout(MailEnv(world), agents(bundle, 0), task, seed=0)
    if run.error:
        raise InputError(f"the agent failed: {run.error.message}")
    answered = run.output if isinstance(run.output, Mapping) else {}
    source = "".join(f"\nfrom: {world.describe(id)}" for id in answered.get("sources", ()))
    return f"{answered.get('text') or 'I do not know.'}{source}"

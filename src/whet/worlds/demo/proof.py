"""Proof and release: every learner on mailboxes that nothing trained on, looked at once.

The proposal is chosen on validation, before the gate is looked at: the simplest agent that
no other beats there.  The gate then decides about that one proposal: superior to the agent as it
came, and superior to the tuned rule or not worse by a point, with guardrails on hallucination and
on answers withheld.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from ...learn.composition import Contender, Gain, cross_fit, decide, judge, sentence
from ...learn.evolution.editing.targets import patch
from ...models.heads import RouterTable
from ...prove.gate import TaskResult, compare
from ...prove.guardrails import Guardrail
from ...repository.text import diff
from ...ship.releasing import record, release
from ...types import Bundle, Group, Split, Trajectory, Verdict, Version, digest
from . import scoring
from .agents import agent_folder
from .job import MailJob, seconds
from .learning import Learning
from .processes import SecondProcess
from .stages import DemoStage, Place, run_in_order

ORDER = ("rule", "head", "trained", "route")
"""From simple to complicated; a later one must beat the earlier ones on validation to be proposed."""
WORTH = 0.005
"""The gain on validation from which a more complicated agent is worth it."""
LINES = ("weak", "naive", "rule", "rule (judge)", "head", "cloned", "trained", "trained (judge)", "route")
BY_JUDGE = ("rule (judge)", "trained (judge)")
"""Lines that nothing else waits for."""

CROSS_FITTED = "cross-fitted: head"

TRUE_CLUES = "head, true clues"
"""Line of the head's agent with the question's own clues in place of its parser."""


async def run_job(job: MailJob, *, processes: int = 1) -> dict[str, Any]:
    """All stages of a job; returns the report.

    Args:
        processes: 2 to have some of the stages run in a second one; the figures are the same. A store in
            memory is this process's alone, and so is its job.
    """
    proof = MailProof(job)
    stages = proof.stages()
    before = [name for name in stages if job.ended(name)]
    for name in before:
        await stages[name].run()
    needs = {
        name: [need for need in stage.needs if need not in before]
        for name, stage in stages.items()
        if name not in before
    }
    second = None
    places: list[Place] = [lambda name: stages[name].run()]
    if processes > 1 and needs and not job.store.database.in_memory:
        second = await SecondProcess.start(
            job.options,
            store=job.store.path,
            name=job.name,
            progress=job.progress,
            ready=lambda row: job.timings.update({row["stage"]: row}),
        )
        places.append(partial(_there, second, stages))
    try:
        await run_in_order(needs, places, lost=lambda lost: proof.learning.say("second process", str(lost)))
    finally:
        if second:
            await second.close()
    return proof.report()


async def _there(second: SecondProcess, stages: Mapping[str, DemoStage], name: str) -> None:
    await second(name)
    await stages[name].run()  # from the store


def _short(run: Trajectory) -> Trajectory:
    """A run with only the steps that it is judged by."""
    return replace(run, steps=tuple(step for step in run.steps if "rubric" in step.info))


class MailProof:
    """Judges the learners and makes the report."""

    def __init__(self, job: MailJob) -> None:
        self.job, self.learning = job, Learning(job)
        self.learners = self.learning.learners
        self.validated: dict[str, list[TaskResult]] = {}
        """Agent → its results on validation, and on questions there on which nothing was chosen."""
        self.cross_fitted = Gain()
        """Of heads over the rule on mailboxes that they did not learn from; empty where validation settles it."""
        self.asked: dict[str, list[str]] = {}
        """Line → ids of its runs on the gate's questions; left out where another line is the same agent."""

    def stages(self) -> dict[str, DemoStage]:
        """Every stage of the job by name; the gate's questions are asked once it is settled what is proposed."""
        settled = (*(f"validation: {name}" for name in ORDER), CROSS_FITTED)
        looks = {f"validation: {name}": DemoStage(partial(self._validate, name), (name,)) for name in ORDER}
        looks[CROSS_FITTED] = DemoStage(self._cross_fit, ("validation: rule", "validation: head"))
        others = (line for line in (*LINES, TRUE_CLUES) if line not in BY_JUDGE)
        asks = {
            **{f"gate: {line}": DemoStage(partial(self._ask, line), settled) for line in others},
            **{
                f"gate: {line}": DemoStage(partial(self._ask, line), (*settled, *BY_JUDGE))
                for line in BY_JUDGE
            },
        }
        return {**self.learning.stages(), **looks, **asks}

    async def _validate(self, name: str) -> None:
        async def run() -> dict[str, Any]:
            bundle, checked = self.learners[name].bundle, self.job.checked
            # With questions on which nothing was chosen: the rule was picked among several on the others.
            fresh = await checked.collect(bundle, self.job.material.proposal, seed=4)
            runs = [run for group in (*await checked.evaluate(bundle), *fresh) for run in group.trajectories]
            rows = [(run.task.id, run.task.group, run.score("success")) for run in runs]
            return {"rows": rows, "rollouts": len(runs)}

        rows = (await self.job.stage(f"validation: {name}", run))["rows"]
        self.validated[name] = [
            TaskResult(task=task, group=group, scores={"success": success}) for task, group, success in rows
        ]

    def _gain(self, name: str, best: str) -> Gain:
        """The evidence, before the gate, of how much better one agent is than another."""
        gain = Gain()
        gain.add("validation", self.validated[best], self.validated[name], "success")
        if (name, best) == ("head", "rule"):
            for row in self.cross_fitted.rows:
                gain.take(*row)
        return gain

    async def _cross_fit(self) -> None:
        """Heads learned without some of the mailboxes, beside the rule on those; where validation settles nothing.

        Real mail leaves one mailbox for validation, and one says nothing of how mailboxes differ.
        """
        rule, head = self.learners["rule"].bundle, self.learners["head"].bundle

        async def run() -> dict[str, Any]:
            gain = Gain()
            if "decide" in head and not self._gain("head", "rule").settled(WORTH):
                record = await self.learning.later(rule)
                learner, start = self.learning.head_learner(rule)
                await cross_fit(
                    self.job.checked,
                    learner,
                    record,
                    start=start,
                    best=rule,
                    gain=gain,
                    metric="success",
                    name="head",
                )
            self.job.progress(CROSS_FITTED, gain.pairs, gain.pairs)
            return {"rows": gain.rows, "rollouts": 2 * gain.pairs}

        for row in (await self.job.stage(CROSS_FITTED, run))["rows"]:
            self.cross_fitted.take(*row)

    def _agents(self) -> dict[str, Bundle]:
        """Line → its agent."""
        agents = {name: self.learners[name].bundle for name in LINES if name in self.learners}
        gold = Version(resource="parse", kind="true clues", content={"from": "the question's maker"})
        return {**agents, TRUE_CLUES: self.learners["head"].bundle.put(gold)}

    async def _ask(self, line: str) -> None:
        """One line's agent on the gate's questions; what learned nothing is the agent that it began with."""
        agents = self._agents()
        if line not in agents or self._first(line, agents) != line:
            return

        async def run() -> dict[str, Any]:
            groups = await self.job.checked.evaluate(agents[line], Split.GATE)
            ids = [run.id for group in groups for run in group.trajectories]
            self.job.progress(f"gate: {line}", len(ids), len(ids))
            return {"runs": ids, "rollouts": len(ids)}

        self.asked[line] = (await self.job.stage(f"gate: {line}", run))["runs"]

    @staticmethod
    def _first(line: str, agents: Mapping[str, Bundle]) -> str:
        """The first line with the same agent, of those by the judge only where no other is."""
        same = [name for name, bundle in agents.items() if digest(bundle.ids) == digest(agents[line].ids)]
        return next((name for name in same if name not in BY_JUDGE), same[0])

    def report(self) -> dict[str, Any]:
        """The report, once every stage has ended; the released Bundle is live in the store if it was promoted."""
        proposed, composition = self._propose()
        agents = self._agents()
        runs = {line: self.job.recall(ids, keep=_short) for line, ids in self.asked.items()}
        gate = {line: runs[self._first(line, agents)] for line in agents}
        true_clues = gate.pop(TRUE_CLUES)
        released, verdict, beside = self._judged(gate, proposed)
        if verdict.promote:
            self._release(self.learners[released].bundle, released, verdict)
        return self._report(gate, released, proposed, verdict, composition + beside, true_clues)

    def _propose(self) -> tuple[str, list[str]]:
        """The proposal and, in sentences, why; nothing of the gate's mailboxes is looked at."""
        best, why = ORDER[0], []
        for name in ORDER[1:]:
            gain = self._gain(name, best)
            candidate = decide(name, best, self.learners[name].bundle, gain, worth=WORTH)
            why.append(candidate.reason)
            best = name if candidate.entered else best
        return best, why + self.learning.notes()

    def _judged(self, gate: dict[str, list[Group]], proposed: str) -> tuple[str, Verdict, list[str]]:
        """The released agent's name, the verdict on it against the agent as it came, and further comparisons.

        The proposal must be better than the agent as it came, and better than the tuned rule or shown not to
        be worse by a point. Where it is not, the tuned rule is judged in its place.
        """
        trained = {task.group for task in (*self.job.checked.train, *self.job.checked.validation)}
        rails = (
            Guardrail("hallucination", 0.02),
            # Against a collapse to "I don't know", which costs .9. Owners differ too much for a finer one:
            # at .15 a gain of 24 points was refused on four mailboxes (docs/decisions/030-the-main-job.md).
            Guardrail(metric="answered", margin=0.3),
        )
        contenders = {name: Contender(name, self.learners[name].bundle.id, gate[name]) for name in gate}
        verdict = judge(
            [contenders[name] for name in dict.fromkeys((proposed, ORDER[0]))],
            contenders["weak"],
            guardrails=rails,
            trained_groups=trained,
        )
        by_id = {contenders[name].id: name for name in (ORDER[0], proposed)}
        released = by_id[verdict.candidate] if verdict.promote else "weak"

        def beside(new: str, old: str, called: str = "") -> str:
            return sentence(new, compare(gate[old], gate[new], against=called or old, trained_groups=trained))

        # The proposal beside the agent as it came and beside the rule is in the Verdict.
        lines = [beside("rule", "weak")] if proposed != "rule" else []
        lines.append(beside(released, "naive"))
        lines.append(beside("trained", "cloned", "cloned (best decoding of both)"))
        return released, verdict, lines

    def _release(self, bundle: Bundle, name: str, verdict: Verdict) -> None:
        low, high = verdict.interval
        reason = f"{name}: {verdict.effect:+.3f} [{low:+.3f}, {high:+.3f}] over weak, e-value {verdict.e_value:.3g}"
        record(self.job.store, verdict, (self.job.base, bundle), experiment=self.job.name)
        release(self.job.store, bundle, verdict, reason=reason)
        text = "".join(self.diffs(bundle).values())
        (self.job.options.output / "agent.patch").write_text(text, encoding="utf-8")

    def diffs(self, bundle: Bundle) -> dict[str, str]:
        """Resource → patch to the example's source, as `git apply` takes it from the repository's root."""
        patches = {}
        for resource, (file, name) in self.job.TARGETS.items():
            source = (agent_folder() / "mail_agent" / file).read_text(encoding="utf-8")
            if bundle[resource].content != self.job.base[resource].content:
                changed = patch(source, name, bundle[resource].content)
                patches[resource] = diff(f"examples/mail_agent/{file}", source, changed)
        return patches

    def _report(
        self,
        gate: dict[str, list[Group]],
        released: str,
        proposed: str,
        verdict: Verdict,
        composition: list[str],
        true_clues: list[Group],
    ) -> dict[str, Any]:
        stages = {name: scoring.figures(groups) for name, groups in gate.items()}
        lines = [self._line(name, stages[name], stages["weak"]) for name in gate]
        lines.append(
            {**lines[list(gate).index(released)], "name": "released", "learns_from": f"this is {released}"}
        )
        clues = scoring.figures(true_clues)
        lines.append(
            {
                "name": TRUE_CLUES,
                "learns_from": "what parsing costs",
                "figures": clues,
                "rollouts": 0,
                "lift": None,
                "seconds": 0.0,
            }
        )
        cost = (clues["mix"]["success"] or 0.0) - (stages["head"]["mix"]["success"] or 0.0)
        composition.append(f"parsing the question costs {100 * cost:.1f} points (head with the true clues)")
        bundle, routed = self.learners[released].bundle, self.learners["route"].bundle
        names = ("weak", "naive", "rule", "head", "cloned", "trained")
        job, timings = self.job, sorted(self.job.timings.values(), key=lambda row: float(row["at"]))
        unrecorded = sum(row.get("unrecorded", 0) for row in timings)
        return {
            "seed": job.options.seed,
            "seconds": seconds(timings),
            "cpu_seconds": sum(row["cpu_seconds"] for row in timings),
            "stages": {**{name: stages[name] for name in names}, "released": stages[released]},
            "verdict": msgspec.to_builtins(verdict),
            "released": released,
            "judged": released if verdict.promote else proposed,
            "bundles": {name: self.learners[name].bundle.ids for name in gate}
            | {TRUE_CLUES: true_clues[0].trajectories[0].versions},
            "proposed": proposed,
            "n": len(gate["weak"]),
            "about": f"{job.material.about}; {job.material.counts}",
            "held_out": ", ".join(job.material.held_out),
            "learners": lines,
            "composition": composition,
            "owners": self._owners(gate, released),
            "curves": self._curves(),
            "diffs": self.diffs(bundle),
            "importances": _importances(self.learners["head"].bundle),
            "route": RouterTable.of(routed["router"]).render() if "router" in routed else "",
            "examples": self._examples(gate["weak"], gate[released]),
            "timings": timings,
            "notes": [f"{unrecorded:,} training rollouts were run and, to keep the store small, not kept."],
        }

    def _line(self, name: str, figures: dict[str, Any], weak: dict[str, Any]) -> dict[str, Any]:
        learner = self.learners[name]
        lift = None
        if learner.rollouts:
            lift = (figures["mix"]["success"] - weak["mix"]["success"]) / learner.rollouts * 1000
        return {
            "name": name,
            "learns_from": learner.learns_from,
            "figures": figures,
            "rollouts": learner.rollouts,
            "lift": lift,
            "seconds": learner.seconds,
        }

    def _owners(self, gate: dict[str, list[Group]], released: str) -> dict[str, Any]:
        names = list(dict.fromkeys(["weak", "naive", "rule", "head", released]))
        rows = []
        for owner in sorted({group.task.group for group in gate["weak"]}):
            cells = []
            for name in names:
                runs = [
                    run for group in gate[name] if group.task.group == owner for run in group.trajectories
                ]
                value = scoring.mean(success for run in runs if (success := scoring.success(run)) is not None)
                cells.append("–" if value is None else f"{100 * value:.1f}")
            rows.append([owner, str(len(runs)), *cells])
        return {"agents": names, "rows": rows}

    def _curves(self) -> dict[str, dict[str, list[tuple[float, float]]]]:
        def series(name: str, metric: str) -> list[tuple[float, float]]:
            rows = self.learners[name].metrics
            return [(float(index + 1), row[metric]) for index, row in enumerate(rows) if metric in row]

        searched = [name for name in ("rule", "rule (judge)") if name in self.learners]
        trained = [name for name in ("trained", "trained (judge)") if name in self.learners]
        return {
            "Knob search: best score by generation": {name: series(name, "best") for name in searched},
            "GRPO: success while sampling": {name: series(name, "success") for name in trained},
            "GRPO: success on validation, greedy": {name: series(name, "validation") for name in trained},
            "GRPO: says unknown where there is an answer": {
                name: series(name, "unknown") for name in trained
            },
            "GRPO: entropy": {name: series(name, "entropy") for name in trained},
            "GRPO: share of groups without signal": {name: series(name, "no_signal") for name in trained},
        }

    def _examples(
        self, before: Sequence[Group], after: Sequence[Group], count: int = 4
    ) -> list[dict[str, str]]:
        """Questions that were answered wrongly before and rightly now, and one the other way if there is one."""
        better: list[tuple[Trajectory, Trajectory]] = []
        worse: list[tuple[Trajectory, Trajectory]] = []
        for old, new in zip(before, after, strict=True):
            before_run, after_run = old.trajectories[0], new.trajectories[0]
            change = (scoring.success(after_run) or 0.0) - (scoring.success(before_run) or 0.0)
            if change:
                (better if change > 0 else worse).append((before_run, after_run))
        shown = [*better[:count], *worse[:1]]
        complete_runs = iter(self.job.recall([run.id for pair in shown for run in pair]))
        return [
            {
                "question": run.task.instruction,
                "truth": "nothing to find" if run.task.answer is None else str(run.task.answer),
                "before": as_text(next(complete_runs).trajectories[0]),
                "after": as_text(next(complete_runs).trajectories[0]),
            }
            for run, _ in shown
        ]


def _importances(bundle: Bundle) -> list[tuple[str, float]]:
    if "decide" not in bundle:
        return []
    shares = bundle["decide"].meta.get("importance", {})
    return sorted(((name, 100 * share) for name, share in shares.items()), key=lambda row: -row[1])[:10]


def as_text(trajectory: Trajectory) -> str:
    """A run as lines of text: each tool call and what came of it."""
    lines = []
    for step in trajectory.steps:
        if step.kind == "tool":
            hits = step.action or []
            arguments = " ".join(f"{key}={value}" for key, value in step.observation.items())
            lines.append(
                f"{step.name} {arguments} → {len(hits)} found"
                if step.name == "search"
                else f"read {arguments}"
            )
        elif step.kind == "action" and isinstance(step.action, dict) and step.action.get("tool") != "answer":
            lines.append(" ".join(f"{key}={value}" for key, value in step.action.items()))
    output = trajectory.output if isinstance(trajectory.output, dict) else {}
    lines.append(f"answers: {output.get('text', 'I do not know.')}")
    return "\n".join(lines)

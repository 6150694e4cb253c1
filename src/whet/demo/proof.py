"""Proof and release: every learner on mailboxes that nothing trained on, looked at once.

What is proposed is chosen on validation, before the gate is looked at: the simplest agent that
no other beats there.  The gate then decides about that one proposal: superior to the agent as it
came, and superior to the tuned rule or not worse by a point, with guardrails on hallucination and
on answers withheld.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ..evolution.targets import diff, patch
from ..gate import Guardrail, compare
from ..heads import RouterTable
from ..loop import means
from ..types import Bundle, Group, Split, Trajectory, Verdict, Version, digest
from . import scoring
from .agents import agent_folder
from .job import Job
from .learning import Learner, Learning

ORDER = ("rule", "head", "trained", "route")
"""From simple to complicated; a later one must beat the earlier ones on validation to be proposed."""
WORTH = 0.005
"""What a more complicated agent must gain on validation to be worth it."""
ALPHA = 0.05
LINES = ("weak", "naive", "rule", "rule (judge)", "head", "cloned", "trained", "trained (judge)", "route")

TRUE_CLUES = "head, true clues"
"""Line of the head's agent with the question's own clues in place of its parser."""


async def run_job(job: Job) -> dict[str, Any]:
    """All stages of a job; returns the report."""
    return await Proof(job, await Learning(job).run()).run()


class Proof:
    """Judges what was learned and makes the report."""

    def __init__(self, job: Job, learning: Learning) -> None:
        self.job, self.learning = job, learning
        self.learners = learning.learners

    async def run(self) -> dict[str, Any]:
        """The report; the released Bundle is live in the store if it was promoted."""
        proposed, composition = await self._propose()
        gate: dict[str, list[Group]] = {}
        begun, cpu = time.perf_counter(), time.process_time()
        names = [name for name in LINES if name in self.learners]
        judged: dict[str, list[Group]] = {}  # what learned nothing is the agent that it began with
        for number, name in enumerate(names):
            bundle = self.learners[name].bundle
            if (same := digest(bundle.ids)) not in judged:
                judged[same] = await self.job.checked.evaluate(bundle, Split.GATE)
            gate[name] = judged[same]
            self.job.progress("gate", number + 1, len(names))
        true_clues = await self._with_true_clues(self.learners["head"])
        rollouts = (len(judged) + 1) * len(gate["weak"])
        self.job.timings.append(self.job._timing("gate", begun, cpu, rollouts=rollouts))
        released, verdict, beside = self._judged(gate, proposed)
        if verdict.promote:
            self._release(self.learners[released].bundle, released, verdict)
        return self._report(gate, released, proposed, verdict, composition + beside, true_clues)

    async def _propose(self) -> tuple[str, list[str]]:
        """The proposal and, in sentences, why; by validation alone."""
        success = {}
        for name in ORDER:
            bundle = self.learners[name].bundle
            # With questions on which nothing was chosen: the rule was picked among several on the others.
            fresh = await self.job.checked.collect(bundle, self.job.material.proposal, seed=4)
            success[name] = means([*await self.job.checked.evaluate(bundle), *fresh])["success"]
        best, why = ORDER[0], []
        for name in ORDER[1:]:
            gain = success[name] - success[best]
            if gain > WORTH:
                why.append(f"{name} enters: {100 * gain:+.1f} points over {best} on validation")
                best = name
            else:
                why.append(f"{name} is left out: {100 * gain:+.1f} points beside {best} on validation")
        return best, why + self.learning.notes

    def _judged(self, gate: dict[str, list[Group]], proposed: str) -> tuple[str, Verdict, list[str]]:
        """What is released, the verdict on it against the agent as it came, and what stands beside it.

        The proposal must be better than the agent as it came, and better than the tuned rule or shown not to
        be worse by a point. Where it is not, the tuned rule is judged in its place. That is two chances of a
        false release, so each is tested at half of ALPHA.
        """
        trained = {task.group for task in (*self.job.checked.train, *self.job.checked.validation)}
        rails = (
            Guardrail(metric="hallucination", margin=0.02, higher_is_better=False),
            # Against a collapse to "I don't know", which costs .9: owners differ too much for a finer one.
            Guardrail(metric="answered", margin=0.3),
        )

        def judged(new: str, old: str, **more: Any) -> Verdict:
            return compare(gate[old], gate[new], against=old, alpha=ALPHA / 2, trained_groups=trained, **more)

        rule = judged("rule", "weak", guardrails=rails)
        beside = [_sentence("rule", "weak", rule)]
        released, verdict = "rule" if rule.promote else "weak", rule
        if proposed != "rule":
            over = judged(proposed, "weak", guardrails=rails)
            better, equal = judged(proposed, "rule"), judged(proposed, "rule", margin=0.01)
            beside += [_sentence(proposed, "weak", over), _sentence(proposed, "the tuned rule", better)]
            if over.promote and (better.promote or equal.promote):
                released, verdict = proposed, over
            else:
                beside.append(f"{proposed} is not released: " + _why_not(over, better))
        beside.append(_sentence(released, "naive", judged(released, "naive")))
        beside.append(_sentence("trained", "cloned (best decoding of both)", judged("trained", "cloned")))
        return released, verdict, beside

    async def _with_true_clues(self, head: Learner) -> list[Group]:
        """The head's agent with the question's true clues in place of its parser's: what parsing costs."""
        gold = Version(resource="parse", kind="true clues", content={"from": "the question's maker"})
        return await self.job.checked.evaluate(head.bundle.put(gold), Split.GATE)

    def _release(self, bundle: Bundle, name: str, verdict: Verdict) -> None:
        low, high = verdict.interval
        reason = f"{name}: {verdict.effect:+.3f} [{low:+.3f}, {high:+.3f}] over weak, e-value {verdict.e_value:.3g}"
        if self.job.store.live() != bundle:
            self.job.store.set_live(bundle, reason=reason)
        text = "".join(self.diffs(bundle).values())
        (self.job.options.output / "agent.patch").write_text(text, encoding="utf-8")

    def diffs(self, bundle: Bundle) -> dict[str, str]:
        """Resource → patch to the example's source, as `git apply` takes it from the repository's root."""
        found = {}
        for resource, (file, name) in self.job.TARGETS.items():
            source = (agent_folder() / "mail_agent" / file).read_text(encoding="utf-8")
            if bundle[resource].content != self.job.base[resource].content:
                changed = patch(source, name, bundle[resource].content)
                found[resource] = diff(f"examples/mail_agent/{file}", source, changed)
        return found

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
        bundle = self.learners[released].bundle
        names = ("weak", "naive", "rule", "head", "cloned", "trained")
        job = self.job
        return {
            "seed": job.options.seed,
            "seconds": sum(row["seconds"] for row in job.timings),
            "cpu_seconds": sum(row["cpu_seconds"] for row in job.timings),
            "stages": {**{name: stages[name] for name in names}, "released": stages[released]},
            "verdict": msgspec.to_builtins(verdict),
            "released": released,
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
            "route": _table_of(self.learners["route"].bundle),
            "examples": _examples(gate["weak"], gate[released]),
            "timings": job.timings,
            "notes": [
                f"{job.checked.unrecorded:,} training rollouts were run and, to keep the store small, not kept."
            ],
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
                    one for group in gate[name] if group.task.group == owner for one in group.trajectories
                ]
                value = scoring.mean(success for one in runs if (success := scoring.success(one)) is not None)
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


def _sentence(name: str, other: str, verdict: Verdict) -> str:
    low, high = verdict.interval
    return (
        f"{name} against {other}: {100 * verdict.effect:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}], "
        f"e-value {verdict.e_value:.3g}, n = {verdict.n}"
    )


def _why_not(over: Verdict, better: Verdict) -> str:
    if not over.promote:
        return "not proven better than the agent as it came: " + " ".join(over.reasons)
    return f"neither better than the tuned rule nor shown to be within a point of it (n = {better.n})"


def _table_of(bundle: Bundle) -> str:
    return RouterTable.of(bundle["router"]).render() if "router" in bundle else ""


def _importances(bundle: Bundle) -> list[tuple[str, float]]:
    if "decide" not in bundle:
        return []
    shares = bundle["decide"].meta.get("importance", {})
    return sorted(((name, 100 * share) for name, share in shares.items()), key=lambda row: -row[1])[:10]


def _examples(before: Sequence[Group], after: Sequence[Group], count: int = 4) -> list[dict[str, str]]:
    """Questions that were answered wrongly before and rightly now, and one the other way if there is one."""
    better: list[tuple[Group, Trajectory, Trajectory]] = []
    worse: list[tuple[Group, Trajectory, Trajectory]] = []
    for old, new in zip(before, after, strict=True):
        one, other = old.trajectories[0], new.trajectories[0]
        change = (scoring.success(other) or 0.0) - (scoring.success(one) or 0.0)
        if change:
            (better if change > 0 else worse).append((old, one, other))
    return [
        {
            "question": group.task.instruction,
            "truth": "nothing to find" if group.task.answer is None else str(group.task.answer),
            "before": told(one),
            "after": told(other),
        }
        for group, one, other in (*better[:count], *worse[:1])
    ]


def told(trajectory: Trajectory) -> str:
    """A run as lines of text: each tool call and what came of it."""
    lines = []
    for step in trajectory.steps:
        if step.kind == "tool":
            found = step.action or []
            given = " ".join(f"{key}={value}" for key, value in step.observation.items())
            lines.append(
                f"{step.name} {given} → {len(found)} found" if step.name == "search" else f"read {given}"
            )
        elif step.kind == "action" and isinstance(step.action, dict) and step.action.get("tool") != "answer":
            lines.append(" ".join(f"{key}={value}" for key, value in step.action.items()))
    output = trajectory.output if isinstance(trajectory.output, dict) else {}
    lines.append(f"answers: {output.get('text', 'I do not know.')}")
    return "\n".join(lines)

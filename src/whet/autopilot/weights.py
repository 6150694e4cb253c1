"""Weights as a job of the autopilot: trained from the record, judged on questions that no training ever sees, released.

Each step is a command of whet in a process of its own (`whet train`, `whet gate`, `whet release --to canary`), so torch
is never imported here, a kill of the autopilot ends it, and what is done by hand is done the same way.  The record's
questions are divided once and for all, by the hash of their group: weights do not forget what they were trained on.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ..errors import BudgetExceeded, WhetError
from ..learn.datasets.near import normalised
from ..prove.shadow import findings_of, shadow_pairs
from ..record.influence import weighed
from ..record.store import Stage, Store
from ..record.store.codec import encode
from ..record.tasks import to_jsonl
from ..types import Json, Split, Task, Trajectory, Version
from .commands import ExtraMissing, run_command
from .night import Night, unseen
from .work import Stepped

_FRESH = 1.25
"""Times as many runs as when weights were last trained, before they are trained again."""
_FEWEST = 30
"""Runs with tokens on the trained side, and groups on the other, that a training needs."""
_MOST_JUDGED = 200
"""Groups that one gate asks the agent, under both sides."""
_SHADOWED = 24
"""Newest runs that new weights answer in the shadow."""
_FOR_EVER = 0
"""Stands for the night in the division of groups: it is the same in every night."""


class RunsOfTraffic(Protocol):
    """Reads the runs that people asked for, as they stood at a time."""

    def __call__(self, as_of: float) -> list[Trajectory]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightOptions:
    """How weights are trained and judged."""

    root: Path
    """The agent's folder, which the commands run in."""
    entry: str = ""
    """The agent's function, as module:function."""
    reward: str = ""
    """Judges runs and answers: module:function, or a judge's file; without it or the entry, weights are left alone."""
    base_url: str | None = None
    """Where such a judge is asked."""
    train: str = "sft"
    """Method of `whet train` and its options."""
    output: Path = Path("whet_autopilot")


@dataclass(frozen=True, slots=True)
class WeightJob:
    """The job on the weights of one record."""

    store: Store
    night: Night
    options: WeightOptions
    runs: RunsOfTraffic

    def subject(self) -> str:
        """What the work is kept under, such as `weights:policy`; "" without weights in the record."""
        version = self._served()
        return "" if version is None else f"weights:{version.resource}"

    def due(self, work: Mapping[str, Any], count: int) -> str:
        """The step that is due; "" for none.

        Args:
            work: where the work stands.
            count: runs and words of people in the record.
        """
        stage = work.get("stage")
        if work.get("not_in") == self.night.number:
            return ""
        if stage == "trained":
            return "gate"
        if count >= _FRESH * work.get("runs", 0):
            return "train"
        return {"proven": "shadow", "shadowed": "release"}.get(str(stage), "")

    async def do(self, step: str, work: dict[str, Any], count: int) -> Stepped:
        """Do one step, which may fail: then it waits for more runs."""
        if step == "train":
            work = {**work, "number": int(work.get("number", 0)) + 1, "runs": count}
        try:
            steps = {
                "train": self._train,
                "gate": self._judge,
                "shadow": self._shadow,
                "release": self._release,
            }
            return await steps[step](work)
        except ExtraMissing as missing:
            return self._not_tonight(f"weights are left alone: {missing}", {**work, "runs": 0})
        except BudgetExceeded as exceeded:
            return self._not_tonight(f"not done: {exceeded}", work)
        except WhetError as error:
            return Stepped(f"failed: {error}", {**work, "stage": "waiting"})

    def _not_tonight(self, sentence: str, work: dict[str, Any]) -> Stepped:
        return Stepped(sentence, {**work, "not_in": self.night.number})

    async def _train(self, work: dict[str, Any]) -> Stepped:
        version, options = self._served(), self.options
        if not (options.reward and options.entry):
            why = "weights are left alone: --entry and --reward say who judges new ones"
            return self._not_tonight(why, {**work, "runs": 0})
        path = version.content.get("path") if version and isinstance(version.content, dict) else None
        if version is None or not isinstance(path, str):
            why = "weights are left alone: they lie in no folder that whet train could start from"
            return self._not_tonight(why, work)
        learned_from, judged_on = self._divided(version.resource)
        if len(learned_from) < _FEWEST or len(judged_on) < _FEWEST:
            why = (
                f"too little to train weights: {len(learned_from)} runs with tokens to learn from and "
                f"{len(judged_on)} other questions, of each at least {_FEWEST}"
            )
            return Stepped(why, {**work, "stage": "waiting"})
        folder = (options.output / f"weights-{work['number']}").resolve()
        # What a killed process left half done is done again: the same record and seed give the same weights.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        feedback = {run.id: run.feedback for run in learned_from}
        with open(folder / "runs.jsonl", "wb") as file:
            for run in self.store.trajectories(ids=list(feedback)):
                if run.id in feedback:
                    file.write(encode(replace(run, feedback=feedback[run.id])) + b"\n")
        to_jsonl(folder / "unseen.jsonl", judged_on)
        method, *words = shlex.split(options.train)
        judged_by = ("--reward-function", options.reward, *self._asked(), "--resource", version.resource)
        if options.base_url is not None:
            # The gate would promote nothing by a judge without a card: that is said before anything is trained.
            judged_by = (
                *judged_by,
                "--judge-store",
                str(Path(self.store.path).resolve()),
                "--judge-admitted",
            )
        base = ("--data", folder / "runs.jsonl", "--model", path, "--output", folder / "trained")
        await run_command(self.options.root, "train", method, *base, *judged_by, *words, "--json")
        return Stepped(
            f"trained {version.resource} by {method} on {len(learned_from)} runs",
            {**work, "stage": "trained", "folder": str(folder), "judged": len(judged_on)},
            {"folder": str(folder), "from": version.id},
        )

    async def _judge(self, work: dict[str, Any]) -> Stepped:
        alpha = self.night.alpha(f"{self.subject()}/{work['number']}")
        self.night.meter.reserve(rollouts=2 * work["judged"])
        folder, record = Path(work["folder"]), Path(self.store.path).resolve()
        printed = await run_command(
            self.options.root,
            *("gate", folder / "trained", "--entry", self.options.entry, "--store", record),
            *("--reward", self.options.reward, *self._asked()),
            *("--data", folder / "unseen.jsonl", "--alpha", f"{alpha:.12g}"),
            "--json",
        )
        verdict = msgspec.json.decode(printed.splitlines()[-1])
        low, high = verdict["interval"]
        effect = f"{100 * verdict['effect']:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"
        figures = f"{effect}, e-value {verdict['e_value']:.3g}, n = {verdict['n']}"
        facts: dict[str, Json] = {
            "bundle": verdict["candidate"],
            "promote": verdict["promote"],
            "alpha": alpha,
        }
        if verdict["promote"] and (findings := verdict["findings"]):
            why = f"weights held back, whet findings --store {record}: {findings[0]}; {figures}"
            return Stepped(why, {**work, "stage": "waiting"}, facts)
        if verdict["promote"]:
            stage = {**work, "stage": "proven", "bundle": verdict["candidate"]}
            by_hand = f"whet release {folder / 'trained'} --store {record} --to canary"
            return Stepped(f"weights proven on unseen questions: {figures}; by hand: {by_hand}", stage, facts)
        why = f"weights not proven on unseen questions: {figures}"
        return Stepped(why, {**work, "stage": "waiting"}, facts)

    async def _shadow(self, work: dict[str, Any]) -> Stepped:
        """Answer the newest recorded runs by the new weights, with the tools answered from the record."""
        record, root = Path(self.store.path).resolve(), self.options.root
        await run_command(
            root,
            *("release", Path(work["folder"]) / "trained", "--store", record, "--to", "shadow"),
            *("--reason", f"autopilot: weights {work['number']}, in the shadow first", "--json"),
        )
        trial = next(each.trial for each in self.store.on_trial() if each.candidate == work["bundle"])
        newest = sorted(self.runs(self.night.now), key=lambda run: -run.started)
        asked = [run.id for run in newest if self._name() in run.versions][:_SHADOWED]
        self.night.meter.reserve(rollouts=len(asked))
        words: list[str | Path] = [
            "replay",
            self.options.entry,
            "--store",
            record,
            "--trial",
            trial,
            "--json",
        ]
        for id in asked:
            words += ["--run", id]
        counts = msgspec.json.decode((await run_command(root, *words)).splitlines()[-1], type=dict[str, int])
        findings = findings_of(shadow_pairs(self.store, trial))
        facts: dict[str, Json] = {"bundle": work["bundle"], "pairs": findings.pairs}
        if findings.harm:
            self.store.retire(trial, reason=f"autopilot: {findings.harm}")
            return Stepped(f"weights go no further: {findings.harm}", {**work, "stage": "waiting"}, facts)
        lost = {why: count for why, count in counts.items() if why != "paired"}
        unsure = "" if findings.pairs else max(lost, key=lambda why: lost[why], default="no run to replay")
        said = findings.sentence if findings.pairs else f"nothing was seen, for {unsure}"
        sentence = f"weights in the shadow of recorded traffic: {said}"
        return Stepped(sentence, {**work, "stage": "shadowed", "unsure": unsure}, facts)

    async def _release(self, work: dict[str, Any]) -> Stepped:
        log = self.store.release_log()
        if not any(each.candidate == work["bundle"] and each.stage is Stage.CANARY for each in log):
            share, record = min(self.night.budget.share, 0.5), Path(self.store.path).resolve()
            await run_command(
                self.options.root,
                *("release", Path(work["folder"]) / "trained", "--store", record, "--to", "canary"),
                *("--share", f"{share:g}", "--reason", f"autopilot: weights {work['number']}", "--json"),
            )
        sentence = "weights are a canary: whet serve makes them live, or takes them back, by what people say"
        return Stepped(sentence, {**work, "stage": "waiting"}, {"bundle": work["bundle"]})

    def _asked(self) -> tuple[str, ...]:
        return () if self.options.base_url is None else ("--base-url", self.options.base_url)

    def _name(self) -> str:
        """Of the resource."""
        return self.subject().removeprefix("weights:")

    def _served(self) -> Version | None:
        """The weights that serve: live ones, else those that the agent came with."""
        kinds = ("weights", "adapter")
        live = self.store.live()
        if live is not None and (serving := [version for version in live.values() if version.kind in kinds]):
            return serving[0]
        return next((version for version in self.store.versions() if version.kind in kinds), None)

    def _divided(self, resource: str) -> tuple[Sequence[Trajectory], Sequence[Task]]:
        """The runs to learn from, and a task of each group that is never learned from."""
        runs = [run for run in weighed(self.runs(self.night.now)).runs if resource in run.versions]
        groups = {run.id: run.task.group or normalised(run.task.instruction) for run in runs}
        learned_from = [
            run
            for run in runs
            if not unseen(groups[run.id], _FOR_EVER) and any(step.tokens is not None for step in run.steps)
        ]
        judged_on = {
            groups[run.id]: replace(run.task, split=Split.GATE)
            for run in runs
            if unseen(groups[run.id], _FOR_EVER)
        }
        # The newest first: the traffic may have moved on.
        return learned_from, list(judged_on.values())[::-1][:_MOST_JUDGED]

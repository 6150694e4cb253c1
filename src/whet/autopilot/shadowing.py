"""What goes on trial runs in the shadow of recorded traffic first: what fails there, or costs far more, stops there.

The repairs are put together as on their trial, and the copy of the agent is a shadow of the release log.  `whet replay
--folder` runs recorded questions under it, in a process that reaches nothing but the agent's model, with the recorded
answers of the tools; the shadows are recorded, each beside the run that it shadows.  Each repair is looked at by the
questions of its own part, and all of them together by questions from elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import WhetError
from ..learn.evolution.agents.agent_prompt import entry_of, placed
from ..prove.shadow import PAIRED, ReplayMark, ShadowFindings, findings_of, replay_marks, shadow_pairs
from ..record.store import Store
from ..record.store.releases import Release, Stage
from ..repository.scan import scan
from ..types import Json, Trajectory, digest
from .commands import run_command
from .trial import board
from .trying import TogetherStepped, blame, left_out
from .work import Stepped, Workshop

SHADOW = "autopilot/shadow"
"""State of what was shadowed last."""
_OWN, _ELSEWHERE = 12, 24
"""Recorded runs of each repair's part, and of the rest, that are run again."""
_SIDES = 2
"""Most runs of an agent for one shadow: the candidate's, and that of the agent as it is."""


def shadow_calls(repairs: int) -> int:
    """Most calls of the agent that a shadow of so many repairs takes."""
    return _SIDES * (_OWN * repairs + _ELSEWHERE)


@dataclass(frozen=True, slots=True)
class RepairShadows:
    """The shadows of an autopilot's repairs, one at a time."""

    workshop: Workshop
    root: Path
    """The agent's folder."""

    def standing(self, works: Mapping[str, dict[str, Any]]) -> dict[str, Any] | None:
        """The shadow that repairs which wait for a trial have passed; None where they have to be shadowed first.

        Args:
            works: of all issues whose repair waits for a trial.
        """
        state, store = self.workshop.store.state(SHADOW), self.workshop.store
        if not state or state["works"] is None:
            return None
        known = all(works.get(id, {}).get("bundle") == bundle for id, bundle in state["works"].items())
        # As a canary where a process was killed between its release and the note that it is the trial now.
        stands = any(trial.trial == state["trial"] for trial in store.on_trial())
        return dict(state) if known and stands else None

    def end(self, why: str) -> None:
        """Take the shadow off: what it was of is no more, or was refused."""
        store, state = self.workshop.store, self.workshop.store.state(SHADOW)
        if state and any(trial.trial == state["trial"] for trial in store.on_trial()):
            store.retire(state["trial"], reason=f"autopilot: {why}")
        store.put_state(SHADOW, None)

    def end_harmful(self) -> None:
        """Take the shadow off that was found to do harm: behind the note of what it did, or after a kill there."""
        state = self.workshop.store.state(SHADOW)
        if state and state.get("harm"):
            self.end(f"it may go no further: {state['harm']}")

    async def run(self, number: int, works: dict[str, dict[str, Any]]) -> TogetherStepped:
        """Shadow repairs together.

        Args:
            number: of the trial that they are to go on.
        """
        store, folder = self.workshop.store, self.workshop.settings.output / f"trial-{number}"
        boarded = board(store, self.root, folder, works, self.workshop.shipped())
        stepped = {id: left_out(works[id], number, alone=not boarded.issues) for id in boarded.left}
        last = store.state(SHADOW) or {}
        if last.get("bundle") != boarded.bundle.id:  # else a process was killed in it, and it goes on
            self.end("other repairs are looked at")
        if not boarded.issues:
            return TogetherStepped("no repair fits the source any more", stepped)
        release = store.release(
            boarded.bundle,
            stage=Stage.SHADOW,
            new_names=True,
            reason=f"autopilot: trial {number} of {len(boarded.issues)} repairs, in the shadow first",
        )
        night = self.workshop.night.number
        goes_on = (last.get("trial"), last.get("night")) == (release.trial, night)
        state: dict[str, Json] = {
            "trial": release.trial,
            "bundle": boarded.bundle.id,
            "works": None,
            "night": night,
            "before": last["before"] if goes_on else _asked_so_far(store, release),
        }
        own = {id: works[id] for id in boarded.issues}
        # Once chosen they stay, whatever traffic comes while a process is down.
        asked = self._asked(own) if not goes_on else self._runs(last["asked"])
        state["asked"] = [run.id for run in asked]
        store.put_state(SHADOW, state)
        why = await self._replayed(release, folder, asked, before=int(state["before"]))
        pairs = shadow_pairs(store, release.trial)
        facts: dict[str, Json] = {
            "release": release.id,
            "bundle": release.candidate,
            "pairs": len(pairs),
            "left_out": sum(_lost(replay_marks(store, release.trial)).values()),
        }
        state = {**state, "works": {id: own[id]["bundle"] for id in own}}
        if not pairs:
            sentence = f"trial {number} has no shadow, so nobody knows what it does: {why}"
            return TogetherStepped(sentence, stepped, facts, {SHADOW: {**state, "unsure": why}})
        whole, found = findings_of(pairs), self._found(pairs, own)
        blamed = {id: findings.harm for id, findings in found.items() if findings.harm}
        blamed = blamed or (dict.fromkeys(own, whole.harm) if whole.harm else {})
        if not blamed:
            state["unsure"] = ""
            for id, findings in found.items():
                stepped[id] = Stepped(f"in the shadow of recorded traffic: {findings.sentence}", own[id])
        else:
            state |= {"works": None, "harm": next(iter(blamed.values()))}
            stepped |= blame(store, {id: own[id] for id in blamed}, blamed, number)
            facts["harmed"] = list(blamed)
        left = f"; {facts['left_out']} more left the record" if facts["left_out"] else ""
        sentence = f"trial {number} in the shadow of recorded traffic: {whole.sentence}{left}"
        return TogetherStepped(sentence, stepped, facts, {SHADOW: state})

    def _found(
        self, pairs: Sequence[tuple[Trajectory, Trajectory]], works: Mapping[str, dict[str, Any]]
    ) -> dict[str, ShadowFindings]:
        """What the shadows say of each repair, by the questions of its part."""
        found = {}
        for id, work in works.items():
            part = self.workshop.part_of(work)
            found[id] = findings_of([pair for pair in pairs if part.holds(pair[0].task.instruction)])
        return found

    def _asked(self, works: Mapping[str, dict[str, Any]]) -> list[Trajectory]:
        """The newest recorded runs of each repair's part, and of the rest."""
        runs = [run for run in self.workshop.runs(self.workshop.night.now) if run.error is None]
        # By their hash among the newest: what came last may all be of one person.
        recent = sorted(runs[-4_000:], key=lambda run: digest(["shadow", run.id]))
        parts = [self.workshop.part_of(work) for work in works.values()]
        chosen: dict[str, Trajectory] = {}
        for part in parts:
            chosen |= {run.id: run for run in part.runs(recent)[:_OWN]}
        rest = (run for run in recent if not any(part.holds(run.task.instruction) for part in parts))
        chosen |= {run.id: run for run, _ in zip(rest, range(_ELSEWHERE), strict=False)}
        return list(chosen.values())

    def _runs(self, ids: Sequence[str]) -> list[Trajectory]:
        runs = {run.id: run for run in self.workshop.runs(self.workshop.night.now)}
        return [runs[id] for id in ids if id in runs]

    async def _replayed(
        self, release: Release, folder: Path, asked: Sequence[Trajectory], *, before: int
    ) -> str:
        """Have the runs replayed that are not yet; why most of those that could not be could not.

        Args:
            before: calls of the agent for this shadow that another night has paid for.
        """
        bench, meter = self.workshop, self.workshop.night.meter
        marks, purpose = replay_marks(bench.store, release.trial), f"shadow/{release.trial}"
        waiting = [run.id for run in asked if not marks.get(run.id, ReplayMark()).ended]
        called = _asked_so_far(bench.store, release) - before
        entry = bench.settings.entry
        if entry is None:
            root, module = placed(bench.settings.agent)
            entry = entry_of(scan(root), bench.settings.agent, root, module, asked)
        left = meter.left("rollouts")
        if left is not None:
            waiting_most = max(0, int(left) + meter.held(purpose) - called) // _SIDES
            if waiting and not waiting_most and not any(mark.ended for mark in marks.values()):
                return "no call of the agent is left to run it with"
            waiting = waiting[:waiting_most]
        if not waiting:
            meter.hold(purpose, called)
            return _most_lost(marks)
        # Two each: the agent as it is runs beside what fails or asks for far more.
        meter.hold(purpose, called + _SIDES * len(waiting))
        words: list[str | Path] = ["replay", entry, "--store", Path(bench.store.path).resolve()]
        words += ["--trial", release.trial, "--folder", folder.resolve(), "--control", self.root, "--json"]
        for id in waiting:
            words += ["--run", id]
        try:
            await run_command(self.root, *words)
        except WhetError as error:
            return str(error)
        finally:
            meter.hold(purpose, _asked_so_far(bench.store, release) - before)
        return _most_lost(replay_marks(bench.store, release.trial))


def _asked_so_far(store: Store, release: Release) -> int:
    """Runs of an agent for the shadows of a trial, those that were broken off included."""
    return sum(mark.begun for mark in replay_marks(store, release.trial).values())


def _lost(marks: Mapping[str, ReplayMark]) -> Counter[str]:
    """Why runs have no shadow, and how many."""
    return Counter(mark.ended for mark in marks.values() if mark.ended not in ("", PAIRED))


def _most_lost(marks: Mapping[str, ReplayMark]) -> str:
    """Why most of the runs that have no shadow have none."""
    lost = _lost(marks)
    return lost.most_common(1)[0][0] if lost else "nothing was recorded that could be run again"

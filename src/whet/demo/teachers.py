"""Recorded work as something to clone: an agent's tool calls, rewritten as actions by slot.

What an outside agent did is a list of tool calls.  Played again on a fresh inbox they give the
observations that a slot policy would have had, and each call becomes a few tokens.  A run that
uses something which has no slot (a mail that was not among the results shown) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from ..envs.email import World, extract
from ..envs.email.slots import SlotView
from ..types import Bundle, Group, Json, Step, Tokens, Trajectory
from .agents import IDS, parsed


def calls_of(trajectory: Trajectory) -> list[Mapping[str, Json]]:
    """The tool calls of an outside agent's run, the answer last."""
    calls: list[Mapping[str, Json]] = [
        {"tool": step.name, **step.observation}
        for step in trajectory.steps
        if step.kind == "tool" and step.name in ("search", "read")
    ]
    final = trajectory.steps[0].info.get("rubric", {})
    if final.get("unknown"):
        return [*calls, {"tool": "unknown"}]
    return [*calls, {"tool": "answer", "id": trajectory.steps[0].info["sources"][0]}]


def as_slots(trajectory: Trajectory, world: World, agent: ModuleType, bundle: Bundle) -> Trajectory | None:
    """The run with one Step per tool call, carrying its tokens; None if it has no form by slot."""
    if not trajectory.steps or trajectory.error or not trajectory.steps[0].info.get("rubric"):
        return None
    inbox = world.inbox(trajectory.task)
    view = SlotView(parsed(agent, trajectory.task.instruction, bundle), inbox)
    context = [IDS[token] for token in view.opening()]
    steps: list[Step] = []
    for call in calls_of(trajectory):
        action = view.encode(call)
        if action is None:
            return None
        ids = [IDS[token] for token in action]
        steps.append(Step(action=" ".join(action), tokens=Tokens(tuple(context), tuple(ids), (0.0,) * len(ids))))
        context += ids
        context += [IDS[token] for token in _seen(view, inbox, call)]
    return replace(trajectory, steps=tuple(steps))


def _seen(view: SlotView, inbox: Any, call: Mapping[str, Json]) -> list[str]:
    if call["tool"] == "search":
        given = {name: call[name] for name in ("sender", "month") if call.get(name)}
        return view.observe_search(inbox.search(call["words"], match=call.get("match", "all"), **given))
    if call["tool"] == "read":
        mail = inbox.read(call["id"])
        return view.observe_read(mail, len(extract(view.kind, mail)))
    return []


def lessons(groups: Sequence[Group], world: World, agent: ModuleType, bundle: Bundle) -> list[Group]:
    """Groups of runs that have a form by slot; tasks without any are left out."""
    found = []
    for group in groups:
        kept = [slots for one in group.trajectories if (slots := as_slots(one, world, agent, bundle))]
        if kept:
            found.append(Group(group.task, tuple(kept)))
    return found

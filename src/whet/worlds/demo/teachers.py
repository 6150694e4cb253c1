"""Recorded work as something to clone: an agent's tool calls, rewritten as actions by slot.

What an outside agent did is a list of tool calls.  Played again on a fresh inbox they give the
observations that a slot policy would have had, and each call becomes a few tokens.  A run that
uses something which has no slot (a mail that was not among the results shown) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType

from ...record.tracing.tool_calls import tool_calls
from ...types import Bundle, Group, Json, Step, Tokens, Trajectory
from ..email import Hit, Inbox, MailWorld
from ..email.slots import SlotView
from .agents import IDS, parsed


def calls_of(trajectory: Trajectory) -> list[Mapping[str, Json]]:
    """The tool calls of a run, by an outside agent or turn by turn, the answer last."""
    calls = [
        {"tool": call.name, **call.arguments}
        for call in tool_calls(trajectory)
        if isinstance(call.arguments, Mapping)
    ]
    searches = [call for call in calls if call.get("tool") in ("search", "read")]
    output = trajectory.output if isinstance(trajectory.output, Mapping) else {}
    sources = output.get("sources")
    return [*searches, {"tool": "answer", "id": sources[0]} if sources else {"tool": "unknown"}]


def as_slots(
    trajectory: Trajectory, world: MailWorld, agent: ModuleType, bundle: Bundle
) -> Trajectory | None:
    """The run with one Step per tool call, carrying its tokens; None if it has no form by slot."""
    if trajectory.error or not isinstance(trajectory.output, Mapping):
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
        steps.append(
            Step(action=" ".join(action), tokens=Tokens(tuple(context), tuple(ids), (0.0,) * len(ids)))
        )
        context += ids
        context += [IDS[token] for token in _observed(view, inbox, call)]
    return replace(trajectory, steps=tuple(steps))


def searched(inbox: Inbox, call: Mapping[str, Json]) -> list[Hit]:
    """The results of a recorded search, on a fresh inbox."""
    filters = {name: call[name] for name in ("sender", "month") if call.get(name)}
    return inbox.search(call["words"], match=call.get("match", "all"), **filters)


def _observed(view: SlotView, inbox: Inbox, call: Mapping[str, Json]) -> list[str]:
    if call["tool"] == "search":
        return view.observe_search([hit.id for hit in searched(inbox, call)])
    return view.observe_read(call["id"]) if call["tool"] == "read" else []


def lessons(groups: Sequence[Group], world: MailWorld, agent: ModuleType, bundle: Bundle) -> list[Group]:
    """Groups of runs that have a form by slot; tasks without any are left out."""
    groups_by_slot = []
    for group in groups:
        slot_runs = [slots for run in group.trajectories if (slots := as_slots(run, world, agent, bundle))]
        if slot_runs:
            groups_by_slot.append(Group(group.task, tuple(slot_runs)))
    return groups_by_slot

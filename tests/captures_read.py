"""The captures of tests/captures as spans, and their trajectories as trees of text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.record.tracing.dialects import form, survey
from whet.record.tracing.otlp import decode
from whet.types import Span

FOLDER = Path(__file__).parent / "captures"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


@dataclass(frozen=True)
class Capture:
    """One capture: the spans as they were sent, and the calls that the model server saw."""

    spans: list[Span]
    calls: list[dict[str, Any]]
    printed: list[str]


def load(path: Path) -> Capture:
    """A file that `integrations/captures/remake.py` wrote."""
    captured = json.loads(path.read_text(encoding="utf-8"))
    spans: list[Span] = []
    for request in captured["requests"]:
        decoded = decode(json.dumps(request["body"]).encode(), json=True, logs=request["logs"])
        assert not decoded.rejected, decoded.reasons
        spans += decoded.spans
    return Capture(spans, captured["calls"], captured["printed"])


def shown(spans: list[Span]) -> list[dict[str, Any]]:
    """The trajectories of spans in the form in which they are shown."""
    return [form(trajectory) for trajectory in survey(spans).trajectories]


def tree(trajectory: dict[str, Any]) -> list[str]:
    """A step a line, as deep as it lies: kind, name of an agent or tool, its call's id, and the type of its error."""
    depths: list[int] = []
    lines = []
    for step in trajectory["steps"]:
        depths.append(0 if step["parent"] is None else depths[step["parent"]] + 1)
        words = [step["kind"], *([] if step["kind"] == "llm" else [step["name"]])]
        words += [step["tool_call_id"]] if step["tool_call_id"] else []
        words += [f"!{step['error']['type']}"] if step["error"] else []
        lines.append("  " * depths[-1] + " ".join(words))
    return lines


def _as_on_the_wire(messages: Any) -> Any:
    """Messages with the id of each call that its result names, and one word for the two names of a system prompt."""
    turns = json.loads(json.dumps(messages))
    for turn in turns or ():
        turn["role"] = "system" if turn["role"] == "developer" else turn["role"]
        for call in turn.get("tool_calls", ()):
            call["id"] = call.pop("id_wire", call["id"])
    return turns


def differences(capture: Capture, trajectories: list[dict[str, Any]]) -> list[str]:
    """Where the model calls of the trajectories are not those that the model server saw, in words."""
    steps = [step for trajectory in trajectories for step in trajectory["steps"] if step["kind"] == "llm"]
    if len(steps) != len(capture.calls):
        return [f"{len(capture.calls)} calls were made and {len(steps)} are read"]
    different = []
    for number, (step, call) in enumerate(zip(steps, capture.calls, strict=True)):
        pairs: dict[str, tuple[Any, Any]] = {
            "input": (_as_on_the_wire(step["input_messages"]), _as_on_the_wire(call["input_messages"])),
            "output": (step["output"], call["output"] if call["status"] == 200 else None),
        }
        if call["status"] == 200:
            used = step["usage"] and [step["usage"]["input"], step["usage"]["output"]]
            pairs["usage"] = (used, call["usage"])
        different += [
            f"{number} {name}: {ours} != {wire}" for name, (ours, wire) in pairs.items() if ours != wire
        ]
    return different


if __name__ == "__main__":
    import sys

    for name in sys.argv[1:] or NAMES:
        capture = load(FOLDER / f"{name}.json")
        print("=====", name, capture.printed)
        trajectories = shown(capture.spans)
        for trajectory in trajectories:
            print(
                "--", trajectory["session"], trajectory["subject"], trajectory["error"], trajectory["output"]
            )
            print("\n".join(tree(trajectory)))
        print(*("  ? " + line[:900] for line in differences(capture, trajectories)), sep="\n")

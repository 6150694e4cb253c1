"""LangGraph agents are recorded as they are, decorated, given another prompt by a release, and wired by `whet init`.

    python -m integrations.langgraph.check PYTHON

PYTHON is that of the environment with LangGraph and whet.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from integrations.recorded import ANSWER, DID, did, record, weather, wire, wired_as_usual
from integrations.thumbs import improved
from whet.models.base import Completion, ModelRequest, ToolCall
from whet.models.fakes import ScriptedServer
from whet.record.store import Store, bundle_of

HERE = Path(__file__).parent
BRIEF = "You are brief."


def released(path: Path) -> None:
    """Make another prompt live."""
    with Store(path) as store:
        store.release(bundle_of({"gateway.system_prompt": BRIEF}), unproven=True)


def team(request: ModelRequest) -> Completion:
    """The scripted model of a lead, which asks its researcher, and of the researcher, who looks at the weather."""
    if request.messages[0]["content"] != "You lead a team." or request.messages[-1]["role"] == "tool":
        return weather(request)
    return Completion(
        tool_calls=[
            ToolCall(name="research", arguments='{"question": "How warm is Paris today?"}', id="call_1")
        ]
    )


def teams(python: str, folder: Path) -> None:
    """A sub-agent has a name and a parent: its own name where LangGraph was given one, else its tool's."""
    folder = folder / "teams"  # a record without the release, which is one prompt for both
    folder.mkdir()
    with ScriptedServer(team, speaks=("chat",)) as upstream:
        for words, names in (([], ("", "research")), (["--named"], ("lead", "researcher"))):
            command = [python, "-W", "ignore", str(HERE / "team.py"), *words]
            _, (trajectory,) = record(command, upstream, folder, run="team" + "".join(words))
            lead, sub = names
            shown = [(step["kind"], step["agent"], step["parent"]) for step in trajectory["steps"]]
            llm = "llm"
            assert shown == [
                (llm, lead, None),
                ("agent", sub, None),
                (llm, sub, 1),
                ("tool", sub, 1),
                (llm, sub, 1),
                (llm, lead, None),
            ], shown


def marked(python: str, upstream: ScriptedServer, folder: Path) -> None:
    """Async nodes, tools, sub-agents and routes under whet's decorators give what they gave, and are recorded."""
    program = [python, "-W", "ignore", str(HERE / "traced.py")]
    printed, trajectories = record(program, upstream, folder, run="marked")
    assert printed == f"{ANSWER}\n", printed
    (whole,) = [each for each in trajectories if each["meta"].get("function") == "agent"]
    steps = {step["name"].rpartition(".")[2]: step for step in whole["steps"] if step["kind"] != "llm"}
    assert list(steps) == ["forecaster", "weather", "check", "route", "shout", "words"], whole
    assert steps["weather"]["parent"] == steps["forecaster"]["index"], whole
    outputs = {name: step["output"] for name, step in steps.items()}
    assert outputs == {
        "forecaster": {"answer": ANSWER},
        "weather": {"text": "22 degrees in Paris"},
        "check": {"checked": ANSWER},
        "route": {"text": "shout"},
        "shout": [{"shouted": ANSWER.upper()}],
        "words": ANSWER.split(),
    }, outputs
    asked = [step for step in whole["steps"] if step["kind"] == "llm"]
    assert [step["parent"] for step in asked] == [steps["forecaster"]["index"]] * 2, whole
    assert "route" in whole["versions"], whole


def main(python: str) -> None:
    agent = [python, "-W", "ignore", str(HERE / "agent.py")]
    with tempfile.TemporaryDirectory() as name, ScriptedServer(weather, speaks=("chat",)) as upstream:
        folder = Path(name)
        for run, words in (("plain", []), ("streamed", ["--stream"]), ("released", [])):
            if run == "released":
                released(folder / "runs.db")
            printed, (trajectory,) = record([*agent, *words], upstream, folder, run=run)
            assert printed == f"{ANSWER}\n", printed
            prompt = {"prompt": BRIEF} if run == "released" else {}
            assert did(trajectory) == DID | prompt, (run, trajectory)
            assert bool(trajectory["versions"]) == (run == "released"), trajectory
        marked(python, upstream, folder)
        wired = wire(HERE / "repo", python, folder)
        teams(python, folder)
    wired_as_usual(wired, "LangGraph")
    assert did(wired.trajectory) == DID, wired.trajectory
    print(
        "langgraph: recorded streamed or not, follows a release, teams, decorated async, and wired by whet init"
    )
    improved("langgraph", python)


if __name__ == "__main__":
    main(sys.argv[1])

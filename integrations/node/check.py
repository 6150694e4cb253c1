"""Node's `fetch`, without any package: model calls by the gateway and spans as OTLP/JSON are one trajectory.

    python -m integrations.node.check

Where there is no Node 18 or newer, which has `fetch`, it says so and checks nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from integrations.recorded import ANSWER, DID, as_documented, did, record, weather
from whet.models.fakes import ScriptedServer

AGENT = Path(__file__).with_name("agent.mjs")
OLDEST = 18


def main() -> None:
    node = shutil.which("node")
    if node is None:
        print("NOT CHECKED: node is not installed (Debian and Ubuntu: apt install nodejs)")
        return
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=True, timeout=60)
    version = told.stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < OLDEST:
        print(f"NOT CHECKED: node {version} has no fetch; {OLDEST} or newer is needed")
        return
    with tempfile.TemporaryDirectory() as folder, ScriptedServer(weather, speaks=("chat",)) as upstream:
        printed, (trajectory,) = record([node, str(AGENT)], upstream, Path(folder), run="node")
        again = as_documented("node", AGENT, node, upstream, Path(folder))
    assert printed == f"{ANSWER}\n", printed
    assert did(trajectory) == did(again) == DID, trajectory
    steps = trajectory["steps"]
    assert [step["kind"] for step in steps] == ["agent", "llm", "tool", "llm"], steps
    assert [step["parent"] for step in steps] == [None, 0, 0, 0], steps
    assert steps[2]["arguments"] == {"city": "Paris"}, steps
    assert steps[2]["output"] == {"text": "22 degrees in Paris"}, steps
    print(f"node {version}: model calls and OTLP/JSON spans of one agent are one trajectory")


if __name__ == "__main__":
    main()

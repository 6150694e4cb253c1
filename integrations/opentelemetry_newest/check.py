"""An OpenTelemetry SDK behind `whet run`: an agent's own spans become its trajectory.

    python -m integrations.opentelemetry_newest.check PYTHON

PYTHON is that of the environment with the SDK; `opentelemetry_oldest` does the same with another.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from integrations.recorded import ANSWER, DID, as_documented, did, record
from whet.models.fakes import ScriptedServer

AGENT = Path(__file__).with_name("agent.py")
VERSION = "import opentelemetry.sdk.version as sdk; print(sdk.__version__)"


def main(python: str) -> None:
    # The agent calls no model: its spans are all there is to read.
    with tempfile.TemporaryDirectory() as folder, ScriptedServer() as upstream:
        printed, (trajectory,) = record([python, str(AGENT)], upstream, Path(folder), run="spans")
        again = as_documented("opentelemetry_newest", AGENT, python, upstream, Path(folder))
    assert printed == f"{ANSWER}\n", printed
    assert did(trajectory) == did(again) == DID, trajectory
    steps = trajectory["steps"]
    assert [step["kind"] for step in steps] == ["agent", "llm", "tool", "llm"], steps
    assert [step["parent"] for step in steps] == [None, 0, 0, 0], steps
    tool = steps[2]
    assert (tool["name"], tool["arguments"], tool["output"]) == (
        "weather",
        {"city": "Paris"},
        {"text": "22 degrees in Paris"},
    ), tool
    version = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, check=True, timeout=60)
    print(f"opentelemetry {version.stdout.strip()}: an agent's spans are its trajectory")


if __name__ == "__main__":
    main(sys.argv[1])

"""A LangGraph agent is recorded by `whet run` as it is, and given another prompt by a release.

    python check.py PYTHON

PYTHON is that of the environment with LangGraph.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from whet.fakes import ScriptedServer
from whet.models.base import Request, ToolCall
from whet.store import Store
from whet.types import Bundle, Version

AGENT = Path(__file__).with_name("agent.py")


def script(request: Request) -> object:
    """A model that asks for the tool once, then says what it said."""
    results = [message["content"] for message in request.messages if message["role"] == "tool"]
    return f"It is {results[0]}." if results else [ToolCall(name="weather", arguments='{"city": "Paris"}')]


def main(python: str) -> None:
    with tempfile.TemporaryDirectory() as folder, ScriptedServer(script, speaks=("chat",)) as upstream:
        path = Path(folder) / "runs.db"
        whet = [
            sys.executable,
            "-m",
            "whet.cli",
            "run",
            "--store",
            str(path),
            "--upstream",
            upstream.base_url,
        ]
        for run, words in (("plain", []), ("streamed", ["--stream"]), ("released", [])):
            if run == "released":
                with Store(path) as store:
                    store.set_live(
                        Bundle([Version(resource="gateway.system_prompt", content="You are brief.")])
                    )
            done = subprocess.run(
                [*whet, "--run-id", run, "--", python, "-W", "ignore", str(AGENT), *words],
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert (done.returncode, done.stdout) == (0, "It is 22 degrees in Paris.\n"), done.stderr
        with Store(path) as store:
            for run in ("plain", "streamed", "released"):
                (trajectory,) = store.trajectories(ids=[run])
                first, second = trajectory.steps
                assert "weather" in str(first.action), first
                assert "It is 22 degrees in Paris." in str(second.action), second
                prompt = "You are brief." if run == "released" else "You are kind."
                assert prompt in str(first.observation), first
                assert bool(trajectory.versions) == (run == "released")
    print("a LangGraph agent is recorded, streamed or not, and follows a release")


if __name__ == "__main__":
    main(sys.argv[1])

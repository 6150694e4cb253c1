"""A LangGraph agent is recorded as it is, given another prompt by a release, and wired by `whet init`.

    python -m integrations.langgraph.check PYTHON

PYTHON is that of the environment with LangGraph and whet.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from integrations.recorded import ANSWER, DID, did, record, weather, wire, wired_as_usual
from whet.fakes import ScriptedServer
from whet.store import Store
from whet.types import Bundle, Version

HERE = Path(__file__).parent
BRIEF = "You are brief."


def released(path: Path) -> None:
    """Make another prompt live."""
    with Store(path) as store:
        store.set_live(Bundle([Version(resource="gateway.system_prompt", content=BRIEF)]))


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
        wired = wire(HERE / "repo", python, folder)
    wired_as_usual(wired, "LangGraph")
    assert did(wired.trajectory) == DID, wired.trajectory
    print("langgraph: recorded streamed or not, follows a release, and a repository wired by whet init")


if __name__ == "__main__":
    main(sys.argv[1])

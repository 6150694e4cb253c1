"""A CrewAI repository is wired by `whet init` and recorded, and its prompts that are read at import are named.

    python -m integrations.crewai.check PYTHON

PYTHON is that of the environment with CrewAI and whet.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from integrations.recorded import DID, PROMPT, QUESTION, did, wire, wired_as_usual
from integrations.thumbs import improved


def main(python: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wired = wire(Path(__file__).with_name("repo"), python, Path(folder))
    wired_as_usual(wired, "CrewAI")
    seen = did(wired.trajectory)
    # CrewAI writes the prompt from role, goal and backstory, and the question into a task.
    assert PROMPT in seen["prompt"], seen
    assert f"Current Task: {QUESTION}" in seen["question"], seen
    assert seen | {"prompt": PROMPT, "question": QUESTION} == DID, seen
    for name in ("goal", "backstory"):
        finding = wired.says("warning", f"prompt {name} is read when its module is imported")
        assert "build the agent inside a function" in finding["fix"], finding
    print("crewai: a repository wired by whet init")
    improved("crewai", python)


if __name__ == "__main__":
    main(sys.argv[1])

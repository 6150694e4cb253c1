"""A smolagents script, which has no function to trace, is recorded by the gateway without a changed line.

    python -m integrations.smolagents.check PYTHON

PYTHON is that of the environment with smolagents and whet.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from integrations.recorded import ANSWER, PROMPT, QUESTION, did, weather, wire
from integrations.thumbs import improved
from whet.models.base import Completion, ModelRequest, ToolCall
from whet.types import Usage


def sky(request: ModelRequest) -> Completion:
    """The scripted model as smolagents wants one: results come as text, the answer goes by a tool."""
    if "22 degrees in Paris" not in request.text:
        return weather(request)
    call = ToolCall(name="final_answer", arguments=f'{{"answer": "{ANSWER}"}}', id="call_answer")
    used = Usage(prompt_tokens=34, output_tokens=6)
    return Completion(tool_calls=[call], usage=used, finish="tool_calls")


def main(python: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wired = wire(Path(__file__).with_name("repo"), python, Path(folder), model=sky)
    assert (wired.proposed["framework"], wired.proposed["diff"]) == ("smolagents", ""), wired.proposed
    assert wired.proposed["command"].startswith("whet run "), wired.proposed
    assert wired.printed.splitlines()[-1] == ANSWER, wired.printed
    trajectory = wired.trajectory
    assert trajectory["meta"]["source"] == "gateway", trajectory
    seen = did(trajectory)
    assert PROMPT in seen["prompt"], seen
    assert QUESTION in seen["question"], seen
    assert seen["calls"] == [["weather", {"city": "Paris"}], ["final_answer", {"answer": ANSWER}]], seen
    assert seen["usage"] == [[21, 5], [34, 6]], seen
    said = [
        message["text"] for message in trajectory["steps"][1]["input_messages"] if message["role"] == "user"
    ]
    assert said[-1] == "Observation:\n22 degrees in Paris", said
    wired.says("warning", "smolagents is not recorded")
    wired.says("warning", "prompt instructions is read when its module is imported")
    print("smolagents: a script recorded without a changed line")
    improved("smolagents", python)


if __name__ == "__main__":
    main(sys.argv[1])

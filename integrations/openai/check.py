"""The OpenAI SDK behind the gateway: both APIs, streamed, tools, token ids; and a plain agent wired by `whet init`.

    python -m integrations.openai.check PYTHON

PYTHON is that of the environment with the SDK and whet.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from integrations.recorded import ANSWER, DID, did, record, weather, wire, wired_as_usual
from whet.models.base import Completion, ModelRequest
from whet.models.fakes import ScriptedServer
from whet.types import Tokens

HERE = Path(__file__).parent
ALL = ("chat", "responses", "messages")
IDS = Tokens(prompt_ids=(1, 2, 3), output_ids=(4, 5), logprobs=(-0.5, -0.25))


def sampled(request: ModelRequest) -> Completion:
    """The scripted model, of an upstream that gives token ids."""
    return replace(weather(request), tokens=IDS)


def recorded_as_it_is(python: str, folder: Path) -> None:
    agent = [python, str(HERE / "agent.py")]
    # An upstream that speaks the agent's API is handed its bytes; one that speaks chat alone has the
    # Responses API translated.
    translated = [["responses"], ["responses", "--stream"]]
    for speaks, asked in ((ALL, [["chat"], ["chat", "--stream"], *translated]), (("chat",), translated)):
        with ScriptedServer(weather, speaks=speaks) as upstream:
            said = [word for api in speaks for word in ("--speaks", api)]
            for words in asked:
                run = "-".join([*words, *speaks])
                printed, (trajectory,) = record([*agent, *words], upstream, folder, run=run, options=said)
                assert printed == f"{ANSWER}\n", printed
                assert did(trajectory) == DID, (run, trajectory)
    with ScriptedServer(sampled, speaks=("chat",)) as upstream:
        _, (trajectory,) = record([*agent, "chat"], upstream, folder, run="ids", options=["--tokens"])
        for step in (each for each in trajectory["steps"] if each["kind"] == "llm"):
            assert step["tokens"]["prompt_ids"] == [1, 2, 3], step
            assert step["tokens"]["output_ids"] == [4, 5], step
            assert step["tokens"]["logprobs"] == [-0.5, -0.25], step


def main(python: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        recorded_as_it_is(python, Path(name))
        wired = wire(HERE / "repo", python, Path(name))
    wired_as_usual(wired, "OpenAI")
    assert did(wired.trajectory) == DID, wired.trajectory
    print("openai: chat and responses, streamed or not, and a repository wired by whet init")


if __name__ == "__main__":
    main(sys.argv[1])

"""Anthropic's SDK behind the gateway: messages, streamed, tools; as its own API and translated to chat.

    python -m integrations.anthropic.check PYTHON

PYTHON is that of the environment with the SDK.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from integrations.recorded import ANSWER, DID, as_documented, did, record, weather
from whet.models.fakes import ScriptedServer

AGENT = Path(__file__).with_name("agent.py")


def main(python: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for speaks in ("messages", "chat"):
            with ScriptedServer(weather, speaks=(speaks,)) as upstream:
                for words in ([], ["--stream"]):
                    printed, (trajectory,) = record(
                        [python, str(AGENT), *words],
                        upstream,
                        Path(folder),
                        run=f"{speaks}{len(words)}",
                        options=["--speaks", speaks],
                    )
                    assert printed == f"{ANSWER}\n", printed
                    assert did(trajectory) == DID, (speaks, words, trajectory)
        with ScriptedServer(weather, speaks=("messages",)) as upstream:
            assert did(as_documented("anthropic", AGENT, python, upstream, Path(folder))) == DID
    print("anthropic: messages, streamed or not, and translated to chat")


if __name__ == "__main__":
    main(sys.argv[1])

"""A judge that sees images: captured by the gateway, shown at the endpoint, and its verdict turns on them."""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import whet

from whet.models.base import ModelRequest
from whet.models.fakes import ScriptedServer
from whet.record.store import Store

AGENT = """
import json, os, sys, urllib.request
picture = open(sys.argv[1]).read()
content = [{"type": "text", "text": "Which colour is picture " + sys.argv[2] + "?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64," + picture}}]
body = {"model": "painter", "messages": [{"role": "user", "content": content}]}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
    {"content-type": "application/json", "authorization": "Bearer k"})
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""
RUBRIC = "A good answer names the colour that the picture has."
RED, BLUE = (230, 10, 20), (10, 20, 230)


def png(colour: tuple[int, int, int], number: int) -> str:
    """A picture of one pixel, in base64; the number in a comment makes each another file."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", binascii.crc32(kind + body))

    parts = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)) + chunk(b"tEXt", b"n\0%d" % number)
    parts += chunk(b"IDAT", zlib.compress(b"\0" + bytes(colour))) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + parts).decode()


def colour_of(url: str) -> str:
    """What a model with eyes sees."""
    body = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    start = body.index(b"IDAT")
    (length,) = struct.unpack(">I", body[start - 4 : start])
    red, _, blue = zlib.decompress(body[start + 4 : start + 4 + length])[1:4]
    return "red" if red > blue else "blue"


def pictures(request: ModelRequest) -> list[str]:
    (message,) = request.messages
    content = message["content"]
    if not isinstance(content, list):
        return []
    return [part["image_url"]["url"] for part in content if part["type"] == "image_url"]


def judge(request: ModelRequest) -> str:
    """It goes by the first picture alone: without one it guesses."""
    shown = json.loads(re.findall(r"<data-[0-9a-f]+>\s*(\{.*\})\s*</data", request.text)[0])
    seen = pictures(request)
    if not seen:
        return "I see no picture.\nSCORE: 5"
    right = re.search(rf"\b{colour_of(seen[0])}\b", str(shown["answer"]))
    return f"SCORE: {9 if right else 1}"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(by_model={"painter": lambda request: "It is red.", "judge": judge}) as running:
        yield running


def labels(path: Path) -> None:
    """Pictures of both colours, each called red or blue."""
    rows = []
    for number in range(80):
        colour, said = (RED, BLUE)[number % 2], ("red", "blue")[number // 2 % 2]
        url = f"data:image/png;base64,{png(colour, number)}"
        asked = [
            {"type": "text", "text": f"Which colour is picture {number}?"},
            {"type": "image_url", "image_url": {"url": url}},
        ]
        rows.append(
            {
                "input": [{"role": "user", "content": asked}],
                "output": f"It is {said}.",
                "label": "good" if (colour == RED) is (said == "red") else "bad",
            }
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_judges_verdict_turns_on_the_image_that_the_agent_was_shown(
    tmp_path: Path, server: ScriptedServer
) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "rubric.md").write_text(RUBRIC)
    labels(tmp_path / "labels.jsonl")
    for number, colour in enumerate((RED, BLUE, RED)):
        (tmp_path / f"{number}.b64").write_text(png(colour, 1000 + number))
        done = whet(
            "run", "--store", "runs.db", "--upstream", server.base_url, "--", sys.executable, "agent.py",
            f"{number}.b64", str(number), folder=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    audit = (
        "audit",
        "rubric.md",
        "--labels",
        "labels.jsonl",
        "--model",
        "judge",
        "--base-url",
        server.base_url,
    )
    blind = whet(*audit, "--store", "blind.db", folder=tmp_path)
    assert blind.returncode == 1, "who does not see the pictures is refused"
    assert "it is not right more often, beyond chance" in blind.stdout
    asked = [received.body for received in server.requests if received.body["model"] == "judge"]
    assert len(asked) >= 80
    assert "base64" not in json.dumps(asked), "who is not to see a picture is not sent its bytes"
    seeing = whet(*audit, "--store", "runs.db", "--show", "images", folder=tmp_path)
    assert seeing.returncode == 0, seeing.stdout + seeing.stderr
    assert "admitted: it may decide at a gate" in seeing.stdout
    before = len(server.requests)
    scored = whet(
        "score", "--store", "runs.db", "--reward", "rubric.md", "--base-url", server.base_url, folder=tmp_path
    )
    assert scored.returncode == 0, scored.stdout + scored.stderr
    sent = [received.body for received in server.requests[before:]]
    assert len(sent) == 3
    for body in sent:
        text, image = body["messages"][0]["content"]
        assert image["type"] == "image_url"
        assert "base64" not in text["text"], "the bytes of a picture are no text to read"
    with Store(tmp_path / "runs.db") as store:
        given = {
            re.findall(r"picture (\d)", json.dumps(run.steps[0].observation))[0]: run.scores["rubric"]
            for run in store.trajectories()
        }
    assert {number: score.value for number, score in given.items()} == {"0": 0.9, "1": 0.1, "2": 0.9}
    assert not any(score.uncalibrated for score in given.values())

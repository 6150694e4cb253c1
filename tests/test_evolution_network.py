"""An agent that calls a model over the network evolves: it stays outside, what evolves of it inside."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
from commands import command as run_command

from whet.learn.evolution.agents.agent import RepositoryAgent
from whet.learn.evolution.agents.networked import Networked
from whet.models import Completion, ToolCall
from whet.models.base import ModelRequest
from whet.models.fakes import Reply, ScriptedServer
from whet.sandbox import CallResult, Local, Pool

SHOP = Path(__file__).resolve().parents[1] / "examples" / "evolve" / "shop_clerk"
PRICES = {"lamp": 20, "chair": 45, "rug": 80}
MENDS = (
    ("Answer in French", "Use the tools.", "Use the tools.\\nAnswer in the language of the question."),
    ("What sums can you do", "Does sums.", "The price of several items."),
    ("cost?", "PRICES.get(item, 0) + count", "PRICES.get(item, 0) * count"),
)
"""Sign of a row that went wrong, what stands in a program, and what the proposing model makes of it."""


def customer(request: ModelRequest) -> Any:
    """The clerk's model: it obeys its prompt and skills, and believes what tools are described as."""
    system, question = str(request.messages[0]["content"]), str(request.messages[1]["content"])
    described = {each["function"]["name"]: each["function"]["description"] for each in request.tools or ()}
    if "refund" in question:
        return "yes" if "30 days" in system else "please ask my manager"
    if "order" in question:
        return "shipped" if "status" in described["find_order"] else "I cannot know"
    if "French" in question:
        return "bonjour" if "language of the question" in system else "hello"
    if "sums" in question:
        return "prices" if "price" in described["total"] else "any"
    last = request.messages[-1]
    if last["role"] == "tool":
        return str(last["content"])
    count, item = re.findall(r"(\d+) (\w+)s", question)[0]
    asked = json.dumps({"item": item, "count": int(count)})
    return Completion(
        text="", model="scripted", tool_calls=(ToolCall(name="total", arguments=asked, id="call-1"),)
    )


def colleague(request: ModelRequest) -> str:
    """The model that proposes: it mends what it is told of, and knows one rule."""
    if ruling(request):
        return "Answer in the language of the question."
    told = request.text.partition("# What its evaluator said")[2]
    found = []
    for sign, old, new in MENDS:
        line = next((each for each in request.text.splitlines() if old in each and new not in each), None)
        if sign in told and line is not None:
            changed = line.replace(old, new.replace("\\n", "\n"))
            found.append(f"<<<<<<< SEARCH\n{line}\n=======\n{changed}\n>>>>>>> REPLACE")
    return "\n".join(found) or "I see nothing."


def model(request: ModelRequest) -> Any:
    return colleague(request) if proposes(request) else customer(request)


def proposes(request: ModelRequest) -> bool:
    """The clerk's requests have a system message of its own."""
    return "You are the clerk" not in str(request.messages[0]["content"]) or ruling(request)


def ruling(request: ModelRequest) -> bool:
    """A rule is asked for, not a change."""
    return "# What failing rows share" in request.text


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with ScriptedServer(model, models=("scripted", "colleague")) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield running


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "clerk"
    shutil.copytree(SHOP, folder)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True, timeout=300)
    return folder


def questions(path: Path, count: int = 36) -> Path:
    """Rows of three kinds, one for each defect."""
    rows = []
    for n in range(count):
        item = list(PRICES)[n % 9 // 3]
        # Signed, so that no question nearly repeats one on another side of the gate.
        name = "".join(random.Random(n).choices(ascii_lowercase, k=32))
        price = {"input": f"What do {n + 2} {item}s cost? {name}", "expected": str((n + 2) * PRICES[item])}
        french = {"input": f"Answer in French, customer {name}", "expected": "bonjour"}
        sums = {"input": f"What sums can you do, clerk {name}?", "expected": "prices"}
        part = ("train", "validation", "train", "gate")[n // 3 % 4]
        rows.append({**(price, french, sums)[n % 3], "split": part})
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    return path


def same(path: Path, question: str, wanted: str, count: int = 12) -> Path:
    rows = [{"input": f"{question} {chr(97 + n) * 4}{n}?", "expected": wanted} for n in range(count)]
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    return path


def evolve(capsys: pytest.CaptureFixture[str], folder: Path, *words: object) -> dict[str, Any]:
    code, out, err = outcome(capsys, folder, *words)
    assert code in (0, 1), err  # with so few rows nothing is proven
    return json.loads(out)  # type: ignore[no-any-return]


def outcome(capsys: pytest.CaptureFixture[str], folder: Path, *words: object) -> tuple[object, str, str]:
    command = [
        "evolve",
        "--network",
        "--entry",
        "shop.clerk:answer",
        "--repository",
        folder,
        "--json",
        *words,
    ]
    done = run_command(capsys, *command)
    return done.returncode, done.stdout, done.stderr


def test_prompt_tool_and_description_of_a_networked_agent_become_a_patch_that_is_promoted(
    server: ScriptedServer, shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {
        path: path.read_bytes() for path in shop.rglob("*") if path.is_file() and ".git" not in path.parts
    }
    targets = ("--target", "clerk_prompt", "--target", "shop.prices:total", "--target", "shop/clerk.py:total")
    found = evolve(
        capsys,
        shop,
        *targets,
        *("--data", questions(tmp_path / "rows.jsonl"), "--output", tmp_path / "out"),
        *("--model", "colleague", "--base-url", server.base_url, "--models-only", "--iterations", 8),
    )
    assert found["scores"]["answer"]["gate"] == {"n": 9, "before": 0.0, "after": 1.0}
    assert found["trusted_only"] is False
    assert found["promote"] is True
    assert found["agent_calls"] >= 36
    assert {path: path.read_bytes() for path in before} == before
    subprocess.run(["git", "apply", found["patch"]], cwd=shop, check=True, timeout=300)
    assert "PRICES.get(item, 0) * count" in (shop / "shop/prices.py").read_text()
    clerk = (shop / "shop/clerk.py").read_text()
    assert "Answer in the language of the question." in clerk
    assert '"description": "The price of several items.",\n' in clerk


@pytest.mark.parametrize(
    ("target", "question", "wanted", "line", "new"),
    [
        (
            "refunds",
            "May I have a refund for the lamp",
            "yes",
            "Be polite.",
            "A refund is granted within 30 days.",
        ),
        ("find_order", "Where is order", "shipped", "Orders.", "The status of an order."),
    ],
)
def test_skill_files_and_mcp_schemas_evolve(
    shop: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    question: str,
    wanted: str,
    line: str,
    new: str,
) -> None:
    def both(request: ModelRequest) -> Any:
        if not proposes(request):
            return customer(request)
        return f"<<<<<<< SEARCH\n{line}\n=======\n{new}\n>>>>>>> REPLACE"

    with ScriptedServer(both, models=("scripted", "colleague")) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        words = ("--data", same(tmp_path / "rows.jsonl", question, wanted), "--output", tmp_path / "out")
        endpoint = (
            "--model",
            "colleague",
            "--base-url",
            running.base_url,
            "--models-only",
            "--iterations",
            2,
        )
        found = evolve(capsys, shop, "--target", target, *words, *endpoint)
    assert found["scores"]["answer"]["gate"]["after"] == 1.0
    subprocess.run(["git", "apply", found["patch"]], cwd=shop, check=True, timeout=300)
    assert new in "".join(path.read_text() for path in shop.rglob("*") if path.suffix in (".md", ".json"))


def test_an_endpoint_that_fails_is_not_the_candidates_fault(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def overloaded(request: ModelRequest) -> Any:
        return Reply(status=503)

    with ScriptedServer(overloaded) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        data = questions(tmp_path / "rows.jsonl", 6)
        words = ("--target", "clerk_prompt", "--data", data, "--iterations", 2, "--output", tmp_path / "out")
        code, _, err = outcome(capsys, shop, *words)
    assert code not in (0, None)
    assert "no score as it stands" in err
    assert "503" in err


@pytest.mark.parametrize(
    ("breaks", "outcome"),
    [
        ("os.closerange(3, 64)\n    time.sleep(600)", "did not end, and was killed: asked"),
        (
            "os.write(int(sys.argv[1]), b'no JSON\\n')\n    time.sleep(600)",
            "did not end, and was killed: asked",
        ),
        ("os.closerange(3, 64)\n    time.sleep(0.1)\n    os._exit(7)", "ended with code 7: asked"),
    ],
)
def test_an_agent_that_breaks_its_connection_and_goes_on_is_ended(
    tmp_path: Path, breaks: str, outcome: str
) -> None:
    """Nobody else would end it, and whoever waited for it would wait as long as it likes to run."""
    (tmp_path / "clerk.py").write_text(
        "import os, sys, time\n\nPROMPT = 'Be kind.'\n\n\n"
        "def answer(question: str) -> str:\n    print('asked', os.getpid(), file=sys.stderr, flush=True)\n"
        f"    {breaks}\n    return PROMPT\n"
    )
    agent = RepositoryAgent(tmp_path, ["clerk:PROMPT"], entry_name="clerk:answer", network=True)
    assert agent.entry is not None
    target = agent.target(agent.entry, [])
    network = Networked(agent, Pool(Local()), seconds=60)

    async def call() -> CallResult:
        async with network.open(target, agent.start) as caller:
            return await asyncio.wait_for(caller.call(target.arguments("Anybody there?")), 30)

    result = asyncio.run(call())
    assert result.failure is not None
    said, _, process = result.failure.message.rpartition(" ")
    assert said.endswith(outcome)
    assert result.exit_code is not None
    assert not Path("/proc", process).exists()


def test_calls_of_the_agent_are_limited_before_they_are_made(
    server: ScriptedServer, shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--target", "clerk_prompt", "--data", questions(tmp_path / "rows.jsonl", 20), "--iterations", 30)
    found = evolve(capsys, shop, *words, "--agent-calls", 80, "--output", tmp_path / "out")
    assert 20 <= found["agent_calls"] <= 80
    assert found["iterations"] < 30
    code, _, err = outcome(capsys, shop, *words, "--agent-calls", 3, "--output", tmp_path / "few")
    assert code not in (0, None)
    assert "are left" in err


def test_what_would_run_outside_or_cannot_cross_is_refused(
    server: ScriptedServer, shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("--data", questions(tmp_path / "rows.jsonl", 6), "--iterations", 2, "--output", tmp_path / "out")
    clerk = shop / "shop/clerk.py"
    text = clerk.read_text()
    clerk.write_text(
        text.replace("HERE = Path(__file__).parent", "HERE = Path(__file__).parent  # whet: evolve name=here")
    )
    _, _, err = outcome(capsys, shop, "--target", "here", *data)
    assert "not a literal" in err
    _, _, err = outcome(capsys, shop, "--target", "shop.clerk:answer", *data)
    assert "runs outside of the sandbox" in err
    clerk.write_text(
        text.replace('"description": "Does sums."', '"description": "The price."').replace(
            "total(**json.loads(call", "total(item={1}, count=1) or total(**json.loads(call"
        )
    )
    _, _, err = outcome(capsys, shop, "--target", "shop.prices:total", *data)
    assert "holds a set, which cannot cross as JSON" in err

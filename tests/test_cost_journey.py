"""A model call's dollars from the gateway into the record, what is shown of them, and the guardrail of a gate."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from processes import whet

from whet.models.base import Completion, ModelRequest
from whet.models.fakes import ScriptedServer
from whet.models.prices import known_prices, price_for
from whet.record.store import Store
from whet.types import Bundle, Usage, Version

MODEL = "gpt-4o-mini"
AGENT = """import json
import os
import urllib.request

import whet
from whet.types import Usage

style = whet.resource("style", default="short")


@whet.trace
def reply(question: str) -> str:
    messages = [{"role": "system", "content": style.get()}, {"role": "user", "content": question}]
    body = json.dumps({"model": "gpt-4o-mini", "messages": messages}).encode()
    headers = {"content-type": "application/json", "authorization": "Bearer sk-agent"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    with whet.step("model", kind="llm") as step:
        with urllib.request.urlopen(request) as answer:
            told = json.load(answer)
        used = told["usage"]
        step.usage = Usage(prompt_tokens=used["prompt_tokens"], output_tokens=used["completion_tokens"])
        step.info = {"model": told["model"]}
    return told["choices"][0]["message"]["content"]


if __name__ == "__main__":
    reply("Is it so?")
"""
SILENT = AGENT.replace("        step.usage =", "        told_usage =").replace("step.info =", "told_info =")


def model(request: ModelRequest) -> Completion:
    """Wordy where it is told to be."""
    wordy = "long" in str(request.messages[0]["content"])
    return Completion(text="yes", usage=Usage(prompt_tokens=2000, output_tokens=2000 if wordy else 1000))


def test_dollars_of_a_gateway_call_are_shown_and_hold_a_candidate_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHET_PRICES", raising=False)
    (tmp_path / "shop.py").write_text(AGENT)
    rows = [
        {"instruction": f"Is {n * 7919} so?", "group": f"person {n}", "answer": "yes"} for n in range(120)
    ]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    price = price_for(MODEL, known_prices())
    assert price is not None
    short, wordy = price.of(2000, 1000), price.of(2000, 2000)
    costly = Bundle([Version(resource="style", content="long")])
    with ScriptedServer(model, models=[MODEL]) as server:
        behind = ["run", "--store", "runs.db", "--upstream", server.base_url, "--", sys.executable]
        recorded = whet(*behind, "shop.py", folder=tmp_path)
        assert recorded.returncode == 0, recorded.stderr
        with Store(tmp_path / "runs.db") as store:
            (run,) = store.trajectories()
            store.put_bundle(costly)

        def gate(*sides: str) -> str:
            words = ["gate", *sides, "--entry", "shop:reply", "--store", "runs.db", "--data", "tasks.jsonl"]
            words += ["--reward", "exact", "--reward", "cost", "--not-lower", "cost:0.0001"]
            judged = whet(*behind, "-m", "whet", *words, folder=tmp_path)
            return judged.stdout + judged.stderr

        worse, better = gate("none", costly.id), gate(costly.id, "none")
    shown = whet("show", run.id, "--store", "runs.db", folder=tmp_path).stdout
    assert f"1 model call of {MODEL}, 2,000 + 1,000 tokens, ${short:.4f}" in shown
    assert f"Guardrail cost fails: {short - wordy:.4g} over" in worse, worse
    assert f"Guardrail cost holds: +{wordy - short:.4g} over" in better, better


@pytest.mark.parametrize("behind", [False, True])
def test_dollars_of_an_agent_that_states_none_are_those_of_its_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    monkeypatch.delenv("WHET_PRICES", raising=False)
    words = gate_words(tmp_path, SILENT, 120)
    with ScriptedServer(model, models=[MODEL]) as server:
        if behind:
            gateway = ["run", "--store", "runs.db", "--upstream", server.base_url, "--", sys.executable]
            judged = whet(*gateway, "-m", "whet", *words, folder=tmp_path)
        else:
            judged = whet(*words, folder=tmp_path, OPENAI_BASE_URL=server.base_url)
        prompts = [str(request.body["messages"][0]["content"]) for request in server.requests]
    told = judged.stdout + judged.stderr
    price = price_for(MODEL, known_prices())
    assert price is not None
    assert f"Guardrail cost fails: {price.of(2000, 1000) - price.of(2000, 2000):.4g} over" in told, told
    assert sorted(set(prompts)) == ["long", "short"]
    assert not behind or "whet: 0 model calls recorded" in told, "a candidate is no production"


def gate_words(folder: Path, agent: str, rows: int) -> list[str]:
    """A gate of a wordy candidate against the agent as it came, with a guardrail on dollars."""
    (folder / "shop.py").write_text(agent)
    tasks = [{"instruction": f"Is {n} so?", "group": f"person {n}", "answer": "yes"} for n in range(rows)]
    (folder / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    with Store(folder / "runs.db") as store:
        store.put_bundle(costly := Bundle([Version(resource="style", content="long")]))
    sides = [
        "gate",
        "none",
        costly.id,
        "--entry",
        "shop:reply",
        "--store",
        "runs.db",
        "--data",
        "tasks.jsonl",
    ]
    return [*sides, "--reward", "exact", "--reward", "cost", "--not-lower", "cost:0.0001"]


def test_a_guardrail_on_dollars_of_calls_that_nobody_sees_says_how_to_state_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHET_PRICES", raising=False)
    words = gate_words(tmp_path, SILENT.replace("OPENAI_BASE_URL", "SHOP_URL"), 30)
    with ScriptedServer(model, models=[MODEL]) as server:
        judged = whet(*words, folder=tmp_path, SHOP_URL=server.base_url)
    said = judged.stdout + judged.stderr
    assert "Guardrail cost fails: no pair has it." in said, said
    assert "step.usage = whet.types.Usage(prompt_tokens=..., output_tokens=...)" in " ".join(said.split())

"""The example that teaches function calls takes a user's own rows and answers in OpenAI's form."""

import asyncio
import importlib.util
import json

import pytest

from whet.learn.datasets.calls import calls_of, message_of
from whet.worlds.calls import call_tasks, wanted


@pytest.fixture
def example(repository):
    spec = importlib.util.spec_from_file_location(
        "function_calls", repository / "examples" / "function_calls.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_ones_own_rows_are_learned_from_and_a_request_is_answered(example, tmp_path, monkeypatch, capsys):
    rows = [
        {
            "messages": [{"role": "user", "content": task.instruction}, message_of(wanted(task))],
            "tools": task.initial_state["tools"],
        }
        for task in call_tasks(60, seed=2, wanted=1)
    ]
    file = tmp_path / "calls.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    request = rows[0]["messages"][0]["content"]
    words = ["--data", str(file), "--epochs", "2", "--output", str(tmp_path / "out"), "--ask", request]
    monkeypatch.setattr("sys.argv", ["function_calls.py", *words])
    asyncio.run(example.main())
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith("are kept aside")
    assert said[1].startswith("exactly right: ")
    assert (tmp_path / "out").is_dir()
    assert said[2] == "no function does this" or calls_of(json.loads(said[2]))

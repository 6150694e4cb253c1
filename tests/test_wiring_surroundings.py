"""What `whet init` sees beside the agent's Python: how it is started, routes, notebooks, prompts in files, tables."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from whet.repository.propose import Proposal, propose
from whet.repository.scan import scan

CALL = (
    "from openai import OpenAI\n\nPROMPT = 'You answer guests of a canteen, and briefly.'\n\n\n"
    "def answer(question: str) -> str:\n"
    "    messages = [{'role': 'system', 'content': PROMPT}, {'role': 'user', 'content': question}]\n"
    "    return OpenAI().chat.completions.create(model='small', messages=messages).choices[0].message.content\n"
)
SERVICE = "from fastapi import FastAPI\n" + CALL.replace(
    "def answer", "app = FastAPI()\n\n\n@app.post('/ask')\ndef answer"
)


def proposed(root: Path, files: dict[str, str]) -> Proposal:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return propose(scan(root))


def test_a_route_is_given_the_traced_function_and_a_service_is_started_by_its_server(tmp_path: Path) -> None:
    proposal = proposed(tmp_path, {"app/__init__.py": "", "app/main.py": SERVICE})
    assert proposal.command == "whet run --store .whet/whet.db -- uvicorn app.main:app"
    (tmp_path / "wiring.patch").write_text(proposal.diff)
    subprocess.run(["git", "apply", "wiring.patch"], cwd=tmp_path, check=True)
    wired = (tmp_path / "app/main.py").read_text()
    assert "@app.post('/ask')\n@whet.trace(\".whet/whet.db\")\ndef answer(" in wired


@pytest.mark.parametrize(
    ("files", "command"),
    [
        (
            ("src/desk/__init__.py", "src/desk/__main__.py", "src/desk/reply.py"),
            "env PYTHONPATH=src python -m desk",
        ),
        (("desk/__init__.py", "desk/reply.py"), "python -m desk.reply"),
        (("tools/reply.py",), "python tools/reply.py"),
    ],
)
def test_a_package_is_started_as_a_module_and_a_script_as_a_file(
    tmp_path: Path, files: tuple[str, ...], command: str
) -> None:
    starts = '\n\nif __name__ == "__main__":\n    print(answer("soup?"))\n'
    texts = {name: CALL + starts if name.endswith("reply.py") else "" for name in files}
    assert proposed(tmp_path, texts).command == f"whet run --store .whet/whet.db -- {command}"


@pytest.mark.parametrize(
    ("beside", "program"),
    [
        ({"serve.py": "from desk import reply\n\nreply.answer('soup?')\n"}, "serve.py"),
        (
            {"bin/serve.py": "from desk.reply import answer\n\nfor each in 'ab':\n    answer(each)\n"},
            "bin/serve.py",
        ),
        (
            {"tests/test_it.py": "from desk.reply import answer\n\nanswer('')\n", "a.py": "import desk\n"},
            None,
        ),
    ],
)
def test_a_module_that_runs_nothing_is_started_by_the_program_that_calls_it(
    tmp_path: Path, beside: dict[str, str], program: str | None
) -> None:
    proposal = proposed(tmp_path, {"desk/__init__.py": "", "desk/reply.py": CALL, **beside})
    assert proposal.command == f"whet run --store .whet/whet.db -- python {program or 'YOUR_PROGRAM.py'}"
    asked = "desk/reply.py runs nothing by itself: start the program that calls it in the place of YOUR_PROGRAM.py"
    assert (asked in proposal.notes) == (program is None)


def test_a_module_that_an_installed_command_calls_is_started_by_that(tmp_path: Path) -> None:
    beside = {
        "src/desk/__init__.py": "",
        "src/desk/cli.py": "from desk.reply import answer\n\n\ndef main():\n    answer('soup?')\n",
        "pyproject.toml": '[project]\nname = "desk"\n[project.scripts]\nsoup = "desk.cli:main"\n',
    }
    proposal = proposed(tmp_path, {**beside, "src/desk/reply.py": CALL})
    assert proposal.command == "whet run --store .whet/whet.db -- soup"
    assert not any("runs nothing by itself" in note for note in proposal.notes)


def test_a_notebook_is_recorded_as_it_is_and_its_prompt_is_to_be_moved(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "source": CALL.splitlines(keepends=True)}
    proposal = proposed(tmp_path, {"ask.ipynb": json.dumps({"cells": [cell]}), "words.py": "WORDS = 3\n"})
    assert (proposal.diff, proposal.traced) == ("", ())
    assert proposal.command.endswith("-- jupyter execute ask.ipynb")
    assert any(
        "move its prompt and the function that answers into a module" in way for way in proposal.advice
    )


def test_rewards_are_proposed_from_the_tables_and_prompts_in_files_are_named(tmp_path: Path) -> None:
    beside = {
        "desk.py": CALL,
        "data/examples.csv": "question;answer\nwhat?;soup\n",
        "data/letters.tsv": "letter\tright team\nwhere?\tkitchen\n",
        "data/log.csv": "time,output_tokens\n1,2\n",
        "prompts/reply.j2": "You answer {{ who }}.\n",
        "prompts/tone.yaml": "system: You are polite.\n",
        "web/ask.ts": 'import OpenAI from "openai";\n',
        "web/plain.ts": "export const one = 1;\n",
        "broken.ipynb": "{",
    }
    advice = "\n".join(proposed(tmp_path, beside).advice)
    assert "then whet improve desk.py --store .whet/whet.db --model NAME" in advice
    assert (
        "the right answers in data/examples.csv, column answer; then whet improve desk.py --data data/examples.csv "
        "--expected answer --model NAME --base-url URL" in advice
    )
    assert "whet improve desk.py --data data/letters.tsv --expected 'right team' --model" in advice
    assert "log.csv" not in advice
    assert "whet improve prompts/reply.j2 --data TABLE" in advice
    assert "prompts/tone.yaml holds a prompt in YAML" in advice
    assert "web/ask.ts calls a model from TypeScript" in advice
    assert "plain.ts" not in advice
    assert "broken" not in advice

"""`whet init` on five small repositories that nothing was written for, and `whet improve` after at most two edits.

The model behind all of them repeats the number that a question names only if its prompt says so, or by chance; people
like answers that do.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from newcomers_repositories import REPOSITORIES
from newcomers_shell import Noted, Shell, bare

from whet.models.base import ModelRequest, text_of
from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.types import Feedback

STORE = ".whet/whet.db"
EDITS = 2
NEEDS = ("openai>=3", "fastapi", "jinja2", "pyyaml", "langgraph", "langchain-openai")
RULE = "Repeat the number that the question names."
_PROGRAM = """import json, sys
import whet
from MODULE import FUNCTION

for line in open(sys.argv[1], encoding="utf-8"):
    asked = json.loads(line)
    with whet.run(subject=asked["person"]) as run:
        said = FUNCTION(asked["input"])
    print(json.dumps({"run": run.id, "question": asked["question"], "answer": said}), flush=True)
"""


@dataclass(frozen=True)
class Wanted:
    """What a person who knows the repository would do."""

    command: str
    """After `whet run --store .whet/whet.db -- `."""
    entry: str
    file: str
    advice: Sequence[str]
    check: str = ".whet/whet-check.yml"
    variables: Mapping[str, str] = field(default_factory=dict)
    takes: str = ""
    """Member of the entry's argument that holds the question; "" where it is the question."""


WANTED = {
    "script": Wanted(
        "python triage.py", "triage:triage", "triage.py", ("what people say", "data/tickets.csv, column team")
    ),
    "graph": Wanted(
        "env PYTHONPATH=src python -m planner",
        "planner.graph:plan",
        "src/planner/graph.py",
        ("what people say",),
        check=".github/workflows/whet-check.yml",
        variables={"PYTHONPATH": "src"},
    ),
    "service": Wanted(
        "uvicorn app.main:app",
        "app.main:ask",
        "app/main.py",
        ("what people say", "app/prompts/reply.j2", "app/prompts/tone.yaml holds a prompt in YAML"),
        takes="question",
    ),
    "mixed": Wanted(
        "python tools/explain.py",
        "explain:explain",
        "tools/explain.py",
        ("what people say", "src/cli.ts calls a model from TypeScript"),
        variables={"PYTHONPATH": "tools"},
    ),
    "notebook": Wanted(
        "jupyter execute library.ipynb",
        "library:ask",
        "library.py",
        ("questions.jsonl, column answer", "move its prompt and the function that answers into a module"),
    ),
}


def _answer(request: ModelRequest) -> str:
    system, question = (text_of(message) for message in (request.messages[0], request.messages[-1]))
    number = re.findall(r"\d+", question)[-1]
    digest = hashlib.sha256(f"{system}|{question}".encode()).digest()
    said = RULE in system or digest[0] < 100
    return f"Case {number} is now done." if said else "This one is now done."


def _advise(request: ModelRequest) -> str:
    shown = "\n".join(text_of(message) for message in request.messages)
    useful = hashlib.sha256(shown.encode()).digest()[0] < 128 and RULE not in shown
    return RULE if useful else "Greet everybody kindly and at length."


def _questions() -> list[dict[str, str]]:
    kinds = (
        "Where is case {}?",
        "Please close case {} for me.",
        "Who works on case {}?",
        "Is case {} ready?",
    )
    return [
        {"person": f"person {number % 40}", "question": kinds[number % 4].format(300 + number % 90)}
        for number in range(160)
    ]


def _moved(folder: Path) -> None:
    """What the advice on a notebook asks for: its definitions in a module."""
    cells = json.loads((folder / "library.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (folder / "library.py").write_text("\n\n".join(code[:-1]), encoding="utf-8")


def _recorded(shell: Shell, wanted: Wanted, base_url: str) -> None:
    """The agent answers, recorded, and people say what they think."""
    module, _, function = wanted.entry.partition(":")
    program = _PROGRAM.replace("MODULE", module).replace("FUNCTION", function)
    (shell.folder / "serve.py").write_text(program, encoding="utf-8")
    asked = _questions()
    lines = [
        json.dumps({**row, "input": {wanted.takes: row["question"]} if wanted.takes else row["question"]})
        for row in asked
    ]
    (shell.folder / "asked.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    variables = {"OPENAI_BASE_URL": base_url, **wanted.variables}
    done = shell.type(
        "whet", "run", "--store", STORE, "--", shell.python, "serve.py", "asked.jsonl", variables=variables
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2_000:])
    notes = []
    for line in done.stdout.splitlines():
        answered = json.loads(line)
        number = re.findall(r"\d+", answered["question"])[-1]
        notes.append(Feedback(run=answered["run"], value=1.0 if number in str(answered["answer"]) else -1.0))
    with Store(shell.folder / STORE) as store:
        store.add_feedback(*notes)


def _tried(name: str, folder: Path, python: Path | None, seed: int) -> Noted:
    shell, wanted, edits = Shell(folder, python), WANTED[name], 1
    for path, text in REPOSITORIES[name].items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    done = shell.type("whet", "init", "--json")
    proposed = json.loads(done.stdout or "{}")
    advice = "\n".join(proposed.get("advice", []))
    written = proposed.get("written", [])
    lines = {
        "wiring": proposed.get("command") == f"whet run --store {STORE} -- {wanted.command}",
        "at most three lines": proposed.get("changed_lines", 9) <= 3,
        "rewards": all(part in advice for part in wanted.advice),
        "data folder": ".whet/.gitignore" in written,
        "CI step": wanted.check in written,
    }
    if name == "notebook":
        edits += 1
        _moved(folder)
        shell.type("whet", "init")
    applied = shell.type("git", "apply", ".whet/wiring.patch")
    with ScriptedServer(_answer, models=("small",)) as agent, ScriptedServer(_advise) as adviser:
        _recorded(shell, wanted, agent.base_url)
        model = ("--model", "scripted", "--base-url", adviser.base_url, "--reflections", "6")
        improved = shell.type(
            *(
                "whet",
                "improve",
                wanted.file,
                "--store",
                STORE,
                *model,
                "--agent-calls",
                "200",
                "--seed",
                str(seed),
            ),
            variables={"OPENAI_BASE_URL": agent.base_url, **wanted.variables},
        )
    lines |= {
        "the patch applies": applied.returncode == 0,
        f"at most {EDITS} edits": edits <= EDITS,
        "improve runs": improved.returncode in (0, 1) and "spent: " in improved.stdout,
    }
    noted = Noted(f"{name}, seed {seed}", lines=lines, said=f"{advice}\n{improved.stdout}{improved.stderr}")
    noted.figures = {
        "wired by": wanted.command,
        "changed lines": str(proposed.get("changed_lines")),
        "edits": str(edits),
        "improve": "proven" if improved.returncode == 0 else f"exit {improved.returncode}",
        "commands": str(shell.commands),
        "minutes": shell.minutes,
    }
    return noted


def wiring(folder: Path, python: Path | None, seeds: Sequence[int]) -> list[Noted]:
    """Each repository once; nothing in it depends on the seed but the search."""
    folder.mkdir(parents=True, exist_ok=True)
    own = bare(folder, NEEDS) or python
    return [_tried(name, folder / name, own, seeds[0]) for name in REPOSITORIES]

"""Five small repositories that nothing in whet was written for."""

from __future__ import annotations

import json
from collections.abc import Mapping


def _project(name: str, *needs: str) -> str:
    return f'[project]\nname = "{name}"\nversion = "0.1"\ndependencies = {json.dumps(needs)}\n'


_SCRIPT = {
    "requirements.txt": "openai>=3\n",
    "triage.py": '''"""Says which team a ticket goes to."""

import sys

from openai import OpenAI

INSTRUCTIONS = """You read tickets of customers of a railway and name the team that answers.
Answer with one word."""
client = OpenAI()


def triage(ticket: str) -> str:
    reply = client.chat.completions.create(
        model="small",
        messages=[{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": ticket}],
    )
    return reply.choices[0].message.content


if __name__ == "__main__":
    print(triage(sys.argv[1]))
''',
    "data/tickets.csv": "ticket,team\n"
    + "".join(f"Ticket {n}: my train was late,{'delays' if n % 2 else 'refunds'}\n" for n in range(60)),
}
_GRAPH = {
    "pyproject.toml": _project("planner", "langgraph", "langchain-openai"),
    "src/planner/__init__.py": "",
    "src/planner/prompts.py": 'PLAN_PROMPT = "You plan journeys by train. Name every change of trains."\n',
    "src/planner/graph.py": '''from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

from planner.prompts import PLAN_PROMPT


@tool
def timetable(station: str) -> str:
    """Departures of a station."""
    return f"{station}: 8:00, 9:00"


def build():
    return create_react_agent(ChatOpenAI(model="small"), [timetable], prompt=PLAN_PROMPT)


def plan(question: str) -> str:
    return build().invoke({"messages": [("user", question)]})["messages"][-1].content
''',
    "src/planner/__main__.py": "import sys\n\nfrom planner.graph import plan\n\nprint(plan(sys.argv[1]))\n",
    "tests/test_graph.py": "from planner.graph import timetable\n\n\ndef test_timetable():\n    assert timetable\n",
    ".github/workflows/ci.yml": "on: push\njobs: {test: {runs-on: ubuntu-latest, steps: [{run: pytest}]}}\n",
}
_SERVICE = {
    "pyproject.toml": _project("menu", "fastapi", "openai", "jinja2", "pyyaml"),
    "app/__init__.py": "",
    "app/prompts/reply.j2": "You answer guests of a canteen. Today there is {{ dish }}.\nBe brief.\n",
    "app/prompts/tone.yaml": "system: You are polite and never mention prices.\nversion: 3\n",
    "app/settings.py": 'FALLBACK_PROMPT = "You answer guests of a canteen who ask about anything else."\n',
    "app/main.py": """from pathlib import Path

import yaml
from fastapi import FastAPI
from jinja2 import Template
from openai import OpenAI

from app.settings import FALLBACK_PROMPT

app = FastAPI()
client = OpenAI()
PROMPTS = Path(__file__).parent / "prompts"


def reply(question: str) -> str:
    if "menu" not in question:
        system = FALLBACK_PROMPT
    else:
        tone = yaml.safe_load((PROMPTS / "tone.yaml").read_text())["system"]
        system = tone + Template((PROMPTS / "reply.j2").read_text()).render(dish="soup")
    answer = client.chat.completions.create(
        model="small",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": question}],
    )
    return answer.choices[0].message.content


@app.post("/ask")
def ask(body: dict) -> dict:
    return {"answer": reply(body["question"])}
""",
}
_MIXED = {
    "package.json": json.dumps(
        {
            "name": "shell-helper",
            "dependencies": {"openai": "^5", "commander": "^12"},
            "bin": {"helper": "src/cli.ts"},
        }
    ),
    "src/cli.ts": """import OpenAI from "openai";
import { Command } from "commander";

const SYSTEM_PROMPT = "You turn a wish into one shell command. Print the command alone.";
const client = new OpenAI();

export async function suggest(wish: string): Promise<string> {
  const reply = await client.chat.completions.create({
    model: "small",
    messages: [{ role: "system", content: SYSTEM_PROMPT }, { role: "user", content: wish }],
    tools: [{ type: "function", function: { name: "list_files", parameters: { type: "object", properties: {} } } }],
  });
  return reply.choices[0].message.content ?? "";
}

new Command().argument("<wish>").action(async (wish) => console.log(await suggest(wish))).parse();
""",
    "tools/explain.py": '''"""Explains a shell command."""

import sys

from openai import OpenAI

EXPLAIN_PROMPT = "You explain a shell command to somebody who has never seen one."


def explain(command: str) -> str:
    reply = OpenAI().chat.completions.create(
        model="small",
        messages=[{"role": "system", "content": EXPLAIN_PROMPT}, {"role": "user", "content": command}],
    )
    return reply.choices[0].message.content


if __name__ == "__main__":
    print(explain(sys.argv[1]))
''',
    "tools/requirements.txt": "openai\n",
}


def _cell(kind: str, text: str) -> dict[str, object]:
    lines = text.splitlines(keepends=True)
    code = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": lines, **code}


_NOTEBOOK = {
    "requirements.txt": "openai\nscikit-learn\n",
    "documents/rules.md": "# Rules\n\nBooks may be lent for four weeks.\n",
    "questions.jsonl": "".join(
        json.dumps({"question": f"May I lend book {n}?", "answer": "yes"}) + "\n" for n in range(40)
    ),
    "library.ipynb": json.dumps(
        {
            "cells": [
                _cell("markdown", "# Questions about the library\n"),
                _cell(
                    "code", "from openai import OpenAI\nfrom retrieval import passages\nclient = OpenAI()\n"
                ),
                _cell(
                    "code",
                    'ANSWER_PROMPT = "You answer questions about a library from the passages alone."\n\n'
                    "def ask(question):\n    context = passages(question)\n"
                    "    reply = client.chat.completions.create(model='small', messages=[\n"
                    "        {'role': 'system', 'content': ANSWER_PROMPT},\n"
                    "        {'role': 'user', 'content': f'{context}\\n\\n{question}'}])\n"
                    "    return reply.choices[0].message.content\n",
                ),
                _cell("code", "ask('How long may I lend a book?')\n"),
            ],
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    ),
    "retrieval.py": '''from pathlib import Path


def passages(question: str) -> str:
    """The paragraphs of the documents that share a word with a question."""
    words = set(question.lower().split())
    texts = "\\n\\n".join(path.read_text() for path in Path("documents").glob("*.md")).split("\\n\\n")
    return "\\n".join(text for text in texts if words & set(text.lower().split()))
''',
}

REPOSITORIES: Mapping[str, Mapping[str, str]] = {
    "script": _SCRIPT,
    "graph": _GRAPH,
    "service": _SERVICE,
    "mixed": _MIXED,
    "notebook": _NOTEBOOK,
}
"""Name → path → text."""

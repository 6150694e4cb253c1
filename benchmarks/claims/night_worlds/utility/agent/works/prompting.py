"""The prompts, which stand in files: rules, a template for each case, and examples."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from works.settings import ROOT

with (ROOT / "prompts" / "desk.toml").open("rb") as _file:
    DESK: dict[str, Any] = tomllib.load(_file)
STANDING = "\n".join([DESK["role"].strip(), *DESK["rules"]])
EXAMPLES = [
    json.loads(line)
    for line in (ROOT / "prompts" / "examples.jsonl").read_text(encoding="utf-8").splitlines()
]


def rendered(template: str, values: dict[str, str]) -> str:
    """A template with its {{ names }} filled in."""
    return re.sub(r"\{\{ (\w+) \}\}", lambda name: values.get(name[1], ""), template)


def system(topic: str, language: str, notes: list[str]) -> str:
    """The system prompt of a case."""
    listed = "\n".join(f"- {note}" for note in notes)
    values = {"topic": topic, "language": language, "notes": listed or "- nothing"}
    return STANDING + "\n" + rendered(DESK["case"], values).strip()


def shots(topic: str) -> list[dict[str, str]]:
    """Example questions and answers for a topic, as messages."""
    return [
        {"role": role, "content": each[part]}
        for each in EXAMPLES
        if each["topic"] == topic
        for role, part in (("user", "question"), ("assistant", "answer"))
    ]

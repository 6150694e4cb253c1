"""What functions that evolve take and give besides JSON: tuples, days and objects of dataclasses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from whet.learn.evolution.agents.agent import RepositoryAgent
from whet.learn.evolution.agents.networked import Networked
from whet.learn.evolution.editing.program import Program
from whet.sandbox import Pool

AGENT = '''"""A desk that hands objects around."""

import datetime
from dataclasses import dataclass, field


@dataclass
class Case:
    question: str
    language: str = "en"
    notes: list = field(default_factory=list)
    handle: object = None
    url: str = "https://shop.example"

    def shouted(self):
        return self.question.upper()


def parts(case):
    return case.question[:2], case.question[2:]


def noted(case, day: datetime.date):
    case.notes.append(f"{day:%d.%m.%Y}")
    case.language = "de" if case.url else ""


def loud(case: Case):
    return Case(case.question).shouted() + case.shouted()


async def later(pair):
    first, second = pair
    return first + second, isinstance(pair, tuple)


def answer(question):
    import asyncio

    case = Case(question, handle=object())
    noted(case, datetime.date(2026, 6, 2))
    first, second = parts(case)
    joined, whole = asyncio.run(later((first, second)))
    return f"{joined} {whole} {loud(case)} {case.language} {case.notes}" + " !" * (case.url != "https://shop.example")
'''


def answered(folder: Path, name: str, old: str, new: str) -> str:
    """The answer of the agent with one function changed."""

    async def run() -> str:
        agent = RepositoryAgent(folder, [f"desk:{name}"], "desk:answer", network=True)
        [piece] = agent.pieces
        assert old in piece.text
        assert agent.entry is not None
        target, pool = agent.target(agent.entry), Pool(workers=2)
        program = Program({piece.part: piece.text.replace(old, new)}, agent.start.main)
        try:
            async with Networked(agent, pool, seconds=30, as_came=True).open(target, program) as caller:
                result = await caller.call([["abcd"], {}, {}])
        finally:
            pool.close()
        return str(result.value) if result.failure is None else result.failure.message

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "old", "new", "answer"),
    [
        ("parts", "[:2]", "[:3]", "abccd True ABCDABCD de ['02.06.2026']"),
        ("noted", "%d.%m.%Y", "%m/%d", "abcd True ABCDABCD de ['06/02']"),
        (
            "noted",
            '"de" if',
            '"it"; case.url = "https://evil.example"; case.question = "x" if',
            "abcd True ABCDABCD it ['02.06.2026']",
        ),
        ("noted", '"de"', '"fr"', "abcd True ABCDABCD fr ['02.06.2026']"),
        ("loud", "Case(case.question)", 'Case("x")', "abcd True XABCD de ['02.06.2026']"),
        ("later", "first + second", "second + first", "cdab True ABCDABCD de ['02.06.2026']"),
    ],
)
def test_a_function_may_take_and_give_tuples_days_and_objects(
    tmp_path: Path, name: str, old: str, new: str, answer: str
) -> None:
    (tmp_path / "desk.py").write_text(AGENT, encoding="utf-8")
    assert answered(tmp_path, name, old, new) == answer


def test_an_object_never_comes_back_as_an_answer(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(AGENT, encoding="utf-8")
    forged = '{"__whet__": "object", "module": "os", "name": "environ", "state": {}}'
    assert "no answer may" in answered(
        tmp_path, "loud", "Case(case.question).shouted() + case.shouted()", forged
    )
    assert "cannot cross" in answered(
        tmp_path, "loud", "Case(case.question).shouted() + case.shouted()", "case"
    )

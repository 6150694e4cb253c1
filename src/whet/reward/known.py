"""Known answers of several kinds, for an evaluator that comes with none."""

from __future__ import annotations

from collections.abc import Mapping

from ..types import Task, canonical
from .rows import row

_QUESTIONS = (
    ("What is the capital of Peru?", "Lima"),
    ("Which planet has the largest moon?", "Jupiter"),
    ("Who wrote the novel Middlemarch?", "George Eliot"),
    ("In which year did the first person stand on the moon?", "1969"),
    ("What do bees make?", "honey and wax"),
    ("Where is the parliament of the Netherlands?", "in The Hague"),
)
_PEOPLE = (
    ("Ada", 36, "London"),
    ("Alan", 41, "Wilmslow"),
    ("Grace", 85, "Arlington"),
    ("Emmy", 53, "Bryn Mawr"),
)
BUILT_IN: Mapping[str, tuple[Task, ...]] = {
    "questions": tuple(row(question, answer, answer) for question, answer in _QUESTIONS),
    "numbers": tuple(
        row(f"What is {a} times {b}?", a * b, a * b) for a, b in ((2, 3), (7, 8), (17, 23), (4, 11))
    ),
    "numbers as text": tuple(
        row(f"What is {a} plus {b}?", str(a + b), str(a + b)) for a, b in ((2, 3), (7, 8), (19, 4))
    ),
    "lists": tuple(
        row("Which?", one, one) for one in (["red", "blue"], ["green", "red", "white"], ["black", "blue"])
    ),
    "records": tuple(
        row(f"Who is {name}?", record, record)
        for name, age, place in _PEOPLE
        for record in [{"name": name, "age": age, "place": place}]
    ),
    "records as text": tuple(
        row(f"Who is {name}?", record, record)
        for name, age, place in _PEOPLE
        for record in [canonical({"name": name, "age": age, "place": place}).decode()]
    ),
}
"""Known answers for an evaluator that comes with none: it is judged on those that it tells apart best."""

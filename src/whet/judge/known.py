"""Known answers of several kinds, for an evaluator that comes with none."""

from __future__ import annotations

from collections.abc import Mapping

from ..record.rows import as_text, row
from ..types import Json, Task

_PEOPLE: tuple[Json, ...] = (
    {"name": "Ada", "age": 36, "place": "London"},
    {"name": "Alan", "age": 41, "place": "Wilmslow"},
    {"name": "Grace", "age": 85, "place": "Arlington"},
    {"name": "Emmy", "age": 53, "place": "Bryn Mawr"},
)
_ANSWERS: Mapping[str, list[tuple[str, Json]]] = {
    "questions": [
        ("What is the capital of Peru?", "Lima"),
        ("Which planet has the largest moon?", "Jupiter"),
        ("Who wrote the novel Middlemarch?", "George Eliot"),
        ("In which year did the first person stand on the moon?", "1969"),
        ("What do bees make?", "honey and wax"),
        ("Where is the parliament of the Netherlands?", "in The Hague"),
    ],
    "numbers": [(f"What is {a} times {b}?", a * b) for a, b in ((2, 3), (7, 8), (17, 23), (4, 11))],
    "numbers as text": [(f"What is {a} plus {b}?", str(a + b)) for a, b in ((2, 3), (7, 8), (19, 4))],
    "lists": [
        ("Which?", colours) for colours in (["red", "blue"], ["green", "red", "white"], ["black", "blue"])
    ],
    "records": [(f"Who is {person['name']}?", person) for person in _PEOPLE],
    "records as text": [(f"Who is {person['name']}?", as_text(person)) for person in _PEOPLE],
}
BUILT_IN: Mapping[str, tuple[Task, ...]] = {
    kind: tuple(row(question, answer, answer) for question, answer in known)
    for kind, known in _ANSWERS.items()
}
"""An evaluator is judged on the kind that it tells apart best."""

"""Evaluators that are made for a task: from templates, and by a model where one is given.

Whoever wrote it, an evaluator is admitted only after proof (`proof.py`).  Admitted ones lie as files
in a folder, beside `proofs.json`, for people to read and edit; an edited file is another version, and
counts for nothing until it has been proven again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..errors import InputError
from ..models import Model
from ..record.rows import columns_of
from ..types import Task, canonical
from . import templates
from .evaluator import Evaluator, from_source
from .proof import Proof, prove
from .templates import TASKS, TaskKind

PROOFS = "proofs.json"

_FENCE = re.compile(r"```(?:python)?\s*\n(.*?)```", re.DOTALL)
_ASKED = """Write a Python function evaluate(output, expected, input=None) that judges an answer of an AI system.

It returns {{"score": number from 0 to 1, "reason": short text}}. Rules:
- 1 for a right answer; clearly less for one that is wrong, empty, None, an error message, the same for every
  question, padded, or stuffed with likely words. It never raises for a wrong answer.
- The reason must not contain the expected answer. Standard library only, no files, no clock, no randomness.

The task looks like {task}. Known answers, one JSON object a line:
{rows}

Answer with the code alone, in one ```python block."""
_AGAIN = (
    "An earlier attempt was refused:\n{reasons}\nThe code was:\n```python\n{source}```\nWrite a better one."
)


@dataclass(frozen=True, slots=True)
class Generated:
    """One evaluator that was made, with what its proof came to."""

    name: str
    source: str
    origin: str
    """`template`, `edited`, or the name of the model that wrote it."""
    proof: Proof | None
    """None for a text that is not an evaluator."""
    parent: str | None = None
    """The version that this one replaces."""
    refusal: str = ""

    @property
    def admitted(self) -> bool:
        return self.proof is not None and self.proof.admitted

    @property
    def reasons(self) -> list[str]:
        """Reasons for its refusal."""
        return [self.refusal] if self.proof is None else self.proof.reasons


async def generate(
    rows: Sequence[Task],
    *,
    name: str = "answers",
    task: TaskKind | None = None,
    model: Model | None = None,
    attempts: int = 3,
) -> list[Generated]:
    """Make evaluators for known answers and prove each; admitted ones first, the best separated first of all.

    Args:
        rows: known answers, with feedback where there is any: then agreement with it is part of the proof.
        name: what the task is called; the evaluators are `name_task` and `name_model`.
        task: the kind of template; every likely one if None.
        model: writes one more, told why an earlier attempt was refused.
        attempts: calls of the model at most.

    Raises:
        InputError: fewer than two rows, or an unknown kind of task.
        ModelError: the endpoint failed.
    """
    if len(rows) < 2:
        raise InputError(
            f"{'one known answer is' if rows else 'no known answers are'} too few to make an evaluator from, for a "
            "constant would do as well; give rows with expected or output"
        )
    if task is not None and task not in TASKS:
        raise InputError(f"kind {task!r} is unknown; known: {', '.join(TASKS)}")
    kinds = [task] if task is not None else templates.likely(rows)
    evaluators = [
        await _proven(templates.source(kind, rows), f"{name}_{kind}", "template", rows) for kind in kinds
    ]
    if model is not None:
        evaluators.append(await _by_model(model, kinds[0], name, rows, attempts))
    return sorted(evaluators, key=lambda generated: (not generated.admitted, -_separation(generated)))


def _separation(generated: Generated) -> float:
    separation = generated.proof.separation if generated.proof is not None else None
    return -1.0 if separation is None else separation


async def _proven(
    source: str, name: str, origin: str, rows: Sequence[Task], parent: str | None = None
) -> Generated:
    try:
        evaluator = from_source(source, name)
        if evaluator.kind != "answer":
            raise InputError(
                f"{name} judges a {evaluator.kind}; for known answers it takes output and expected"
            )
    except InputError as error:
        return Generated(name, source, origin, None, parent, str(error))
    return Generated(name, source, origin, await prove(evaluator, rows=rows), parent)


async def _by_model(
    model: Model, task: TaskKind, name: str, rows: Sequence[Task], attempts: int
) -> Generated:
    """The best of the model's attempts."""
    shown = "\n".join(
        canonical(
            {
                name: value
                for name, value in columns_of(row).items()
                if name in ("input", "output", "expected", "label")
            }
        ).decode()
        for row in rows[:8]
    )
    request = _ASKED.format(task=task, rows=shown)
    prompt, best = request, None
    for _ in range(max(1, attempts)):
        completion = await model.complete(prompt)
        fenced = _FENCE.search(completion.text)
        source = fenced[1] if fenced else completion.text
        generated = await _proven(source, f"{name}_model", completion.model or "model", rows)
        if best is None or (generated.admitted, _separation(generated)) > (best.admitted, _separation(best)):
            best = generated
        if generated.admitted:
            break
        prompt = f"{request}\n\n{_AGAIN.format(reasons=chr(10).join(generated.reasons), source=source)}"
    assert best is not None
    return best


class _Known(msgspec.Struct):
    """The entry of one evaluator in `proofs.json`."""

    version: str
    admitted: bool
    origin: str
    reasons: list[str]
    separation: float | None = None
    parent: str | None = None


class Folder:
    """Evaluators as files, with their proofs beside them.

    Args:
        path: made if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._index = path / PROOFS

    def _known(self) -> dict[str, _Known]:
        if not self._index.is_file():
            return {}
        try:
            return msgspec.json.decode(self._index.read_bytes(), type=dict[str, _Known])
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{self._index} cannot be read ({error}); remove it to prove everything again"
            ) from error

    def add(self, evaluators: Sequence[Generated]) -> None:
        """Write the admitted ones as files, and what became of all of them into `proofs.json`."""
        self.path.mkdir(parents=True, exist_ok=True)
        proofs = self._known()
        for draft in evaluators:
            before = proofs.get(draft.name)
            version = from_source(draft.source, draft.name).version if draft.proof is not None else ""
            # Proven again unchanged it keeps its parent; else it would become its own.
            if before is not None and before.version == version:
                parent = before.parent
            else:
                parent = draft.parent or (before.version if before is not None else None)
            separation = draft.proof.separation if draft.proof is not None else None
            proofs[draft.name] = _Known(
                version, draft.admitted, draft.origin, draft.reasons, separation, parent
            )
            if draft.admitted:
                (self.path / f"{draft.name}.py").write_text(draft.source, encoding="utf-8")
        # After the files: one that no proof names counts as edited, and is proven again.
        self._index.write_bytes(msgspec.json.format(msgspec.json.encode(proofs), indent=2) + b"\n")

    def edited(self) -> list[Evaluator]:
        """Files whose text is not the one that was proven, new files among them."""
        versions = {name: proof.version for name, proof in self._known().items()}
        return [evaluator for evaluator in self._all() if versions.get(evaluator.name) != evaluator.version]

    def admitted(self) -> list[Evaluator]:
        """Evaluators that may be used: proven, admitted, and not changed since."""
        # By version and not by name: a renamed file holds the text that was proven.
        allowed = {proof.version for proof in self._known().values() if proof.admitted}
        return [evaluator for evaluator in self._all() if evaluator.version in allowed]

    def best(self) -> Evaluator | None:
        """Of those that may be used, the one whose proof separated good from worse best; None if there is none."""
        admitted = {evaluator.version: evaluator for evaluator in self.admitted()}
        proven = [proof for proof in self._known().values() if proof.version in admitted]
        best = max(proven, key=lambda proof: proof.separation or 0.0, default=None)
        return None if best is None else admitted[best.version]

    def _all(self) -> list[Evaluator]:
        return [
            from_source(path.read_text(encoding="utf-8"), path.stem)
            for path in sorted(self.path.glob("*.py"))
        ]

    async def prove_edited(self, rows: Sequence[Task]) -> list[Generated]:
        """Prove what people edited as new versions of what it was; a refused edit stays a file and is not used."""
        proofs = self._known()
        reproven = []
        for evaluator in self.edited():
            parent = proofs[evaluator.name].version if evaluator.name in proofs else None
            source = str(evaluator.files["evaluator.py"])
            reproven.append(await _proven(source, evaluator.name, "edited", rows, parent))
        self.add(reproven)
        return reproven

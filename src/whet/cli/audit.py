"""`whet audit`: put any evaluator through proof before it may steer anything."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .app import app

if TYPE_CHECKING:
    from ..reward.proof import Proof


@app.command
def audit(
    evaluator: str,
    /,
    *,
    target: Path | None = None,
    labels: Path | None = None,
    invariant: tuple[str, ...] = (),
    path: tuple[Path, ...] = (),
    seconds: float = 20.0,
    json: bool = False,
) -> int:
    """Put an evaluator through proof, in the sandbox, and print the table; exits 0 if it is admitted.

    It must rank what is known to be good above mutated, constant, empty, crashing, keyword-stuffed and
    over-long variants, twice the same and in any order, give no expected answer away, and agree with labels.

    Parameters
    ----------
    evaluator
        A Python file with evaluate(...), file.py:function, or module:function. It takes a program_path, a
        trajectory, or an answer as output, expected and input.
    target
        What is known to be good: a Python program, or JSON Lines with input, output and expected.
    labels
        JSON Lines with input, output, expected and label (above 0 is good): what people said.
    invariant
        A change of an answer that must not matter: whitespace or case; may be given twice.
    path
        A further file or folder that the evaluator may read or import from.
    seconds
        Time limit of one evaluation.
    json
        Print one JSON object.
    """
    from ..reward import evaluator as evaluators
    from ..reward.proof import prove
    from ..reward.rows import read_rows
    from ..sandbox import Limits, Sandbox

    found = evaluators.load(evaluator)
    sandbox = Sandbox(
        limits=Limits(wall_seconds=seconds, cpu_seconds=seconds), paths=tuple(str(one) for one in path)
    )
    program, rows = "", []
    if target is not None and target.suffix == ".py":
        program = target.read_text(encoding="utf-8")
    elif target is not None:
        rows += read_rows(target)
    if labels is not None:
        rows += read_rows(labels)
    proof = asyncio.run(prove(found, program=program, rows=rows, invariant=invariant, sandbox=sandbox))
    if json:
        print(msgspec.json.encode({**msgspec.to_builtins(proof), "reasons": proof.reasons}).decode())
    else:
        print(table(proof))
    return 0 if proof.admitted else 1


def table(proof: Proof) -> str:
    """The proof as text."""
    lines = [f"{proof.evaluator} {proof.version}, judges {proof.kind}s"]
    for check in proof.checks:
        mean = "" if check.mean is None else f"{check.mean:.3f}"
        lines.append(f"  {check.name:26} {'ok' if check.passed else 'FAILED':7} {mean:>8}  {check.detail}")
    lines += [f"  note: {note}" for note in proof.notes]
    if proof.separation is not None:
        lines.append(
            f"  separation {proof.separation:.3f}: the known-good above the mean of everything worse"
        )
    lines.append("admitted" if proof.admitted else "refused: " + "; ".join(proof.reasons))
    return "\n".join(lines)

"""`whet audit` and `whet generate-evaluators`: no evaluator steers anything before it is proven."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .app import app, existing

if TYPE_CHECKING:
    from ..reward.generation import Folder, Generated
    from ..reward.proof import Proof
    from ..types import Task


@app.command
def audit(
    evaluator: str,
    /,
    *,
    target: str | None = None,
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
        What is known to be good: a Python program (a file, file.py:function or module:function), or JSON Lines
        with input, output and expected.
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
    from ..errors import InputError
    from ..reward import evaluator as evaluators
    from ..reward.proof import prove
    from ..reward.rows import read_rows
    from ..sandbox import Limits, Sandbox

    loaded = evaluators.load(evaluator)
    sandbox = Sandbox(
        limits=Limits(wall_seconds=seconds, cpu_seconds=seconds), paths=tuple(str(extra) for extra in path)
    )
    program, rows = "", []
    if target is not None and loaded.kind == "program":
        program = evaluators.program_text(target)
    elif target is not None:
        if target.endswith(".py") or ":" in Path(target).name:
            raise InputError(
                f"{target} is a program, and {evaluator} judges answers: give --target a file of JSON Lines "
                "with input, output and expected"
            )
        rows += read_rows(Path(target))
    if labels is not None:
        rows += read_rows(labels)
    proof = asyncio.run(prove(loaded, program=program, rows=rows, invariant=invariant, sandbox=sandbox))
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


@app.command(alias="generate_evaluators")
def generate_evaluators(
    *,
    target: str | None = None,
    data: Path | None = None,
    name: str | None = None,
    kind: str | None = None,
    output: Path | None = None,
    model: str | None = None,
    base_url: str | None = None,
    api_key_env: str = "OPENAI_API_KEY",
    attempts: int = 3,
    preferences: Path | None = None,
    json: bool = False,
) -> int:
    """Make evaluators for known answers, from templates and by a model, and keep those that pass their proof.

    Files in the output folder that were edited since are proven again first. Exits 0 if any evaluator there
    may be used. Run it again when people have said more: what they said is part of the proof, and an evaluator
    that comes out differently is a new version.

    Parameters
    ----------
    target
        What whet generate-training-data made rows for: they are read from whet_data/TARGET, those of the gate left
        out, and the evaluators go to evaluators/TARGET, where whet evolve looks for them.
    data
        JSON Lines with input, output, expected, and label where people said something; or a folder of rows.
    name
        What the task is called; the target, or "answers".
    kind
        classification, extraction, text, code, ranking or routing; every likely one if left out.
    output
        Folder for the admitted ones, with proofs.json; "evaluators" without a target.
    model
        A model that writes one more, as its endpoint names it.
    base_url
        OpenAI-compatible endpoint of the model, up to and including /v1.
    api_key_env
        Name of the environment variable that holds its key.
    attempts
        Calls of the model at most.
    preferences
        A store with preferences between texts: one more evaluator is fitted to them, as a new version each time
        people have said more, and kept if it agrees better with those that were held back.
    json
        Print one JSON object.
    """
    from ..errors import InputError
    from ..reward.generation import Folder

    if (model is None) != (base_url is None):
        raise InputError("a model needs both --model and --base-url")
    if target and ":" in target and not (Path("whet_data") / target).exists():
        target = target.rpartition(":")[2].split(".")[-1].lower()  # as the rows of module:function are called
    rows = _rows(data, target)
    output = output or (Path("evaluators") / target if target else Path("evaluators"))
    name, folder = name or target or "answers", Folder(output)
    generated = asyncio.run(_generated(folder, rows, name, kind, (model, base_url, api_key_env), attempts))
    if preferences is not None:
        generated.append(_refitted(folder, preferences, name, json))
    if json:
        shown = [
            {"name": draft.name, "origin": draft.origin, "admitted": draft.admitted, "reasons": draft.reasons}
            for draft in generated
        ]
        print(msgspec.json.encode({"folder": str(output), "evaluators": shown}).decode())
    else:
        for draft in generated:
            print(f"{draft.name:30} {draft.origin:12} {'admitted' if draft.admitted else 'refused'}")
            for reason in draft.reasons:
                print(f"    {reason}")
    return 0 if folder.admitted() else 1


def _refitted(folder: Folder, store: Path, name: str, json: bool) -> Generated:
    from ..reward.refit import refit
    from ..store import Store

    existing(store)
    with Store(store) as opened:
        preferences = list(opened.preferences())
    fitted = asyncio.run(refit(folder, preferences, name=name))
    if not json:
        print(f"{fitted.made.name}: {'taken' if fitted.taken else 'not taken'}; {fitted.reason}")
    return fitted.made


def _rows(data: Path | None, target: str | None) -> list[Task]:
    """Known answers of a file or folder; of a target those that nothing is held back of."""
    from ..data import examples
    from ..errors import InputError
    from ..reward.rows import read_rows
    from ..types import Split

    if data is None and target is None:
        raise InputError("nothing to make evaluators from: give --target NAME, or --data FILE")
    path = data or Path("whet_data") / str(target)
    if path.is_file():
        return read_rows(path)
    rows = [row for row in examples.load(path) if row.split is not Split.GATE]
    spoken = [row for row in rows if row.answer_known or "label" in row.meta]
    # What a function answers today is known to be good only where nobody has said anything.
    return spoken or rows


async def _generated(
    folder: Folder,
    rows: Sequence[Task],
    name: str,
    kind: str | None,
    endpoint: tuple[str | None, str | None, str],
    attempts: int,
) -> list[Generated]:
    from ..models import OpenAIModel
    from ..reward.generation import generate

    reproven = await folder.prove_edited(rows) if folder.path.is_dir() else []
    names = {evaluator.name for evaluator in reproven}
    model, base_url, variable = endpoint
    if model is None or base_url is None:
        fresh = await generate(rows, name=name, task=kind)  # type: ignore[arg-type]
    else:
        async with OpenAIModel(base_url, model, api_key=os.environ.get(variable)) as writer:
            fresh = await generate(rows, name=name, task=kind, model=writer, attempts=attempts)  # type: ignore[arg-type]
    # What a person has edited is not written over.
    fresh = [evaluator for evaluator in fresh if evaluator.name not in names]
    folder.add(fresh)
    return [*reproven, *fresh]

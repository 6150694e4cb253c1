"""`whet audit` and `whet generate-evaluators`: no evaluator steers anything before it is proven."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..errors import InputError
from .judges import JudgeAudit, audit_imported, audit_rubrics, audit_verdicts, read_by_panel
from .named import is_rubric
from .root import BaseUrl, KeyVariable, ModelName, Print, command, existing, print_json, refuse_half_a_model

ACCOUNT = "account.json"
"""What whet generate-training-data writes beside the rows of a target."""

if TYPE_CHECKING:
    from ..judge.generation import Folder, Generated
    from ..judge.proof import Proof
    from ..types import Task


@command("audit")
def audit(
    evaluator: str,
    /,
    *more: str,
    target: str | None = None,
    labels: Path | None = None,
    invariant: tuple[str, ...] = (),
    path: tuple[Path, ...] = (),
    seconds: float = 20.0,
    model: tuple[str, ...] = (),
    base_url: BaseUrl = None,
    api_key_env: KeyVariable = "OPENAI_API_KEY",
    store: Path | None = None,
    output: Path | None = None,
    show: tuple[str, ...] = (),
    structured: bool = False,
    without_answer: bool = False,
    panel: Path | None = None,
    again: bool = False,
    earlier: Path | None = None,
    json: Print = False,
) -> int:
    """Test whether an evaluator can be trusted: code in the sandbox, a judge on labelled answers.

    Code must rank known-good answers above mutated, constant, empty, crashing, keyword-stuffed and over-long variants,
    and above ones that are wrong in one place; give every answer a finite score, whatever its type; score the same
    twice and in any order; reveal no expected answer; and agree with people's labels. Prints the table of checks.

    A judge gets a reliability card: accuracy and kappa on --labels beside simple rules, and how far position, length,
    padding, its own model, an injection and time move it: whet audit rubric.md --labels pairs.jsonl --model NAME
    --base-url URL --store runs.db. Several --model, or several rubrics, give a card for each judge and a panel of all,
    which is a reward: --reward cards/panel.json. Verdicts that were recorded (rows with judge, id and winner or mark;
    scores of Langfuse, annotations of Phoenix, traces of MLflow with assessments) give a card for each judge, and a
    panel; with --earlier, how far each judge has drifted since, also without labels. Judges that another product
    defined (.json: OpenAI Evals and the output items of their runs, an MLflow scorer, a Langfuse evaluator, a Phoenix
    classification evaluator) get a card each; a run's recorded results are measured without asking anything.

    Exits 0 if what is audited is admitted, otherwise 1.

    Parameters
    ----------
    evaluator
        A Python file with evaluate(...), file.py:function, or module:function. It takes a program_path, a
        trajectory, or an answer as output, expected and input. Or a judge's rubric (.md or .txt), recorded
        verdicts of judges (.jsonl, .csv, .parquet or .json), or judges of another product (.json).
    more
        Further rubrics, each a judge of its own.
    target
        A known-good example: a Python program (a file, file.py:function or module:function), or JSON Lines with
        input, output and expected.
    labels
        People's labels: JSON Lines with input, output, expected and label (above 0 is good). For judges also pairs:
        input, output_1, output_2 and label (1 or 2, the better one), with kind, model_1 and model_2 where known.
    invariant
        A change of an answer that must not change its score: whitespace or case. May be repeated.
    path
        A further file or folder that the evaluator may read or import from. May be repeated.
    seconds
        Time limit of one evaluation, in seconds.
    model
        A language model to ask, by the name that its endpoint knows. Needs --base-url. For rubrics it may be repeated:
        each is a judge, and from three on they are a panel.
    store
        A record. Of code, the exploits that people confirmed in it (whet findings --confirm) must score below every
        known-good answer; of a rubric it keeps the judge's card, where whet gate looks for it, and the answers.
    output
        For judges: a folder for each card as JSON and as an SVG badge, and for the panel.
    show
        For a rubric: what the judge sees beside question and answer, steps or images. May be repeated.
    structured
        For a rubric: have the endpoint keep to a JSON schema.
    without_answer
        For a rubric: do not show the judge the expected answer.
    panel
        For recorded verdicts without labels: the panel.json of an earlier audit, which decides the pairs, or says of
        which kinds it was not calibrated.
    again
        Ask a judge's model anew what the record has its answers to: only so does a card say whether it has drifted
        since the one before.
    earlier
        For recorded verdicts: a file of those that the same judges gave on the same items at another time. Nothing is
        asked; without --labels it exits 1 if a judge drifted.
    """
    judges = JudgeAudit(
        labels,
        model,
        base_url,
        api_key_env,
        store,
        output,
        show,
        structured,
        without_answer,
        panel,
        again,
        earlier,
        json,
    )
    if is_rubric(evaluator):
        return audit_rubrics([Path(evaluator), *map(Path, more)], judges)
    if more or len(model) > 1:
        raise InputError(
            f"{' '.join(more) or '--model ' + model[1]}: several rubrics or models are judges beside each other, and "
            f"{evaluator} is no rubric (.md, .txt)"
        )
    file = Path(evaluator)
    if file.suffix in (".jsonl", ".csv", ".tsv", ".parquet"):
        return (audit_verdicts if panel is None else read_by_panel)(file, judges)
    if file.suffix == ".json":
        from ..judge.recorded import holds_verdicts

        return (audit_verdicts if earlier or holds_verdicts(file) else audit_imported)(file, judges)
    from ..judge import evaluator as evaluators
    from ..judge.proof import prove
    from ..record.rows import read_rows
    from ..sandbox import Limits, Sandbox

    loaded = evaluators.load(evaluator)
    sandbox = Sandbox(limits=Limits(wall_seconds=seconds, cpu_seconds=seconds), paths=tuple(map(str, path)))
    program, rows = "", []
    if target is not None and loaded.kind == "program":
        program = evaluators.program_text(target)
    elif target is not None:
        if target.endswith(".py") or ":" in Path(target).name:
            raise InputError(
                f"{target} is a program, and {evaluator} judges answers: give --target a file of JSON Lines with "
                "input, output and expected"
            )
        rows += read_rows(Path(target))
    if labels is not None:
        rows += read_rows(labels)
    proof = asyncio.run(
        prove(
            loaded,
            program=program,
            rows=rows,
            invariant=invariant,
            exploits=[] if store is None else _exploits(store),
            sandbox=sandbox,
        )
    )
    if json:
        print_json({**msgspec.to_builtins(proof), "reasons": proof.reasons})
    else:
        print(table(proof))
    return 0 if proof.admitted else 1


def _exploits(path: Path) -> list[Task]:
    """The runs of a record that people confirmed as exploits, as rows."""
    from ..record.reviewing import exploits
    from ..record.store import Store
    from ..types import Task

    with Store(existing(path)) as opened:
        return [
            Task(
                initial_state={"input": run.task.initial_state.get("input", run.task.instruction)},
                answer=run.task.answer,
                meta={"output": run.output, "provenance": {}, "answer_known": run.task.answer_known},
            )
            for run in exploits(opened)
        ]


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


@command("generate-evaluators")
def generate_evaluators(
    *,
    target: str | None = None,
    data: Path | None = None,
    name: str | None = None,
    kind: str | None = None,
    output: Path | None = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    api_key_env: KeyVariable = "OPENAI_API_KEY",
    attempts: int = 3,
    preferences: Path | None = None,
    json: Print = False,
) -> int:
    """Write evaluators from known answers, and keep those that pass whet audit's tests.

    They come from templates, and from a model if one is given. Run it again when there is more feedback: feedback is
    part of the test, and an evaluator that changes becomes a new version. Files that were edited in the output folder
    are tested again first. Exits 0 if the folder holds an admitted evaluator, otherwise 1.

    Parameters
    ----------
    target
        A target of whet generate-training-data: its rows are read from whet_data/TARGET, without those of the gate,
        and the evaluators are written to evaluators/TARGET, where whet evolve looks for them.
    data
        Known answers instead: JSON Lines with input, output, expected and optionally a label; or a folder that
        whet generate-training-data made, with one target or of one; the evaluators are then that target's.
    name
        Name of the task; the target's name if omitted, or "answers".
    kind
        Kind of the task: classification, extraction, text, code, ranking or routing. If omitted, every likely one.
    output
        Folder for the admitted evaluators and proofs.json; evaluators if omitted and there is no target.
    attempts
        Most calls of the model.
    preferences
        A store with people's preferences between texts: one more evaluator is fitted to them, as a new version, and
        kept if it agrees better with held-out preferences.
    """
    from ..judge.generation import Folder

    refuse_half_a_model(model, base_url)
    if target and ":" in target and not (Path("whet_data") / target).exists():
        target = target.rpartition(":")[2].split(".")[-1].lower()  # as the rows of module:function are called
    data, target = _of_target(data, target)
    rows = _rows(data, target)
    output = output or (Path("evaluators") / target if target else Path("evaluators"))
    name, folder = name or target or "answers", Folder(output)
    evaluators = asyncio.run(_evaluators(folder, rows, name, kind, (model, base_url, api_key_env), attempts))
    if preferences is not None:
        evaluators.append(_refitted(folder, preferences, name, json))
    if json:
        shown = [
            {"name": one.name, "origin": one.origin, "admitted": one.admitted, "reasons": one.reasons}
            for one in evaluators
        ]
        print_json({"folder": str(output), "evaluators": shown})
    else:
        for one in evaluators:
            print(f"{one.name:30} {one.origin:12} {'admitted' if one.admitted else 'refused'}")
            for reason in one.reasons:
                print(f"    {reason}")
    return 0 if folder.admitted() else 1


def _refitted(folder: Folder, store: Path, name: str, json: bool) -> Generated:
    from ..judge.refit import refit
    from ..record.store import Store

    with Store(existing(store)) as opened:
        preferences = list(opened.preferences())
    fitted = asyncio.run(refit(folder, preferences, name=name))
    if not json:
        print(f"{fitted.made.name}: {'kept' if fitted.taken else 'not kept'}; {fitted.reason}")
    return fitted.made


def _of_target(data: Path | None, target: str | None) -> tuple[Path | None, str | None]:
    """The rows' folder and the name of their target, where a folder of whet generate-training-data is given.

    Raises:
        InputError: it holds the rows of several targets, or not those of the one that was named.
    """
    if data is None or not data.is_dir():
        return data, target
    if (data / ACCOUNT).is_file():
        return data, target or data.resolve().name
    targets = sorted(folder.parent.name for folder in data.glob(f"*/{ACCOUNT}"))
    if not targets:
        return data, target
    chosen = [name for name in targets if target in (None, name)]
    if len(chosen) != 1:
        wanted = "several targets" if target is None else f"no target {target}"
        raise InputError(f"{data} holds rows of {wanted}: give --target, one of {', '.join(targets)}")
    return data / chosen[0], chosen[0]


def _rows(data: Path | None, target: str | None) -> list[Task]:
    """Known answers of a file or folder, without those of the gate."""
    from ..learn.datasets import examples
    from ..record.rows import read_rows
    from ..types import Split

    if data is None and target is None:
        raise InputError("nothing to make evaluators from: give --target NAME, or --data FILE")
    path = data or Path("whet_data") / str(target)
    if path.is_file():
        return read_rows(path)
    rows = [row for row in examples.load(path) if row.split is not Split.GATE]
    labelled = [row for row in rows if row.answer_known or "label" in row.meta]
    # A function's present answers count as good only where there is nothing better to go by.
    return labelled or rows


async def _evaluators(
    folder: Folder,
    rows: Sequence[Task],
    name: str,
    kind: str | None,
    endpoint: tuple[str | None, str | None, str],
    attempts: int,
) -> list[Generated]:
    from ..judge.generation import generate
    from ..models import OpenAIModel
    from ..models.trial import trial_address

    edited = await folder.prove_edited(rows) if folder.path.is_dir() else []
    edited_names = {evaluator.name for evaluator in edited}
    model, base_url, variable = endpoint
    if model is None or base_url is None:
        fresh = await generate(rows, name=name, task=kind)  # type: ignore[arg-type]
    else:
        async with OpenAIModel(trial_address(base_url), model, api_key=os.environ.get(variable)) as writer:
            fresh = await generate(rows, name=name, task=kind, model=writer, attempts=attempts)  # type: ignore[arg-type]
    # A file that a person has edited is never overwritten.
    fresh = [evaluator for evaluator in fresh if evaluator.name not in edited_names]
    folder.add(fresh)
    return [*edited, *fresh]

"""`whet refine`: a table of examples, looked at again."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from ..errors import InputError
from .root import Print, command, counted, existing, print_json

if TYPE_CHECKING:
    from ..learn.datasets.consensus import Answers
    from ..learn.datasets.dynamics import Histories, History
    from ..learn.datasets.refining import Doubt, Refinement
    from ..record.tables import RowTable
    from ..types import Json, Task

SHOWN = 3
"""Findings of each kind that are printed; all of them are in the report."""


@command("refine")
def refine(
    data: Path,
    /,
    *,
    input: tuple[str, ...] = (),
    expected: str | None = None,
    missing: Literal["none", "unknown"] = "unknown",
    store: tuple[Path, ...] = (),
    output: Path,
    leave_out: tuple[Literal["doubtful", "trivial", "unsolvable"], ...] = (),
    repair: bool = False,
    seed: int = 0,
    json: Print = False,
) -> int:
    """Find examples that are repeated, contradict each other, are labelled wrongly, or give their answer away.

    For example: whet refine examples.csv --input question --expected answer --output refined.csv

    Wrong labels are found by a classifier that never saw the row that it doubts, where there are few different answers,
    and by what several agents answered, where --store has their runs. Rows that are in doubt are left out, or repaired
    where that is asked for and the right answer is sure; each is in the report beside the output, with the reason.

    After training look again: whet train and whet improve leave in the record how each row was learned, and --store
    reads it. Rows that were right from the first are trivial, rows that never were unsolvable, and rows learned late,
    or answered otherwise in the end, doubtful. These are told and stay, unless --leave-out names them. Of pairs
    (prompt, chosen, rejected) after whet train dpo or reward-model, and of judged answers (prompt, completion, label)
    after whet train kto, doubtful ones are those whose judgement was learned late. Trees that are fitted to thumbs
    (head) have no epochs, and leave no such history.

    Parameters
    ----------
    data
        Examples: CSV, TSV, JSON, JSON Lines or Parquet; pairs and judged answers are told by their columns.
    input
        Column of the input. May be repeated. If omitted, it is guessed and shown.
    expected
        Column of the right answer. If omitted, it is guessed and shown.
    missing
        Meaning of an empty cell of --expected: none, no answer is right; or unknown.
    store
        Record whose runs were asked the same inputs: answers of different agents or Versions are compared, and what
        became of each row while something learned from it. Also an --output folder of whet train. May be repeated.
    output
        File of the rows that are left: CSV by its suffix, else JSON Lines. OUTPUT.report.jsonl has a line for each
        finding.
    leave_out
        Kind of finding whose rows are left out, too. May be repeated.
    repair
        Put the right answer in the place of a wrong one where it is sure, instead of leaving the row out.
    seed
        Random seed of the folds.
    """
    from ..learn.datasets import compared, refining
    from ..record.columns import Columns
    from ..record.tables import read_table

    if output.resolve() == data.resolve():
        raise InputError(f"--output {output} is the table itself, which stays as it is: name another file")
    table = read_table(data)
    named = bool(input or expected)
    if not named and compared.is_of_pairs(table):
        if repair:
            raise InputError(f"{data} holds pairs, which are left out and not repaired: leave --repair away")
        (rows, notes), right = compared.pairs(table), "chosen"
    elif not named and compared.is_judged(table):
        (rows, notes), right = compared.judged(table, missing), "label"
    else:
        columns = Columns.of(table, input=input, expected=expected)
        (rows, notes), right = columns.tasks(table, missing=missing), columns.expected
        notes = [*columns.sentences(table), *notes]
    answers, histories = _recorded(store, rows)
    refined = refining.refine(
        rows,
        answers=answers,
        histories=histories if store else None,
        leave_out=leave_out,
        repair=repair,
        seed=seed,
    )
    report = output.with_name(output.name + ".report.jsonl")
    _write(output, table, refined, right)
    lines = [_line(rows[doubt.row]) for doubt in refined.doubts]
    findings = [_finding(doubt, line, rows) for doubt, line in zip(refined.doubts, lines, strict=True)]
    report.write_bytes(b"".join(msgspec.json.encode(finding) + b"\n" for finding in findings))
    if json:
        summary = {"rows": len(rows), "left": len(refined.rows), "found": refined.counts}
        print_json(
            {**summary, "wrong_rate": refined.wrong_rate, "output": str(output), "report": str(report)}
        )
        return 0
    for sentence in (*table.notes, *notes, *refined.notes):
        print(sentence)
    _print(refined, findings, len(rows), output, report)
    return 0


def _recorded(stores: Sequence[Path], rows: Sequence[Task]) -> tuple[Answers, Histories]:
    """What the runs of records answered to these inputs, by who answered, and how the rows were learned.

    A source is an agent by its Versions; all that one learner tried on its way is one, by what it answered last.
    """
    from ..learn.datasets.dynamics import answer_of, improvements, recorded
    from ..learn.datasets.near import normalised
    from ..record.rows import as_text
    from ..record.store import Store

    named = {normalised(as_text(task.initial_state["input"])): task.id for task in rows}
    answers = defaultdict[str, dict[str, str]](dict)
    histories: dict[str, History] = {}
    for path in stores:
        with Store(existing(path / "runs.db" if path.is_dir() else path)) as opened:
            learners = set(improvements(opened))
            others = sorted(set(opened.experiments()) - learners)
            runs = chain(
                opened.trajectories(served=True),
                *(opened.trajectories(experiment=name) for name in others),
            )
            sources = chain(
                ((None, run) for run in runs),
                ((name, run) for name in sorted(learners) for run in opened.trajectories(experiment=name)),
            )
            for learner, run in sources:
                asked = as_text(run.task.initial_state.get("input", run.task.instruction))
                task = named.get(normalised(asked))
                if task is None or not (answered := answer_of(run)):
                    continue
                source = (
                    learner
                    or " ".join(sorted(run.versions.values()))
                    or str(run.meta.get("agent") or "the agent as it came")
                )
                answers[task][source] = answered  # of one that was asked again, the last
            histories |= recorded(opened)
    return {task: list(of_task.items()) for task, of_task in answers.items()}, histories


def _line(task: Task) -> int:
    return int(task.meta["provenance"]["line"])


def _finding(doubt: Doubt, line: int, rows: Sequence[Task]) -> Mapping[str, Json]:
    finding: dict[str, Json] = {"line": line, "kind": doubt.kind, "chance": round(doubt.chance, 3)}
    finding |= {"because": doubt.because, "expected": rows[doubt.row].answer}
    if doubt.instead is not None:
        finding |= {"instead": doubt.instead, "repaired": doubt.repaired}
    return finding if doubt.of is None else {**finding, "of_line": _line(rows[doubt.of])}


def _write(output: Path, table: RowTable, refined: Refinement, expected: str) -> None:
    by_line = dict(table.lines)
    written = []
    for task in refined.rows:
        cells = dict(by_line[_line(task)])
        if "refined" in task.meta["provenance"]:
            cells[expected] = task.answer
        written.append(cells)
    if output.suffix == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, table.columns)
        writer.writeheader()
        writer.writerows(written)
        output.write_text(text.getvalue(), encoding="utf-8")
    else:
        output.write_bytes(b"".join(msgspec.json.encode(cells) + b"\n" for cells in written))


def _print(
    refined: Refinement, findings: Sequence[Mapping[str, Json]], rows: int, output: Path, report: Path
) -> None:
    repaired = sum(bool(finding.get("repaired")) for finding in findings)
    print(f"{counted(len(refined.rows), 'row')} of {rows} in {output}, {repaired} of them repaired")
    if refined.wrong_rate is not None:
        print(f"about {refined.wrong_rate:.0%} of the labels are wrong, by the rows together")
    for kind, count in sorted(refined.counts.items()):
        print(f"{kind}: {count}")
        for finding in [finding for finding in findings if finding["kind"] == kind][:SHOWN]:
            other = f", of line {finding['of_line']}" if "of_line" in finding else ""
            instead = f"; rather {finding['instead']!r}" if "instead" in finding else ""
            print(f"  line {finding['line']}: {finding['because']}{other}{instead}")
    print(f"each finding with its reason: {report}")

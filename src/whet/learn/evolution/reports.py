"""The outcome of `whet evolve`: the patch, the history and the report as JSON, and of targets every row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ...record.store.bundles import BUNDLE_FILE
from ...record.store.findings import RewardFinding
from ...types import Bundle, Json, Split, Trajectory, Verdict
from ..datasets.examples import unknown_changes
from .agents.agent import RepositoryAgent
from .improving import Decision
from .search.engine import SearchOutcome
from .search.rows import mean

REFUSED = "refused.patch"
"""What the gate refused, for people to read: nobody applies it for `agent.patch`."""

Pairs = Sequence[tuple[Trajectory, Trajectory]]
"""Of each row its run before and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionReport:
    """The outcome for a PROGRAM and its EVALUATOR, or for the targets of a repository and their rows."""

    searches: Mapping[str, SearchOutcome]
    """Subject → search: the program's file, or functions."""
    bundle: Bundle
    output: Path
    patch: str
    seconds: float
    trusted_only: bool
    models: Sequence[str] = ()
    spent: Mapping[str, Json] = field(default_factory=dict)
    """Of those models: calls, tokens, dollars."""

    # Of a program:
    best_path: Path | None = None
    repeated: tuple[float, float] | None = None
    """The evaluator's score of the start program, and the score when it was asked again."""
    ignored: Sequence[str] = ()
    """Options of the config that change nothing here."""
    alarms: Sequence[RewardFinding] = ()
    """What gives away a program that has learned to please its evaluator, a sentence each."""

    # Of targets:
    agent: RepositoryAgent | None = None
    decisions: Sequence[Decision] = ()
    rows: Mapping[str, Pairs] = field(default_factory=dict)
    """Function → every row of it."""
    verdict: Verdict | None = None
    """None where nothing better was found, or there are no rows to judge on."""
    why: str = ""
    """The reason for no verdict."""
    folds: int = 0
    """Of the proof; 0 where rows were held back."""
    out_of_fold: tuple[float, float] | None = None
    """Mean score before and after on all rows, each under what was searched without its fold."""
    taken_back: int = 0
    """Changes that earned nothing."""
    evaluators: Mapping[str, str] = field(default_factory=dict)
    """Function → name of the Comparer of its answers."""
    agent_calls: int = 0
    """Of an entry that ran outside."""
    findings: Sequence[Mapping[str, Json]] = ()
    """Remarks that a reader must not miss, each with a `sentence`."""
    standing: Mapping[str, Json] = field(default_factory=dict)
    """Function → the gain that the gate can show with its rows."""
    intake: Sequence[str] = ()
    """Notes on the rows, made before anything was spent."""

    @property
    def found(self) -> SearchOutcome:
        """The search, the first where there are several."""
        return next(iter(self.searches.values()))

    @property
    def refused(self) -> bool:
        """The gate has judged a change and does not promote it, or a finding that nobody has cleared holds it back."""
        return self.verdict is not None and not self.verdict.releasable

    @property
    def patch_path(self) -> Path:
        """Where the patch lies; under another name where the gate refused it."""
        if self.agent is None:
            return self.output / "evolution.patch"
        return self.output / (REFUSED if self.refused else "agent.patch")

    def json(self) -> dict[str, Json]:
        """The answer to `--json`, and `verdict.json` of targets."""
        searches, rows = self.searches.values(), self.agent is not None
        return {
            **(self._targets(self.agent) if self.agent is not None else self._program()),
            "iterations": sum(outcome.iterations for outcome in searches),
            "evaluations": sum(outcome.evaluations for outcome in searches),
            "edits_tried": sum(outcome.tried for outcome in searches),
            "duplicates_skipped": sum(outcome.duplicates for outcome in searches),
            "timeouts": sum(outcome.timeouts for outcome in searches),
            "resumed": sum(outcome.replayed for outcome in searches),
            **({"changes_taken_back": self.taken_back} if rows else {}),
            "cpu_seconds": round(sum(outcome.cpu_seconds for outcome in searches), 3),
            "seconds": round(self.seconds, 3),
            "models": list(self.models),
            "spent": dict(self.spent),
            **({"agent_calls": self.agent_calls} if rows else {}),
            "co_resident": not rows,
            "trusted_only": self.trusted_only,
        }

    def _program(self) -> dict[str, Json]:
        outcome = self.found
        return {
            "best_score": outcome.best.score,
            "start_score": outcome.start.score,
            "start_repeated": self.repeated,
            "metrics": dict(outcome.best.metrics),
            "scored": sum(record.status == "scored" for record in outcome.records if record.number > 0),
            "best_program": str(self.best_path),
            "patch": str(self.patch_path),
            "bundle": str(self.output / BUNDLE_FILE),
            "stopped": outcome.stopped,
            "ignored_options": list(self.ignored),
            "alarms": [finding.sentence for finding in self.alarms],
            "operators": outcome.operators,
        }

    def _targets(self, agent: RepositoryAgent) -> dict[str, Json]:
        verdict = self.verdict
        return {
            "targets": [piece.mark.name for piece in agent.pieces],
            "entry": agent.entry,
            "scores": {name: _scores(rows) for name, rows in self.rows.items()},
            "pieces": msgspec.to_builtins(self.decisions),
            "promote": bool(verdict and verdict.releasable),
            "verdict": msgspec.to_builtins(verdict) if verdict else None,
            "why_no_verdict": self.why,
            "folds": self.folds,
            "out_of_fold": None
            if self.out_of_fold is None
            else {"before": self.out_of_fold[0], "after": self.out_of_fold[1]},
            "patch": str(self.patch_path) if self.patch else None,
            "bundle": str(self.output / BUNDLE_FILE),
            "examples": str(self.output / "examples.jsonl"),
            "findings": list(self.findings),
            "rows": dict(self.standing),
            "intake": list(self.intake),
            "evaluators": dict(self.evaluators),
        }

    def write(self) -> None:
        """Write the patch and the history into the output folder, and of targets the rows and the report."""
        output = self.output
        for stale in (self.output / "agent.patch", self.output / REFUSED) if self.agent is not None else ():
            stale.unlink(missing_ok=True)  # of an earlier run, whose verdict was another
        self.patch_path.write_bytes(self.patch.encode())
        histories = {name: _history(outcome) for name, outcome in self.searches.items()}
        history = histories if self.agent is not None else _history(self.found)
        (output / "history.json").write_text(json.dumps(history, indent=2), encoding="utf-8")
        if self.agent is None:
            return
        report = msgspec.json.format(msgspec.json.encode(self.json()), indent=2)
        (output / "verdict.json").write_bytes(report + b"\n")
        lines = [
            msgspec.json.encode(_line(name, *pair)) for name, pairs in self.rows.items() for pair in pairs
        ]
        (output / "examples.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))


def _history(outcome: SearchOutcome) -> dict[str, object]:
    """A search as `history.json` has it."""
    names = {
        "proposal": "number",
        "operator": "operator",
        "score": "score",
        "donor": "donor",
        "program": "id",
    }
    return {
        "history": [{"proposal": number, "best_score": score} for number, score in outcome.history],
        "lineage": [
            {name: getattr(record, attribute) for name, attribute in names.items()}
            for record in outcome.lineage()
        ],
        "operators": outcome.operators,
        "stopped": outcome.stopped,
    }


def _scores(rows: Pairs) -> dict[str, Json]:
    """Split → number of rows, and their mean score before and after."""
    scores: dict[str, Json] = {}
    for part in (Split.TRAIN, Split.VALIDATION, Split.GATE):
        mine = [pair for pair in rows if pair[0].task.split is part and pair[0].task.answer_known]
        if mine:
            before, after = mean([old for old, _ in mine]), mean([new for _, new in mine])
            scores[part.value] = {"n": len(mine), "before": before, "after": after}
    plain = _without_goal(rows)
    if plain:
        changed = sum(_answer(old) != _answer(new) for old, new in plain)
        scores["without_a_goal"] = {"n": len(plain), "changed": changed}
    return scores


def _without_goal(rows: Pairs) -> Pairs:
    return [pair for pair in rows if not pair[0].task.answer_known]


def _answer(run: Trajectory) -> Json:
    """The answer of a run, or its error."""
    failed = run.error
    return run.output if failed is None else {"error": f"{failed.type}: {failed.message}"[:400]}


def findings_of(rows: Mapping[str, Pairs]) -> list[Mapping[str, Json]]:
    """The remark on each function with rows whose answer nobody knows."""
    findings = []
    for name, pairs in rows.items():
        answers = [
            (old.task.initial_state["input"], _answer(old), _answer(new)) for old, new in _without_goal(pairs)
        ]
        findings.append(unknown_changes(answers, name))
    return [finding for finding in findings if finding is not None]


def none_lost(rows: Mapping[str, Pairs]) -> str:
    """A sentence where fewer rows whose right answer is None are right than before, else "".

    They are few beside those with a value, so a mean hides it when a patch answers each of them with something.
    """
    sentences = []
    for name, pairs in rows.items():
        empty = [pair for pair in pairs if pair[0].task.answer_known and pair[0].task.answer is None]
        before, after = (sum((pair[side].score("score") or 0.0) >= 1.0 for pair in empty) for side in (0, 1))
        if after < before:
            sentences.append(
                f"of {len(empty)} rows of {name} whose right answer is None {before} were right, and {after} are with "
                "the change: it answers where there is nothing to answer"
            )
    return "; ".join(sentences)


def flips(pairs: Pairs) -> tuple[Pairs, Pairs]:
    """The rows that became right, and those that became wrong."""
    known = [pair for pair in pairs if pair[0].task.answer_known]
    right = [[(run.score("score") or 0.0) >= 1.0 for run in pair] for pair in known]
    return (
        [pair for pair, (before, after) in zip(known, right, strict=True) if after and not before],
        [pair for pair, (before, after) in zip(known, right, strict=True) if before and not after],
    )


def _line(name: str, before: Trajectory, after: Trajectory) -> dict[str, Json]:
    task = before.task
    line: dict[str, Json] = {
        "function": name,
        "id": task.id.removeprefix(f"{name}/"),
        "split": (task.split or Split.TRAIN).value,
        "input": task.initial_state["input"],
        "before": _answer(before),
        "after": _answer(after),
        "score_before": before.score("score"),
        "score_after": after.score("score"),
        "provenance": dict(task.meta["provenance"]),
    }
    return line | {"wanted": task.answer} if task.answer_known else line

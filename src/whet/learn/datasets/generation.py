"""Rows for one function: recorded ones first, then known examples, then synthesised, up to a number.

Made by a model where one is given, from the signature otherwise; what is synthesised is run in the
sandbox with the function as it stands, twice and in both orders, and kept only if it answers, and
answers the same.  Nothing is invented to reach the number: an Account says what there is, where it
came from, and what was left out and why.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import msgspec

from ...errors import InputError
from ...models import Model
from ...models.recorded import RecordedModel
from ...record.rows import row
from ...sandbox import CallResult, Pool
from ...types import Fault, Json, Split, Task, Trajectory, canonical
from .callee import Callee
from .division import standing
from .examples import divided, leaks
from .recorded import distinct, recorded, why_none
from .signatures import Signature, examples
from .synthesis import Unknown, inputs, near

_TRIES = 12
"""Inputs tried per row that is wanted: most of what is made blindly is rejected."""
_ROUNDS = 3
"""Times that inputs are made: again where too few were answered, near to those that were."""
_BATCH = 10
_ASKED = """Write test data for this Python function.

{shown}
{known}
Give {count} further calls as JSON, one object a line, in a ``` fence:
{{"input": {{argument: value}}, "expected": what a perfect function should answer}}
Cover what real users ask, rare cases and mistakes among it. Each input once. No comments."""
_FENCE = re.compile(r"```\w*\s*\n(.*?)```", re.DOTALL)


@dataclass(slots=True)
class Account:
    """The outcome of a request for rows."""

    wanted: int
    kept: int = 0
    sources: dict[str, int] = field(default_factory=dict)
    """Origin of a row → number of rows."""
    goals: int = 0
    """Rows that say what should come out; the others say what comes out today."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Reason → number of rows."""
    examples_of: dict[str, str] = field(default_factory=dict)
    """Reason → one of them, as an example."""
    splits: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    """Of the model."""
    leakage: str = ""
    gate: str = ""
    """The gain that the gate can prove with them, as a sentence."""
    why: str = ""
    """The reason if there are fewer than asked for, else ""."""

    def drop(self, why: str, example: object = "") -> None:
        self.dropped[why] = self.dropped.get(why, 0) + 1
        self.examples_of.setdefault(why, str(example)[:200])


async def generate(
    callee: Callee,
    count: int,
    *,
    pool: Pool,
    runs: Iterable[Trajectory] = (),
    texts: Mapping[str, str] | None = None,
    model: Model | None = None,
    seed: int = 0,
) -> tuple[list[Task], Account]:
    """Rows for a function, each with its split.

    Args:
        pool: where the function is run.
        runs: recorded ones, with their feedback.
        texts: path → module text, to look for calls in.
        model: makes what is missing; None makes it from the signature.

    Raises:
        InputError: fewer than one row asked for, or it is not a function.
        ModelError: the endpoint failed.
        SandboxError: untrusted code cannot be shut in here.
    """
    if count < 1:
        raise InputError(f"--num-samples {count}: it must be at least 1")
    signature = callee.signature
    account = Account(count)
    held = list(runs)
    calls, repeated = distinct(recorded(signature, callee.entry.partition(":")[2], held))
    if held and not calls:
        account.dropped[why_none(signature.name, held)] = len(held)
    if repeated:
        account.dropped["the same input again"] = repeated
    # Those that people spoke of first; then as they came.
    rows = sorted(calls, key=lambda task: not (task.answer_known or "label" in task.meta))[:count]
    if len(calls) > count:
        account.dropped["more traces than asked for"] = len(calls) - count
    if len(rows) < count:
        rows += await _answering(callee, examples(signature, texts or {}), rows, count, account, pool)
    if len(rows) < count and model is not None:
        rows += await _by_model(callee, rows, count, account, pool, model)
    elif len(rows) < count:
        rows += await _by_signature(callee, rows, count, account, pool, seed)
    sided = divided(rows, seed=seed)
    if len(sided) < len(rows):
        account.dropped["nearly the same as a row of another side"] = len(rows) - len(sided)
    rows = sided
    _conclude(account, rows, model is not None)
    return rows, account


def _conclude(account: Account, rows: Sequence[Task], by_model: bool) -> None:
    account.kept = len(rows)
    account.sources = dict(Counter(str(task.meta["provenance"].get("how")) for task in rows))
    account.goals = sum(task.answer_known for task in rows)
    account.splits = {part.value: sum(task.split is part for task in rows) for part in Split}
    account.leakage = str(leaks(rows)) if rows else ""
    account.gate = standing(rows).sentence if rows else ""
    if account.kept < account.wanted:
        reasons = (
            ", ".join(f"{number} {why}" for why, number in account.dropped.items()) or "no source had more"
        )
        how = (
            "the model's calls are used up"
            if by_model
            else "the values that its signature allows are used up"
        )
        account.why = f"{account.kept} of {account.wanted}: {how} ({reasons})"


async def _answering(
    callee: Callee, candidates: Iterable[Task], rows: Sequence[Task], count: int, account: Account, pool: Pool
) -> list[Task]:
    """Those rows that the function answers, with its answer, as many as are missing."""
    fresh: list[Task] = []
    ids = {task.id for task in rows}
    for task in candidates:
        if task.id in ids:
            account.drop("the same input again", _input(task))
            continue
        ids.add(task.id)
        fresh.append(task)
    answered = await outputs(callee, [_input(task) for task in fresh], pool)
    answering: list[Task] = []
    for task, result in zip(fresh, answered, strict=True):
        if len(rows) + len(answering) >= count:
            break
        if result is None:
            account.drop("answers that depend on the calls before", _input(task))
        elif result.failure is not None and not task.answer_known:
            account.drop(
                _why(result), f"{_input(task)!r:.80}: {result.failure.type}: {result.failure.message}"
            )
        else:
            answering.append(_with(task, result))
    return answering


def _input(task: Task) -> Json:
    return task.initial_state["input"]


def _with(task: Task, result: CallResult) -> Task:
    """The row with its output, or with the exception that came instead."""
    if result.failure is None:
        return replace(task, meta={**task.meta, "output": result.value})
    raised = f"{result.failure.type}: {result.failure.message}"[:200]
    return replace(task, meta={**task.meta, "provenance": {**task.meta["provenance"], "raised": raised}})


def _why(result: CallResult) -> str:
    assert result.failure is not None
    if result.failure.type == "CannotCross":
        return "answers that cannot cross as JSON"
    if result.failure.fault is Fault.SANDBOX:
        return "failures of the sandbox"
    return (
        "inputs that the function raises on"
        if result.killed_by is None
        else "inputs that it hangs or dies on"
    )


async def outputs(callee: Callee, call_inputs: Sequence[Json], pool: Pool) -> list[CallResult | None]:
    """The function's answer to each input; None where it depends on the calls before."""
    # In both orders: state that is kept between calls shows only when what came before is different.
    forward = await answers(callee, call_inputs, pool)
    backward = (await answers(callee, call_inputs[::-1], pool))[::-1]
    stable: list[CallResult | None] = []
    for first, second in zip(forward, backward, strict=True):
        same = first.ok == second.ok and (not first.ok or canonical(first.value) == canonical(second.value))
        stable.append(first if same else None)
    return stable


async def answers(callee: Callee, call_inputs: Sequence[Json], pool: Pool) -> list[CallResult]:
    """The function's answer to each input, in this order, in one process as long as it lives."""
    answered: list[CallResult] = []
    while len(answered) < len(call_inputs):
        async with pool.open(callee.staged, callee.runs) as session:
            for input in call_inputs[len(answered) :]:
                result = await session.call(list(callee.signature.arguments(input)))
                answered.append(result)
                if result.killed_by is not None or result.exit_code is not None:
                    break
    return answered


async def _by_signature(
    callee: Callee, rows: Sequence[Task], count: int, account: Account, pool: Pool, seed: int
) -> list[Task]:
    """From the signature: tried in batches, and of those that answer the least common answers first."""
    missing, made_rows = count - len(rows), list[Task]()
    ids = {task.id for task in rows}
    for turn in range(_ROUNDS):
        answered = [_input(task) for task in [*rows, *made_rows]]
        signature, literals = callee.signature, callee.pool
        try:
            stream = (
                near(signature, answered, literals, seed + turn)
                if turn and len(signature.parameters) > 1
                else inputs(signature, literals, seed + turn)
            )
            drawn = list(islice(stream, 1 + missing * _TRIES))
        except Unknown as error:
            account.drop("parameters that no value can be made for", error)
            break
        fresh: list[Task] = []
        for input in drawn:
            provenance = {"how": "generated", "seed": seed, "answer": "the function as it stands"}
            task = row(input, provenance=provenance)
            if task.id not in ids:
                ids.add(task.id)
                fresh.append(task)
        # All that answer are kept here; `_spread` chooses among them.
        made_rows += await _answering(callee, fresh, rows, len(rows) + len(fresh), account, pool)
        if len(made_rows) >= missing:
            break
    return _spread(made_rows, missing)


def _spread(rows: Sequence[Task], most: int) -> list[Task]:
    """One row of every answer in turn: a function that mostly says "other" is not asked that alone."""
    piles: dict[bytes, list[Task]] = {}
    for task in rows:
        piles.setdefault(canonical(task.meta["output"]), []).append(task)
    spread: list[Task] = []
    while piles and len(spread) < most:
        for key in list(piles):
            if len(spread) < most:
                spread.append(piles[key].pop(0))
            if not piles[key]:
                del piles[key]
    return spread


async def _by_model(
    callee: Callee, rows: Sequence[Task], count: int, account: Account, pool: Pool, model: Model
) -> list[Task]:
    """By a model, in batches, told what there is already; three calls per batch that is missing at most."""
    written_rows: list[Task] = []
    most = 2 + 3 * ((count - len(rows)) // _BATCH + 1)
    while len(rows) + len(written_rows) < count and account.calls < most:
        prompt = _prompt(callee.signature, [*rows, *written_rows])
        # A number of its own, so that a run that is started again gets the answers that were paid for.
        settings: dict[str, Any] = {"sample": account.calls} if isinstance(model, RecordedModel) else {}
        completion = await model.complete(prompt, **settings)
        account.calls += 1
        drawn = _rows_in(completion.text, callee.signature, completion.model or model.name, account)
        written_rows += await _answering(callee, drawn, [*rows, *written_rows], count, account, pool)
    return written_rows


def _prompt(signature: Signature, rows: Sequence[Task]) -> str:
    shown = "\n".join(
        canonical({"input": _input(task), "expected": task.answer}).decode()
        for task in rows[-12:]
        if task.answer_known
    )
    known_rows = f"Known so far:\n{shown}\n" if shown else ""
    return _ASKED.format(shown=f"```python\n{signature.source}\n```", known=known_rows, count=_BATCH)


def _rows_in(text: str, signature: Signature, name: str, account: Account) -> Iterator[Task]:
    fenced = _FENCE.findall(text)
    for line in (fenced[-1] if fenced else text).splitlines():
        if not line.strip():
            continue
        try:
            call = msgspec.json.decode(line, type=dict[str, Json])
        except msgspec.MsgspecError:
            account.drop("lines that are no JSON object", line)
            continue
        if "input" not in call or "expected" not in call:
            account.drop("rows without input or expected", line)
            continue
        named = signature.named(call["input"])
        if named is None:
            account.drop("inputs that do not fit the signature", line)
            continue
        if not _typed(call["expected"], signature.returns):
            account.drop("answers of another type than the function's", line)
            continue
        yield row(call["input"], expected=call["expected"], provenance={"how": "model", "model": name})


_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "str": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": dict,
}  # fmt: skip


def _typed(value: Json, annotation: str) -> bool:
    kind = _TYPES.get(annotation.partition("[")[0])
    if kind is None:
        return True
    return isinstance(value, kind) and (annotation == "bool" or not isinstance(value, bool))

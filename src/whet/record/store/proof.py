"""The Verdict that a release stands on, and what keeps a Bundle from being released.

`--unproven` (unproven=True) releases what lacks a proof, whatever is lacking: the log says so and names it.  It lifts
neither an open finding (`findings.py`), which is evidence against the candidate that a person has to answer, nor a
name that nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...errors import GateError, InputError
from ...types import Bundle, Verdict
from .codec import decode
from .database import DatabaseReader
from .releases import PROGRAM

UNPROVEN = "or release it as it is: --unproven (unproven=True)."


def read_verdicts(reader: DatabaseReader, *candidates: str) -> list[Verdict]:
    """Verdicts in the order in which they were recorded; `candidates` are the ids of the Bundles that they are on."""
    where = f"WHERE candidate IN ({', '.join('?' * len(candidates))}) " if candidates else ""
    return [
        decode(body, Verdict)
        for (body,) in reader.rows(f"SELECT body FROM verdicts {where}ORDER BY seq", list(candidates))
    ]


def blocks_of(bundle: Bundle, verdict: Verdict | None) -> dict[str, str]:
    """What keeps a Bundle from being released on a Verdict → the sentence with what would clear it."""
    return dict(_blocks(bundle, verdict))


def _blocks(bundle: Bundle, verdict: Verdict | None) -> Iterator[tuple[str, str]]:
    if verdict is None:
        if any(version.kind == PROGRAM for version in bundle.values()):
            yield (
                "co-resident score",
                f"nothing has proven {', '.join(sorted(bundle))}: its evaluator ran beside it, so its score steers a "
                "search and proves nothing. Try it on work that the search did not see (whet gate)",
            )
        else:
            yield (
                "no Verdict",
                f"nothing has proven Bundle {bundle.id} ({', '.join(sorted(bundle))}): the record has no Verdict "
                "on it. Judge it first (whet gate, Experiment.gate)",
            )
        return
    yield from verdict.blocks.items()
    failing = [name for name, holds in verdict.guardrails.items() if not holds]
    if failing:
        yield (
            "failing guard suite" if any("suite" in name for name in failing) else "failing guardrail",
            f"Bundle {bundle.id} is not shown to hold {', '.join(failing)}. Mend it, or judge it on more tasks of that "
            "kind, then whet gate again",
        )
    if not verdict.baseline:
        yield (
            "missing baseline",
            f"the Verdict on Bundle {bundle.id} does not say what it was judged against. Judge it beside what is live "
            "(whet gate, Experiment.gate), which records the baseline",
        )
    if not verdict.promote and not verdict.blocks and not failing:
        why = f" {verdict.reasons[0]}" if verdict.reasons else ""
        yield ("no promotion", f"the Verdict on Bundle {bundle.id} does not promote it.{why} Improve it")


def refuse_blocked(blocks: Mapping[str, str]) -> None:
    """Refuse a release that something forbids.

    Raises:
        GateError: with each sentence, and how to release it all the same.
    """
    if blocks:
        sentences = " Also: ".join(
            f"{sentence.rstrip('.')} [{kind}]" if len(blocks) > 1 else sentence.rstrip(".")
            for kind, sentence in blocks.items()
        )
        raise GateError(f"{sentences}; {UNPROVEN}")


def proof_of(
    reader: DatabaseReader, bundle: Bundle, merged: Bundle, verdict: Verdict | None
) -> Verdict | None:
    """The Verdict that a release would stand on: `verdict`, or the newest recorded one; None where there is none.

    Args:
        merged: `bundle` beside what is live under other names.

    Raises:
        InputError: the Verdict is on another Bundle.
    """
    if verdict is None:
        verdicts = read_verdicts(reader, bundle.id, merged.id)
        return verdicts[-1] if verdicts else None
    if verdict.candidate not in (bundle.id, merged.id):
        raise InputError(
            f"the Verdict is on Bundle {verdict.candidate or '(none named)'}, and this is {bundle.id}. "
            "Give the Verdict on it (Verdict.candidate), or release it with unproven=True."
        )
    return verdict

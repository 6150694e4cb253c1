"""Evaluators from outside: all that somebody could fool are refused, and no good one is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from outside_evaluators import BAD, GOOD, Written
from outside_evaluators_more import MORE_BAD, MORE_GOOD

from whet.judge.evaluator import from_source
from whet.judge.proof import Proof, prove
from whet.sandbox import Limits, Pool, Sandbox


def proofs(written: Mapping[str, Written]) -> dict[str, Proof]:
    async def all_of_them() -> dict[str, Proof]:
        async with Pool(Sandbox(limits=Limits(wall_seconds=20.0, cpu_seconds=20.0))) as pool:
            return {
                name: await prove(from_source(one.source, "judge"), rows=one.rows, pool=pool)
                for name, one in written.items()
            }

    return asyncio.run(all_of_them())


def test_every_bad_one_is_refused_with_a_reason() -> None:
    found = proofs({**BAD, **MORE_BAD})
    assert [name for name, proof in found.items() if proof.admitted] == []
    assert all(proof.reasons for proof in found.values())


def test_every_good_one_is_admitted() -> None:
    refused = {
        name: proof.reasons for name, proof in proofs({**GOOD, **MORE_GOOD}).items() if not proof.admitted
    }
    assert refused == {}


def test_a_reason_shows_an_answer_that_went_through() -> None:
    shown = proofs({name: BAD[name] for name in ("begins with it", "one beside is right, of large numbers")})
    assert any('not above "Limaq"' in reason for reason in shown["begins with it"].reasons)
    (beside,) = shown["one beside is right, of large numbers"].reasons
    assert beside.startswith("off by one:")

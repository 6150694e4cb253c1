"""An optimizer of somebody else's proposes, and the verdict on tasks that it never saw keeps what is better alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from integrations.optimizers import REWORDED, answered  # noqa: E402
from integrations.results.clerk import CAREFUL  # noqa: E402

pytest.importorskip("gepa")
SCRIPT = ROOT / "integrations" / "gepa" / "optimize.py"
FILES = ("before.jsonl", "after.jsonl")


def test_a_better_prompt_of_gepa_is_kept() -> None:
    better = answered(SCRIPT, sys.executable, FILES, [CAREFUL])
    assert (better["answer"], better["promote"]) == ("keep", True)


def test_the_luckiest_of_gepas_rewordings_is_dropped_once_the_pairs_that_were_asked_for_are_there() -> None:
    null = answered(SCRIPT, sys.executable, FILES, REWORDED)
    assert null["answer"] == "drop"
    assert null["effect"] != 0.0  # another prompt, and not the first one again

"""What a delivery proves itself with: the outcome files of both sides, and the verdict that they give.

The files lie on the branch, and `whet verdict` on them gives the committed verdict to the byte, in any clone.
`learn/evolution/delivering.py` makes them, where the record and the gate meet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...types import Verdict

FOLDER = ".whet-proofs"
"""In the user's repository; hidden, so that no reader of their source looks into it."""
BASELINE, CANDIDATE, VERDICT, BUNDLE, BODY = (
    "baseline.jsonl",
    "candidate.jsonl",
    "verdict.json",
    "bundle.json",
    "README.md",
)
PICTURE = "effect.svg"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredEvidence:
    """Outcome files and their verdict."""

    folder: str
    """Where they lie in the repository."""
    files: Mapping[str, bytes]
    """Path → content."""
    verdict: Verdict
    """Of the files."""
    command: str
    """Prints `VERDICT` again, from the root of a clone."""
    metric: str
    """Name of the score that stands under `success` in the files."""
    rows: Mapping[str, Sequence[Mapping[str, Any]]]
    """`baseline` and `candidate` → their rows."""
    judges: Sequence[str] = ()
    """Sentences on who judged, where no evaluator did."""


def hashes(files: Mapping[str, bytes]) -> dict[str, str]:
    """Path → SHA-256 of each file."""
    return {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}

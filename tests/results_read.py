"""The files of `tests/results`: what other programs wrote of the same thirty sums, before and after."""

from __future__ import annotations

from pathlib import Path

RESULTS = Path(__file__).parent / "results"
FILES = (
    "dspy/{}.csv",
    "dspy/{}.json",
    "inspect/{}.eval",
    "inspect/{}.json.gz",
    "junit/{}_node.xml",
    "junit/{}_pytest.xml",
    "langfuse/{}_items.json",
    "langfuse/{}_results.json",
    "lm_eval/{}.jsonl",
    "mlflow/{}_results_table.json",
    "mlflow/{}_traces.jsonl",
    "opik/{}.json",
    "promptfoo/{}.json.gz",
    "strands/{}.json",
)
"""A name with `{}` where it says baseline or candidate."""
METRICS = {"mlflow/{}_traces.jsonl": "exact"}
"""The metric of a file that has several of equal standing."""


def side(file: str, name: str) -> Path:
    """The file of the baseline or of the candidate."""
    return RESULTS / file.format(name)

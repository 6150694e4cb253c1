"""The job's own pieces, set up for measuring one of them: a synthetic company with its learners."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whet import Store
from whet.demo.job import Job, JobOptions, Sizes
from whet.demo.learning import Learning
from whet.training.local import use_threads

SMALL = Sizes(
    users=200,
    later_users=900,
    rollouts=3_000,
    generations=8,
    cloned=600,
    grpo=4,
    grpo_tasks=8,
    routed=80,
    validation=60,
    gate=300,
)
"""A job of half a minute, in which everything happens and little is learned."""


@contextmanager
def learning(seed: int, output: Path, sizes: Sizes) -> Iterator[Learning]:
    """A fresh job's Learning, with nothing done yet."""
    use_threads(1)
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    with Store(output / "whet.db") as store:
        yield Learning(Job(JobOptions(seed=seed, output=output, sizes=sizes), store, name="claims"))

"""The job's own pieces, set up for measuring one of them: a synthetic company with its learners."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whet import Store
from whet.learn.training.local import use_threads
from whet.worlds.demo.job import JobOptions, MailJob, Sizes
from whet.worlds.demo.learning import Learning


@contextmanager
def learning(seed: int, output: Path, sizes: Sizes) -> Iterator[Learning]:
    """A fresh job's Learning, with nothing done yet."""
    use_threads(1)
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    with Store(output / "whet.db") as store:
        yield Learning(MailJob(JobOptions(seed=seed, output=output, sizes=sizes), store, name="claims"))

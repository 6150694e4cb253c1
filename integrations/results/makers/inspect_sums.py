# /// script
# dependencies = ["inspect-ai==0.3.285", "openai==3.57.0"]
# ///
"""Inspect: an evaluation of two epochs, as a log in both of its formats."""

import shutil

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import exact
from inspect_ai.solver import generate, system_message
from sums import SIDES, SUMS

samples = [
    Sample(input=row["question"], target=row["expected"], id=row["id"], metadata={"group": row["group"]})
    for row in SUMS
]
for side, prompt in SIDES.items():
    for ending in ("eval", "json"):
        task = Task(samples, solver=[system_message(prompt), generate()], scorer=exact(), epochs=2)
        (log,) = eval(
            task, model="openai/clerk", log_dir="logs", log_format=ending, display="none", log_realtime=False
        )
        assert log.status == "success", log.error
        shutil.copy(log.location.removeprefix("file://"), f"{side}.{ending}")

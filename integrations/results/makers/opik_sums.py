# /// script
# dependencies = ["opik==2.2.122"]
# ///
"""Opik: an experiment as `opik export WORKSPACE PROJECT experiment NAME` writes it.

Its server does not run here: the items are the SDK's own, and its export writes them.
"""

import types
from pathlib import Path

from opik.api_objects.experiment.experiment_item import ExperimentItemContent
from opik.cli.exports.utils import create_experiment_data_structure, write_json_data
from opik.evaluation.metrics import Equals
from sums import SIDES, SUMS, ask

metric = Equals(name="exact", track=False)
for side, prompt in SIDES.items():
    items = []
    for number, row in enumerate(SUMS):
        answer = ask(prompt, row["question"])
        score = metric.score(answer, row["expected"])
        items.append(
            ExperimentItemContent(
                id=f"item-{side}-{number}",
                trace_id=f"trace-{side}-{number}",
                dataset_item_id=row["id"],
                dataset_item_data={
                    "question": row["question"],
                    "expected": row["expected"],
                    "group": row["group"],
                },
                evaluation_task_output={"output": answer},
                feedback_scores=[
                    {"name": score.name, "value": score.value, "reason": score.reason, "category_name": None}
                ],
                assertion_results=[],
            )
        )
    experiment = types.SimpleNamespace(
        id=side, name=side, dataset_name="sums", get_experiment_data=lambda: types.SimpleNamespace()
    )
    write_json_data(create_experiment_data_structure(experiment, items), Path(f"{side}.json"))

# /// script
# dependencies = ["langfuse==5.0.4"]
# ///
"""Langfuse: a run of `run_experiment` as JSON, and the same as its API gives the items of an experiment.

Its server does not run without a cluster of databases: the answer of the API is put together of the SDK's own models.
"""

import datetime
import json
import os
from functools import partial
from pathlib import Path

os.environ |= {
    "LANGFUSE_PUBLIC_KEY": "none",
    "LANGFUSE_SECRET_KEY": "none",
    "LANGFUSE_TRACING_ENABLED": "false",
}

from langfuse import Evaluation, Langfuse
from langfuse.api import ExperimentItem, ExperimentItemsResponse
from sums import SIDES, SUMS, ask

client = Langfuse()
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def answered(prompt, *, item, **_):
    return ask(prompt, item["input"])


def exact(*, output, expected_output, **_):
    return Evaluation(name="exact", value=float(output == expected_output))


for side, prompt in SIDES.items():
    data = [
        {
            "input": row["question"],
            "expected_output": row["expected"],
            "metadata": {"id": row["id"], "group": row["group"]},
        }
        for row in SUMS
    ]
    run = client.run_experiment(name=side, data=data, task=partial(answered, prompt), evaluators=[exact])
    rows = [
        {
            "item": result.item,
            "output": result.output,
            "trace_id": result.trace_id,
            "evaluations": [
                {"name": value.name, "value": value.value, "comment": value.comment}
                for value in result.evaluations
            ],
        }
        for result in run.item_results
    ]
    Path(f"{side}_results.json").write_text(json.dumps(rows, indent=1))
    items = []
    for number, (row, result) in enumerate(zip(SUMS, run.item_results, strict=True)):
        score = {
            "id": f"score-{number}",
            "project_id": "sums",
            "name": "exact",
            "value": result.evaluations[0].value,
            "data_type": "NUMERIC",
            "source": "API",
            "timestamp": START,
            "environment": "default",
            "created_at": START,
            "updated_at": START,
            "subject": {"kind": "trace", "id": f"{number:032x}"},
        }
        items.append(
            ExperimentItem(
                id=f"{number:016x}",
                trace_id=f"{number:032x}",
                start_time=START,
                level="DEFAULT",
                environment="default",
                experiment_id=run.experiment_id,
                experiment_name=side,
                experiment_item_id=row["id"],
                input=row["question"],
                output=result.output,
                expected_output=row["expected"],
                experiment_item_metadata={"group": row["group"]},
                scores=[score],
            )
        )
    Path(f"{side}_items.json").write_text(ExperimentItemsResponse(data=items, meta={}).json())

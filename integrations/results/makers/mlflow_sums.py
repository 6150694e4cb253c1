# /// script
# dependencies = ["mlflow==3.17.2"]
# ///
"""MLflow: `mlflow.genai.evaluate` (its traces with assessments) and `mlflow.models.evaluate` (the artifact)."""

import os
import shutil
from pathlib import Path

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "false"

import mlflow
import pandas
from mlflow.genai import scorer
from sums import SIDES, SUMS, ask

mlflow.set_tracking_uri("sqlite:///mlflow.sqlite")
experiment = mlflow.set_experiment("sums").experiment_id


@scorer
def exact(outputs, expectations):
    return outputs == expectations["expected_response"]


@scorer
def length(outputs):
    return len(outputs)


def evaluate(side, prompt):
    def answered(question):
        return ask(prompt, question)

    def answers(table):
        return [ask(prompt, question) for question in table["inputs"]]

    rows = [
        {
            "inputs": {"question": row["question"]},
            "expectations": {"expected_response": row["expected"]},
            "tags": {"group": row["group"]},
        }
        for row in SUMS
    ]
    judged = mlflow.genai.evaluate(data=rows, predict_fn=answered, scorers=[exact, length])
    traces = mlflow.search_traces(run_id=judged.run_id, return_type="list")
    Path(f"{side}_traces.jsonl").write_text("".join(trace.to_json() + "\n" for trace in traces))
    frame = pandas.DataFrame(
        {
            "inputs": [row["question"] for row in SUMS],
            "ground_truth": [row["expected"] for row in SUMS],
            "group": [row["group"] for row in SUMS],
        }
    )
    with mlflow.start_run():
        mlflow.models.evaluate(
            answers,
            frame,
            targets="ground_truth",
            extra_metrics=[
                mlflow.metrics.make_metric(
                    eval_fn=lambda predictions, targets: mlflow.metrics.MetricValue(
                        scores=[
                            float(left == right) for left, right in zip(predictions, targets, strict=True)
                        ]
                    ),
                    greater_is_better=True,
                    name="exact",
                )
            ],
            evaluators="default",
        )
        run = mlflow.active_run().info.run_id
    shutil.copy(
        mlflow.artifacts.download_artifacts(run_id=run, artifact_path="eval_results_table.json"),
        f"{side}_results_table.json",
    )


for side, prompt in SIDES.items():
    evaluate(side, prompt)

# /// script
# dependencies = ["mlflow==3.17.2", "openai==3.57.0"]
# ///
"""A loop of one's own under MLflow's SDK, in a tracking database; then what MLflow gives out of it, in this folder.

Written: traces.jsonl (`Trace.to_json` of `mlflow.search_traces`), table.jsonl (the same as the table that it gives),
dataset.jsonl (records of an evaluation dataset) and the database itself, mlflow.db; then, by the script once more, the
folder of a file store, mlruns, which has no datasets.
"""

import os
import subprocess
import sys
from pathlib import Path

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "false"

import desk_agent
import mlflow
from desk_agent import ASKED, CORRECTED, QUESTION
from mlflow.entities import AssessmentSource, SpanType
from openai import OpenAI

FILES = "DESK_FILES" in os.environ
mlflow.set_tracking_uri("file:./mlruns" if FILES else "sqlite:///mlflow.db")
experiment = mlflow.set_experiment("desk").experiment_id
mlflow.openai.autolog()
client = OpenAI(max_retries=0)
tools = {
    "weather": mlflow.trace(desk_agent.weather, span_type=SpanType.TOOL),
    "reserve": mlflow.trace(desk_agent.reserve, span_type=SpanType.TOOL),
}


@mlflow.trace(name="desk", span_type=SpanType.AGENT)
def desk(question):
    person, session = asking
    mlflow.update_current_trace(
        tags={"desk": "hotel"},
        metadata={
            "mlflow.trace.user": person,
            "mlflow.trace.session": session,
            "mlflow.source.git.commit": "abc123",
        },
    )
    return desk_agent.answer(client, tools, question)


ids = []
for person, session, question in ASKED:
    asking = person, session
    try:
        desk(question)
    except Exception as error:
        print(type(error).__name__)
    ids.append(mlflow.get_last_active_trace_id())
human, judge = (
    AssessmentSource(source_type="HUMAN", source_id="ada"),
    AssessmentSource(source_type="LLM_JUDGE", source_id="gpt-4o"),
)
mlflow.log_feedback(trace_id=ids[0], name="thumbs", value=True, source=human)
mlflow.log_feedback(
    trace_id=ids[1], name="thumbs", value=False, source=human, rationale="no other place was offered"
)
mlflow.log_expectation(trace_id=ids[1], name="expected_response", value=CORRECTED, source=human)
mlflow.log_feedback(trace_id=ids[0], name="helpful", value=0.75, source=judge, rationale="it says both")
mlflow.log_feedback(trace_id=ids[1], name="tone", value="curt", source=judge)
mlflow.log_feedback(trace_id=ids[2], name="stars", value=2, source=human)
mlflow.log_feedback(
    trace_id=ids[3], name="helpful", error=ValueError("the judge could not be asked"), source=judge
)
if FILES:
    sys.exit()
files = {**os.environ, "DESK_FILES": "1", "MLFLOW_ALLOW_FILE_STORE": "true"}
subprocess.run([sys.executable, __file__], env=files, check=True)

from mlflow.genai.datasets import create_dataset  # noqa: E402

dataset = create_dataset(name="desk rows", experiment_id=[experiment])
dataset.merge_records(
    [
        {
            "inputs": {"question": QUESTION},
            "expectations": {"expected_response": CORRECTED},
            "tags": {"group": "paris"},
        },
        {
            "inputs": {"question": "Is breakfast included?"},
            "expectations": {"expected_response": "Yes, until ten."},
        },
        {"inputs": {"question": "Who are you?"}},
    ]
)
traces = mlflow.search_traces(locations=[experiment], return_type="list")
Path("traces.jsonl").write_text("".join(trace.to_json() + "\n" for trace in traces))
mlflow.search_traces(locations=[experiment]).to_json("table.jsonl", orient="records", lines=True)
dataset.to_df().to_json("dataset.jsonl", orient="records", lines=True)

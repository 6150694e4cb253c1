# /// script
# dependencies = [
#     "arize-phoenix==20.26.1",
#     "arize-phoenix-client==3.5.0",
#     "arize-phoenix-otel==0.17.2",
#     "openinference-instrumentation-openai==0.1.66",
#     "openai==3.57.0",
# ]
# ///
"""A loop of one's own under Phoenix's SDK and a Phoenix server on loopback; then what its client gives, in this folder.

Written: spans.parquet (`get_spans_dataframe`), spans.jsonl (the same as JSON Lines), api_spans.json (`get_spans`),
annotations.jsonl (`get_span_annotations`), dataset.jsonl (its examples) and dataset.csv (`to_dataframe`).
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    grpc = probe.getsockname()[1]
here = Path.cwd()
environ = os.environ | {
    "PHOENIX_WORKING_DIR": str(here / "phoenix"),
    "PHOENIX_HOST": "127.0.0.1",
    "PHOENIX_PORT": str(port),
    "PHOENIX_GRPC_PORT": str(grpc),
    "PHOENIX_TELEMETRY_ENABLED": "false",
}
server = subprocess.Popen(
    [str(Path(sys.executable).parent / "phoenix"), "serve"],
    env=environ,
    stdout=open("server.log", "wb"),  # noqa: SIM115
    stderr=subprocess.STDOUT,
)
base = f"http://127.0.0.1:{port}"
try:
    for _ in range(240):
        try:
            urllib.request.urlopen(f"{base}/healthz").read()
            break
        except OSError:
            time.sleep(0.5)

    import desk_agent
    from desk_agent import ASKED, CORRECTED, QUESTION
    from openai import OpenAI
    from openinference.instrumentation import using_attributes
    from openinference.instrumentation.openai import OpenAIInstrumentor
    from opentelemetry import trace
    from phoenix.client import Client
    from phoenix.otel import register

    provider = register(
        endpoint=f"{base}/v1/traces",
        protocol="http/protobuf",
        project_name="desk",
        batch=False,
        verbose=False,
    )
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    tracer = provider.get_tracer("desk")
    model = OpenAI(max_retries=0)
    tools = {"weather": tracer.tool(desk_agent.weather), "reserve": tracer.tool(desk_agent.reserve)}
    roots = []

    @tracer.agent(name="desk")
    def desk(question):
        roots.append(trace.get_current_span().get_span_context())
        return desk_agent.answer(model, tools, question)

    for person, session, question in ASKED:
        with using_attributes(session_id=session, user_id=person, tags=["hotel"], metadata={"release": "r1"}):
            try:
                desk(question)
            except Exception as error:
                print(type(error).__name__)
    provider.force_flush()
    client = Client(base_url=base)
    span_ids = [format(root.span_id, "016x") for root in roots]

    def note(number, name, kind, **result):
        client.spans.add_span_annotation(
            span_id=span_ids[number], annotation_name=name, annotator_kind=kind, sync=True, **result
        )

    note(0, "user feedback", "HUMAN", label="thumbs-up", score=1)
    note(1, "user feedback", "HUMAN", label="thumbs-down", score=0, explanation="no other place was offered")
    note(1, "correction", "HUMAN", explanation=CORRECTED)
    note(0, "helpful", "LLM", score=0.75, explanation="it says both")
    note(1, "tone", "LLM", label="curt")
    note(2, "stars", "HUMAN", score=2)
    dataset = client.datasets.create_dataset(
        name="desk rows",
        inputs=[{"question": QUESTION}, {"question": "Is breakfast included?"}, {"question": "Who are you?"}],
        outputs=[{"answer": CORRECTED}, {"answer": "Yes, until ten."}, {}],
        metadata=[{"group": "paris"}, {}, {}],
    )
    time.sleep(1)

    def lines(rows):
        return "".join(json.dumps(row, default=str) + "\n" for row in rows)

    table = client.spans.get_spans_dataframe(project_identifier="desk")
    table.to_parquet("spans.parquet")
    table.to_json("spans.jsonl", orient="records", lines=True, date_format="iso")
    Path("api_spans.json").write_text(
        json.dumps(client.spans.get_spans(project_identifier="desk"), default=str)
    )
    notes = client.spans.get_span_annotations(span_ids=span_ids, project_identifier="desk")
    Path("annotations.jsonl").write_text(lines(notes))
    client.spans.get_span_annotations_dataframe(
        span_ids=span_ids, project_identifier="desk"
    ).reset_index().to_json("annotations_table.jsonl", orient="records", lines=True, date_format="iso")
    Path("dataset.jsonl").write_text(lines(dataset.examples))
    client.datasets.get_dataset(dataset="desk rows").to_dataframe().to_csv("dataset.csv")
finally:
    server.terminate()
    server.wait(20)

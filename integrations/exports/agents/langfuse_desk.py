# /// script
# dependencies = ["langfuse==5.0.4", "openai==3.57.0"]
# ///
"""A loop of one's own under Langfuse's SDK; then what its client reads back, in this folder.

Written, one object a line, as `langfuse.api` parses them: observations.jsonl, scores.jsonl, score_configs.jsonl,
dataset_items.jsonl.
"""

from pathlib import Path

import desk_agent
from desk_agent import ASKED, CORRECTED, QUESTION
from langfuse import get_client, observe, propagate_attributes

langfuse = get_client()
from langfuse.openai import OpenAI  # noqa: E402

client = OpenAI(max_retries=0)
tools = {
    "weather": observe(desk_agent.weather, as_type="tool"),
    "reserve": observe(desk_agent.reserve, as_type="tool"),
}
traces = []


@observe(name="desk", as_type="agent")
def desk(question):
    traces.append(langfuse.get_current_trace_id())
    return desk_agent.answer(client, tools, question)


for person, session, question in ASKED:
    with propagate_attributes(
        session_id=session, user_id=person, tags=["hotel"], version="r1", metadata={"shop": "one"}
    ):
        try:
            desk(question)
        except Exception as error:
            print(type(error).__name__)
langfuse.flush()


def score(number, name, value, **more):
    langfuse.create_score(trace_id=traces[number], name=name, value=value, **more)


score(0, "user-feedback", 1, data_type="BOOLEAN")
score(1, "user-feedback", 0, data_type="BOOLEAN", comment="no other place was offered")
score(1, "output", CORRECTED, data_type="CORRECTION")
score(0, "helpful", 0.75, comment="it says both")
score(1, "tone", "curt", data_type="CATEGORICAL")
score(2, "stars", 2.0)
rating = langfuse.api.score_configs.create(name="rating", data_type="NUMERIC", min_value=1, max_value=5)
score(1, "rating", 4.0, config_id=rating.id, comment="nearly")
langfuse.create_dataset(name="desk rows")
for item in (
    {"input": {"question": QUESTION}, "expected_output": CORRECTED, "metadata": {"group": "paris"}},
    {"input": {"question": "Is breakfast included?"}, "expected_output": "Yes, until ten."},
    {"input": {"question": "Who are you?"}},
):
    langfuse.create_dataset_item(dataset_name="desk rows", **item)
langfuse.flush()

groups = "core,basic,time,io,metadata,model,usage,prompt,metrics,trace_context"


def write(name, rows):
    Path(name).write_text("".join(row.model_dump_json(by_alias=True) + "\n" for row in rows))


def every(get, **more):
    rows, cursor = [], None
    while True:
        page = get(limit=5, cursor=cursor, **more)
        rows += page.data
        cursor = page.meta.cursor
        if not cursor:
            return rows


write("observations.jsonl", every(langfuse.api.observations.get_many, fields=groups))
write("scores.jsonl", every(langfuse.api.scores.get_many, fields="details,subject,annotation"))
write("score_configs.jsonl", langfuse.api.score_configs.get().data)
write("dataset_items.jsonl", langfuse.api.dataset_items.list(dataset_name="desk rows").data)

# /// script
# dependencies = ["langsmith==0.15.1", "openai==3.57.0"]
# ///
"""A loop of one's own under LangSmith's SDK; then what its client lists, in this folder.

Written, one object a line, as the client parses them: runs.jsonl (`list_runs`), runs_v2.jsonl (`runs.query`),
feedback.jsonl (`list_feedback`), feedback_configs.jsonl (`list_feedback_configs`), examples.jsonl (`list_examples`).
"""

import asyncio
import uuid
from pathlib import Path

import desk_agent
from desk_agent import ASKED, CORRECTED, QUESTION
from langsmith import Client, traceable
from langsmith.wrappers import wrap_openai
from openai import OpenAI

smith = Client()
model = wrap_openai(OpenAI(max_retries=0))
tools = {
    "weather": traceable(desk_agent.weather, run_type="tool"),
    "reserve": traceable(desk_agent.reserve, run_type="tool"),
}


@traceable(name="desk", run_type="chain", tags=["hotel"])
def desk(question):
    return desk_agent.answer(model, tools, question)


ids = [uuid.uuid4() for _ in ASKED]
for id, (person, session, question) in zip(ids, ASKED, strict=True):
    metadata = {"thread_id": session, "user_id": person, "revision_id": "r1"}
    try:
        desk(question, langsmith_extra={"run_id": id, "metadata": metadata})
    except Exception as error:
        print(type(error).__name__)
smith.flush()


def note(number, key, **more):
    smith.create_feedback(ids[number], key, **more)


note(0, "user_score", score=True)
note(1, "user_score", score=False, comment="no other place was offered", correction={"output": CORRECTED})
note(0, "helpful", score=0.75, comment="it says both", feedback_source_type="model")
smith.create_feedback_config("rating", feedback_config={"type": "continuous", "min": 1, "max": 5})
note(1, "rating", score=4, comment="nearly")
note(1, "tone", value="curt", feedback_source_type="model")
note(2, "stars", score=2)
dataset = smith.create_dataset("desk rows")
smith.create_examples(
    dataset_id=dataset.id,
    examples=[
        {"inputs": {"question": QUESTION}, "outputs": {"output": CORRECTED}, "metadata": {"group": "paris"}},
        {
            "inputs": {"question": "Is breakfast included?"},
            "outputs": {"output": "Yes, until ten."},
            "split": "test",
        },
        {"inputs": {"question": "Who are you?"}},
    ],
)
smith.flush()


def write(name, rows):
    Path(name).write_text("".join(row.model_dump_json() + "\n" for row in rows))


write("runs.jsonl", smith.list_runs(project_name="desk"))


async def second():
    project = smith.read_project(project_name="desk").id
    return [run async for run in smith.runs.query(project_ids=[str(project)], page_size=5)]


write("runs_v2.jsonl", asyncio.run(second()))
write("feedback.jsonl", smith.list_feedback(run_ids=ids))
write("feedback_configs.jsonl", smith.list_feedback_configs())
write("examples.jsonl", smith.list_examples(dataset_id=dataset.id))

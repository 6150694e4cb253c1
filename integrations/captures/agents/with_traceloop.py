# /// script
# dependencies = [
#     "traceloop-sdk==0.62.4",
#     "openai==3.54.0",
#     "httpx==0.28.1",
# ]
# ///
"""A loop of one's own on OpenAI's client, decorated with Traceloop's SDK."""

import json
import os

import desk_tools
from desk_tools import MODEL, PROMPT, QUESTION
from openai import OpenAI
from traceloop.sdk import Traceloop
from traceloop.sdk.decorators import agent, tool, workflow

Traceloop.init(
    app_name="desk",
    api_endpoint=os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"],
    disable_batch=False,
    telemetry_enabled=False,
)
client = OpenAI()


def described(name, field):
    parameters = {"type": "object", "properties": {field: {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [described("weather", "city"), described("reserve", "place")]
weather, reserve = tool(name="weather")(desk_tools.weather), tool(name="reserve")(desk_tools.reserve)


@agent(name="desk")
def desk(question):
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": question}]
    while True:
        answer = (
            client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0].message
        )
        messages.append(answer.model_dump(exclude_none=True))
        if not answer.tool_calls:
            return answer.content
        for call in answer.tool_calls:
            try:
                result = {"weather": weather, "reserve": reserve}[call.function.name](
                    **json.loads(call.function.arguments)
                )
            except LookupError as error:
                result = str(error)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


@workflow(name="hotel")
def hotel(question):
    Traceloop.set_association_properties({"session_id": "monday", "user_id": "ada"})
    return desk(question)


print(hotel(QUESTION))

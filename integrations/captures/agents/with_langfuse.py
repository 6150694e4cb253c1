# /// script
# dependencies = [
#     "langfuse==5.0.4",
#     "openai==3.54.0",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
# ]
# ///
"""A loop of one's own under Langfuse's SDK, whose observations go to an OTLP collector."""

import json

import desk_tools
from desk_tools import MODEL, PROMPT, QUESTION
from langfuse import Langfuse, observe, propagate_attributes
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

langfuse = Langfuse(public_key="pk", secret_key="sk", span_exporter=OTLPSpanExporter())
from langfuse.openai import OpenAI

client = OpenAI()


def described(name, field):
    parameters = {"type": "object", "properties": {field: {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [described("weather", "city"), described("reserve", "place")]
weather = observe(desk_tools.weather, as_type="tool")
reserve = observe(desk_tools.reserve, as_type="tool")


@observe(name="desk", as_type="agent")
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


with propagate_attributes(session_id="monday", user_id="ada"):
    print(desk(QUESTION))
langfuse.flush()

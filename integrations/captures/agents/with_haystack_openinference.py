# /// script
# dependencies = [
#     "haystack-ai==3.4.0",
#     "openinference-instrumentation-haystack==0.1.46",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
# ]
# ///
"""A Haystack agent under OpenInference."""

import sys

from desk_tools import MODEL, PROMPT, QUESTION, REFUSED, provider, reserve, weather

made = provider()
from openinference.instrumentation.haystack import HaystackInstrumentor

HaystackInstrumentor().instrument(tracer_provider=made)
from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function

desk = Agent(
    chat_generator=OpenAIChatGenerator(model=MODEL),
    system_prompt=PROMPT,
    tools=[create_tool_from_function(weather), create_tool_from_function(reserve)],
)
question = ChatMessage.from_user(REFUSED if "refused" in sys.argv else QUESTION)
try:
    if "pipeline" in sys.argv:
        pipeline = Pipeline()
        pipeline.add_component("desk", desk)
        print(pipeline.run({"desk": {"messages": [question]}})["desk"]["last_message"].text)
    else:
        print(desk.run(messages=[question])["last_message"].text)
except Exception as error:
    print(type(error).__name__)

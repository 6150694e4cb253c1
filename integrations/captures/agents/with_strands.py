# /// script
# dependencies = [
#     "strands-agents[openai]==1.62.0",
#     "opentelemetry-exporter-otlp-proto-http==1.45.1",
# ]
# ///
"""Strands Agents, with the spans of its own."""

import sys

from desk_tools import MODEL, PROMPT, QUESTION, REFUSED, provider, reserve, weather
from strands import Agent, tool
from strands.models.openai import OpenAIModel

provider()
model = OpenAIModel(model_id=MODEL, params={"stream_options": {"include_usage": True}})
desk = Agent(
    model=model,
    name="desk",
    system_prompt=PROMPT,
    tools=[tool(weather), tool(reserve)],
    trace_attributes={"session.id": "monday"},
    callback_handler=None,
)
if "team" in sys.argv:
    guide = desk

    @tool
    def ask_guide(question: str) -> str:
        """Ask the guide."""
        return str(guide(question))

    desk = Agent(
        model=model, name="host", system_prompt="You greet.", tools=[ask_guide], callback_handler=None
    )
try:
    print(desk(REFUSED if "refused" in sys.argv else QUESTION))
except Exception as error:
    print(type(error).__name__)

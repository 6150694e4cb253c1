# /// script
# dependencies = [
#     "agno==3.1.10",
#     "openai==3.54.0",
#     "openinference-instrumentation-agno==1.0.15",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
# ]
# ///
"""Agno under OpenInference."""

import sys

from desk_tools import MODEL, PROMPT, QUESTION, REFUSED, provider, reserve, weather

made = provider()
from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.team import Team
from openinference.instrumentation.agno import AgnoInstrumentor

AgnoInstrumentor().instrument(tracer_provider=made)
desk = Agent(
    name="guide" if "team" in sys.argv else "desk",
    model=OpenAIChat(id=MODEL),
    instructions=PROMPT,
    tools=[weather, reserve],
    telemetry=False,
)
if "team" in sys.argv:
    desk = Team(
        name="host", members=[desk], model=OpenAIChat(id=MODEL), instructions="You greet.", telemetry=False
    )
try:
    stream = "stream" in sys.argv
    asked = desk.run(REFUSED if "refused" in sys.argv else QUESTION, stream=stream, session_id="monday")
    print(
        "".join(part.content or "" for part in asked if hasattr(part, "content")) if stream else asked.content
    )
except Exception as error:
    print(type(error).__name__)

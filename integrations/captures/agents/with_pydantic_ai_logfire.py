# /// script
# dependencies = [
#     "pydantic-ai-slim[openai]==2.68.0",
#     "logfire==5.2.0",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
# ]
# ///
"""PydanticAI under Logfire; with `team`, a host whose tool is the guide."""

import atexit
import sys

import logfire
from desk_tools import MODEL, PROMPT, QUESTION, REFUSED, reserve, weather
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

logfire.configure(send_to_logfire=False, console=False, service_name="desk")
logfire.instrument_pydantic_ai()
atexit.register(logfire.shutdown)
model = OpenAIChatModel(MODEL)
team = "team" in sys.argv


desk = Agent(model, name="guide" if team else "desk", instructions=PROMPT, tools=[weather, reserve])
if team:
    guide = desk
    desk = Agent(model, name="host", instructions="You greet.")

    @desk.tool_plain
    async def ask_guide(question: str) -> str:
        """Ask the guide."""
        try:
            return (await guide.run(question)).output
        except LookupError as error:
            return str(error)


try:
    print(desk.run_sync(REFUSED if "refused" in sys.argv else QUESTION).output)
except Exception as error:
    print(type(error).__name__)

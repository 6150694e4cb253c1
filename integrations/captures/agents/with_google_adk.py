# /// script
# dependencies = [
#     "google-adk==2.13.0",
#     "anthropic==2.12.0",
#     "opentelemetry-exporter-otlp-proto-http==1.44.0",
# ]
# ///
"""Google's ADK on Anthropic's API, with the spans of its own."""

import asyncio
import os
import sys

os.environ["ANTHROPIC_BASE_URL"] = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")
os.environ["ANTHROPIC_API_KEY"] = "sk-test"
os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY"

from desk_tools import MODEL, PROMPT, QUESTION, REFUSED, provider, reserve, weather

provider()
from google.adk.agents import LlmAgent
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.runners import InMemoryRunner
from google.genai import types


def told(tool, args, tool_context, error):
    """A tool that failed says so to the model."""
    return {"error": str(error)}


async def main():
    model = AnthropicLlm(model=MODEL)
    team = "team" in sys.argv
    desk = LlmAgent(
        name="guide" if team else "desk",
        model=model,
        instruction=PROMPT,
        description="Knows the town.",
        tools=[weather, reserve],
        on_tool_error_callback=None if "dies" in sys.argv else told,
    )
    if team:
        desk = LlmAgent(name="host", model=model, instruction="You greet.", sub_agents=[desk])
    runner = InMemoryRunner(agent=desk, app_name="hotel")
    session = await runner.session_service.create_session(
        app_name="hotel", user_id="ada", session_id="monday"
    )
    question = types.Content(
        role="user", parts=[types.Part(text=REFUSED if "refused" in sys.argv else QUESTION)]
    )
    text = ""
    try:
        async for event in runner.run_async(user_id="ada", session_id=session.id, new_message=question):
            for part in (event.content.parts if event.content else None) or ():
                text = part.text or text
    except Exception as error:
        text = type(error).__name__
    print(text)


asyncio.run(main())

# /// script
# dependencies = [
#     "autogen-agentchat==0.7.5",
#     "autogen-ext[openai]==0.7.5",
#     "openinference-instrumentation-autogen-agentchat==0.1.22",
#     "openinference-instrumentation-openai==0.1.66",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
# ]
# ///
"""AutoGen under OpenInference's instrumentors of AgentChat and of OpenAI's client."""

import asyncio
import sys

from desk_tools import MODEL, PROMPT, QUESTION, REFUSED, provider, reserve, weather

made = provider()
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import Swarm
from autogen_ext.models.openai import OpenAIChatCompletionClient
from openinference.instrumentation.autogen_agentchat import AutogenAgentChatInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor

AutogenAgentChatInstrumentor().instrument(tracer_provider=made)
OpenAIInstrumentor().instrument(tracer_provider=made)


async def main():
    model = OpenAIChatCompletionClient(model=MODEL)
    team = "team" in sys.argv
    desk = AssistantAgent(
        "guide" if team else "desk",
        model,
        tools=[weather, reserve],
        system_message=PROMPT,
        reflect_on_tool_use=True,
        model_client_stream="stream" in sys.argv,
    )
    runs = desk
    if team:
        host = AssistantAgent("host", model, handoffs=["guide"], system_message="You greet.")
        runs = Swarm([host, desk], termination_condition=TextMentionTermination("has no table"), max_turns=4)
    try:
        done = await runs.run(task=REFUSED if "refused" in sys.argv else QUESTION)
        print(done.messages[-1].content)
    except Exception as error:
        print(type(error).__name__)


asyncio.run(main())

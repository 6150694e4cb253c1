"""An AutoGen assistant that looks the weather up."""

import asyncio
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def weather(city: str) -> str:
    """Weather of a city."""
    return f"22 degrees in {city}"


async def answer(question: str) -> str:
    assistant = AssistantAgent(
        "assistant",
        model_client=OpenAIChatCompletionClient(model="gpt-4o-mini"),
        tools=[weather],
        system_message="You are a kind assistant. Be brief.",
        reflect_on_tool_use=True,
    )
    result = await assistant.run(task=question)
    return result.messages[-1].content


if __name__ == "__main__":
    print(asyncio.run(answer(" ".join(sys.argv[1:]) or "What is the weather in Paris?")))

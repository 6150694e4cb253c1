"""The agents of the LlamaIndex captures, by whatever they are instrumented."""

import asyncio
import os
import sys

from desk_tools import MODEL, PROMPT, QUESTION, REFUSED, reserve, weather
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.llms.openai_like import OpenAILike


async def _main():
    model = OpenAILike(
        model=MODEL,
        api_base=os.environ["OPENAI_BASE_URL"],
        api_key="sk-test",
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
    )
    team = "team" in sys.argv
    desk = FunctionAgent(
        name="guide" if team else "desk",
        description="Knows the town.",
        system_prompt=PROMPT,
        tools=[weather, reserve],
        llm=model,
        streaming="stream" in sys.argv,
    )
    if team:
        host = FunctionAgent(
            name="host",
            description="Greets.",
            system_prompt="You greet.",
            tools=[],
            llm=model,
            streaming=False,
            can_handoff_to=["guide"],
        )
        desk = AgentWorkflow(agents=[host, desk], root_agent="host")
    try:
        print(await desk.run(REFUSED if "refused" in sys.argv else QUESTION))
    except Exception as error:
        print(type(error).__name__)


def run():
    """Ask the desk; with `team`, a host hands over to it."""
    asyncio.run(_main())

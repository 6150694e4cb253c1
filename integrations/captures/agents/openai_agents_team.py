"""The agents of the openai-agents captures, by whatever they are instrumented."""

import sys

from agents import Agent, Runner, function_tool
from desk_tools import MODEL, PROMPT, QUESTION, REFUSED, reserve, weather


def run():
    """Ask the desk; with `team`, a host hands over to it."""
    tools = [function_tool(weather), function_tool(reserve)]
    desk = Agent(
        name="guide" if "team" in sys.argv else "desk", instructions=PROMPT, tools=tools, model=MODEL
    )
    if "team" in sys.argv:
        desk = Agent(name="host", instructions="You greet.", handoffs=[desk], model=MODEL)
    try:
        print(Runner.run_sync(desk, REFUSED if "refused" in sys.argv else QUESTION).final_output)
    except Exception as error:
        print(type(error).__name__)

"""A smolagents script: an agent at the top of a module, run as it is imported."""

from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def weather(city: str) -> str:
    """Weather of a city.

    Args:
        city: its name.
    """
    return f"22 degrees in {city}"


agent = ToolCallingAgent(
    tools=[weather],
    model=OpenAIModel(model_id="gpt-4o-mini"),
    instructions="You are a kind assistant. Be brief.",
    verbosity_level=0,
)
print(agent.run("What is the weather in Paris?"))

"""The support desk of a garden shop as a smolagents agent."""

from smolagents import OpenAIModel, ToolCallingAgent

INSTRUCTIONS = "You work at the support desk of a garden shop. Be friendly and helpful."
agent = ToolCallingAgent(
    tools=[], model=OpenAIModel(model_id="desk-small"), instructions=INSTRUCTIONS, verbosity_level=0
)


def answer(question: str) -> str:
    return str(agent.run(question))

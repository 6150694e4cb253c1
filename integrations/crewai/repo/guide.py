"""A crew of one that tells travellers about the weather."""

import sys

from crewai import Agent, Crew, Task
from crewai.tools import tool


@tool("weather")
def weather(city: str) -> str:
    """Weather of a city."""
    return f"22 degrees in {city}"


guide = Agent(
    role="guide",
    goal="Answer what travellers ask about the weather",
    backstory="You are a kind assistant. Be brief.",
    tools=[weather],
    llm="gpt-4o-mini",
)


def answer(question: str) -> str:
    task = Task(description=question, expected_output="one sentence", agent=guide)
    return Crew(agents=[guide], tasks=[task]).kickoff().raw


if __name__ == "__main__":
    print(answer(" ".join(sys.argv[1:]) or "What is the weather in Paris?"))

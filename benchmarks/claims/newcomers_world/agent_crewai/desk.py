"""The support desk of a garden shop as a crew of one."""

from crewai import Agent, Crew, Task

BACKSTORY = "You work at the support desk of a garden shop. Be friendly and helpful."
clerk = Agent(role="support clerk", goal="Answer what customers ask", backstory=BACKSTORY, llm="gpt-4o-mini")


def answer(question: str) -> str:
    task = Task(description=question, expected_output="an answer to the customer", agent=clerk)
    return Crew(agents=[clerk], tasks=[task]).kickoff().raw

"""A LangGraph agent with one tool."""

import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent


@tool
def weather(city: str) -> str:
    """Weather of a city."""
    return f"22 degrees in {city}"


def answer(question: str) -> str:
    agent = create_react_agent(
        ChatOpenAI(model="gpt-4o-mini"), [weather], prompt="You are a kind assistant. Be brief."
    )
    return agent.invoke({"messages": [("user", question)]})["messages"][-1].content


if __name__ == "__main__":
    print(answer(" ".join(sys.argv[1:]) or "What is the weather in Paris?"))

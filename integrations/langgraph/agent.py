"""A LangGraph agent with a tool, as its documentation writes one.  It knows nothing of whet."""

import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent


@tool
def weather(city: str) -> str:
    """Weather of a city."""
    return f"22 degrees in {city}"


model = ChatOpenAI(model="scripted", streaming="--stream" in sys.argv)
agent = create_react_agent(model, [weather], prompt="You are a kind assistant. Be brief.")
answer = agent.invoke({"messages": [("user", "What is the weather in Paris?")]})
print(answer["messages"][-1].content)

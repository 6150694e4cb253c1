"""Two LangGraph agents, one the tool of the other, as its documentation writes them.  They know nothing of whet."""

import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

model = ChatOpenAI(model="scripted")
named = "--named" in sys.argv


@tool
def weather(city: str) -> str:
    """Weather of a city."""
    return f"22 degrees in {city}"


researcher = create_react_agent(
    model, [weather], prompt="You research facts.", name="researcher" if named else None
)


@tool
def research(question: str) -> str:
    """Ask the researcher."""
    return researcher.invoke({"messages": [("user", question)]})["messages"][-1].content


lead = create_react_agent(model, [research], prompt="You lead a team.", name="lead" if named else None)
answer = lead.invoke({"messages": [("user", "What is the weather in Paris?")]})
print(answer["messages"][-1].content)

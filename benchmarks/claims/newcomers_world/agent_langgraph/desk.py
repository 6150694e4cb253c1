"""The support desk of a garden shop as a LangGraph agent."""

from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

SYSTEM_PROMPT = "You work at the support desk of a garden shop. Be friendly and helpful."
agent = create_react_agent(ChatOpenAI(model="desk-small"), [], prompt=SYSTEM_PROMPT)


def answer(question: str) -> str:
    return agent.invoke({"messages": [("user", question)]})["messages"][-1].content

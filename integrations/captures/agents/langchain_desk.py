"""The LangChain agent of the captures, by whatever it is instrumented."""

import sys

from desk_tools import MODEL, PROMPT, QUESTION, REFUSED, reserve, weather
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@wrap_tool_call
def told(request, handler):
    """A tool that failed says so to the model."""
    try:
        return handler(request)
    except Exception as error:
        return ToolMessage(str(error), tool_call_id=request.tool_call["id"], status="error")


def run():
    """Ask the desk; with `team`, a host asks it through a tool."""
    model = ChatOpenAI(model=MODEL, max_retries=0)
    team = "team" in sys.argv
    desk = create_agent(
        model,
        [tool(weather), tool(reserve)],
        system_prompt=PROMPT,
        name="guide" if team else "desk",
        middleware=[told],
    )
    if team:
        guide = desk

        @tool
        def ask_guide(question: str) -> str:
            """Ask the guide."""
            return guide.invoke({"messages": [("user", question)]})["messages"][-1].content

        desk = create_agent(model, [ask_guide], system_prompt="You greet.", name="host")
    config = {"configurable": {"thread_id": "monday"}, "metadata": {"session_id": "monday"}}
    try:
        question = REFUSED if "refused" in sys.argv else QUESTION
        print(desk.invoke({"messages": [("user", question)]}, config)["messages"][-1].content)
    except Exception as error:
        print(type(error).__name__)

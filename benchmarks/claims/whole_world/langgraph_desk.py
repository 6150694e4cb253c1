"""The desk of a garden shop in LangGraph: a route, a plan, what is remembered of the customer, and the tools."""

import functools
import json
from pathlib import Path

import planner
import tools
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

HERE = Path(__file__).parent
SYSTEM_PROMPT = """You work at the desk of a garden shop. Be friendly and helpful.
State a warranty in years, with the unit.
Repeat the order number when you say where an order is.
If a customer asks how to do something, answer in numbered steps.
Say that you do not know, but only where you have no information.
Give opening hours by the 24-hour clock.
Give sums of money with their currency, euros.
Name the animal when you say whether a plant is poisonous.
Name the month when you say when to plant."""
SETTINGS = json.loads((HERE / "settings.json").read_text(encoding="utf-8"))
ROUTES = json.loads((HERE / "routes.json").read_text(encoding="utf-8"))
MEMORY = json.loads((HERE / "memory.json").read_text(encoding="utf-8"))
MODEL = ChatOpenAI(model="desk-small", temperature=SETTINGS["temperature"], max_tokens=SETTINGS["max_tokens"])


def route(question):
    """The desk that answers: that of the first word of the table which the question has."""
    words = question.lower()
    return next((desk for word, desk in ROUTES.items() if word in words), "sales")


def recall(person, question):
    """What is remembered of a customer: the newest facts first, at most so many."""
    if not planner.PERSONAL.search(question.lower()):
        return []
    return MEMORY.get(person, [])[::-1][: SETTINGS["k"]]


def tool(name):
    """A function of the tools as LangGraph takes it; an error is its result, as the model has to see it."""
    function = getattr(tools, name)

    @functools.wraps(function)
    def called(**arguments):
        return tools.call(name, arguments)

    return StructuredTool.from_function(called, name=name, description=f"Looks up: {name}")


def answer(question, person=""):
    """The desk's answer to one question."""
    desk = route(question)
    plan = planner.plan(question, desk)
    lines = [SYSTEM_PROMPT, f"Desk: {desk}", f"Plan: {', '.join(plan) or 'none'}"]
    lines += [f"Known: {fact}" for fact in recall(person, question)]
    agent = create_react_agent(MODEL, [tool(name) for name in dict.fromkeys(plan)], prompt="\n".join(lines))
    return agent.invoke({"messages": [("user", question)]}, {"recursion_limit": 12})["messages"][-1].content

"""Async nodes, a tool, a sub-agent and a route of LangGraph and LangChain, each with one of whet's decorators.

Every decorator stands where the framework looks at the function before it calls it: a coroutine function is
awaited, a generator function is iterated, anything else is taken for the answer.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypedDict

from langchain_core.runnables import RunnableGenerator, RunnableLambda
from langchain_core.tools import StructuredTool, tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import create_react_agent

import whet

model = ChatOpenAI(model="scripted")


class State(TypedDict, total=False):
    question: str
    answer: str
    checked: str
    shouted: str


@tool
@whet.step(kind="tool", effect="read")
async def weather(city: str) -> str:
    """Weather of a city."""
    return f"22 degrees in {city}"


@whet.trace(name="forecaster")
async def forecaster(state: State) -> State:
    """A sub-agent: a node that is an agent of its own."""
    agent = create_react_agent(model, [weather], prompt="You are a kind assistant. Be brief.")
    answer = await agent.ainvoke({"messages": [("user", state["question"])]})
    return {"answer": answer["messages"][-1].content}


class Desk:
    """Nodes that are methods."""

    @whet.step
    async def check(self, state: State) -> State:
        return {"checked": state["answer"].strip()}

    @whet.step
    @staticmethod
    def shout(state: State) -> Iterator[State]:
        yield {"shouted": state["checked"].upper()}


@whet.evolve("route")
async def route(state: State) -> str:
    return "shout" if state["checked"] else END


@whet.step("words")
async def words(texts: AsyncIterator[str]) -> AsyncIterator[str]:
    async for text in texts:
        for word in text.split():
            yield word


@whet.trace
async def agent(question: str) -> dict[str, Any]:
    graph = StateGraph(State)
    graph.add_node("forecaster", forecaster)
    graph.add_node("check", Desk().check)
    # A node answers once: the first value of the generator.
    graph.add_node("shout", RunnableLambda(lambda state: next(Desk.shout(state))))
    graph.add_edge(START, "forecaster")
    graph.add_edge("forecaster", "check")
    graph.add_conditional_edges("check", route)
    graph.add_edge("shout", END)
    state = await graph.compile().ainvoke({"question": question})
    streamed = [word async for word in RunnableGenerator(words).astream(state["answer"])]
    return {**state, "streamed": streamed}


async def main() -> None:
    assert inspect.iscoroutinefunction(weather.coroutine), "LangChain took the async tool for a sync one"
    plain = StructuredTool.from_function(coroutine=whet.step(kind="tool")(lookup))
    assert await plain.ainvoke({"city": "Oslo", "days": 2}) == "Oslo 2"
    chained = RunnableLambda(whet.step(lookup_state)) | RunnableLambda(whet.trace(lookup_state))
    assert await chained.ainvoke("x") == "x!!"
    found = await agent("What is the weather in Paris?")
    assert found["shouted"] == found["answer"].upper() == " ".join(found["streamed"]).upper(), found
    print(found["checked"])


async def lookup(city: str, days: int = 1) -> str:
    """Look up a city."""
    return f"{city} {days}"


async def lookup_state(word: str) -> str:
    return word + "!"


asyncio.run(main())

"""The desk of a garden shop: a route, a plan, what is remembered of the customer, the tools, and the answer."""

import json
import os
import sys
import urllib.request
from pathlib import Path

import planner
import tools

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
ROUNDS = 3


def complete(body):
    """One chat completion, from the endpoint that OPENAI_BASE_URL names."""
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"].rstrip("/") + "/chat/completions",
        json.dumps(body).encode(),
        {
            "content-type": "application/json",
            "authorization": "Bearer " + os.environ.get("OPENAI_API_KEY", "none"),
        },
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)["choices"][0]["message"]


def route(question):
    """The desk that answers: that of the first word of the table which the question has."""
    words = question.lower()
    return next((desk for word, desk in ROUTES.items() if word in words), "sales")


def recall(person, question):
    """What is remembered of a customer: the newest facts first, at most so many."""
    if not planner.PERSONAL.search(question.lower()):
        return []
    return MEMORY.get(person, [])[::-1][: SETTINGS["k"]]


def answer(question, person=""):
    """The desk's answer to one question."""
    desk = route(question)
    plan = planner.plan(question, desk)
    lines = [SYSTEM_PROMPT, f"Desk: {desk}", f"Plan: {', '.join(plan) or 'none'}"]
    lines += [f"Known: {fact}" for fact in recall(person, question)]
    messages = [{"role": "system", "content": "\n".join(lines)}, {"role": "user", "content": question}]
    offered = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in plan
    ]
    for _ in range(ROUNDS):
        body = {"model": "desk-small", "messages": messages, "temperature": SETTINGS["temperature"]}
        body["max_tokens"] = SETTINGS["max_tokens"]
        message = complete({**body, "tools": offered} if offered else body)
        if not message.get("tool_calls"):
            break
        messages.append(message)
        for call in message["tool_calls"]:
            result = tools.call(call["function"]["name"], json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)})
    return message.get("content") or ""


if __name__ == "__main__":
    for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        asked = json.loads(line)
        print(answer(asked["question"], asked["person"]))

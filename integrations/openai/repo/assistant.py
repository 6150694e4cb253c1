"""Answers questions about the weather with the OpenAI SDK alone."""

import json
import sys

from openai import OpenAI

SYSTEM_PROMPT = "You are a kind assistant. Be brief."
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
client = OpenAI()


def weather(city):
    return f"22 degrees in {city}"


def answer(question):
    messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": question}]
    while True:
        said = client.chat.completions.create(model="gpt-4o-mini", messages=messages, tools=TOOLS)
        message = said.choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message)
        for call in message.tool_calls:
            result = weather(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


if __name__ == "__main__":
    print(answer(" ".join(sys.argv[1:]) or "What is the weather in Paris?"))

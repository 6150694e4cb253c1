"""An agent with a tool on Anthropic's SDK, plain or streamed.  It knows nothing of whet.

python agent.py [--stream]
"""

import sys

from anthropic import Anthropic

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
client = Anthropic()


def weather(city):
    return f"22 degrees in {city}"


def ask(messages):
    asked = {
        "model": "scripted",
        "max_tokens": 200,
        "system": "You are a kind assistant. Be brief.",
        "messages": messages,
        "tools": [{"name": "weather", "description": "Weather of a city.", "input_schema": CITY}],
    }
    if "--stream" not in sys.argv:
        return client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        return stream.get_final_message()


messages = [{"role": "user", "content": "What is the weather in Paris?"}]
while (message := ask(messages)).stop_reason == "tool_use":
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": weather(**block.input)}
        for block in message.content
        if block.type == "tool_use"
    ]
    messages.append({"role": "assistant", "content": message.content})
    messages.append({"role": "user", "content": results})
print(message.content[0].text)

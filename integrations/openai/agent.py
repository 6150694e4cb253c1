"""One agent four times: chat and responses, plain and streamed, with a tool.  It knows nothing of whet.

python agent.py chat|responses [--stream]
"""

import json
import sys

from openai import OpenAI

PROMPT, QUESTION = "You are a kind assistant. Be brief.", "What is the weather in Paris?"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "weather", "description": "Weather of a city.", "parameters": CITY}
client = OpenAI()
streamed = "--stream" in sys.argv


def weather(city):
    return f"22 degrees in {city}"


def chat(messages):
    """Text and tool calls of one answer."""
    asked = {"model": "scripted", "messages": messages, "tools": [{"type": "function", "function": FUNCTION}]}
    if not streamed:
        message = client.chat.completions.create(**asked).choices[0].message
        return message.content, message.tool_calls or []
    with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
        message = stream.get_final_completion().choices[0].message
    return message.content, message.tool_calls or []


def by_chat():
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": QUESTION}]
    while True:
        text, calls = chat(messages)
        if not calls:
            return text
        asked = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in calls
        ]
        messages.append({"role": "assistant", "content": text, "tool_calls": asked})
        for call in calls:
            result = weather(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def respond(items):
    asked = {
        "model": "scripted",
        "instructions": PROMPT,
        "input": items,
        "tools": [{"type": "function", **FUNCTION}],
    }
    if not streamed:
        return client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        return stream.get_final_response()


def by_responses():
    items = [{"role": "user", "content": QUESTION}]
    while True:
        response = respond(items)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        for call in calls:
            result = weather(**json.loads(call.arguments))
            items.append(
                {
                    "type": "function_call",
                    "call_id": call.call_id,
                    "name": call.name,
                    "arguments": call.arguments,
                }
            )
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


print(by_chat() if sys.argv[1] == "chat" else by_responses())

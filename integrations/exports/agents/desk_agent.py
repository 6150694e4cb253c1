"""The agent that every product here traces: a loop over a chat model with two tools, and who asks it what."""

import json

PROMPT = "You are the desk of a hotel. Be brief."
MODEL = "gpt-4o-mini"
QUESTION = "What is the weather in Paris, and is there a table at Chez Paul?"
REFUSED = "What is the weather in Atlantis?"
ASKED = (
    ("ada", "monday", QUESTION),
    ("bob", "tuesday", QUESTION),
    ("cleo", "wednesday", "Is there a table at Chez Paul tonight? My card is sk-live-9fK2qLx7VbT4mZcR8wYdQs"),
    ("dan", "thursday", REFUSED),
)
"""Person, session and question; the third has a secret in it, the last is refused by the model server."""
CORRECTED = "It is 22 degrees in Paris. Chez Paul is full; shall I try another place?"


def described(name, field):
    parameters = {"type": "object", "properties": {field: {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [described("weather", "city"), described("reserve", "place")]


def weather(city: str) -> str:
    return f"22 degrees in {city}"


def reserve(place: str) -> str:
    raise LookupError(f"no table at {place}")


def answer(client, tools, question):
    """The loop; `tools` are the two above as the product traces them."""
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": question}]
    while True:
        reply = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0].message
        messages.append(reply.model_dump(exclude_none=True))
        if not reply.tool_calls:
            return reply.content
        for call in reply.tool_calls:
            try:
                result = tools[call.function.name](**json.loads(call.function.arguments))
            except LookupError as error:
                result = str(error)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

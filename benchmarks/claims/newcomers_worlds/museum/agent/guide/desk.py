"""One question of a visitor, one answer, through the Responses API."""

from openai import OpenAI

from guide.prompt import GUIDE_PROMPT

client = OpenAI()


def reply(question):
    with client.responses.stream(model="guide-1", instructions=GUIDE_PROMPT, input=question) as events:
        return events.get_final_response().output_text

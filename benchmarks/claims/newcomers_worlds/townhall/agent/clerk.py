"""The clerk of a town hall: one question, one answer."""

from openai import OpenAI

CLERK_PROMPT = "You are the clerk of a town hall.\nCitizens write to you."
client = OpenAI()


def reply(question):
    said = client.chat.completions.create(
        model="clerk-small",
        messages=[{"role": "system", "content": CLERK_PROMPT}, {"role": "user", "content": question}],
    )
    return said.choices[0].message.content

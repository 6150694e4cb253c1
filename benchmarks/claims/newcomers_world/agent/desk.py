"""The support desk of a garden shop: one question, one answer, with the OpenAI SDK alone."""

import json
import sys

from openai import OpenAI

SYSTEM_PROMPT = "You work at the support desk of a garden shop. Be friendly and helpful."
client = OpenAI()


def answer(question):
    reply = client.chat.completions.create(
        model="desk-small",
        messages=[{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": question}],
    )
    return reply.choices[0].message.content


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as lines:
        for line in lines:
            print(answer(json.loads(line)["question"]))

"""Two agents: one sorts the question, the other writes the answer."""

import json

from openai import OpenAI

from kitchen import prompts

client = OpenAI()


def ask(model, system, text):
    reply = client.chat.completions.create(
        model=model, messages=[{"role": "system", "content": system}, {"role": "user", "content": text}]
    )
    return reply.choices[0].message.content


def advise_cook(question):
    topic = ask("router-1", prompts.ROUTER, question).strip().lower()
    said = ask("writer-1", prompts.WRITER, f"Topic: {topic}\nQuestion: {question}")
    try:
        answer = json.loads(said)["answer"]
    except (ValueError, KeyError, TypeError):
        answer = said
    return {"topic": topic, "answer": answer}

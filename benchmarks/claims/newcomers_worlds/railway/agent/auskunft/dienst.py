"""Die Auskunft: eine Frage, eine Antwort, Stück für Stück empfangen."""

from pathlib import Path

import yaml
from openai import AsyncOpenAI

TEXTE = yaml.safe_load(Path(__file__).with_name("prompts.yaml").read_text(encoding="utf-8"))


async def antworte(frage):
    client = AsyncOpenAI()
    strom = await client.chat.completions.create(
        model=TEXTE["modell"],
        temperature=TEXTE["temperatur"],
        stream=True,
        messages=[{"role": "system", "content": TEXTE["system"]}, {"role": "user", "content": frage}],
    )
    teile = []
    async for stueck in strom:
        if stueck.choices and stueck.choices[0].delta.content:
            teile.append(stueck.choices[0].delta.content)
    return "".join(teile)

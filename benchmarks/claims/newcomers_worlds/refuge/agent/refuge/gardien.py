"""Le gardien d'un refuge répond aux randonneurs."""

from pathlib import Path

import yaml
from openai import AsyncOpenAI

TEXTES = Path(__file__).parent / "textes" / "gardien.yaml"


class Gardien:
    """Une question, une réponse."""

    def __init__(self, fichier: Path = TEXTES) -> None:
        with fichier.open(encoding="utf-8") as textes:
            self.textes = yaml.safe_load(textes)["gardien"]

    @property
    def consigne(self) -> str:
        """Ce que le modèle doit savoir avant toute question."""
        return f"{self.textes['role']}{self.textes['style']}"

    async def demander(self, question: str) -> str:
        """Une question au modèle."""
        async with AsyncOpenAI() as client:
            reponse = await client.chat.completions.create(
                model=self.textes["modele"],
                messages=[
                    {"role": "developer", "content": self.consigne},
                    {"role": "user", "content": question},
                ],
            )
        return reponse.choices[0].message.content or ""

    async def repondre(self, question: str) -> str:
        """La réponse, sans blancs autour."""
        return (await self.demander(question)).strip()


async def repondre(question: str) -> str:
    return await Gardien().repondre(question)

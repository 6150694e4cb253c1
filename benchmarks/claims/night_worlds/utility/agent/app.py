"""The customer desk of the Aarwil municipal works: ``python app.py QUESTIONS`` answers a file of them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from works import flow, routing


async def handle(question: str, person: str = "") -> str:
    """The desk's reply to one message of a customer."""
    case = flow.Case(question, person, routing.topic_of(question), routing.language_of(question))
    plan = flow.PLANS.get(case.topic, flow.PLANS["other"])
    for name in plan.do:
        await flow.STEPS[name](case, plan)
    return case.reply


async def main(path: str) -> None:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        asked = json.loads(line)
        print(await handle(asked["question"], asked["person"]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

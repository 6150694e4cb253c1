"""`python -m whet.worlds.email DIR --seed 0 --sample 30`: a sample of the questions, to be checked by hand.

It shows each question with its answer, the mail that is the evidence and the
words that hold the value; how good the questions are is for a person to say.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ...errors import InputError, WhetError
from .entities import BODY_KINDS, Kind, located
from .index import MailWorld
from .mailbox import read_mail
from .parse import Mail
from .questions import derive, shortage


def _sentence(kind: Kind, value: str, mail: Mail) -> str:
    for entity, at in located(kind, mail.own):
        if entity == value:
            return " ".join(mail.own[max(0, at - 90) : at + 60].split())
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a sample of questions with their evidence, for checking by hand."""
    parser = argparse.ArgumentParser(prog="python -m whet.worlds.email", description=main.__doc__)
    parser.add_argument("folder", type=Path, help="a maildir, an mbox or a folder of mail files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=30)
    options = parser.parse_args(arguments)
    try:
        world = MailWorld(read_mail(options.folder).mails)
        tasks = derive(world, mailboxes=world.mailboxes, seed=options.seed)
        if not tasks:
            why = shortage(world, world.mailboxes)
            raise InputError(
                f"no question can be derived from {str(options.folder)!r}: {why}. Give more mail."
            )
    except WhetError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    index = world.index(world.mailboxes)
    for number, task in enumerate(tasks[: max(0, options.sample)], 1):
        mail = index.read(str(task.meta["mail"]))
        kind: Kind = task.meta["kind"]
        about = (
            task.meta["unanswerable"] or _sentence(kind, str(task.answer), mail) if kind in BODY_KINDS else ""
        )
        wrong = [word["text"] for word in task.meta["clues"]["words"] if word["wrong"]]
        print(f"{number}. [{task.meta['tier']} {kind} {task.group}] {task.instruction}")
        print(f"   answer: {task.answer if task.answer is not None else 'unknown'}   wrong clues: {wrong}")
        print(f"   evidence: {mail.sender} | {mail.date} | {mail.subject}")
        if task.meta["unanswerable"]:
            print(f"   {task.meta['unanswerable']}: {len(task.initial_state['without'])} withheld")
        elif about:
            print(f"   says: {about}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The second process of a job: `python -m whet.worlds.demo.second`, started and told what to do by the first.

It runs stages on the same store until its standard input ends, as it does the moment the first process ends,
however that ends: nobody else works on a job that is being resumed.  `processes.py` has the messages.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

OFTEN = 0.2
"""Seconds between two lines of progress at least: the first process may have no time to read them."""


def main() -> None:
    """The second process."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints must not come between the messages
    messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    # First of all, because what follows takes seconds, in which the first process may end.
    threading.Thread(target=_listen, args=(sys.stdin.buffer, messages), daemon=True).start()
    asyncio.run(_serve(messages, out))


def _listen(messages: BinaryIO, incoming: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in messages:
        incoming.put(msgspec.json.decode(line))
    # sys.exit would end this thread alone.
    os._exit(1)  # the first process is gone


async def _serve(messages: queue.SimpleQueue[dict[str, Any]], out: BinaryIO) -> None:
    # These take seconds.
    from ...learn.training.local import use_threads
    from ...record.store import Store
    from .job import JobOptions, MailJob, keep_loaded
    from .proof import MailProof
    from .stages import behind

    use_threads(1)
    spoke = 0.0

    def say(message: Mapping[str, Any]) -> None:
        out.write(msgspec.json.encode(message) + b"\n")

    def progress(what: str, done: int, total: int | None = None, **figures: float | str) -> None:
        nonlocal spoke
        now = time.monotonic()
        if done == total or now - spoke > OFTEN:
            spoke = now
            say({"progress": [what, done, total, figures]})

    order = messages.get()
    # The hook is for Path, which msgspec does not know.
    options = msgspec.convert(order["options"], JobOptions, dec_hook=lambda type, value: type(value))
    with Store(Path(order["store"])) as store:
        job = MailJob(options, store, name=order["name"], progress=progress)
        keep_loaded()
        stages, finished = MailProof(job).stages(), set[str]()
        say({"ready": {**job.timings["mail"], "stage": "mail, second process"}})
        while True:
            requested = (await asyncio.to_thread(messages.get))["stage"]
            try:
                for name in (
                    *behind(stages, requested),
                    requested,
                ):  # not more: the first process may just end it
                    if name not in finished:
                        await stages[name].run()
                        finished.add(name)
            except Exception as error:
                say({"failed": f"{type(error).__name__}: {error}"})
            else:
                say({"ended": requested})


if __name__ == "__main__":
    main()

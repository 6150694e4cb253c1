"""`whet label --rubric`: a rubric drafted by a model, accepted or edited by a person, and proven by people's thumbs."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import tempfile
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from .named import rubric_text
from .root import existing
from .terminal import Read, keys

if TYPE_CHECKING:
    from ..judge.fitted import Rated
    from ..judge.rubric import ProvenRubric, RubricEvidence
    from ..models import Model
    from ..record.store import Store

KEYS = {"a": "accept and prove", "e": "edit", "n": "another draft", "r": "refuse", "q": "quit"}
EDITORS = ("VISUAL", "EDITOR")


@dataclass(frozen=True)
class RubricRun:
    """The options of `whet label --rubric`."""

    store: Path
    model: str | None
    base_url: str | None
    file: Path | None
    """A rubric that is there already; None to have one drafted."""


def label_rubric(run: RubricRun) -> int:
    """Have a rubric drafted or take a file's, let a person decide, prove it and record it; 0 if it may judge."""
    from ..judge.rubric import RubricEvidence
    from ..learn.evolution.in_one_call import Endpoints
    from ..models.budget import Meter
    from ..record.store import Store

    if run.model is None or run.base_url is None:
        raise InputError("a judge has to read the rubric: give --model NAME and --base-url URL")
    written = rubric_text(run.file) if run.file is not None else None

    async def work() -> int:
        async with AsyncExitStack() as stack:
            opened = stack.enter_context(Store(existing(run.store)))
            thumbs, words = _said(opened)
            evidence = RubricEvidence.of(thumbs, words)
            if evidence.missing:
                print(
                    f"nothing was spent: {evidence.missing}. Rate more runs: whet label --store {run.store}"
                )
                return 1
            model, _, _ = await Endpoints(model=run.model, base_url=run.base_url).open(stack, Meter())
            assert model is not None
            sitting = _Sitting(opened, model, evidence)
            if written is not None:
                return await sitting.proven(written)
            with keys() as read:
                return await sitting.work(read)

    return asyncio.run(work())


def _said(store: Store) -> tuple[list[Rated], dict[str, list[str]]]:
    """People's thumbs and corrections, and what each person wrote."""
    from ..learn.datasets.thumbs import Scale, rated_run

    thumbs: list[Rated] = []
    words: dict[str, list[str]] = defaultdict(list)
    runs = list(store.trajectories())
    scale = Scale.of(runs)
    for run in runs:
        if run.error is not None or run.output is None:
            continue
        rated = rated_run(run, run.task.instruction, scale)
        thumbs += [thumb for thumb in rated.thumbs() if thumb.error is None]
        words[rated.person] += rated.comments
    return thumbs, words


@dataclass
class _Sitting:
    """One sitting: drafts, and what a person makes of them."""

    store: Store
    model: Model
    evidence: RubricEvidence
    refused: list[str] = field(default_factory=list)

    async def work(self, read: Read) -> int:
        """Draft and ask until one is proven, or the person has enough."""
        draft = await self._draft()
        while True:
            print(f"\n{draft}\n\n" + "  ".join(f"[{key}] {what}" for key, what in KEYS.items()), flush=True)
            key = read().casefold()
            if key in ("q", "", "\x04", "r"):
                print("no rubric was recorded" if key != "r" else "refused; no rubric was recorded")
                return 1
            if key == "a":
                if await self.proven(draft) == 0:
                    return 0
            elif key == "e":
                draft = _edited(draft)
            elif key == "n":
                self.refused.append(draft)
                draft = await self._draft()
            else:
                print(f"{key!r} is none of {', '.join(KEYS)}", flush=True)

    async def _draft(self) -> str:
        from ..judge.rubric import draft_request, read_draft

        answer = await self.model.complete(draft_request(self.evidence, self.refused))
        return read_draft(answer.text)

    async def proven(self, text: str) -> int:
        """Prove a rubric and record it; 1, and nothing changes, where it does not agree with people."""
        from ..judge.rubric import prove_rubric, save

        print(f"asking {self.model.name} about {self.evidence.calls} answers", flush=True)
        rubric: ProvenRubric = await prove_rubric(text, self.model, self.evidence)
        print(rubric.sentence)
        if not rubric.admitted:
            print(f"it may not judge: {rubric.refusal}")
            return 1
        save(self.store, rubric)
        print("recorded: whet improve judges by it where the thumbs alone do not tell enough")
        return 0


def _edited(text: str) -> str:
    """The text as it comes back from the person's editor; as it was where there is none."""
    editor = next((os.environ[name] for name in EDITORS if os.environ.get(name)), "vi")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rubric.md"
        path.write_text(text + "\n", encoding="utf-8")
        try:
            code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
        except OSError as error:
            print(f"{editor} cannot be started ({error.strerror}); set EDITOR")
            return text
        if code:
            print(f"{editor} ended with {code}; the draft stays as it was")
            return text
        return path.read_text(encoding="utf-8").strip() or text

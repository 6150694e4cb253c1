"""A proven Bundle as a pull request: its place in the user's source, the outcomes that prove it, and the delivery.

A resource stands where it is marked (`marks.py`), or in a file of its name, as a prompt's does.  What stands
nowhere, weights and what the gateway serves for instance, is released from the record and not from the source.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ...errors import InputError, NotFoundError
from ...prove import answers
from ...prove import guardrails as rails
from ...prove.guardrails import Guardrail
from ...prove.verdict import verdict as judge
from ...record.store import Store
from ...repository.modules import Repository
from ...repository.prompt_files import WHOLE, is_nested, with_text
from ...repository.text import as_written, diff, plain
from ...ship.delivery import DeliveredEvidence, Delivery, DeliveryOptions, deliver
from ...ship.delivery.evidence import BASELINE, CANDIDATE, FOLDER, VERDICT
from ...ship.releasing import OUTCOMES
from ...types import Bundle, Sampling, Verdict
from .agents.marks import Mark, marks
from .agents.pieces import cut, put
from .search.settings import folder_in_git


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeReading:
    """How outcome files are judged: the options of `whet verdict` on them, and what they are of."""

    margin: float = 0.0
    regime: Sampling = "new-group"
    watched: bool = False
    guardrails: Sequence[Guardrail] = ()
    metric: str = "success"
    """Name of what stands under `success` in the files."""
    judges: Sequence[str] = ()
    """Sentences on who judged, where no evaluator did."""

    @property
    def options(self) -> str:
        """As words of the command."""
        words = [
            *(["--margin", repr(self.margin)] if self.margin else []),
            *(["--regime", self.regime] if self.regime != "new-group" else []),
            *(["--watched"] if self.watched else []),
        ]
        for rail in self.guardrails:
            words += ["--not-lower" if rail.rises else "--not-higher", rail.text]
        return "".join(f" {shlex.quote(word)}" for word in words)


def deliver_bundle(
    store: Store,
    bundle: Bundle,
    options: DeliveryOptions,
    *,
    patch: str | None = None,
    verdict: Verdict | None = None,
    baseline: Bundle | None = None,
    outcomes: tuple[Path, Path] | None = None,
    reading: OutcomeReading | None = None,
    unproven: bool = False,
) -> Delivery:
    """Deliver a Bundle as a branch and a pull request (`ship.delivery.deliver`).

    Args:
        patch: of the source, as a learner wrote it; made from the source that is checked out if None.
        outcomes: files of results, the baseline's and the candidate's; those that the gate recorded if None.
        reading: how these files are judged.
    """
    if patch is None:
        patch = source_patch(options.repository, bundle).text
    return deliver(
        store,
        bundle,
        patch,
        options,
        evidence=partial(evidence_of, store)
        if outcomes is None
        else partial(evidence_in, outcomes, reading=reading or OutcomeReading()),
        verdict=verdict,
        baseline=baseline,
        unproven=unproven,
    )


@dataclass(frozen=True, slots=True)
class SourcePatch:
    """A patch for `git apply`, and the resources that it does not hold."""

    text: str
    unplaced: Sequence[str] = ()


def source_patch(root: Path, bundle: Bundle) -> SourcePatch:
    """The Versions of a Bundle put into a repository's source; nothing on disk changes.

    Raises:
        InputError: a mark cannot be cut out, or its new text cannot be put back.
    """
    repository = Repository(root.resolve())
    texts = {name: version.content for name, version in bundle.items() if isinstance(version.content, str)}
    placed: set[str] = set()
    changed: dict[str, str] = {}
    for mark in marks(repository):
        content = texts.get(mark.name, texts.get(_part(mark, repository)))
        if content is None:
            continue
        before = changed.get(mark.path, repository.text(mark.path))
        changed[mark.path] = put(mark, before, content)
        placed |= {mark.name, _part(mark, repository)}
    for path in repository.paths:
        relative = repository.relative(path)
        # A prompt's resource is called as its file.
        name = next((each for each in (relative, path.name) if each in texts and each not in placed), None)
        if name is not None and relative not in changed:
            whole = path.suffix.lower() in WHOLE
            changed[relative] = (
                with_text(relative, repository.text(relative), "", texts[name]) if whole else texts[name]
            )
            placed.add(name)
        for name in [each for each in texts if each.startswith(f"{relative}:") and is_nested(relative)]:
            before = changed.get(relative, repository.text(relative))
            changed[relative] = with_text(relative, before, name.removeprefix(f"{relative}:"), texts[name])
            placed.add(name)
    folder = folder_in_git(repository.root)
    patch = "".join(
        diff(folder + path, repository.written(path), as_written(repository.written(path), plain(text)))
        for path, text in sorted(changed.items())
    )
    return SourcePatch(patch, sorted(set(bundle) - placed))


def _part(mark: Mark, repository: Repository) -> str:
    """The name that the part of a mark has in a Program, under which a search records it."""
    return cut(mark, repository.text(mark.path)).part


def evidence_of(store: Store, candidate: str) -> DeliveredEvidence:
    """The evidence of the newest Verdict on a Bundle.

    Raises:
        NotFoundError: the record has the outcomes of none.
    """
    outcomes = store.state(f"{OUTCOMES}{candidate}")
    if not isinstance(outcomes, dict):
        raise NotFoundError(
            f"{store.path} has no outcomes of a Verdict on Bundle {candidate}, and a delivery takes them with it. "
            "Judge it here (whet gate, Experiment.gate), or name two files of results: --outcomes A.jsonl B.jsonl"
        )
    sides = {name: outcomes[name] for name in ("baseline", "candidate")}
    encoded = {
        name: b"".join(msgspec.json.encode(row) + b"\n" for row in rows) for name, rows in sides.items()
    }
    kept = outcomes.get("guardrails") or {}
    reading = OutcomeReading(
        margin=outcomes["margin"],
        regime=outcomes["regime"],
        # A record from before guardrails were kept has none.
        guardrails=rails.read(*(kept.get(way, ()) for way in ("not_lower", "not_higher"))),
        metric=outcomes["metric"],
    )
    return _evidence(candidate, encoded, sides, reading)


def evidence_in(
    files: tuple[Path, Path], candidate: str, *, reading: OutcomeReading | None = None
) -> DeliveredEvidence:
    """The evidence in two files of whet's own rows.

    Raises:
        InputError: they cannot be read as such.
    """
    encoded = {name: path.read_bytes() for name, path in zip(("baseline", "candidate"), files, strict=True)}
    try:
        sides = {
            name: [
                msgspec.json.decode(line, type=dict[str, Any])
                for line in content.splitlines()
                if line.strip()
            ]
            for name, content in encoded.items()
        }
    except msgspec.MsgspecError as error:
        raise InputError(f"{files[0]} and {files[1]} must hold one JSON object per line: {error}") from error
    return _evidence(candidate, encoded, sides, reading or OutcomeReading())


def _evidence(
    candidate: str,
    encoded: Mapping[str, bytes],
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    reading: OutcomeReading,
) -> DeliveredEvidence:
    folder = f"{FOLDER}/{candidate}"
    names = {"baseline": f"{folder}/{BASELINE}", "candidate": f"{folder}/{CANDIDATE}"}
    with tempfile.TemporaryDirectory(prefix="whet-proof-") as root:
        for side, content in encoded.items():
            path = Path(root, names[side])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        a, b = (Path(root, names[side]) for side in ("baseline", "candidate"))
        absolute = judge(
            a,
            b,
            margin=reading.margin,
            guardrails=reading.guardrails,
            regime=reading.regime,
            watched=reading.watched,
            format="whet",
        )
        # From the root of a clone the files have the paths that they have here under the folder.
        text = msgspec.json.encode(absolute).replace(f"{root}/".encode(), b"")
    verdict = msgspec.json.decode(text, type=Verdict)
    printed = answers.as_json(verdict, answers.answer(verdict, candidate=names["candidate"]))
    files = {names[side]: content for side, content in encoded.items()}
    files[f"{folder}/{VERDICT}"] = printed.encode() + b"\n"
    return DeliveredEvidence(
        folder=folder,
        files=files,
        verdict=verdict,
        command=f"whet verdict {names['baseline']} {names['candidate']} --format whet{reading.options} --json",
        metric=reading.metric,
        rows=rows,
        judges=reading.judges,
    )

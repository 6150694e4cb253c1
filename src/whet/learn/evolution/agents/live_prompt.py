"""The prompt that the gateway serves in the place of the one in an agent's file, and what it was made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ....errors import InputError
from ....record.store import Store
from ....record.store.releases import GATEWAY_PROMPT
from ....types import Json, Version
from ..editing.slots import places, statics
from .agent_prompt import PASSAGE, holds


@dataclass(frozen=True, slots=True)
class LivePrompts:
    """What is live as the gateway's prompt, and the texts in the source that it and its forerunners stand for."""

    live: Version | None
    _sources: Mapping[str, str]
    """Whole released prompt → the one that its line of releases began with; itself where the record has no other."""
    _passages: Mapping[str, str]
    """Released passage → the one that it replaces."""

    @classmethod
    def of(cls, store: Store) -> LivePrompts:
        """Those of a record."""
        bundle = store.live()
        sources: dict[str, str] = {}
        passages: dict[str, str] = {}
        recorded = {version.id: version for version in store.versions(GATEWAY_PROMPT)}
        for release in store.history():
            version = release.bundle.get(GATEWAY_PROMPT)
            if version is None:
                continue
            if (whole := _whole(version.content)) is not None:
                sources[whole] = _first(version, recorded)
            passages |= {new: old for old, new in _replaced(version.content, "passages").items()}
            sources |= {new: old for old, new in _replaced(version.content, "rewrites").items()}
        return cls(None if bundle is None else bundle.get(GATEWAY_PROMPT), sources, passages)

    def source(self, prompt: str) -> str:
        """A system prompt as it was before anything was released for it."""
        if prompt in self._sources:
            return self._sources[prompt]
        for new, old in self._passages.items():
            if holds(prompt, new):
                prompt = prompt.replace(new, old)
        return prompt

    def by_hand(self, prompt: str) -> bool:
        """A prompt that was released whole, and of which the record does not say what it was made from."""
        return self._sources.get(prompt) == prompt

    def served(self, text: str, *, alone: bool) -> str:
        """What an agent's model reads where its file says `text`; `alone` if that is the whole system prompt."""
        content = None if self.live is None else self.live.content
        whole = _whole(content)
        if alone and whole is not None:
            return whole
        if alone and (rewritten := _replaced(content, "rewrites").get(text)) is not None:
            return rewritten
        for old, new in _replaced(content, "passages").items():
            text = text.replace(old, new)
        return text

    def sentence(self, served: str) -> str:
        """A sentence on a prompt that is served in the place of the one in the file."""
        assert self.live is not None
        return (
            f"the gateway serves a released prompt in its place ({len(served):,} characters, Version {self.live.id}): "
            "the search begins with that one, and the proof compares with it"
        )

    def with_passages(self, replaced: Mapping[str, str]) -> Version:
        """A Version for the gateway that replaces passages, old → new, and others as the live one does."""
        passages = _replaced(None if self.live is None else self.live.content, "passages")
        parent = None if self.live is None else self.live.id
        content: Json = {"passages": {**passages, **replaced}}
        return Version(resource=GATEWAY_PROMPT, content=content, kind="prompt", parent=parent)


def passages_between(old: str, new: str, sent: Iterable[str]) -> dict[str, str]:
    """Old passage → new one, of a template whose places are filled in before it is sent.

    Args:
        sent: system prompts that were made from the old one.

    Raises:
        InputError: it cannot be told by the passages alone where the change belongs.
    """
    changed = {
        before.strip(): after.strip()
        for before, after in zip(statics(old), statics(new), strict=False)
        if before.strip() != after.strip()
    }
    if places(old) != places(new):
        raise InputError("what is filled in stands at other places of the new prompt")
    short = [before for before in changed if len(before) < PASSAGE]
    if short:
        raise InputError(
            f"what changes beside {' and '.join(places(old))} is {short[0]!r}, which is too short to be known for it"
        )
    sent = list(sent)
    absent = [before for before in changed if not any(before in prompt for prompt in sent)]
    if absent:
        raise InputError(f"{absent[0]!r:.80} is sent with other white space than it is written with")
    return changed


def _first(version: Version, recorded: Mapping[str, Version]) -> str:
    """The prompt at the beginning of a Version's line of parents."""
    first, seen = version, {version.id}
    while first.parent is not None and first.parent not in seen and first.parent in recorded:
        seen.add(first.parent)
        first = recorded[first.parent]
    return _whole(first.content) or _whole(version.content) or ""


def _whole(content: Json) -> str | None:
    """The text that replaces a whole system prompt, in the words of `whet.serve.gateway.serving`."""
    if isinstance(content, dict) and content.get("mode", "replace") == "replace":
        content = content.get("text")
    return content if isinstance(content, str) else None


def _replaced(content: Json, key: str) -> Mapping[str, str]:
    """Old text → new one, of a prompt that has several."""
    pairs = content.get(key) if isinstance(content, dict) else None
    return pairs if isinstance(pairs, dict) else {}

"""Secrets that this process holds itself, looked for in every spelling in which they may turn up."""

from __future__ import annotations

import base64
import json
import re
import threading
from typing import AnyStr, Generic
from urllib.parse import quote, quote_plus

SHORTEST = 8
"""Characters below which a secret cannot be told from a word of ordinary text, and is not looked for: to take out every
`abc` would mask half of a record."""
WINDOW = 6
"""Letters of a spelling that are looked up at each occurrence of the rarest of them."""
_RARE = "ZQJXzVY@KWGqxHjUB=_FPLkNRMSDO"
"""Letters from rare to frequent in what spans hold."""
_NESTED = 3
"""How often JSON may stand in a string of JSON and a secret with quotes still be found."""


class _Windows(Generic[AnyStr]):
    """Spellings by the letters that begin at their rarest one."""

    def __init__(self) -> None:
        self.by_letter: dict[AnyStr, dict[AnyStr, list[AnyStr]]] = {}

    def put(self, spelling: AnyStr) -> None:
        at = _rarest(spelling)
        letter = spelling[at : at + 1]
        if letter not in self.by_letter:
            # Readers take no lock and walk through this dict: it is replaced, never changed.
            self.by_letter = {**self.by_letter, letter: {}}
        self.by_letter[letter].setdefault(spelling[at : at + WINDOW], []).append(spelling)

    def remove(self, spelling: AnyStr) -> None:
        at = _rarest(spelling)
        windows, window = self.by_letter[spelling[at : at + 1]], spelling[at : at + WINDOW]
        others = [other for other in windows[window] if other != spelling]
        if others:
            windows[window] = others
        else:
            del windows[window]

    def within(self, text: AnyStr) -> list[AnyStr]:
        found: list[AnyStr] = []
        for letter, windows in self.by_letter.items():
            if not windows:
                continue
            at = text.find(letter)
            while at >= 0:
                for spelling in windows.get(text[at : at + WINDOW], ()):
                    if spelling in text and spelling not in found:
                        found.append(spelling)
                at = text.find(letter, at + 1)
        return sorted(found, key=len, reverse=True)


def _rarest(spelling: str | bytes) -> int:
    """Where the rarest of the letters stands that a whole window begins at."""
    letters = spelling.decode("latin-1") if isinstance(spelling, bytes) else spelling
    # find() gives -1 for a letter that is not listed; the remainder makes it the most frequent of all.
    return min(
        range(len(letters) - WINDOW + 1), key=lambda place: _RARE.find(letters[place]) % (len(_RARE) + 1)
    )


class KnownSecrets:
    """Secrets to be found by themselves.  Looking for thousands costs little more than for one; any thread may ask."""

    def __init__(self) -> None:
        self._spellings: dict[str, tuple[str, ...]] = {}
        self._texts: _Windows[str] = _Windows()
        self._bytes: _Windows[bytes] = _Windows()
        self._lock = threading.Lock()

    def add(self, secret: str) -> bool:
        """Look for a secret from now on; False if it is too short to be told from a word."""
        if len(secret) < SHORTEST:
            return False
        with self._lock:
            if secret not in self._spellings:
                self._spellings[secret] = spellings(secret)
                for spelling in self._spellings[secret]:
                    self._texts.put(spelling)
                    self._bytes.put(spelling.encode("utf-8", "surrogatepass"))
        return True

    def discard(self, secret: str) -> None:
        """Look for a secret no longer; nothing happens if it was not looked for."""
        with self._lock:
            for spelling in self._spellings.pop(secret, ()):
                self._texts.remove(spelling)
                self._bytes.remove(spelling.encode("utf-8", "surrogatepass"))

    @property
    def any(self) -> bool:
        """True if there is anything to look for."""
        return bool(self._spellings)

    def within(self, text: AnyStr) -> list[AnyStr]:
        """The spellings of known secrets that stand in a text, longest first."""
        windows = self._texts if isinstance(text, str) else self._bytes
        return windows.within(text)


def spellings(secret: str) -> tuple[str, ...]:
    """A secret as it is, escaped for JSON and URLs, and wherever it may stand in base64."""
    octets = secret.encode("utf-8", "surrogatepass")
    escaped = {quote(octets, safe=""), quote(octets), quote_plus(octets), quote_plus(octets, safe="/")}
    escaped |= {re.sub("%[0-9A-F]{2}", lambda octet: octet[0].lower(), form) for form in escaped}
    for nested in (secret, json.dumps(secret, ensure_ascii=False)[1:-1]):
        for _ in range(_NESTED):
            escaped.add(nested)
            nested = json.dumps(nested)[1:-1]
    for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
        escaped |= {_inside(alphabet(bytes(before) + octets), before) for before in range(3)}
    return tuple(form for form in escaped if len(form) >= SHORTEST)


def _inside(encoded: bytes, before: int) -> str:
    """The letters of base64 that depend on a secret alone, where `before` bytes precede it in its triple."""
    first = (before * 8 + 5) // 6
    padding = encoded.count(b"=")
    # The last letter before the padding holds bits of what follows, too.
    last = len(encoded) - padding - (1 if padding else 0)
    return encoded[first:last].decode()

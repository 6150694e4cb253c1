"""Texts that nearly repeat each other, found exactly and without comparing every pair.

Two texts are near where their sets of character 5-grams have a Jaccard similarity of at least `similarity`.  One
word changed in a sentence of a dozen gives about 0.75.  Candidates come from two indexes, and each is verified:

- Rare 5-grams: two sets that share a rare one have their rarest common one in the prefix of both (prefix filtering,
  Bayardo et al. 2007, "Scaling up all pairs similarity search"), so only prefixes are listed.
- Common 5-grams: sets that share no rare one must share enough common ones.  Which texts hold one is an integer with
  a bit for each text, and how many a text shares is counted for all texts at once, with the counter's bits in
  integers of their own.  A vocabulary of a dozen words, or one template, costs no more than prose.
"""

from __future__ import annotations

import math
import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

SIMILARITY = 0.7
"""From here on two texts count as nearly the same."""
_WIDTH = 5
_WORDS = re.compile(r"\w+")
_SKETCH = 1024
"""Bits that a set is folded into: two sets differ in no fewer members than their sketches differ in bits."""
_LARGE = 64
"""Members from which on a set of linked texts is remembered as an integer, to be passed over at once."""


def normalised(text: str) -> str:
    """Lower case, no accents, words separated by one space, no punctuation."""
    plain = text.casefold()
    if not plain.isascii():
        plain = "".join(
            letter for letter in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(letter)
        )
    return " ".join(_WORDS.findall(plain))


def shingles(text: str) -> set[str]:
    """The character 5-grams of a normalised text with a space on either side."""
    padded = f" {text} "
    return {padded[start : start + _WIDTH] for start in range(max(1, len(padded) - _WIDTH + 1))}


class Near:
    """An index of normalised texts, asked which of them are near a text.

    Args:
        texts: normalised; the answers are places in it. Equal texts are near each other, with similarity 1.
        similarity: in (0, 1].
    """

    def __init__(self, texts: Sequence[str], similarity: float = SIMILARITY) -> None:
        self.similarity = similarity
        grams = [shingles(text) for text in texts]
        counts = Counter(gram for held in grams for gram in held)
        order = sorted(counts, key=lambda gram: (counts[gram], gram))
        # A 5-gram's number is its rank, the rarest first, so that an ordered set begins with its prefix.
        self._numbers = {gram: number for number, gram in enumerate(order)}
        self._sets = [array("I", sorted(map(self._numbers.__getitem__, held))) for held in grams]
        self._sketches = [_sketch(held) for held in self._sets]
        # Above this a list of places is longer to walk than an integer of as many bits is to add.
        limit = max(32, len(texts) // 100)
        self._first = bisect_right(order, limit, key=counts.__getitem__)
        """The first number that is common."""
        self._rare: dict[int, list[int]] = {}
        common: dict[int, bytearray] = {}
        width = len(texts) // 8 + 1
        for index, held in enumerate(self._sets):
            for number in self._prefix(held, len(held)):
                self._rare.setdefault(number, []).append(index)
            for number in held[bisect_left(held, self._first) :]:
                if number not in common:
                    common[number] = bytearray(width)
                common[number][index >> 3] |= 1 << (index & 7)
        self._common = {number: int.from_bytes(bits, "little") for number, bits in common.items()}

    def _prefix(self, held: array[int], size: int) -> array[int]:
        """The rare ones among the rarest few of a set, one of which any near set that holds a rare one must share.

        Args:
            size: of the whole set; `held` are those of its members that any indexed text has.
        """
        # Members that no indexed text has are rarer than all, and shared with none.
        # 0.7 * 90 is 62.999…: the small term keeps the bound safe on either side of a whole number.
        length = size - int(self.similarity * size - 1e-9) - (size - len(held))
        return held[: max(0, min(length, bisect_left(held, self._first)))]

    def of(self, text: str) -> Iterator[tuple[int, float]]:
        """Place and similarity of the indexed texts near this normalised one."""
        grams = shingles(text)
        held = sorted(number for gram in grams if (number := self._numbers.get(gram)) is not None)
        return self._near(array("I", held), len(grams))

    def after(self, index: int, passing: int = 0) -> Iterator[tuple[int, float]]:
        """Place and similarity of the indexed texts near this indexed one, and further on than it.

        Args:
            passing: places that need not be looked at, as bits.
        """
        held = self._sets[index]
        return self._near(held, len(held), index + 1, passing)

    def _near(
        self, held: array[int], size: int, start: int = 0, passing: int = 0
    ) -> Iterator[tuple[int, float]]:
        least = self.similarity * size - 1e-9
        if len(held) < least:
            return
        candidates: set[int] = set()
        for number in self._prefix(held, size):
            places = self._rare.get(number, ())
            candidates.update(places[bisect_left(places, start) :] if start else places)
        if passing:
            candidates = {index for index in candidates if not passing >> index & 1}
        common = held[bisect_left(held, self._first) :]
        needed = max(1, math.ceil(least))
        if len(common) >= needed:
            shared = _at_least([self._common[number] for number in common], needed) >> start << start
            candidates.update(_places(shared & ~passing))
        members, sketch = set(held), _sketch(held)
        apart = (1 - self.similarity) / (1 + self.similarity)
        for index in sorted(candidates):
            candidate = self._sets[index]
            # The members that only one of two near sets has are few; so are then the bits that differ.
            most = apart * (size + len(candidate)) + 1e-9
            if abs(size - len(candidate)) <= most and (sketch ^ self._sketches[index]).bit_count() <= most:
                both = len(members.intersection(candidate))
                value = both / (size + len(candidate) - both)
                if value >= self.similarity:
                    yield index, value


def _sketch(held: Iterable[int]) -> int:
    bits = bytearray(_SKETCH // 8)
    for number in held:
        bits[number >> 3 & _SKETCH // 8 - 1] |= 1 << (number & 7)
    return int.from_bytes(bits, "little")


def _at_least(masks: Iterable[int], needed: int) -> int:
    """The places that at least `needed` of the masks hold."""
    counter: list[int] = []
    for mask in masks:
        carry = mask
        for bit, held in enumerate(counter):
            counter[bit], carry = held ^ carry, held & carry
            if not carry:
                break
        if carry:
            counter.append(carry)
    if needed >> len(counter):
        return 0
    # Compared from the highest bit: `above` is settled, `level` is equal so far.
    above, level = 0, -1
    for bit in range(len(counter) - 1, -1, -1):
        if needed >> bit & 1:
            level &= counter[bit]
        else:
            above |= level & counter[bit]
            level &= ~counter[bit]
    return above | level


def _places(mask: int) -> Iterator[int]:
    """The places of the bits that are set."""
    if mask.bit_count() <= 32:
        while mask:
            lowest = mask & -mask
            yield lowest.bit_length() - 1
            mask ^= lowest
        return
    for index, byte in enumerate(mask.to_bytes(mask.bit_length() // 8 + 1, "little")):
        while byte:
            lowest = byte & -byte
            yield index * 8 + lowest.bit_length() - 1
            byte ^= lowest


def linked(texts: Sequence[str]) -> list[int]:
    """For each normalised text the number of the set it is in: near ones, near ones of those, and so on.

    An empty text is near none.
    """
    index = Near(texts)
    sets = list(range(len(texts)))
    members = {number: [number] for number in sets}
    bits: dict[int, int] = {}
    for number, text in enumerate(texts):
        if not text:
            continue
        for neighbour, _ in list(index.after(number, bits.get(sets[number], 0))):
            large, small = sets[number], sets[neighbour]
            if large == small or not texts[neighbour]:
                continue
            if len(members[large]) < len(members[small]):
                large, small = small, large
            moved = members.pop(small)
            for member in moved:
                sets[member] = large
            members[large] += moved
            if len(members[large]) >= _LARGE:
                fresh = moved if large in bits else members[large]
                bits[large] = bits.get(large, 0) | bits.pop(small, 0) | _bits(fresh, len(texts))
    return sets


def _bits(places: Iterable[int], size: int) -> int:
    held = bytearray(size // 8 + 1)
    for index in places:
        held[index >> 3] |= 1 << (index & 7)
    return int.from_bytes(held, "little")

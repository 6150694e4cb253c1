"""The tokens of an embedded policy: a closed list of strings, each with one id.

The policy acts by slot and sees features, so its vocabulary is a list that its
owner writes down, not something learned from text.  There is no unknown token:
a string that is not in the list is a mistake of the caller, and raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ...errors import InputError
from ...escapes import read_json
from ...types import digest

PAD, BOS, ACT, EOS = "<pad>", "<bos>", "<act>", "<eos>"
SPECIAL = (PAD, BOS, ACT, EOS)
WORDS = "vocabulary.json"
"""Name of its file in a folder of weights."""


class Vocabulary:
    """Token strings ↔ ids.

    The special tokens come first: `<pad>` 0, `<bos>` 1, `<act>` 2 (the observation ends, an
    action begins), `<eos>` 3 (the action ends).

    Args:
        tokens: the strings, in the order of their ids, without the special ones.

    Raises:
        InputError: a token is empty, repeated or special.
    """

    # In the order of SPECIAL; `model.configuration` writes these ids into config.json.
    pad, bos, act, eos = range(4)

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens: tuple[str, ...] = (*SPECIAL, *tokens)
        self._ids = {token: number for number, token in enumerate(self.tokens)}
        if "" in self._ids:
            raise InputError("a vocabulary was given an empty token; every token needs a name")
        if len(self._ids) != len(self.tokens):
            earlier: set[str] = set()
            twice = sorted({token for token in self.tokens if token in earlier or earlier.add(token)})  # type: ignore[func-returns-value]
            raise InputError(f"tokens given twice, or special ones given again: {', '.join(twice[:5])}")

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and other.tokens == self.tokens

    def __hash__(self) -> int:
        return hash(self.tokens)

    @property
    def id(self) -> str:
        """Hash of the tokens: weights are of use only with the vocabulary that they were trained on."""
        return digest(list(self.tokens))

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The ids of these tokens.

        Raises:
            InputError: one of them is not in the vocabulary.
        """
        ids = self._ids
        try:
            return [ids[token] for token in tokens]
        except KeyError as missing:
            raise InputError(
                f"token {missing.args[0]!r} is not among the {len(self)} of this vocabulary. "
                "Add it to the list the vocabulary is made from, and train again."
            ) from None

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The tokens of these ids.

        Raises:
            InputError: an id is out of range.
        """
        tokens = self.tokens
        out = []
        for number in ids:
            if not 0 <= number < len(tokens):
                raise InputError(
                    f"token id {number} is out of range; the vocabulary has {len(tokens)} tokens"
                )
            out.append(tokens[number])
        return out

    def save(self, path: Path) -> None:
        """Write as JSON."""
        Path(path).write_bytes(msgspec.json.encode({"tokens": list(self.tokens[len(SPECIAL) :])}))

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read what `save` wrote.

        Raises:
            InputError: the file is missing or is no vocabulary.
        """
        try:
            # The file is without the special tokens, which the constructor puts first.
            return cls(
                read_json(msgspec.json.Decoder(dict[str, list[str]]).decode, Path(path).read_bytes())[
                    "tokens"
                ]
            )
        except (OSError, msgspec.DecodeError, KeyError) as error:
            raise InputError(f"{path} is not a vocabulary: {error}") from error

"""A candidate is a Bundle; edits and models change its texts, a Program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ....record.store.releases import PROGRAM
from ....types import Bundle, Version
from ..editing.program import Program
from .pieces import Piece, program_of


@dataclass(frozen=True)
class ProgramCodec:
    """Programs as Bundles: a part that differs from the start is a Version, the others are as they came.

    Args:
        start: the texts as they stand.
        names: part → resource; a part that is not named is called as it is.
        kinds: part → kind of its Versions; `program` where none is given.
    """

    start: Program
    names: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> ProgramCodec:
        """Pieces of a repository under the names of their targets, as traced code reads them."""
        called = [piece.mark.name for piece in pieces]
        # A name that two pieces have names neither: as one resource they could not differ.
        names = {piece.part: piece.mark.name for piece in pieces if called.count(piece.mark.name) == 1}
        return cls(program_of(pieces), names, {piece.part: piece.mark.kind for piece in pieces})

    @cached_property
    def baseline(self) -> Bundle:
        """The start as Versions: the parents of those that differ from it."""
        return Bundle([self._version(part, text) for part, text in self.start.parts.items()])

    def bundle(self, program: Program) -> Bundle:
        """The parts that differ from the start; the empty Bundle of the start itself."""
        held = self.start.parts
        return Bundle(
            [self._version(part, text) for part, text in program.parts.items() if held.get(part) != text]
        )

    def program(self, bundle: Bundle) -> Program:
        """The texts under a Bundle."""
        parts = {name: part for part, name in self.names.items()}
        changed = {parts.get(name, name): version.content for name, version in bundle.items()}
        return Program({**self.start.parts, **changed}, self.start.main)

    def _version(self, part: str, text: str) -> Version:
        name, parent = self.names.get(part, part), None
        if text != self.start.parts.get(part) and name in self.baseline:
            parent = self.baseline[name].id
        return Version(resource=name, content=text, kind=self.kinds.get(part, PROGRAM), parent=parent)

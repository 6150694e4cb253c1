"""Documents that questions are written from, and which of them fit a question."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError
from ...judge.vectors import rarity
from ...record.rows import as_text
from ...record.tables import read_table
from .clusters import terms

LONGEST = 4_000
"""Letters of a document that a model is shown at once; a longer one is asked about in pieces."""
TEXTS = (".txt", ".md", ".rst")
"""Endings of files that are documents as they are."""
_TEXT_COLUMNS = ("text", "content", "body", "document", "page_content")


@dataclass(frozen=True, slots=True)
class Document:
    """Something that can be asked about."""

    id: str
    text: str
    title: str = ""
    group: str = ""
    """What its questions are divided by: a mailbox, a customer, a manual."""

    @property
    def shown(self) -> str:
        """What a model sees of it, and what evidence must stand in."""
        return f"{self.title}\n{self.text}".strip()[:LONGEST]


def pieces(document: Document) -> list[Document]:
    """The document, or the parts that it is shown in: cut between paragraphs, else lines, else anywhere."""
    room = LONGEST - len(document.title[: LONGEST // 4]) - 1
    text, parts = document.text, list[str]()
    while len(text) > room:
        borders = (text.rfind(border, room // 2, room) for border in ("\n\n", "\n", " "))
        cut = next((at for at in borders if at > 0), room)
        parts.append(text[:cut])
        text = text[cut:].lstrip()
    parts += [text] if text or not parts else []
    if len(parts) == 1:
        return [document]
    return [
        Document(f"{document.id}#{number}", part, document.title[: LONGEST // 4], document.group)
        for number, part in enumerate(parts, 1)
    ]


class DocumentIndex:
    """Which documents fit a question: by the share of its telling words that they hold, the rare ones counting more."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._holders: dict[str, list[int]] = defaultdict(list)
        words = [frozenset(term for term, _ in terms(document.shown)) for document in documents]
        self._weights = rarity(words)
        for place, held in enumerate(words):
            for word in sorted(held):
                self._holders[word].append(place)

    def fitting(self, question: str) -> dict[int, float]:
        """Place of a document → how well it fits, over 0 and at most 1."""
        fits: defaultdict[int, float] = defaultdict(float)
        rarest, total = max(self._weights.values(), default=1.0), 0.0
        for word in {term for term, _ in terms(question)}:
            total += self._weights.get(word, rarest)
            for place in self._holders.get(word, ()):
                fits[place] += self._weights[word]
        return {place: weight / total for place, weight in fits.items()}


def text_documents(files: Iterable[Path], root: Path) -> list[Document]:
    """Text files as documents, each a group of its own."""
    documents = []
    for path in sorted(files):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {path}: {error}") from error
        name = path.relative_to(root).as_posix()
        if text.strip():
            documents.append(Document(name, text, path.stem, name))
    return documents


def table_documents(path: Path) -> list[Document]:
    """Rows of a table as documents: `text` (or `content`, `body`), and `id`, `title` and `group` where there are any.

    Raises:
        NotFoundError: there is no such file.
        InputError: it cannot be read, or has no column of texts.
    """
    table = read_table(path).typed()
    column = next((name for name in _TEXT_COLUMNS if name in table.columns), None)
    if column is None:
        raise InputError(
            f"{path} has no column of texts ({', '.join(_TEXT_COLUMNS)}); its columns: {', '.join(table.columns)}"
        )
    documents = []
    for number, fields in table.lines:
        text = as_text(fields.get(column) or "")
        id = str(fields.get("id") or number)
        if text.strip():
            title = as_text(fields.get("title") or fields.get("subject") or "")
            documents.append(Document(id, text, title, str(fields.get("group") or id)))
    return documents

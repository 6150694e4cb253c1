"""Mail from disk: a maildir, mbox files, or a folder tree of RFC 822 files, read into `Mail`.

Whatever is wrong with a file (no mail, broken headers, undecodable bytes, a
second copy) is reported in the `MailFolder` with its path and the reason; it is
never a crash and never silent.  Nothing is written, no link is followed, and
attachments are named but not kept.

Whose mail is it?  Splits are made by *mailbox*, so the owner must be right:

1. A folder whose name holds `__` belongs to what stands before it
   (`packs/kean-s__ferc` and `kean-s__heat_wave` are both `kean-s`).
2. A maildir (a folder with `cur` and `new`) belongs to its own name, with
   its `.Folders` (the name before ours, if ours is a standard one).
3. Otherwise the outermost folder that has a subfolder with a standard name
   (`inbox`, `sent`, `all_documents`, ...) owns all below it.
4. Otherwise, of the path `owner/folder/file`, the owner: the parent of the
   folder that holds the file, and the given folder itself if there is none above.
5. An mbox file is a folder if its name is a standard one, else an owner: `alice.mbox` is `alice`.

The given folder's own name counts too, so that pointing straight at one
owner's folder gives one mailbox of that name.  `index.py` searches what was read.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...errors import InputError
from .parse import Mail, parse_mail, storable
from .vocabulary import STANDARD_FOLDERS

_STANDARD = frozenset(STANDARD_FOLDERS)
_MBOX = re.compile(rb"From [^\n]*\r?\n[!-9;-~]+:")
# A line of a body may begin with "From " too: a mail begins where a year is in it and a header below.
_MBOX_SPLIT = re.compile(rb"(?:\A|(?<=\n)\r?\n)From [^\n]{0,200}?\d{4}[^\n]{0,200}\r?\n(?=[!-9;-~]+:)")


@dataclass(frozen=True, slots=True)
class UnreadableMail:
    """A file that could not be read as it stands, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A second copy within one mailbox, left out."""

    path: str
    reason: str
    of: str
    """Id of the mail that was kept."""


@dataclass(frozen=True, slots=True)
class MailFolder:
    """The mail of a folder."""

    mails: tuple[Mail, ...]
    problems: tuple[UnreadableMail, ...] = ()
    duplicates: tuple[Duplicate, ...] = ()

    @property
    def mailboxes(self) -> dict[str, int]:
        """Mailbox → number of mails, by name."""
        counts: dict[str, int] = {}
        for mail in self.mails:
            counts[mail.mailbox] = counts.get(mail.mailbox, 0) + 1
        return dict(sorted(counts.items()))


def read_mail(folder: Path | str) -> MailFolder:
    """Read all mail under a folder (or in one mbox or mail file).

    Returns:
        Mails in the order of their paths, without duplicates: of mails in one mailbox with
        the same Message-ID, or the same sender, date, subject and body, the first is kept.

    Raises:
        InputError: no such folder, no permission, nothing in it is mail, or a file that is not mail.
    """
    root = Path(folder)
    if not root.exists():
        raise InputError(
            f"there is no mailbox at {str(root)!r}. Give a maildir, an mbox file or a folder of mail files."
        )
    reader = _Reader(root)
    try:
        if root.is_file():
            reader.file(root)
        else:
            os.listdir(root)  # raises where `os.walk` would pass over a folder that cannot be read
            for path in _files(root, reader.problems):
                reader.file(path)
    except PermissionError as error:
        raise InputError(f"the mailbox at {str(root)!r} cannot be read: {error.strerror}.") from error
    if not reader.mails:
        if root.is_file():
            raise InputError(
                f"{str(root)!r} is not mail: {reader.problems[0].reason}. Give a mail or an mbox file."
            )
        extent = f"{len(reader.problems)} files were tried" if reader.problems else "it holds no files"
        first = (
            f", the first: {reader.problems[0].path!r}: {reader.problems[0].reason}"
            if reader.problems
            else ""
        )
        raise InputError(
            f"nothing in {str(root)!r} is mail ({extent}{first}). Give a folder that holds mail files."
        )
    return MailFolder(tuple(reader.mails), tuple(reader.problems), tuple(reader.duplicates))


def _files(root: Path, problems: list[UnreadableMail]) -> Iterator[Path]:
    def failed(error: OSError) -> None:
        problems.append(UnreadableMail(str(error.filename), f"folder cannot be read: {error.strerror}"))

    for folder, names, files in os.walk(root, onerror=failed):
        if "cur" in names and "new" in names and "tmp" in names:
            names.remove("tmp")  # a maildir's half-delivered mail
        for name in names:
            if os.path.islink(os.path.join(folder, name)):
                problems.append(UnreadableMail(os.path.join(folder, name), "symbolic link, not followed"))
        # In place: os.walk goes down into `names` in this order, and of two copies the first is kept.
        names.sort(key=_natural)
        for name in sorted(files, key=_natural):
            yield Path(folder, name)


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))


@dataclass
class _Reader:
    """Collects mails, problems and duplicates of one walk."""

    root: Path
    mails: list[Mail] = field(default_factory=list)
    problems: list[UnreadableMail] = field(default_factory=list)
    duplicates: list[Duplicate] = field(default_factory=list)
    _owners: dict[tuple[Path, bool], tuple[str, str]] = field(default_factory=dict)
    _ids: set[str] = field(default_factory=set)
    _ids_by_content: dict[tuple[str, ...], str] = field(default_factory=dict)

    def file(self, path: Path) -> None:
        if path.is_symlink():
            self._problem(path, "symbolic link, not followed")
            return
        if not path.is_file():
            self._problem(path, "no regular file")
            return
        try:
            content = path.read_bytes()
        except OSError as error:
            self._problem(path, f"cannot be read: {error.strerror}")
            return
        if not content.strip():
            self._problem(path, "empty file")
        elif _MBOX.match(content):
            starts = list(_MBOX_SPLIT.finditer(content))
            ends = [match.start() for match in starts[1:]] + [len(content)]
            for number, (match, end) in enumerate(zip(starts, ends, strict=True), 1):
                # One mark less: a line that was quoted before it was put into the mbox keeps its own.
                text = re.sub(rb"(?m)^>(>*From )", rb"\1", content[match.end() : end])
                self._mail(path, text, f"{path}:{number}", mbox=True)
            if not starts:
                self._problem(path, "begins like an mbox but holds no mail")
        else:
            self._mail(path, content, str(path), mbox=False)

    def _problem(self, path: Path | str, reason: str) -> None:
        self.problems.append(UnreadableMail(_name(str(path)), reason))

    def _mail(self, path: Path, content: bytes, where: str, *, mbox: bool) -> None:
        try:
            mail, problems = parse_mail(content)
        except Exception as error:
            # The standard library's parser raises nearly anything on hostile input, assertions included.
            self._problem(where, f"no mail could be read from it ({type(error).__name__}: {error})")
            return
        for problem in problems:
            self._problem(where, problem)
        if mail is None:
            return
        # A maildir's or folder's owner is that of the folder; an mbox's may be the file's own.
        key = (path if mbox else path.parent, mbox)
        if key not in self._owners:
            owner, folder = owner_of(path, self.root, mbox=mbox)
            self._owners[key] = _name(owner), _name(folder)
        owner, folder = self._owners[key]
        self._keep(mail, owner, folder, where)

    def _keep(self, mail: Mail, owner: str, folder: str, where: str) -> None:
        content = (owner, mail.sender, str(mail.date), mail.subject, mail.body)
        id = (
            mail.id
            or "no-id-" + hashlib.sha256("\0".join(content).encode("utf-8", "replace")).hexdigest()[:20]
        )
        for key, reason in (
            ((owner, id), "same Message-ID"),
            (content, "same sender, date, subject and body"),
        ):
            if key in self._ids_by_content:
                self.duplicates.append(Duplicate(where, reason, self._ids_by_content[key]))
                return
        id = distinct_id(id, owner, self._ids)
        # By the id that it came with, as a second copy will have it.
        self._ids_by_content[(owner, mail.id or id)] = self._ids_by_content[content] = id
        self.mails.append(replace(mail, id=id, mailbox=owner, folder=folder))


def distinct_id(id: str, owner: str, used_ids: set[str]) -> str:
    """The id, or the id with the mailbox's name where another mailbox holds its own copy; it is taken then."""
    while id in used_ids:
        id = f"{id}#{owner}"
    used_ids.add(id)
    return id


def _name(name: str) -> str:
    """A name on disk as text: its bytes need not be UTF-8."""
    return storable(os.fsencode(name).decode("utf-8", "replace"))


def _standard(name: str) -> bool:
    return name.lower().strip("._").replace(" ", "_").replace("-", "_") in _STANDARD


def owner_of(path: Path, root: Path, *, mbox: bool = False) -> tuple[str, str]:
    """(mailbox, folder) of the mail at `path` under `root`, by the rule in the module's docstring."""
    base = root.resolve()
    if base.is_file():
        base = base.parent
    folder = path.resolve().parent if root.is_file() else (base / path.relative_to(root)).parent
    below = folder.relative_to(base).parts
    chain = [base.joinpath(*below[:depth]) for depth in range(len(below) + 1)]
    if _standard(base.name) or base.name in ("cur", "new"):
        chain.insert(0, base.parent)
    leaf = path.stem if mbox else folder.name
    for ancestor in chain:
        if "__" in ancestor.name:
            owner, _, rest = ancestor.name.partition("__")
            return owner, rest
    if mbox and "__" in path.stem:
        owner, _, rest = path.stem.partition("__")
        return owner, rest
    if mbox and not _standard(path.stem):
        return path.stem, path.stem
    for ancestor in chain:
        if (ancestor / "cur").is_dir() and (ancestor / "new").is_dir():
            inside = folder.relative_to(ancestor).parts
            name = (
                ancestor.parent.name
                if _standard(ancestor.name) or ancestor.name == "Maildir"
                else ancestor.name
            )
            return name, inside[0].lstrip(".") if len(inside) > 1 else "inbox"
    if mbox:
        return folder.name, leaf
    for ancestor in chain[:-1]:
        if any(_standard(child.name) for child in ancestor.iterdir() if child.is_dir()):
            return ancestor.name, leaf
    return (chain[-2] if len(chain) > 1 else chain[-1]).name, leaf

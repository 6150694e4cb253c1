"""A branch made in somebody's repository without touching what is checked out: git's own plumbing, and no hooks.

The commit is built in an index of its own on the commit that the pull request is against, so uncommitted work is
neither read nor changed, and no file of the working tree is.  Nothing is forced, and a branch that exists is left as it
is.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import InputError, NotFoundError
from ...escapes import neutral

SECONDS = 120.0
"""For one call of git; a remote may be far away."""
_PLAIN = ("-c", f"core.hooksPath={os.devnull}", "-c", "commit.gpgSign=false", "-c", "core.fsmonitor=false")
"""The user's hooks and signing commands run programs of theirs, which nobody asked for here."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,200}")


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch with the commit on it."""

    name: str
    commit: str
    base: str
    """Commit that it stands on."""
    files: tuple[str, ...] = field(default=())
    """Paths that it changes."""


class GitRepository:
    """The repository that holds a folder.

    Raises:
        NotFoundError: there is none, or git is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self._root = folder
        try:
            self.root = Path(self.run("rev-parse", "--show-toplevel").strip())
        except InputError as error:
            raise NotFoundError(f"{folder} is in no git repository with files: {error}") from error
        self._root = self.root

    def run(self, *words: str, stdin: bytes | None = None, index: Path | None = None) -> str:
        """What git prints.

        Raises:
            InputError: it fails, with what it says.
            NotFoundError: it is not installed.
        """
        # Of the user's own settings all stay but those that name another repository.
        environ = {name: value for name, value in os.environ.items() if name not in _OTHERS}
        environ |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        if index is not None:
            environ["GIT_INDEX_FILE"] = str(index)
        try:
            done = subprocess.run(
                ["git", "--no-pager", *_PLAIN, *words],
                cwd=self._root,
                env=environ,
                input=b"" if stdin is None else stdin,
                capture_output=True,
                timeout=SECONDS,
            )
        except FileNotFoundError:
            raise NotFoundError("git is not installed, and a delivery is a commit") from None
        except subprocess.TimeoutExpired:
            raise InputError(f"git {words[0]} took longer than {SECONDS:g} s and was stopped") from None
        if done.returncode:
            said = neutral(done.stderr.decode(errors="replace").strip()[-600:].replace("\n", " "))
            raise InputError(f"git {words[0]} failed: {said or f'exit code {done.returncode}'}")
        return done.stdout.decode(errors="surrogateescape")

    def default_branch(self, remote: str) -> str:
        """Name of the branch that a remote shows first.

        Raises:
            InputError: the remote cannot be reached, or names none.
        """
        for line in self.run("ls-remote", "--symref", remote, "HEAD").splitlines():
            if line.startswith("ref: refs/heads/"):
                return line.removeprefix("ref: refs/heads/").partition("\t")[0]
        raise InputError(
            f"{remote} names no default branch: say which one the pull request is against (--base)"
        )

    def address(self, remote: str) -> str:
        """Where a remote lies.

        Raises:
            NotFoundError: the repository has no such remote.
        """
        if not _NAME.fullmatch(remote):
            raise InputError(f"{remote!r} is no name of a remote")
        try:
            return self.run("remote", "get-url", "--push", remote).strip()
        except InputError:
            raise NotFoundError(
                f"{self.root} has no remote {remote!r}. Name one (--remote), or make the branch alone (--offline)"
            ) from None

    def fetched(self, remote: str, branch: str) -> str:
        """The commit that a remote's branch is on."""
        checked(branch)
        self.run("fetch", "--no-tags", "--quiet", remote, f"refs/heads/{branch}")
        return self.run("rev-parse", "--verify", "FETCH_HEAD^{commit}").strip()

    def head(self) -> tuple[str, str]:
        """Name of the branch that is checked out ("" of none) and its commit."""
        name = self.run("rev-parse", "--abbrev-ref", "HEAD").strip()
        return ("" if name == "HEAD" else name), self.run("rev-parse", "--verify", "HEAD^{commit}").strip()

    def commit(
        self, branch: str, base: str, patch: bytes, files: Mapping[str, bytes], message: str
    ) -> Branch:
        """Make a branch of one commit on `base`: a patch applied, and files added.

        A branch of that name that has just this is left as it is.

        Args:
            patch: for `git apply`; empty of none.
            files: path from the repository's root → content.

        Raises:
            InputError: the patch does not apply, or the branch exists and holds something else.
        """
        checked(branch)
        with tempfile.TemporaryDirectory(prefix="whet-index-") as folder:
            index = Path(folder) / "index"
            self._apply(base, patch, index)
            entries = "".join(
                f"100644 {self.run('hash-object', '-w', '--stdin', stdin=content).strip()}\t{path}\n"
                for path, content in files.items()
            )
            self.run("update-index", "--add", "--index-info", stdin=entries.encode(), index=index)
            tree = self.run("write-tree", index=index).strip()
        if tree == self.run("rev-parse", f"{base}^{{tree}}").strip():
            raise InputError("nothing would change: there is nothing to deliver")
        commit = self._standing(branch, base, tree)
        if commit is None:
            commit = self.run("commit-tree", tree, "-p", base, "-F", "-", stdin=message.encode()).strip()
            # Forty zeros: only if nobody made it meanwhile.
            self.run("update-ref", f"refs/heads/{branch}", commit, "0" * 40)
        changed = self.run("diff", "--no-ext-diff", "--name-only", "-z", base, commit).split("\0")
        return Branch(branch, commit, base, tuple(filter(None, changed)))

    def _standing(self, branch: str, base: str, tree: str) -> str | None:
        """The commit of a branch that exists and is the same; None where there is none.

        Raises:
            InputError: it holds something else.
        """
        refs = self.run("for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}").split()
        if not refs:
            return None
        parents = self.run("rev-parse", f"{refs[0]}^@").split()
        if parents == [base] and self.run("rev-parse", f"{refs[0]}^{{tree}}").strip() == tree:
            return refs[0]
        raise InputError(
            f"the branch {branch} exists and holds something else. Delete it (git branch -D {branch}), or give another "
            "name (--branch)"
        )

    def diff_of(self, base: str, patch: bytes) -> str:
        """A patch as git writes it, against a commit that it applies to; "" of none.

        Raises:
            InputError: it does not apply.
        """
        if not patch:
            return ""
        with tempfile.TemporaryDirectory(prefix="whet-index-") as folder:
            index = Path(folder) / "index"
            self._apply(base, patch, index)
            plain = (
                "--no-color",
                "--no-ext-diff",
                "--no-textconv",
                "--binary",
                "--src-prefix=a/",
                "--dst-prefix=b/",
            )
            return self.run("diff", "--cached", *plain, base, index=index)

    def _apply(self, base: str, patch: bytes, index: Path) -> None:
        """Fill an index with a commit's files and a patch of them."""
        self.run("read-tree", base, index=index)
        if not patch:
            return
        try:
            self.run("apply", "--cached", "--whitespace=nowarn", "-", stdin=patch, index=index)
        except InputError as error:
            raise InputError(
                f"the patch does not apply to {base[:12]}, where the branch begins: {error}. It was made against other "
                "text; commit and push that, or learn again from what is there"
            ) from error

    def push(self, remote: str, branch: Branch) -> None:
        """Push the one branch, never by force.

        Raises:
            InputError: the remote refuses it.
        """
        name = f"refs/heads/{branch.name}"
        self.run("push", "--no-verify", "--quiet", remote, f"{branch.commit}:{name}")


_OTHERS = frozenset(
    ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_NAMESPACE")
)


def checked(branch: str) -> str:
    """The name of a branch.

    Raises:
        InputError: git or a shell may take it for something else.
    """
    if (
        not _NAME.fullmatch(branch)
        or ".." in branch
        or "//" in branch
        or branch.endswith((".lock", "/", "."))
    ):
        raise InputError(f"{branch!r} is no name of a branch: give letters, digits, and . _ - / between them")
    return branch

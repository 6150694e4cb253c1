"""What a Store says of Bundles: which are recorded, what was judged of them, which one is live.

A Bundle that is recorded (`put_bundle`) can be run under by its id; only a release makes it live, and what is live
is what every rollout, worker, gateway, traced program and policy server gets that names no other.  Its name is
"live"; another name is another log, for what a canary or a shadow follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ..errors import GateError, InputError, NotFoundError
from ..types import Bundle, Verdict, Version
from .batch import Batch
from .bundles import EMPTY
from .codec import decode
from .names import known_names, refuse_unknown
from .release import Release, history, stored_bundle
from .writer import Value

LIVE = "live"
PROGRAM = "program"
"""Kind of a whole file, which no code reads from the record."""


class Releases:
    """The part of a Store that keeps Bundles, Verdicts and the release log."""

    path: str

    def rows(self, query: str, values: Sequence[Value] = ()) -> list[Any]:
        """The Store's own."""
        raise NotImplementedError

    def batch(self) -> Batch:
        """The Store's own."""
        raise NotImplementedError

    def versions(self, resource: str | None = None, *, ids: Sequence[str] | None = None) -> Iterator[Version]:
        """The Store's own."""
        raise NotImplementedError

    # -- Bundles ------------------------------------------------------------------------------

    def put_bundle(self, bundle: Bundle) -> str:
        """Record a Bundle and its Versions, without making it live; returns its id.

        One already stored stays as it is, for its id is its content.
        """
        with self.batch() as batch:
            batch.put_bundle(bundle)
        return bundle.id

    def bundle(self, id: str) -> Bundle:
        """The recorded Bundle with this id; the empty one is the agent as it came, and always there.

        Raises:
            NotFoundError: there is none.
        """
        if id == EMPTY.id:
            return EMPTY
        rows = self.rows("SELECT body FROM bundles WHERE id = ?", [id])
        if not rows:
            raise NotFoundError(f"{self.path} holds no Bundle {id!r}.")
        return stored_bundle(self, rows[0][0], f"Bundle {id}")

    # -- Verdicts -----------------------------------------------------------------------------

    def put_verdict(self, verdict: Verdict, *, experiment: str = "") -> str:
        """Record what the gate decided on a Bundle; returns the Verdict's id.

        Args:
            experiment: name of the one that judged.

        Raises:
            InputError: the Verdict does not say which Bundle was judged.
        """
        with self.batch() as batch:
            batch.put_verdict(verdict, experiment=experiment)
        return verdict.id

    def verdicts(self, *, candidate: str | None = None) -> Iterator[Verdict]:
        """Verdicts in the order in which they were recorded.

        Args:
            candidate: only those on the Bundle with this id.
        """
        where, values = ("WHERE candidate = ? ", [candidate]) if candidate is not None else ("", [])
        for (body,) in self.rows(f"SELECT body FROM verdicts {where}ORDER BY seq", values):
            yield decode(body, Verdict)

    # -- what is live -------------------------------------------------------------------------

    def live(self, name: str = LIVE) -> Bundle | None:
        """What is live under `name`, None if nothing ever was."""
        found = self.history(name, last=1)
        return found[0].bundle if found else None

    def history(self, name: str = LIVE, *, last: int | None = None) -> list[Release]:
        """What was live under `name`, oldest first; the last entry is live now."""
        return history(self, name, last)

    def release(
        self,
        bundle: Bundle,
        verdict: Verdict | None = None,
        *,
        unproven: bool = False,
        new_names: bool = False,
        reason: str = "",
    ) -> Release:
        """Make the Versions of `bundle` live, beside what is live under other names; the one way to do so.

        Every run that begins later has them, without a restart: the gateway, workers, traced programs, policy
        servers and old-protocol clients follow the record.

        Args:
            verdict: on this Bundle, promoting it; the newest recorded one if None.
            unproven: release without such a Verdict; the log says so.
            new_names: allow names that nothing reads yet.
            reason: for the log.

        Raises:
            GateError: no Verdict promotes this Bundle.
            InputError: the Bundle is empty, the Verdict is on another one, or nothing reads one of its names.
        """
        if not bundle:
            raise InputError(
                "an empty Bundle releases nothing. To go back to the agent as it came, roll back."
            )
        log = self.history(last=1)
        live = log[0].bundle if log else EMPTY
        merged = live.put(*bundle.values())
        if not new_names:
            refuse_unknown(set(bundle), known_names(self, live))
        proof = self._proof(bundle, merged, verdict, unproven=unproven)
        proven = None if proof is None else proof.id
        if log and merged == live and proven in (None, log[0].verdict):
            return log[0]  # it is live: another entry would only make a rollback of it do nothing
        with self.batch() as batch:
            batch.put_bundle(bundle)
            if proof is not None:
                batch.put_verdict(proof)
            previous = log[0].previous if log and merged == live else ""
            return batch.set_live(merged, reason=reason, previous=previous, verdict=proven)

    def rollback(self, name: str = LIVE, *, reason: str = "rollback") -> Bundle:
        """Make live what was live before; repeated, it goes further back, at last to the agent as it came.

        Returns:
            What is live now; empty is the agent as it came.

        Raises:
            NotFoundError: what is live is the agent as it came: there is nothing before it.
        """
        releases = self.history(name)
        if not releases:
            raise NotFoundError(f"nothing was ever released as {name!r}: this is the agent as it came.")
        current = releases[-1]
        before = {release.id: release for release in releases}.get(current.previous or "")
        if before is None and not current.bundle:
            raise NotFoundError(f"what is {name} is the agent as it came; there is nothing before it.")
        with self.batch() as batch:
            if before is None:
                batch.set_live(EMPTY, name, reason=reason, previous=None)
                return EMPTY
            batch.set_live(
                before.bundle,
                name,
                reason=reason,
                previous=before.previous,
                verdict=before.verdict,
                unproven=before.unproven,
            )
        return before.bundle

    def set_live(self, bundle: Bundle, name: str = LIVE, *, reason: str = "") -> Release:
        """Make exactly `bundle` live, unasked: the write under `release`, which is what to call."""
        with self.batch() as batch:
            return batch.set_live(bundle, name, reason=reason)

    def _proof(
        self, bundle: Bundle, merged: Bundle, verdict: Verdict | None, *, unproven: bool
    ) -> Verdict | None:
        """The Verdict that this release stands on; None where it is released without one."""
        if verdict is None:
            found = [*self.verdicts(candidate=bundle.id), *self.verdicts(candidate=merged.id)]
            verdict = found[-1] if found else None
            if verdict is None:
                if unproven:
                    return None
                if any(version.kind == PROGRAM for version in bundle.values()):
                    raise GateError(
                        f"nothing has proven {', '.join(sorted(bundle))}: its evaluator ran beside it, so its score "
                        "steers a search and proves nothing. Try it on work that the search did not see, then release "
                        "it as it is: --unproven (unproven=True)."
                    )
                raise GateError(
                    f"nothing has proven Bundle {bundle.id} ({', '.join(sorted(bundle))}): the record has no Verdict "
                    "on it. Judge it first (whet gate, Experiment.gate), or release it as it is: --unproven "
                    "(unproven=True)."
                )
        if verdict.candidate not in (bundle.id, merged.id):
            raise InputError(
                f"the Verdict is on Bundle {verdict.candidate or '(none named)'}, and this is {bundle.id}. "
                "Give the Verdict on it (Verdict.candidate), or release it with unproven=True."
            )
        if verdict.promote:
            return verdict
        if unproven:
            return None
        why = f" {verdict.reasons[0]}" if verdict.reasons else ""
        raise GateError(
            f"the Verdict on Bundle {bundle.id} does not promote it.{why} Improve it, or release it all the "
            "same: --unproven (unproven=True)."
        )


def release_of(source: Releases, id: str) -> Bundle:
    """The Bundle that an id names: of a Bundle, a Version, a Verdict or an improvement's checkpoint.

    Raises:
        NotFoundError: nothing recorded has this id.
    """
    if id == EMPTY.id or source.rows("SELECT 1 FROM bundles WHERE id = ?", [id]):
        return source.bundle(id)
    if version := list(source.versions(ids=[id])):
        return Bundle(version)
    if rows := source.rows("SELECT candidate FROM verdicts WHERE id = ?", [id]):
        return source.bundle(rows[0][0])
    if rows := source.rows("SELECT body FROM states WHERE key = ?", [id]):
        checkpoint = msgspec.json.decode(rows[0][0])
        if isinstance(checkpoint, dict) and isinstance(checkpoint.get("bundle"), list):
            return Bundle(msgspec.convert(checkpoint["bundle"], list[Version]))
    raise NotFoundError(
        f"{id!r} is neither a folder or file with a Bundle, nor the id of a Bundle, Version, Verdict or improvement "
        f"in {source.path}. To release one file under a name: whet release NAME FILE"
    )

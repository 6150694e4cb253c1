"""`whet extract-targets`: what a repository marks as something to improve."""

from __future__ import annotations

from pathlib import Path

from .root import Print, command, counted, print_json

HERE = Path()


@command("extract-targets")
def extract_targets(path: Path = HERE, /, *, output: Path | None = None, json: Print = False) -> int:
    """List the parts of a repository that can be improved, and optionally stage each one so that it runs alone.

    Finds functions marked with @whet.evolve, constants marked with a comment (# whet: evolve kind=prompt),
    whet.resource texts, tool descriptions, MCP tool schemas and skill files. Nothing is imported or run. The names
    that a target uses are followed through the repository; those that cannot be followed are listed. Without any mark
    it proposes what could be marked, and how.

    Parameters
    ----------
    path
        The repository.
    output
        Stage every target in a folder of its own inside this one.
    """
    from ..learn.evolution.agents.extract import described, extract, stage
    from ..learn.evolution.agents.unmarked import proposals

    slices, marks, problems = extract(path)
    staged = {piece.mark: str(stage(piece, output)) for piece in slices} if output else {}
    by_mark = {piece.mark: piece for piece in slices}
    rows = []
    for mark in marks:
        target = by_mark.get(mark)
        plain = {"name": mark.name, "kind": mark.kind, "metric": mark.metric, "path": mark.path}
        row = described(target) if target else plain | {"line": mark.line, "how": mark.how}
        rows.append(row | ({"staged": staged[mark]} if mark in staged else {}))
    proposed = [] if marks else proposals(path)
    if json:
        print_json(
            {
                "targets": rows,
                "not_read": problems,
                "proposed": [proposal.json() for proposal in proposed],
            }
        )
        return 0
    for mark in marks:
        target = by_mark.get(mark)
        metric = f", metric {mark.metric}" if mark.metric else ""
        print(f"{mark.path}:{mark.line}: {mark.name} ({mark.kind}{metric}; {mark.how})")
        if target is not None:
            print(
                f"    {counted(len(target.dependencies), 'name')} in {counted(len(target.files), 'file')}, "
                f"entry {target.entry}"
            )
            for reason in target.unsure:
                print(f"    not followed: {reason}")
    for name, reason in problems.items():
        print(f"{name}: {reason}")
    print(counted(len(marks), "target"))
    for proposal in proposed:
        print(f"{proposal.path}:{proposal.line}: {proposal.name} ({proposal.kind}): {proposal.why}")
        print(f"    {proposal.do}")
    if not marks and not proposed:
        print("mark a function with @whet.evolve, or a constant with the comment # whet: evolve kind=prompt")
    return 0

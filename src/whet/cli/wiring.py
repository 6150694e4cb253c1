"""`whet init` and `whet doctor`: from somebody's repository to a first record."""

from __future__ import annotations

from pathlib import Path

from .root import Print, command, counted, print_json


@command("init")
def init(path: Path = Path(), /, *, json: Print = False) -> int:
    """Propose how to record your agent: at most three changed lines.

    Reads the repository without running or changing its code. Writes whet.json, a folder for the record that git
    ignores, a step for continuous integration, and the proposed lines as .whet/wiring.patch for `git apply`.

    Parameters
    ----------
    path
        Root of the repository.
    """
    from ..repository.propose import PATCH, VARIABLE, propose
    from ..repository.scan import scan

    agent = scan(path)
    proposal = propose(agent)
    written = proposal.write()
    if proposal.diff:
        # newline="": git refuses a patch whose line ends are not those of the file.
        (path / PATCH).write_text(proposal.diff, encoding="utf-8", newline="")
    if json:
        described = {
            "framework": agent.framework,
            **{
                kind: [f"{mark.path}:{mark.line}:{mark.name}" for mark in getattr(agent, kind)]
                for kind in ("entry_points", "prompts", "tools")
            },
            "changed_lines": proposal.added_lines,
            "diff": proposal.diff,
            "command": proposal.command,
            "written": written,
            "notes": proposal.notes,
            "advice": proposal.advice,
        }
        print_json(described)
        return 0
    elsewhere = path.resolve() != Path.cwd()
    print(
        f"{agent.framework or 'an agent that calls a model'}: "
        f"{counted(len(agent.entry_points), 'entry point')}, "
        f"{counted(len(agent.prompts), 'prompt')}, {counted(len(agent.tools), 'tool')} "
        f"in {counted(agent.files, 'file')}"
    )
    for name in written:
        asks = VARIABLE in proposal.files[name]
        print(f"wrote {name}" + (f"; set {VARIABLE} in it to where pip finds whet" if asks else ""))
    if proposal.diff:
        print(
            f"\n{proposal.diff}\nTo apply these lines: git {f'-C {path} ' if elsewhere else ''}apply {PATCH}"
        )
    else:
        print("no line needs to change")
    for note in proposal.notes:
        print(f"note: {note}")
    print(f"Then record it{f' (in {path})' if elsewhere else ''}: {proposal.command}")
    for way in proposal.advice:
        print(way)
    return 0


@command("doctor")
def doctor(path: Path = Path(), /, *, json: Print = False) -> int:
    """Find out why an agent is not recorded, and how to fix it.

    Checks the repository and the Python that whet runs in: whether the record is writable, which instrumentors are
    broken in the installed versions, and which prompts are read at import. Exits 1 if something is broken.

    Parameters
    ----------
    path
        Root of the repository.
    json
        Print the findings as a JSON list.
    """
    from ..repository.diagnose import diagnose
    from ..repository.scan import scan

    findings = diagnose(scan(path))
    if json:
        print_json(findings)
    else:
        for finding in findings:
            print(f"{finding.level:8}{finding.what}")
            if finding.fix:
                print(f"        fix: {finding.fix}")
    return int(any(finding.level == "error" for finding in findings))

"""`whet init` and `whet doctor`: from somebody's repository to a first record."""

from __future__ import annotations

from pathlib import Path

import msgspec

from .app import app, counted


@app.command
def init(path: Path = Path(), /, *, json: bool = False) -> int:
    """Read an agent's repository and propose how to record it, in at most three changed lines.

    Nothing of the repository is run or changed. Writes whet.json, a folder for the record that git ignores, a step
    for continuous integration, and the proposed lines as .whet/wiring.patch for `git apply`.

    Parameters
    ----------
    path
        Root of the repository.
    json
        Print what was found and proposed as one JSON object.
    """
    from ..wiring.propose import PATCH, VARIABLE, propose
    from ..wiring.scan import scan

    agent = scan(path)
    proposal = propose(agent)
    written = proposal.write()
    if proposal.diff:
        (path / PATCH).write_text(proposal.diff, encoding="utf-8", newline="")
    if json:
        described = {
            "framework": agent.framework,
            "entry_points": [f"{entry.path}:{entry.line}:{entry.name}" for entry in agent.entry_points],
            "prompts": [f"{prompt.path}:{prompt.line}:{prompt.name}" for prompt in agent.prompts],
            "tools": [f"{tool.path}:{tool.line}:{tool.name}" for tool in agent.tools],
            "changed_lines": proposal.added_lines,
            "diff": proposal.diff,
            "command": proposal.command,
            "written": written,
            "notes": proposal.notes,
        }
        print(msgspec.json.encode(described).decode())
        return 0
    there = "" if path.resolve() == Path.cwd() else f"-C {path} "
    print(
        f"{agent.framework or 'an agent that calls a model'}: {counted(len(agent.entry_points), 'entry point')}, "
        f"{counted(len(agent.prompts), 'prompt')}, {counted(len(agent.tools), 'tool')} "
        f"in {counted(agent.files, 'file')}"
    )
    for name in written:
        needs_variable = VARIABLE in proposal.files[name]
        print(f"wrote {name}" + (f"; set {VARIABLE} there to where pip finds whet" if needs_variable else ""))
    if proposal.diff:
        print(f"\n{proposal.diff}\nTo take these lines: git {there}apply {PATCH}")
    else:
        print("no line has to change")
    for note in proposal.notes:
        print(f"note: {note}")
    where = f" (in {path})" if there else ""
    print(f"Then record it{where}: {proposal.command}")
    return 0


@app.command
def doctor(path: Path = Path(), /, *, json: bool = False) -> int:
    """Say what stands between an agent and its record, and how to mend it.

    Looks at the repository and at the Python that whet runs in: is the record writable, which instrumentor is broken
    with which version, which prompts are read at import. The exit code is 1 if something is broken.

    Parameters
    ----------
    path
        Root of the repository.
    json
        Print the findings as a JSON list.
    """
    from ..wiring.diagnose import diagnose
    from ..wiring.scan import scan

    findings = diagnose(scan(path))
    if json:
        print(msgspec.json.encode(findings).decode())
    else:
        for finding in findings:
            print(f"{finding.level:8}{finding.what}")
            if finding.fix:
                print(f"        fix: {finding.fix}")
    return int(any(finding.level == "error" for finding in findings))

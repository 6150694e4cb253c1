"""JUnit XML, of pytest, Jest, Node, Maven and others: a test is a task, known by its class and name.

A skipped test was not run. In a report of pytest an `error` is one of a fixture, and so an infrastructure error; any
other runner says `error` of an exception in the test itself, which has failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from ...errors import InputError
from ...types import Outcome
from .file import ResultFile
from .rows import Reading, Row

_DEEPEST = 100
_ENDS = {
    **dict.fromkeys(("failed", "failure", "fail"), "failure"),
    "error": "error",
    **dict.fromkeys(("skipped", "notrun", "disabled", "ignored"), "skipped"),
}
"""`status` or `result` of a test → the element that says the same."""


def claims(file: ResultFile) -> bool:
    """Whether it is XML."""
    return file.start == b"<"


@dataclass(slots=True)
class _Report:
    """What the parser has come by."""

    reading: Reading
    depth: int = 0
    tests: int = 0
    of_pytest: bool = False
    case: dict[str, str] = field(default_factory=dict)
    line: int = 0
    inside: bool = False
    ends: set[str] = field(default_factory=set)
    suites: list[str] = field(default_factory=list)
    root: str = ""

    def start(self, name: str, attributes: dict[str, str], line: int) -> None:
        name = name.rpartition(":")[2]
        self.depth += 1
        self.root = self.root or name
        if self.depth > _DEEPEST:
            raise InputError(f"line {line}: its elements lie more than {_DEEPEST} deep")
        if name == "testsuite":
            self.suites.append(attributes.get("name", ""))
            self.of_pytest |= attributes.get("name") == "pytest"
        elif name == "testsuites":
            self.of_pytest |= attributes.get("name") == "pytest tests"
        elif name == "testcase":
            self.case, self.line, self.inside, self.ends = attributes, line, True, set()
            # Some runners say it in an attribute alone.
            said = {attributes.get(key, "").casefold() for key in ("status", "result")}
            self.ends = {end for word, end in _ENDS.items() if word in said}
        elif self.inside and name in ("failure", "error", "skipped"):
            self.ends.add(name)

    def end(self, name: str) -> None:
        name = name.rpartition(":")[2]
        self.depth -= 1
        if name == "testsuite" and self.suites:
            self.suites.pop()
        if name == "testcase" and self.inside:
            self.inside = False
            where = f"line {self.line}"
            try:
                self.reading.add(self._row(where))
            except InputError as error:
                self.reading.unread.append((where, str(error)))

    def _row(self, where: str) -> Row | None:
        name = self.case.get("name", "")
        if not name:
            raise InputError("a testcase without a name")
        if "skipped" in self.ends and "failure" not in self.ends:
            return None
        group = (
            self.case.get("classname") or self.case.get("file") or (self.suites[-1] if self.suites else "")
        )
        broken = "error" in self.ends and self.of_pytest and "failure" not in self.ends
        return Row(
            where=where,
            task=f"{group}::{name}" if group else name,
            scores={} if broken else {"passed": not self.ends & {"failure", "error"}},
            outcome=Outcome.INFRASTRUCTURE_ERROR if broken else Outcome.UNKNOWN,
            fields={
                "classname": self.case.get("classname", ""),
                "file": self.case.get("file", ""),
                "suite": self.suites[-1] if self.suites else "",
            },
        )


def read(file: ResultFile) -> Reading:
    """The rows, each with `passed`.

    Raises:
        InputError: it is not XML, declares a document type or entities, or is of another kind.
    """
    reading = Reading("junit", primary="passed")
    report = _Report(reading)
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise InputError(
            f"line {parser.CurrentLineNumber}: it declares a document type, which no report needs"
        )

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = lambda *_: 0
    parser.StartElementHandler = lambda name, attributes: report.start(
        name, attributes, parser.CurrentLineNumber
    )
    parser.EndElementHandler = report.end
    try:
        parser.Parse(file.body, True)
    except expat.ExpatError as error:
        raise InputError(f"{file.path} is not XML that can be read: {error}") from error
    except (InputError, ValueError, LookupError) as error:
        raise InputError(f"{file.path}, {error}") from error
    if report.root not in ("testsuites", "testsuite"):
        raise InputError(f"{file.path} is not a JUnit report: it begins with <{report.root[:40]}>")
    return reading

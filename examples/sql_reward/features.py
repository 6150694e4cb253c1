"""What one query says of itself: question, schema, SQL and result, and nothing of the episode around it.

Every feature is known the moment the query has run.  Most compare the question with the query: does what is asked
for ("how many", "each", "not") stand in the SQL, are the columns that are named there used, do the values agree.
None is the name of a table or column, so that they mean the same in a database never seen.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from whet.types import Trajectory

ASKED = {
    "count": r"\bhow many\b|\bnumber of\b|\bcount\b",
    "avg": r"\baverages?\b|\bmean\b",
    "sum": r"\btotal\b|\bsum\b",
    "max": r"\b(maximum|max|most|largest|biggest|highest|greatest|oldest|longest|best|top|latest|last)\b",
    "min": r"\b(minimum|min|least|smallest|lowest|youngest|shortest|fewest|earliest|first)\b",
    "distinct": r"\b(different|distinct|unique)\b",
    "group": r"\b(each|per|every)\b",
    "order": r"\b(order|sort|rank|ascending|descending|alphabet)",
    "desc": r"\b(descend|decreas|revers)",
    "not": r"\b(not|never|no|without|except|nor)\b|n't\b",
    "or": r"\b(or|either)\b",
    "and": r"\b(and|both|also)\b|,",
    "than": r"\b(more|less|fewer|greater|older|younger|higher|lower) than\b"
    r"|\b(at least|at most|above|over|below|after|before)\b",
    "between": r"\bbetween\b",
    "code": r"\b(ids?|codes?)\b",
}
"""Kind of request → words that ask for it."""
SAID = {
    "count": r"\bCOUNT\s*\(",
    "avg": r"\bAVG\s*\(",
    "sum": r"\bSUM\s*\(",
    "max": r"\bMAX\s*\(",
    "min": r"\bMIN\s*\(",
    "distinct": r"\bDISTINCT\b",
    "group": r"\bGROUP BY\b",
    "order": r"\bORDER BY\b",
    "desc": r"\bDESC\b",
    "not": r"\bNOT\b|\bEXCEPT\b|!=|<>",
    "or": r"\bOR\b|\bUNION\b|\bIN\s*\(",
    "and": r"\bAND\b|\bINTERSECT\b",
    "than": r"[<>]",
    "between": r"\bBETWEEN\b",
    "limit": r"\bLIMIT\b",
    "join": r"\bJOIN\b",
    "outer": r"\b(LEFT|RIGHT) (OUTER )?JOIN\b",
    "where": r"\bWHERE\b",
    "having": r"\bHAVING\b",
    "like": r"\bLIKE\b",
    "inside": r"\(\s*SELECT\b",
    "everything": r"\bSELECT\s+(\w+\.)?\*",
    "catalogue": r"\binformation_schema\b",
    "renamed": r"\bAS\b",
    "reshaped": r"\b(CASE|CONCAT|ROUND|FORMAT|CAST)\b",
    "quoted": r"`",
}
"""Kind of clause → how it is written."""
_ASKED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in ASKED.items()}
_SAID = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in SAID.items()}
_FILLER = """a an the of in on at for to by with and or is are was were be what which who whom whose how many much
that this those these all each any every do does did have has had their there them they it its from as than we find
show list give return me please where when"""
_SKIPPED = frozenset(_FILLER.split())


def features(trajectory: Trajectory) -> Mapping[str, float | None] | None:
    """The features of the one query of a trajectory; None if it holds none."""
    if not trajectory.steps:
        return None
    step, task = trajectory.steps[-1], trajectory.task
    question, sql, tables = task.instruction, str(step.action), task.meta["tables"]
    return {
        **_requests(question, sql),
        **_names(question, sql, tables),
        **_selected(question, sql, tables),
        **_values(question, sql),
        **_result(str(step.observation)),
        "query length": float(len(sql)),
        "query by question": len(sql) / max(1, len(question)),
    }


def _requests(question: str, sql: str) -> dict[str, float | None]:
    """What is asked for beside what is said: both, and where they differ."""
    asked = {name: float(bool(pattern.search(question))) for name, pattern in _ASKED.items()}
    said = {name: float(len(pattern.findall(sql))) for name, pattern in _SAID.items()}
    found: dict[str, float | None] = {f"asked {name}": value for name, value in asked.items()}
    found |= {f"said {name}": value for name, value in said.items()}
    for name in asked.keys() & said.keys():
        found[f"said {name} as asked"] = min(1.0, said[name]) - asked[name]
    extreme = bool(asked["max"] or asked["min"])
    found["extreme as asked"] = float(bool(said["max"] or said["min"] or said["limit"])) - extreme
    return found


def _names(question: str, sql: str, tables: Mapping[str, Sequence[str]]) -> dict[str, float | None]:
    """Which names of the schema the question speaks of, and which of them the query uses."""
    asked, written = _words(question), set(re.findall(r"\w+", sql.lower()))
    columns = {column.lower() for one in tables.values() for column in one}
    owners = {table.lower() for table in tables}
    used, joined = columns & written, owners & written
    speakable = frozenset().union(*map(_words, columns | owners)) & asked
    spelled = _words(sql)
    named = {column for column in columns if _words(column) and _words(column) <= asked}
    return {
        "words of the schema left out": float(len(speakable - spelled)),
        "words of the schema used": float(len(speakable & spelled)),
        "words of the question used": len(asked & spelled) / max(1, len(asked)),
        "columns": float(len(used)),
        "columns spoken of": _share([bool(_words(column) & asked) for column in used]),
        "columns not spoken of": float(sum(not _words(column) & asked for column in used)),
        "columns named": float(len(named)),
        "columns named and left out": float(len(named - used)),
        "tables": float(len(joined)),
        "tables there are": float(len(owners)),
        "tables named": _share([_words(table) <= asked for table in joined]),
        "tables named and left out": float(sum(_words(table) <= asked for table in owners - joined)),
        "grouped by a key": float(bool(re.search(r"group by\s+\S*id\b", sql, re.IGNORECASE))),
    }


def _selected(question: str, sql: str, tables: Mapping[str, Sequence[str]]) -> dict[str, float | None]:
    """What is selected, beside what the head of the question lists."""
    columns = {column.lower() for one in tables.values() for column in one}
    asked, parts = _words(question), _parts(sql)
    inside = [columns & set(re.findall(r"\w+", part.lower())) for part in parts]
    head = re.split(r"\b(?:of|for|whose|where|who|that|with|in|from)\b", question.lower(), maxsplit=1)[0]
    return {
        "selected": float(len(parts)),
        "selected beyond those listed": float(len(parts) - 1 - len(re.findall(r"\band\b|,", head))),
        "selected and spoken of": _share([any(_words(name) & asked for name in names) for names in inside]),
        "selected and not spoken of": float(
            sum(bool(names) and not any(_words(name) & asked for name in names) for names in inside)
        ),
        "selected keys": float(sum(any(name.endswith("id") for name in names) for names in inside)),
        "selected aggregates": float(
            sum(bool(re.search(r"\b(count|avg|sum|max|min)\s*\(", part, re.IGNORECASE)) for part in parts)
        ),
    }


def _values(question: str, sql: str) -> dict[str, float | None]:
    """Texts and numbers on one side that are not on the other."""
    texts = [one.strip("%") for pair in re.findall(r"'([^']*)'|\"([^\"]*)\"", sql) for one in pair if one]
    bare = re.sub(r"'[^']*'|\"[^\"]*\"|(?i:limit\s+\d+)", "", sql)
    numbers = re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", bare)
    capitals = re.findall(r"(?<!^)(?<![.?!] )\b[A-Z][a-z]+", question)
    quoted = [one for pair in re.findall(r"'([^']+)'|\"([^\"]+)\"", question) for one in pair if one]
    return {
        "texts": float(len(texts)),
        "texts not in the question": float(sum(text.lower() not in question.lower() for text in texts)),
        "texts in other case": float(sum(text not in question for text in texts)),
        "numbers": float(len(numbers)),
        "numbers not in the question": float(sum(number not in question for number in numbers)),
        "numbers left out": float(
            sum(number not in sql for number in re.findall(r"\d+(?:\.\d+)?", question))
        ),
        "names left out": float(sum(name.lower() not in sql.lower() for name in capitals)),
        "quotations left out": float(sum(text.lower() not in sql.lower() for text in quoted)),
    }


def _result(seen: str) -> dict[str, float | None]:
    """The shape of what came back; missing where it was cut off and cannot be read."""
    try:
        rows: Any = ast.literal_eval(seen)
    except (ValueError, SyntaxError):
        rows = None
    found: dict[str, float | None] = {"result length": float(len(seen)), "rows": float(seen.count("("))}
    if not (isinstance(rows, list) and rows and isinstance(rows[0], tuple)):
        return found | dict.fromkeys(("width", "rows twice", "nothings", "numbers in a row", "only zero"))
    cells = [cell for row in rows for cell in row]
    return found | {
        "rows": float(len(rows)),
        "width": float(len(rows[0])),
        "rows twice": float(len(rows) - len({repr(row) for row in rows})),
        "nothings": float(sum(cell in (None, "") for cell in cells)),
        "numbers in a row": float(sum(isinstance(cell, (int, float)) for cell in rows[0])),
        "only zero": float(len(cells) == 1 and cells[0] in (0, None)),
    }


def _parts(sql: str) -> list[str]:
    """What the outermost SELECT selects, cut at its commas."""
    found = re.match(r"\s*select\s+(?:distinct\s+)?(.*?)\bfrom\b", sql, re.IGNORECASE | re.DOTALL)
    if found is None:
        return []
    parts, depth = [""], 0
    for sign in found[1]:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


@cache
def _words(text: str) -> frozenset[str]:
    """Words without their endings, `PetType` and `pet_type` as two."""
    spread = re.sub(r"([a-z])([A-Z])", r"\1 \2", text).replace("_", " ")
    return frozenset(
        _stem(word) for word in re.findall(r"[a-z]+|\d+", spread.lower()) if word not in _SKIPPED
    )


def _stem(word: str) -> str:
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def _share(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None

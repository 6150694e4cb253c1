"""The kinds of statements in a text of SQL: `select`, `insert`, `drop`.

It reads comments, quotes and names as the common databases agree on them; where they differ (a backslash in a string, a
comment that MySQL runs) the text is not understood.
"""

from __future__ import annotations

import re

from .shell import NotUnderstood, refuse_hidden

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*(?:\n|$)|/\*(?!!|\+)[^*]*\*+(?:[^/*][^*]*\*+)*/)"""
    r"""|(?P<text>'(?:[^'\\]|'')*'|"(?:[^"\\]|"")*"|`[^`\\]*`|\[[^\]\\]*\])"""
    r"""|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"""
    r"""|(?P<end>;)"""
    r"""|(?P<other>[0-9A-Za-z_.]+|[-+*/%<>=!,().:?|&~^@])""",
    re.DOTALL,
)
_WORDS = (
    "insert update delete merge replace drop create alter truncate into copy grant revoke attach detach call exec "
    "execute do load vacuum set lock outfile"
)
_WRITING = frozenset(_WORDS.split())
_REACHING = re.compile(
    r"pg_read_\w+|pg_ls_\w+|pg_write_\w+|lo_\w+|dblink\w*|xp_\w+|sp_\w+|load_file|load_extension|readfile|writefile|edit"
    r"|fts3_tokenizer|sys_\w+|utl_\w+|dbms_\w+|openrowset|opendatasource|pg_sleep|pg_terminate_backend|sleep|benchmark"
    r"|set_config|nextval|setval|query_to_xml|database_to_xml|copy"
)
"""Functions that reach further than the rows of the database."""


def statement_kinds(text: str) -> tuple[str, ...]:
    """The first word of each statement, and each word in it that writes.

    Raises:
        NotUnderstood: databases may read it differently, or it reaches beyond the rows.
    """
    refuse_hidden(text)
    kinds: list[str] = []
    first, common, at = True, False, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotUnderstood(f"the SQL has {text[at : at + 10]!r}, which databases read differently")
        at = match.end()
        word = (match.group("word") or "").lower()
        if match.group("end"):
            first, common = True, False
        elif word:
            if _REACHING.fullmatch(word):
                raise NotUnderstood(f"the SQL calls {word}, which reaches further than its rows")
            if word == "with" and first:
                common = True  # its statement comes after it
            elif first or word in _WRITING or (common and word == "select"):
                kinds.append(word)
            first = False
        elif not match.group("space"):
            if first:
                raise NotUnderstood("a statement of the SQL does not begin with a word")
            quoted = (match.group("text") or "").strip('"`[]').lower()
            if quoted and _REACHING.fullmatch(quoted):
                raise NotUnderstood(f"the SQL names {quoted}, which reaches further than its rows")
    if not kinds:
        raise NotUnderstood("there is no statement in the SQL")
    return tuple(dict.fromkeys(kinds))

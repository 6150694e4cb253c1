# ruff: noqa: E501 - a pattern is read in one piece
"""Secrets that are known by the structure around them: a column of a table, an entry of Kubernetes' Secret, a member of
a JSON Web Key, a field of a form, the login of a protocol, an argument of a command that sets a secret.

A table or an object may hold many: what finds them is a function from a text to places (`FINDERS`), not a pattern.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator

import re2

from .letters import drawn
from .names import KEYED, Named, random_looking, told
from .places import BEYOND, NEAR, NEAR_BEYOND, argument, machine_made, mixed, place, short_code
from .vendors import UUID

_PASSWORD = r"pass(?:word|wd|phrase|code|wort)?|pwd"
_WORD = r"password|passwd|passphrase|pwd|secret|token|api[_ -]?key|private[_ -]?key|access[_ -]?key"
QUOTE = r"\\{0,7}[\"']"
"""A quote, escaped or not."""
LINE = r"(?:\r?\n|(?:\\r)?\\n)"
"""The end of a line, in text and in JSON."""
_ENDS = r"(?=[.,;:]{0,3}(?:[\s\"'`<>(){}\[\]|\\]|\Z))"
OPAQUE = r"[^\s\"'`<>(){}\[\]|\\]"
_SIGNS = "!#$%^&*+~@?"
_UUID = re.compile(UUID)
_PASSPHRASE = re.compile(r"(?:[A-Za-z][a-z]{2,9}[-.]){2,6}[A-Za-z]?[a-z]{2,9}[-.]?\d{1,4}")
PRIVATE_MEMBERS = ("d", "p", "q", "dp", "dq", "qi", "k")
"""Of a JSON Web Key (RFC 7518); the others are public."""


def opaque(text: str) -> bool:
    """True of what looks chosen to be safe, or made by a machine."""
    return mixed(text) or (machine_made(text) and not text.startswith(("http", "/", "{")))


def strong(text: str) -> bool:
    """True of what is hardly anything but a password: letters and digits with a sign, or with capitals among them, or
    words that a generator put together."""
    text = text.strip("`*_").rstrip(".,;:")
    if _PASSPHRASE.fullmatch(text):
        return told(text)
    signed = any(sign in text for sign in _SIGNS)
    cases = any(map(str.isupper, text)) and any(map(str.islower, text))
    if not mixed(text) or not (signed or (cases and text.isalnum())):
        return False
    return sum(map(str.isdigit, text)) >= 2 or (len(text) >= 10 and drawn(text))


def login_message(text: str) -> bool:
    """True of SASL's PLAIN message (RFC 4616): names and a password with zeros between, in base64."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True).count(b"\0") == 2
    except ValueError:
        return False


def typed(text: str) -> bool:
    """True of what is typed into a field for a password."""
    return mixed(text) or (told(text) and any(map(str.isdigit, text)) and not text.isdigit())


def literal(text: str) -> bool:
    """True of a key that a machine made, which is no UUID: those are mostly names of something."""
    return machine_made(text) and _UUID.fullmatch(text) is None


def _of_a_pair(text: str) -> bool:
    """True of a value beside its name: chosen, made by a machine, or a secret for codes (base32)."""
    return opaque(text) or (len(text) >= 16 and random_looking(text))


def key_half(text: str) -> bool:
    """True of a number of a private key in base64."""
    return len(text) >= 40 and random_looking("".join(text.split()))


def _joins(text: str) -> bool:
    """True of the key of a network, which may be digits alone."""
    return any(map(str.isdigit, text)) and len(set(text)) > 3


FIELD = re.compile(rf"(?i)(?:{_PASSWORD})(?![a-z])")
"""Names of fields that a password is typed into."""
_ENCODED = rf"(?i:key|token|secret|signature|sig|auth|{_PASSWORD})%3[Dd]"
_SETS = (
    r"(?i:secrets?|keyvault|parameter|credentials?|login|signin|auth|vault|unseal|apikeys?|tokens?|context)"
)
_FLAG = r"--(?:value|body|auth|key|data|text|content|secret-string|pat)"

STRUCTURES: tuple[Named, ...] = (
    # Forms and pages.
    place("password", rf"(?i:{_PASSWORD})", rf"[^{{}}\n]{{0,40}}?{QUOTE}\s?,\s{{0,9}}{QUOTE}(?:text|value|input|content|keys){QUOTE}\s?:\s{{0,9}}{QUOTE}(?P<secret>[^\"'\n\\]{{4,100}}){QUOTE}",
          typed, NEAR),
    place("password", r"(?i:<input\s)", r"(?=[^<>]{0,400}?\btype\s?=\s?[\\\"']{0,4}password\b)[^<>]{0,400}?\bvalue\s?=\s?[\\\"']{1,4}(?P<secret>[^\"'\\<>\n]{3,200})",
          told, r"(?i:type\s?=\s?[\\\"']{0,4}password)"),
    place("password", rf"(?i:form-data;\s?name={QUOTE}[\w.\[\]-]{{0,40}}(?:{_PASSWORD}|secret|token|api_?key)\]?{QUOTE})",
          rf"(?:;[^\r\n\\]{{0,120}})?{LINE}(?:[\w-]{{1,40}}:[^\r\n\\]{{0,200}}{LINE})?{LINE}(?P<secret>[^\r\n\\]{{4,400}})", told, r"(?i:form-data;\s?name=)"),
    place("password", rf"(?i:<[\w.:-]{{0,60}}(?:{_PASSWORD}|secret)\s)", r"[^<>]{1,200}>\s{0,40}(?P<secret>[^<>\n]{4,400})</", told,
          rf"(?i:{_PASSWORD}|secret)\s[\w:.-]+="),
    # Addresses inside of addresses.
    place("url-key", r"(?i:%(?:3F|26|3B)[\w.-]{0,40}(?:key|token|secret|signature|sig|auth)%3D)", r"(?P<secret>(?:[\w.~+/=-]|%(?!26|23|3B)[0-9A-Fa-f]{2}){8,2000})", random_looking,
          _ENCODED),
    place("url-password", rf"(?i:%(?:3F|26|3B)[\w.-]{{0,40}}(?:{_PASSWORD})%3D)", r"(?P<secret>(?:[\w.~+/=!*-]|%(?!26|23|3B)[0-9A-Fa-f]{2}){4,400})", told, _ENCODED),
    place("url-key", r"://[^\s/\"'<>]{3,200}/(?:t|auth|apikey)/", r"(?P<secret>[A-Za-z0-9_-]{16,200})(?=[/?#\s\"'<>\\]|\Z)", machine_made, r"/(?:t|auth|apikey)/[A-Za-z0-9_-]{16}"),
    # Protocols.
    place("password", rf"(?i:\bUSER\s[^\s\\]{{1,80}}{LINE})", rf"(?:[^\r\n\\]{{0,120}}{LINE}){{0,2}}?(?:[CS>:]{{1,3}}\s?)?PASS\s(?P<secret>[^\s\\]{{3,200}})", told,
          r"[\nn:>]\s?PASS\s[^\s]{3}"),
    place("password", r"(?:\bLOGIN| auth) ", rf"(?:{QUOTE})?[\w.@+-]{{2,24}}(?:{QUOTE})? (?:{QUOTE})?(?P<secret>{OPAQUE}{{5,200}}?){_ENDS}", strong,
          r"(?:LOGIN| auth) [\\\"']{0,4}[\w.@+-]+[\\\"']{0,4} "),
    place("basic-auth", r"(?i:auth(?:enticate)?\s(?:plain|login)\s)", r"(?P<secret>[A-Za-z0-9+/]{8,400}={0,2})", login_message, r"(?i:auth(?:enticate)?\s(?:plain|login)\s)"),
    place("password", r"(?:\A|[\s>\"'])AUTH ", rf"(?:[\w.-]{{1,40}} )?(?P<secret>{OPAQUE}{{5,200}}?){_ENDS}", mixed, r"(?:\A|[\s>\"'])AUTH "),
    place("password", r"(?i:setuser\s\S{1,60}\s)", rf"[^\n]{{0,120}}?>(?P<secret>{OPAQUE}{{4,200}})", told, r"(?i:setuser)\s"),
    place("password", r"(?i:thin:|oci:|\b(?:connect|target|impdp|expdp|sqlldr|rman)\s)", r"\w{1,60}/(?P<secret>[^\s/\"']{4,100})@", argument, r"(?i:thin:|oci:|(?:connect|target|impdp|expdp|sqlldr|rman)\s)\w+/[^\s/\"']+@"),
    # Headers, cookies and streams.
    place("api-key", r"(?:[A-Za-z0-9]{1,20}-){1,4}(?i:key)", r"[\"'\\]{0,4}\s?:\s?[\"'\\]{0,4}(?P<secret>[A-Za-z0-9_+/.=-]{20,400})", machine_made, r"-(?i:key)[\"'\\]{0,4}\s?:\s?[\"'\\]{0,4}[A-Za-z0-9_+/.=-]{20}",
          before=r"(?<![A-Za-z0-9-])(?!(?i:idempotency|sec-websocket|[\w-]{0,20}(?:cache|surrogate|routing|partition|public|dedup|sort|object|primary|foreign)))"),
    place("cookie", r"\s(?:-b|--cookie)[ =]", rf"(?:{QUOTE})?[\w.-]{{1,60}}=(?P<secret>[^;\"'\s\\]{{8,400}})", random_looking, r"(?:-b|--cookie)[ =][\"'\\]{0,4}[\w.-]+=[^;\"'\s\\]{8}"),
    place("url-key", r"(?i:rtmps?|srt)://[^\s\"'<>/]{4,120}/", r"(?:[^\s\"'<>/]{1,60}/){0,3}(?P<secret>[\w-]{12,80})(?=[\s\"'<>?\\]|\Z)", machine_made, r"(?i:rtmps?|srt)://"),
    # A literal that a machine made, where a client is set up.
    place("api-key", r"\b[\w.]{0,40}(?:init|configure|config|[cC]lient\w{0,6}|connect|authenticate|login|setup|Session|App|Bot|API|Api|SDK|Sdk)\(", r"[^()\n]{0,40}?[\"'](?P<secret>[A-Za-z0-9_+/=-]{20,200})\\{0,7}[\"']\s?[,)}]", literal,
          r"(?:init|configure|config|[cC]lient\w{0,6}|connect|authenticate|login|setup|Session|App|Bot|API|Api|SDK|Sdk)\([^()\n]{0,40}[\"'][A-Za-z0-9_+/=-]{20}"),
    # The value before the name; what a network is joined with; what a command reads.
    place("api-key", r"(?i:\"value\\{0,7}\"\s?:\s?\\{0,7}\")", rf"(?P<secret>[^\s\"'\\]{{6,400}})\\{{0,7}}\"\s?,\s{{0,9}}\\{{0,7}}\"(?:name|key|Name|Key)\\{{0,7}}\"\s?:\s?\\{{0,7}}\"[\w./:-]{{0,60}}?(?i:{_WORD}|{KEYED}){QUOTE}", opaque,
          r"(?i:value)[\"\\]+\s?:\s?[\"\\]+[^\s\"'\\]+[\"\\]+\s?,\s*[\"\\]+(?:[Nn]ame|[Kk]ey)[\"\\]+\s?:\s?[\"\\]+[^\"\\]*(?i:passw|pwd|secret|token|key)"),
    place("password", r"\bWIFI:", r"(?:[STH]:[^;\n]{0,60};){0,3}P:(?P<secret>[^;\n]{4,80});", told, r"WIFI:[STHP]:"),
    place("password", r"(?i:(?:wlan|wi-?fi|netzwerk|network|réseau|red)[ -]?(?:schl(?:ü|\\u00fc)ssel|security key|key|schluessel))", r"[\"'\\]{0,4}\s?[:=]\s?(?P<secret>[A-Za-z0-9]{8,64})", _joins, r"(?i:wlan|wi-?fi|netzwerk|network)[ -]?(?i:schl|key|security key)[^\s:=]{0,16}\s?[:=]\s?[A-Za-z0-9]{8}"),
    place("password", r"(?:\A|[\r\n>]|\\n)\s?PASS ", rf"(?P<secret>{OPAQUE}{{5,200}}?){_ENDS}", mixed, r"(?:\A|[\r\n>]|\\n)\s?PASS [^\s]{5}"),
    place("command-password", r"(?i:\b\w{0,12}passw?d?\s?<<<\s?)", rf"(?:{QUOTE})?(?P<secret>[^\s\"'\\:$]{{5,200}})", argument, r"(?i:passw?d?)\s?<<<"),
    place("command-password", r"\s<<<\s?", rf"(?:{QUOTE})?(?P<secret>{OPAQUE}{{6,200}}?){_ENDS}", strong, r"\s<<<\s?[\\\"']{0,4}[^\s\"'\\]{6}"),
    # A user with a password in one word.
    place("password", rf"(?i:(?:auth|ident|creds?|credentials?|user_?pwd|userpass|login){QUOTE}?\s?[:=]\s?(?:{QUOTE})?)", rf"[\w.@+-]{{1,24}}:(?P<secret>{OPAQUE}{{5,200}}?){_ENDS}", opaque,
          r"(?i:auth|ident|creds?|credentials?|user_?pwd|userpass|login)[\\\"']*\s?[:=]\s?[\\\"']*[\w.@+-]+:[^\s/\"']{5}"),
    place("command-password", r"\s(?:-[un]|--user|--[a-z]{0,8}-?creds|--auth|--userpwd|--credentials?)[ =]", rf"(?:{QUOTE})?[\w.@+-]{{1,24}}:(?P<secret>{OPAQUE}{{5,200}}?){_ENDS}", opaque,
          r"-(?:[un]|-user|-[a-z]*-?creds|-auth|-userpwd|-credentials?)[ =][\\\"']*[\w.@+-]+:[^\s/\"']{5}"),
    # A token in prose.
    place("api-key", r"(?i:\b(?:token|secret)\b)", rf"[^\n:=.,;!?<>{{}}()\[\]\"\\]{{1,48}}?(?:[:=]\s{{0,3}}|\s(?:is|lautet|est|es):?\s)[\"'`*]{{0,3}}(?P<secret>[A-Za-z0-9_+/.~=-]{{20,400}}){_ENDS}", machine_made,
          r"(?i:token|secret)\s[^\n:=.,;!?<>{}\"\\]{0,32}[\s:=]\s?[\"'`*]{0,3}[A-Za-z0-9_+/.~=-]{20}"),
    # A line of its own below one that announces it; SMTP's and SAML's logins; an entry with its name a line above.
    place("password", r"(?i:(?:password|passphrase|token|secret|key)[^\n\\]{0,60}:)", rf"[ \t]?{LINE}{{1,3}}[ \t]?(?P<secret>[A-Za-z0-9_+/.-]{{24,200}}={{0,2}})(?={LINE}|\Z)", literal,
          rf":[ \t]?{LINE}{{1,3}}[ \t]?[A-Za-z0-9_+/.-]{{24}}"),
    place("basic-auth", r"334 UGFzc3dvcmQ6", rf"{LINE}(?:C:\s?)?(?P<secret>[A-Za-z0-9+/]{{4,400}}={{0,2}})", told, r"334 UGFzc3dvcmQ6"),
    place("saml", r"(?:SAMLResponse|SAMLRequest|<saml2?:Assertion)", r"[^\n]{0,120}?[=:>\"']\s?(?P<secret>[A-Za-z0-9+/%]{40,8000}={0,2})", key_half, r"SAMLRe(?:sponse|quest)|<saml2?:Assertion"),
    place("password", rf"(?i:name:\s?[\"']?[\w.-]{{0,60}}(?:{_PASSWORD}|secret|token|key)[\"']?)", rf"{LINE}[ \t]{{1,24}}value:\s?(?:{QUOTE})?(?P<secret>[^\s\"'\\]{{6,400}})", opaque, r"value:\s?[\\\"']{0,4}[^\s\"'\\]{6}"),
    place("password", rf"(?i:{QUOTE}(?:key|name){QUOTE}\s?:\s?{QUOTE}[\w.-]{{0,60}}(?:{_PASSWORD}|secret|token|key){QUOTE})", rf"\s?,\s?{QUOTE}value{QUOTE}\s?:\s?(?:\{{\s?{QUOTE}\w{{1,12}}{QUOTE}\s?:\s?)?{QUOTE}(?P<secret>[^\s\"'\\]{{6,400}}){QUOTE}", _of_a_pair,
          r"[\"'],?\s?[\\]{0,4}[\"']value[\\\"']{1,8}\s?:\s?(?:\{|[\\\"']{1,4}[^\s\"'\\]{6})"),
    # Commands.
    place("command-password", r"\bnet\s+use\s+(?:[A-Za-z*]:?\s+)?\\{2,4}[^\s]{2,80}\s+", r"(?P<secret>[^\s/][^\s]{3,100})\s+/(?i:user)", argument, r"net\s+use\s"),
    place("command-password", r"\s-(?:src|dest)?(?:store|key|trust)pass(?:wd)?\s+", r"(?:pass:)?[\"']?(?P<secret>[^\s\"'-][^\s\"']{3,200})", argument, r"-(?:src|dest)?(?:store|key|trust)pass"),
    place("command-password", rf"\b{_SETS}\b", rf"[^\n|;]{{0,160}}?\s(?:<<< ?|{_FLAG}[ =])(?:{QUOTE})?(?P<secret>[^\s\"'\\<-][^\s\"'\\]{{5,400}})", opaque,
          rf"(?:[^<]<<< ?|{_FLAG}[ =])[\\\"']{{0,4}}[^\s\"'\\<-]{{6}}"),
    place("command-password", r"\b(?:login|auth|unseal)\b", r"(?:[^\n|;]{0,80}?\s-[tk])?\s(?P<secret>[A-Za-z0-9_+/.=-]{24,400})(?=[\s\"'`\\]|\Z)", machine_made,
          r"(?:-[tk]|login|auth|unseal)\s[A-Za-z0-9_+/.=-]{24}"),
    place("command-password", r"\b(?:echo|printf)\s", rf"(?:-\w{{1,3}}\s|(?:{QUOTE})%s(?:{QUOTE})\s){{0,3}}(?:{QUOTE})?(?P<secret>[^\s\"'$`\\-][^\s\"'`\\]{{5,400}})(?:\\n[^\n|]{{0,100}}?)?(?:{QUOTE})?\s?(?:\||>{{1,2}})\s?[^\n|]{{0,160}}?(?i:secret|passw|passphrase|credential|token|login|vault|keyring)", opaque,
          r"(?:echo|printf)\s(?:[-\w%\\\"']{1,6}\s)?[^\s|>]{6,38}\s?[|>]"),
    place("command-password", rf"(?:/v|--?(?:name|n|key|k|var|variable))[ =](?:{QUOTE})?[\w./-]{{0,60}}(?i:{_WORD})\w{{0,10}}", rf"(?:{QUOTE})?\s(?:[^\n]{{0,100}}?\s)?(?:/d|--(?:value|body|data))[ =](?:{QUOTE})?(?P<secret>[^\s\"'\\]{{4,400}})", argument,
          r"(?:/d|--(?:value|body|data))[ =]"),
    place("command-password", r"\s--type[ =]SecureString\s", rf"(?:[^\n]{{0,100}}?\s)?--value[ =](?:{QUOTE})?(?P<secret>[^\s\"'\\]{{4,400}})", told, r"SecureString\s"),
    place("command-password", r"\s/rp[\s:]", rf"(?:{QUOTE})?(?P<secret>[^\s\"'\\/]{{4,200}})", argument, r"/rp[\s:]"),
    place("code", r"(?i:\b(?:door|gate|alarm|safe|lock|entry|building|garage|locker)[ -]code\b)", r"(?:[^\n\d.,;!?]{0,24}[:= ])[*\"'`]{0,3}(?P<secret>[0-9]{3,8})(?![0-9]|[.,:/-][0-9])", short_code,
          r"(?i:door|gate|alarm|safe|lock|entry|building|garage|locker)[ -]code"),
    # The private half of a key in XML (W3C's RSAKeyValue).
    place("private-key", r"<(?:D|P|Q|DP|DQ|InverseQ)>", r"\s{0,20}(?P<secret>[A-Za-z0-9+/=\s]{40,4000})</(?:D|P|Q|DP|DQ|InverseQ)>", key_half, r"<(?:D|P|Q|DP|DQ|InverseQ)>\s{0,20}[A-Za-z0-9+/]{30}"),
)  # fmt: skip
"""In the order in which they are tried."""

_NEARBY = 48
_ASKED = re2.compile(r"(?i)passwor[dt]|passwd|passphrase|passcode|pwd|credential|wi-?fi")
_BEYOND_ASKED = re.compile(f"(?i){BEYOND}")
TWO_DIGITS = re.compile(r"\d[^\s\d]*\d")
_MARKS = "#@$%&.~"
"""Of selectors, handles, variables and paths."""
_PIECE = re.compile(rf"(?<!{OPAQUE}){OPAQUE}{{6,64}}(?!{OPAQUE})")
_NAMED = re2.compile(rf"(?i){_WORD}|{KEYED}|\bpat\b")
"""In RE2, for a whole text is walked through, which takes Python's a millisecond for four kilobytes."""
_HEAD = re.compile(rf"(?i)[\w .-]{{0,30}}?(?:(?:{_WORD}|{KEYED})(?:_base)?|pat)")
_SEPARATORS = "\t|;,"
_RULED = re.compile(r"[\s|:+=-]*")
_DOCUMENT = re.compile(r"(?m)^---")
_KIND = re.compile(r"(?m)^[ \t-]*kind:[ \t]*[\"']?Secret[\"']?[ \t\r]*$")
_SECTION = re.compile(r"([ \t]*)(?:data|stringData):[ \t\r]*")
_ENTRY = re.compile(r"([ \t]+)(?:[\"']?[\w.-]{1,253}[\"']?:[ \t]+)?[\"']?([^\s\"'][^\r\n\"']*)")
_OBJECT = re.compile(r"\{[^{}]{0,20000}\}")
_MEMBER = re.compile(
    rf"{QUOTE}(?:{'|'.join(PRIVATE_MEMBERS)}){QUOTE}\s?:\s{{0,9}}{QUOTE}([A-Za-z0-9_-]{{16,}})"
)
Place = tuple[int, int]
"""Where a secret begins in a text, and where it ends."""


def cells_of_tables(text: str) -> Iterator[Place]:
    """The cells below the name of a secret, in a table of Markdown, or of commas, semicolons or tabs."""
    done = 0
    for word in _NAMED.finditer(text):
        start = text.rfind("\n", 0, word.start()) + 1
        if start < done:
            continue
        done = _line_end(text, start)
        head = text[start:done]
        for separator in _SEPARATORS:
            cells = _cells(head, separator) if separator in head else []
            columns = [at for at, (begin, end) in enumerate(cells) if _HEAD.fullmatch(head[begin:end])]
            if columns and all(end - begin <= 40 for begin, end in cells):
                for place in _below(text, done, separator, len(cells), columns):
                    yield place
                    done = max(done, place[1])
                break


def _below(text: str, start: int, separator: str, count: int, columns: list[int]) -> Iterator[Place]:
    """The cells of some columns in the lines from a place on that have as many cells as the first one."""
    while start < len(text):
        end = _line_end(text, start)
        line = text[start:end]
        cells = _cells(line, separator)
        if len(cells) == count:
            for begin, stop in (cells[column] for column in columns):
                cell = line[begin:stop]
                if told(cell) and not cell.isalpha() and not cell.isdigit():
                    yield start + begin, start + stop
        elif not _RULED.fullmatch(line):
            return
        start = end


def _line_end(text: str, start: int) -> int:
    """Where the line that begins at a place ends, with what ends it."""
    end = text.find("\n", start)
    return len(text) if end < 0 else end + 1


def _cells(line: str, separator: str) -> list[Place]:
    """Where the cells of a line stand, without blanks and quotes around them."""
    places, begin = [], 0
    body = line.rstrip("\r\n")
    for part in body.split(separator):
        inner = part.strip(" \t\"'`*")
        at = begin + part.find(inner)
        places.append((at, at + len(inner)))
        begin += len(part) + 1
    return places


def near_a_word(text: str) -> Iterator[Place]:
    """What is hardly anything but a password, at most `_NEARBY` characters from a word for one, on one line."""
    for word in _ASKED.finditer(text):
        begin = max(text.rfind("\n", 0, word.start()) + 1, word.start() - _NEARBY)
        end = text.find("\n", word.end(), word.end() + _NEARBY)
        end = min(len(text), word.end() + _NEARBY) if end < 0 else end
        if TWO_DIGITS.search(text, begin, end):
            yield from (
                match.span()
                for match in _PIECE.finditer(text, begin, end)
                if match[0][0] not in _MARKS and strong(match[0])
            )


def near_a_word_beyond(text: str) -> Iterator[Place]:
    """What may be a password behind a word for one in letters beyond ASCII, which its own are not."""
    for word in _BEYOND_ASKED.finditer(text):
        end = text.find("\n", word.end(), word.end() + _NEARBY)
        end = min(len(text), word.end() + _NEARBY) if end < 0 else end
        yield from (
            match.span()
            for match in _PIECE.finditer(text, word.end(), end)
            if match[0][0] not in _MARKS and match[0].isascii() and mixed(match[0])
        )


def entries_of_secrets(text: str) -> Iterator[Place]:
    """The values in the manifests of Kubernetes' Secrets, whatever their names."""
    begin = 0
    for end in (*(match.start() for match in _DOCUMENT.finditer(text)), len(text)):
        document = text[begin:end]
        if _KIND.search(document):
            for start, stop in _entries(document):
                yield begin + start, begin + stop
        begin = end


def _entries(document: str) -> Iterator[Place]:
    start, indent = 0, -1
    for line in document.splitlines(keepends=True):
        section, entry = _SECTION.fullmatch(line.rstrip("\n")), _ENTRY.match(line)
        if section is not None:
            indent = len(section[1])
        elif entry is None or len(entry[1]) <= indent:
            indent = -1 if line.strip() else indent
        elif indent >= 0 and told(entry[2].strip()) and entry[2].strip() not in ("|", ">", "|-", ">-"):
            yield start + entry.start(2), start + entry.start(2) + len(entry[2].rstrip())
        start += len(line)


def private_members(text: str) -> Iterator[Place]:
    """The private members of JSON Web Keys."""
    for key in _OBJECT.finditer(text):
        if "kty" in key[0]:
            yield from (match.span(1) for match in _MEMBER.finditer(text, *key.span()))


FINDERS: tuple[tuple[str, Callable[[str], Iterator[Place]], str], ...] = (
    (
        "password",
        cells_of_tables,
        rf"(?i:(?:{_WORD}|{KEYED})(?:_base)?|[^A-Za-z]pat)[\"'`*]* *(?:[|;\t]|\\t|,[\"'\w]|\r|\n|\\[rn])",
    ),
    ("password", near_a_word, NEAR),
    (
        "password",
        near_a_word,
        r"(?:[\s\"'`)](?:as|is|=|#|//|<-|<=)|[\s(]\(?)\s?(?i:(?:the|your|my|its|new)\s)?(?i:passwor[dt]|passwd|passphrase|passcode)(?:[\s.,;:!)]|\z)",
    ),
    ("password", near_a_word_beyond, NEAR_BEYOND),
    ("kubernetes-secret", entries_of_secrets, r"kind:[ \t]*[\\\"']{0,4}Secret[\s\\\"']"),
    ("private-key", private_members, r"kty[\\\"']"),
)
"""Rule, what finds it, and its screen."""

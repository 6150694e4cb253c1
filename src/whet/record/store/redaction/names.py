# ruff: noqa: E501 - a pattern is read in one piece
"""Secrets that are known by their name: in assignments, JSON, headers, environments, commands and prose.

The name must end in a word for a secret: `db_password`, `clientSecret`, `X-Api-Key`, and not `password_policy`.
What follows it must be able to be one: no placeholder, type, variable or word of prose.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from .letters import drawn

_PLACEHOLDER = re.compile(
    r"""(?ix)
    (?: x{3,} | [*.•#_?-]{2,} | null | none | nil | true | false | yes | no | on | off | undefined | empty | n/?a | todo | tbd
      | str | string | bytes | int | integer | number | float | bool | boolean | object | array | any | text | char | void
      | optional | required | mandatory | example | sample | placeholder | hidden | masked | removed | unknown | default
      | invalid | incorrect | missing | wrong | expired | forgotten | disabled | enabled | encrypted | protected | reset
      | obligat\w* | requis\w* | requer\w* | richiest\w* | obbligat\w* | obrigat\w* | verplicht | erforderlich | wymagan\w* | falsch | oublié | vergessen | vergeten
      | (?:ns|char|secure|cow|arc)?(?:string|sequence|buffer) | hash(?:ed)? | option | vec | maybe | nullable | (?:string|int|id|float|boolean)! | prompt | stdin | ask | env | keyring | keychain | basic | bearer | digest | self | this | value | here | newline | include | omit | same-origin
      | changed | updated | set | unset | revoked | rotated | valid | yourself | secretstr | varchar.* | nvarchar.* )
    | .*(?: \[redacted | redacted | <[a-z] | \$\{ | \$\( | \{\{ | %\( | xxxx | \*\*\*\* | placeholder | process\.env
      | os\.environ | getenv | env\. | env\[ | \.get\( | secrets?\. | vars\. | config\. | settings\. ).*
    | (?: \?[\w .-]*\}? | \$[A-Z_]\w* | %[A-Z_]+% | %[sdr] | \{\w*\} | <.* | @[\w.-]+ | :\w+ | \*\w+ | \#\{.* | !.* | arn:.*
        | (?:vault|file|fd|op|env|keyring|keychain|ssm|secretsmanager|sops|ref):.* | [a-z][a-z0-9+.-]{1,24}://[^@\s]*
        | .*(?:\.[*+]|\\[wdsSWD]|\[\^).* | (?:required|nullable|sometimes|string|bail)(?:\|\w+(?::[\w,]+)?)+ )
    | (?: your | my | the | some | insert | enter | replace | add | put | change | user )[_\s-]?
      [\w\s-]*?(?: password | passwd | secret | token | key | here | me | this | value | pass )s?(?:[_-]\d+)?
    | [a-z_.-]*? (?: pass(?:word|wd|phrase|code)? | pwd | secret | token | key | cred(?:ential)? | apikey | auth )s?
    | [a-z_]\w*(?:\.[a-z_]\w*)*\(.* | [a-z_]\w*\[.*\] | (?:self|this|args|options|opts|params|config|data|user|form|req|request)\.\w.*
    | (?:[a-z_]+\.)+[a-z_]+
    | [\[<({]\w+[\]>)}]? | \w+[\]>)}] | test | (?:pwgen|openssl|cat|echo|read|aws|gcloud|kubectl|vault|op)\s.* | function\b.* | lambda\b.* | new\s.* | await\s.*
    """
)
_PROSE = re.compile(
    r"(?i)\b(?:the|a|an|is|are|was|of|to|your|my|our|their|must|should|for|be|been|and|or|with|not|has|have|please|enter|"
    r"at|least|in|on|it|if|this|that|can|will|cannot|when|from|by|as|used|field|expired|invalid|new|old|current)\b"
)
_CRUMB = re.compile(r"([\w.%*-]{1,80})=\"?([^\s;,\"<>{}]{4,4000})")
_WHOSE = re.compile(
    r"(?i)sess|sid\Z|auth|token|jwt|csrf|xsrf|log-?in|remember|user|account|secret|(?:^|[_-])(?:id|key)\Z"
)
"""Names of cookies that say who somebody is."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}.*|\d{1,2}[:/]\d{2}.*|v?\d+(?:\.\d+)+(?:[-.][a-z]+\d*)?")
_WORDS = re.compile(r"(?:[A-Za-z]?[a-z]+|[A-Z]+|[0-9]{1,8}|[a-z]{1,3}[0-9]{1,2}|[0-9]{1,3}[a-z]{1,2})")
_FILLED = re.compile(r"(?i)x{6}|\*{4}|\.{3}|example|your_?|placeholder")
PUBLIC_FORMS = ("pk_live_", "pk_test_", "pk.eyJ", "pk-lf-", "phc_", "org-")
"""How keys begin that their vendors call public."""
_HUMPS = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}(?![a-z])|[A-Z]")


def told(text: str) -> bool:
    """True of what may be a password, which somebody may have chosen: no placeholder, code, type or prose."""
    if len(text) < 3 or len(text) > 4_000 or _PLACEHOLDER.fullmatch(text[:200].strip()) or _path(text):
        return False
    if " " in text.strip():
        return len(text) <= 80 and not _PROSE.search(text) and not text.rstrip().endswith((".", ":", "?"))
    return True


def _path(text: str) -> bool:
    """True of a file's path.  Base64 may begin with a slash, too, and its pieces are longer than names of folders."""
    if not text.startswith(("/", "./", "../", "~/")) and text[1:3] != ":\\":
        return False
    return all(len(part) < 24 for part in re.split(r"[/\\._-]", text[:400]))


def chosen(text: str) -> bool:
    """As `told`, of what stands behind the name: nothing shorter than 4 letters."""
    return len(text.strip()) >= 4 and told(text) and not text.startswith(("http://", "https://", "//"))


def random_looking(text: str) -> bool:
    """True of what a machine made: 8 letters or more, not words, a date, a version, a path or an address."""
    text = text.strip()
    if len(text) < 8 or len(text) > 8_000 or any(space in text for space in " \n\t"):
        return False
    if _PLACEHOLDER.fullmatch(text[:200]) or _DATE.fullmatch(text[:60]) or text.startswith(PUBLIC_FORMS):
        return False
    if _path(text) or text.startswith(("http://", "https://", "{", "[", "(", "<")):
        return False
    if text.isdigit():
        return len(text) >= 16
    head = text[:400]
    parts = [part for part in re.split(r"[-_./:@,;|~+=]", head) if part]
    if len(parts) > 2 and head.isupper() and drawn("".join(parts)):
        return True
    if all(_WORDS.fullmatch(part) for part in parts) and not _dense(parts):
        return False
    if not any(letter.isdigit() for letter in head):
        humps = _HUMPS.findall(head)
        mixed_up = len(head) / max(1, len(humps)) < 3.2 and entropy(head) > 3.2
        return len(head) >= 12 and (drawn(head) or (len(head) >= 16 and mixed_up))
    return entropy(head) > 2.2


def _dense(parts: list[str]) -> bool:
    """True of one run of letters that is no word."""
    return any(len(part) >= 12 and part.isalpha() and drawn(part) for part in parts)


def salted(text: str) -> bool:
    """As `random_looking`, and of long ones with any signs."""
    return random_looking(text) or (len(text) >= 32 and " " not in text and entropy(text) > 4.0)


def number(text: str) -> bool:
    """True of a code that somebody has to type: 3 to 10 digits."""
    return text.isdigit() and 3 <= len(text) <= 10 and len(set(text)) > 1


def cookie(text: str) -> bool:
    """True of cookies of which one lets in whoever has it: it was drawn, or its name says so."""
    return any(
        random_looking(crumb[2].rstrip("=")) or (_WHOSE.search(crumb[1]) and told(crumb[2]))
        for crumb in _CRUMB.finditer(text)
    )


def scheme(text: str) -> bool:
    """True of the value of an Authorization header, its scheme included."""
    kind, _, rest = text.strip().partition(" ")
    if not rest:
        return random_looking(kind)
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{2,30}", kind)) and any(
        random_looking(piece.strip("\"'")) for piece in re.split(r"[\s,=]+", rest) if "[redacted" not in rest
    )


def genuine(text: str) -> bool:
    """False of what documentation puts in the place of a key."""
    return entropy(text[-16:]) > 1.5 and _FILLED.search(text) is None


def entropy(text: str) -> float:
    """Bits of each letter of a text, by how often each occurs."""
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)


@dataclass(frozen=True, slots=True)
class Named:
    """One family of names, and what may follow them: the arguments of a Rule."""

    name: str
    pattern: str
    screen: str
    keys: str
    anchor: str
    check: Callable[[str], bool]


_AFTER = r"(?:[_ -]?[0-9]{1,3}|[_-]?(?:base|data|hex|b64|base64|raw|plain|text|string|str|value)|[_-](?:PROD|DEV|TEST|STAGING|LIVE|MAIN|NEW|OLD|PRIMARY|SECONDARY))?"
_MARK = r"[\"'`\\\]*]"
"""What may stand between a name and the sign behind it: quotes, escaped ones, a bracket, Markdown's stars."""
_SIGN = (
    r"(?:\s{0,3}:\s{0,2}(?:str|string|String|SecretStr)\s{0,2}=|\s(?:string|str)\s=|\s{0,12}(?:===?|=>|[.?:|+]{0,2}=|:|：)|>|"
    r"[\"'\\]{0,8}\s{1,3}(?:value|content)\s?=|[\"'\\\])]{0,8}\.(?:value|text|textContent)\s?=|[\"'\\]{0,8}\s?,\s?[\"'\\]{1,8}(?i:value|val|stringValue|ParameterValue)[\"'\\]{1,8}\s?:)\**"
)
_CLOSED = r"(?:(?P=quote)|(?=\\*[\r\n]|\Z))"
"""The quote again, or the end of what was cut off."""
_BARE = r"[^\s\"'`,;&<>()\[\]{}\\|]"
_EOL = r"(?=\s*(?:[\r\n,;}\\\"'<|]|\Z))"
_VERBS = "is|was|to|are|ist|lautet|est|es"
_VERB = rf"\s{{1,2}}(?i:{_VERBS}):?\s{{1,2}}(?i:now\s|still\s|(?:set|changed|reset)\sto:?\s|:\s?)?[\"'`]?"


def spelled(words: str) -> str:
    """A pattern of words whose letters beyond ASCII may stand escaped, as most writers of JSON leave them."""
    return re.sub(r"[^\x00-\x7f]", lambda letter: rf"(?:{letter[0]}|\\{{1,8}}u{ord(letter[0]):04x})", words)


def _screen(words: str, least: int, line: bool = False) -> str:
    """Bytes that may be a name with its value: text, JSON in any depth, or a protobuf attribute."""
    letters = rf"[^\s\"'\\]{{{least}}}" if not line else rf"[^\"'\\]{{{least}}}"
    return (
        rf"(?i:(?:{words}){_AFTER})(?:{_MARK}{{0,10}}\s{{0,12}}(?:[.?|+]?[=:]{{1,3}}>?|>)[\s*\[]{{0,12}}(?:[Ss]\w{{2,8}}\s?=\s?)?"
        rf"[rbfuNL@]?{_MARK}{{0,8}}{letters}|{_MARK}{{0,8}}\s?,?\s{{0,3}}{_MARK}{{0,8}}[).]{{0,3}}(?:[Vv]alue|[Vv]al|stringValue|ParameterValue|content|text)"
        rf"|\x12.{{1,12}}[!-~]{{{least}}}|\x12.\x18|\s{{1,2}}(?:(?i:{_VERBS})\s|['\"]?{letters})|[\"'\\]{{1,4}}\s[\"'\\]{{1,4}}{letters})"
    )


def _screened(words: str) -> str:
    """The words for a screen: with the letter that must stand before them, if any."""
    words = words.replace("(?<=[_-])", "[_-]").replace("(?<![A-Za-z])", r"(?:\A|[^A-Za-z])")
    return seen_by_re2(words)


def seen_by_re2(words: str) -> str:
    """The words without what must not stand around them, and without possessive counts, neither of which RE2 has."""
    words = words.replace("}+", "}")
    return re.sub(r"\(\?<[!=](?:[^()]|\([^()]*\))*\)", "", words)


def _named(name: str, words: str, check: Callable[[str], bool], *, before: str = "", least: int = 4) -> Named:
    """A family: the ends of its names in any case, what must not stand before them, and the shortest value."""
    end = rf"{before}(?i:{words})(?i:{_AFTER})"
    has_mark = r"(?=[^\s]{0,200}?[0-9!@#$%^&+~])"
    follows = (
        rf"{_MARK}{{0,10}}{_SIGN}\s{{0,6}}\[?(?:[rbfuNL@]{{1,2}}(?=[\"'])|string\(\d{{1,6}}\)\s)?(?P<quote>\\{{0,7}}[\"'`])"
        rf"(?P<secret>(?:(?!(?P=quote))[^\r\n]){{1,2000}}?){_CLOSED}",
        rf"{_MARK}{{0,10}}\s{{0,12}}(?:=>|:=|={{1,2}})(?P<secret_2>{_BARE}{{{least},2000}}+)(?![(\[])",
        rf"{_MARK}{{0,10}}\s{{0,12}}(?:[:>]\**|(?:=>|:=|={{1,2}})(?=[ \t]))[ \t]{{0,12}}(?P<secret_3>{has_mark}{_BARE}{{{least},2000}}+(?![(\[])|{_BARE}{{{least},200}}+{_EOL})",
        rf"{_VERB}(?P<secret_4>(?=[^\s]{{0,60}}?[0-9])(?=[^\s]{{0,60}}?[A-Za-z])[^\s\"'`,;<>(){{}}\[\]\\]{{6,200}}?)(?=[.,!?]?(?:[\s\"'`\\]|\Z))",
        rf"{_MARK}{{0,4}}\s{{1,2}}(?P<quote_2>['\"])(?P<secret_5>[^\s'\"\\]{{{least},200}})(?P=quote_2)",
    )
    flag = (
        rf"(?<=-)(?i:{words})\s{{1,2}}[\"']?(?P<secret_6>{has_mark}[^\s\"'\\-][^\s\"'\\]{{{least - 1},400}})"
    )
    seen = seen_by_re2(words)
    return Named(
        name,
        f"(?:{end}(?:{'|'.join(follows)})|{flag})",
        _screen(_screened(words), least),
        rf"{end}\Z",
        f"(?i:{seen})",
        check,
    )


def _header(name: str, words: str, check: Callable[[str], bool]) -> Named:
    """A header, whose value goes on to the end of its line."""
    pattern = (
        rf"(?i:{words})(?:{_MARK}{{0,10}}{_SIGN}\s{{0,6}}(?P<quote>\\{{0,7}}[\"'`])(?P<secret>(?:(?!(?P=quote))[^\r\n]){{8,4000}}?)"
        rf"{_CLOSED}|{_MARK}{{0,10}}\s?[:=]\s?(?P<secret_2>[^\r\n\"'`\\<>]{{8,4000}}))"
    )
    return Named(name, pattern, _screen(words, 8, line=True), rf"(?i:{words})\Z", f"(?i:{words})", check)


_ = r"[_\-. ]?"
_PASSWORDS = r"pass(?:word|wd|phrase|code|wort)|kennwort|contrasena|mot[ _-]de[ _-]passe|pwd|authtok|(?<![A-Za-z])(?:psw|pswd|pw|psk)|(?<=[_-])(?:pass|pw|psk)|password_(?:(?:double_)?sha\d{1,3}|md5|hash)(?:_hex)?"
_SECRETS = (
    rf"secret{_}(?:access{_})?key|secret(?:{_}value)?|(?:seed|recovery){_}phrase|mnemonic(?:{_}phrase)?|recovery{_}(?:code|key)|"
    rf"credentials?|creds|(?:security|secret){_}answer"
)
_KEYS = (
    rf"(?:api|access|account|auth|private|signing|encryption|decryption|master|shared|subscription|license|admin|app|webhook|"
    rf"consumer|deploy|hmac|client|pre[- ]?shared|wep|storage|session|jwt|crypt|cipher|security|server|vault|bot|write|read|secure|product|activation|serial|functions?|ingest(?:ion)?|instrumentation|integration|personal|publish|merchant|project|wallet|data|cookie|backup|maps|bind|transfer|openai|anthropic|stripe|service(?:role|{_}role)?|unseal|recovery|stream|sdk|aes|ssh|sas|root|user|function|host){_}key|(?<![A-Za-z])wif|SharedAccessSignature"
)
KEYED = r"(?:secret|deploy|master|signing|encryption|hmac|account|auth|shared|service|admin|license|root|session)[_ -]?key"
"""Keys that are secret, among those of `_KEYS` that stand at the head of a column."""
_TOKENS = rf"token|(?<![A-Za-z])jwt|(?<=[_-])pat|(?<![A-Za-z])(?-i:PAT)|PHPSESSID|JSESSIONID|ASP\.NET_SessionId|connect\.sid|session{_}cookie|sessionid|(?<=_)cookie"
_CURSORS = "".join(
    rf"(?<!(?i:{word})[_. -])(?<!(?i:{word}))"
    for word in (
        "page", "pad", "eos", "bos", "unk", "sep", "cls", "mask", "special", "stop", "first", "last", "per", "next", "prev",
        "continuation", "sync", "output", "input", "prompt", "completion", "max", "min", "end", "start", "image", "each",
        "cancellation", "think", "public", "publishable", "cached", "reasoning", "pagination", "resume", "cursor", "design",
    )
)  # fmt: skip
"""Words that make a token a piece of text or a place in a list."""
_PAIRED = "|".join(
    seen_by_re2(words) for words in (_PASSWORDS, _SECRETS, _KEYS, _TOKENS, "authorization", "cookie")
)
_ENDS = r"(?i:_?(?:base|data|hex|b64|base64|value)|[_-](?:prod|dev|test|staging|live|main|new|old|primary|secondary|[0-9]{1,2}))?"
NAME_ENDS = rf"(?:(?<!(?i:public)[_-])(?i:{_PASSWORDS}|{_SECRETS}|{_KEYS})|{_CURSORS}(?i:{_TOKENS})){_ENDS}"
"""The end of a secret's name."""
PASSWORD_ENDS = rf"(?:(?i:{_PASSWORDS}|(?<!:)secret|credentials?|creds)|(?<=[A-Za-z])Pass){_ENDS}"
"""The end of the name of what somebody chose."""
PASSWORDS_SEEN = rf"(?:(?i:{_screened(_PASSWORDS)}|secret|credentials?|creds)|[A-Za-z]Pass){_ENDS}"
"""The same for a screen."""
NAMES_SEEN = rf"(?i:{'|'.join(map(_screened, (_PASSWORDS, _SECRETS, _KEYS, _TOKENS)))}){_ENDS}"
"""The same for a screen."""
_WRAPS = (
    r"(?:/?(?:to|of|as|in|is|Some|Just|Ok|key|name|value|val|string|str|String|text|code|default|content|dt|dd|td|th|li|em|p|b|strong|span|pre|kbd|tt|[0-9]{1,4})"
    r"[^A-Za-z0-9]{1,6}|[A-Za-z_.]{1,24}\([^A-Za-z0-9]{0,3}|&[a-z]{1,12} ){0,3}+"
)
BETWEEN = (
    r"(?:[ \t]{0,12}(?:->|\.{3,30}|[^\sA-Za-z0-9_.@\]/-])|\]\s?[=:>]|[ \t]{1,2}(?:to|as|in)[ \t]|:?\r?\n|\t)(?:[^A-Za-z0-9/&]|</){0,12}+"
    + _WRAPS
)
"""What programs and documents put between a name and its value."""
GIVEN = (
    r"[\"'`\])}*]{0,4}[ \t]{0,12}(?:[=:!?|<>→,;]{1,3}|->|\(|\.{3,30}\s?:?|:?\s?[|>]?-?\r?\n[ \t])(?:[^A-Za-z0-9/&\n]|</){0,12}+"
    + _WRAPS
)
"""The same where it can be nothing but the name of what follows."""
_KEY = r"_KEY(?:_[A-Z0-9]{1,10})?"

_ACTIONS = "".join(
    rf"(?<!(?i:{word})_)" for word in ("update", "reset", "change", "require", "has", "is", "show", "forgot")
)
"""Words that make a password one that something is done with."""

NAMED = (
    _header("authorization", "authorization", scheme),
    _header("cookie", "cookie", cookie),
    _named("password", _PASSWORDS, chosen, before=_ACTIONS),
    _named("secret", _SECRETS, chosen, before=r"(?<!:)(?<!(?i:existing))"),
    _named("api-key", _KEYS, random_looking, before=r"(?<!(?i:public)[_-])", least=8),
    _named("token", _TOKENS, random_looking, before=_CURSORS, least=8),
    _named("secret", r"(?<=[A-Za-z_-])salt", salted, least=8),
    _named("code", rf"(?<![A-Za-z])(?:otp|cvv2?|cvc2?|(?:2fa|mfa|totp){_}(?:code|secret))", number, least=3),
    Named(  # OPENAI_KEY=..., of whatever vendor
        "api-key",
        "".join(
            f"(?<!{word})"
            for word in (
                "PUBLIC",
                "PRIMARY",
                "FOREIGN",
                "CACHE",
                "SORT",
                "PARTITION",
                "OBJECT",
                "ROUTING",
                "PUBLISHABLE",
            )
        )
        + rf"(?<=[A-Z0-9]){_KEY}[\"'\\]{{0,4}}\s{{0,2}}[=:]\s{{0,2}}[\"'\\]{{0,4}}(?P<secret>[^\s\"'\\]{{16,2000}})",
        rf"[A-Z0-9]{_KEY}(?:[\"'\\]{{0,4}}\s{{0,2}}[=:]\s{{0,2}}[\"'\\]{{0,4}}[^\s\"'\\]{{16}}|\x12.{{1,6}}[!-~]{{16}})",
        r"(?<!PUBLIC)(?<!PRIMARY)(?<!FOREIGN)(?<!CACHE)(?<!SORT)(?<!PARTITION)(?<!OBJECT)(?<!ROUTING)(?<!PUBLISHABLE)(?<=[A-Z0-9])_KEY\Z",
        r"_KEY",
        random_looking,
    ),
    Named(  # ("x-api-key", "..."): headers as lists of pairs
        "header",
        rf"(?:(?i:{_PAIRED}))\\{{0,7}}[\"']\s?,\s?b?\\{{0,7}}[\"'](?P<secret>[^\"'\\\r\n]{{8,2000}})\\{{0,7}}[\"']\s?[)\]]",
        rf"(?i:{_PAIRED})[\\\"']{{1,8}}\s?,\s?b?[\\\"']{{1,8}}[^\"'\\]{{8}}",
        "",
        rf"(?i:{_PAIRED})",
        scheme,
    ),
)
"""Names of secrets, in the order in which they are tried."""

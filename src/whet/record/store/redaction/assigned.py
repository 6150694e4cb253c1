# ruff: noqa: E501 - a pattern is read in one piece
"""Secrets that stand in a setting, a call or a pair whose name does not end in a word for one.

What a machine made of capitals, small letters and digits is a secret as the value of a constant or of a variable of the
environment (`MEILI_MASTER=...`), unless a word of the name says what else it is: an id, a sum, a cursor, something
public.  Where a word for a secret stands anywhere in the name, any long value that a machine made is one.  In calls and
documents it is what looks like nothing but a password, beside whom it belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import re2

from .letters import natural
from .names import (
    BETWEEN,
    GIVEN,
    NAME_ENDS,
    NAMES_SEEN,
    PASSWORD_ENDS,
    PASSWORDS_SEEN,
    PUBLIC_FORMS,
    Named,
    entropy,
    genuine,
    random_looking,
    salted,
    spelled,
)
from .places import machine_made, mixed, of_all_kinds, place, short_code
from .structures import LINE, OPAQUE, TWO_DIGITS, Place, opaque, strong, typed
from .vendors import UUID

_HARMLESS_WORDS = (
    "ID|IDS|UUID|GUID|HASH|SHA|SHA1|SHA256|SHA384|SHA512|MD5|SUM|CHECKSUM|DIGEST|ETAG|COMMIT|REV|REVISION|VERSION|TAG|BUILD|PUBLIC|PUB|PUBLISHABLE|"
    "NONCE|CURSOR|URL|URI|PATH|DIR|FILE|HOST|NAME|IMAGE|DATA|FINGERPRINT|SITE|SITEKEY|INTEGRITY|CHALLENGE|STATE|REF|INDEX|OFFSET|PAGE|HEADER|BODY|"
    "CONTENT|TEXT|PREFIX|BRANCH|CERT|CERTIFICATE|CA|CRT|ISSUER|AUDIENCE|ARN|BUCKET|PROJECT|REGION|TABLE|QUEUE|TOPIC|MODEL|CLASS|EXAMPLE|ADDRESS|"
    "SID|ACCEPT|NEXT|PREV|PREVIOUS|CONTINUATION|SYNC|CONTRACT|TX|BLOCK|TRACE|SPAN|REQUEST|RUN|REGEX|PATTERN|ALPHABET|CHARS|CHARSET|PNG|JPG|SVG|ICON|LOGO|DSN|ACCOUNT|IDEMPOTENCY|SLUG|PACKAGE|QUERY|MUTATION"
)
"""Words of a constant's name that say that its value is no secret, however it looks."""
_SECRET_WORDS = (
    r"auth|login|secret|private|signing|encrypt(?:ion|or)?|decrypt(?:ion)?|cipher|crypt|master|pepper|salt|session|refresh|unseal|seed|psk|hmac|sasl|"
    r"superuser|admin|passwd|bearer|vapid|license|licen[cs]e[_-]?(?:code|number|serial)|secret[_-]id"
)
_AFTERWARDS = r"(?:[_-]?(?:[0-9]{1,2}|b64|base64|hex|raw|value|v[0-9]))?"
_NO_SECRETS = "".join(
    f"(?<!(?i:{word})[_.-])(?<!(?i:{word}))"
    for word in ("public", "page", "next", "prev", "random", "numpy", "torch", "train", "data", "test", "global", "dataset", "shuffle", "sampling")
)  # fmt: skip
"""Words that make a seed a number, and a session or refresh a place in a list."""
_ASSIGNED = (
    r"[\"'`\\\])]{0,4}\s{0,3}(?:=>|:=|[=:]|\s?,\s?(?=[\"'\\]))\s{0,3}(?:base64:)?b?[\"'`\\]{0,4}(?:base64:)?"
)
_TOKEN = r"(?P<secret>[A-Za-z0-9+/_-]{20,400}={0,2})(?![A-Za-z0-9+/_.=:(-])"
_UUID = re.compile(UUID)
_FOURS = re.compile(r"[a-z]{4}(?:-[a-z]{4}){3}")
"""A password for one application, as mail providers make them."""
_ANYTHING = r"[A-Za-z0-9+/_=.~!@#%^*-]"
_NUMBERED = re.compile(r"(?:[A-Z0-9]{4,6}-){2,7}[A-Z0-9]{4,6}")


def changing(text: str) -> bool:
    """True of what a machine drew from capitals, small letters and digits, which no name of anything is."""
    kinds = [sum(map(kind, text)) for kind in (str.isupper, str.islower, str.isdigit)]
    return (
        sum(kinds) >= 20
        and min(kinds) >= 1
        and natural(text) < -0.45 * sum(kinds)
        and entropy(text) > 3.6
        and genuine(text)
        and re.search(r"[_.-](?:sha|Form)|^(?:sha\d|-|//|Qm)", text) is None
        and not text.startswith((*PUBLIC_FORMS, "eyJ", "iVBOR", "/9j/", "R0lGOD", "UklGR", "PHN2Zy", "data"))
    )


def drawn_tail(text: str) -> bool:
    """True of a long random tail, whatever words stand before it."""
    return changing(text.rpartition("_")[2])


def spaced(text: str) -> bool:
    """True of what a machine drew, behind a name with no sign between the two."""
    return changing(text) or numbered(text)


def under_a_word(text: str) -> bool:
    """True of what a machine made, or of what has signs among letters and digits, behind a name that holds a word for a
    secret: a number of a licence, too."""
    if len(text) < 16:
        return len(text) >= 10 and strong(text) and not text.isalnum()
    if changing(text) or numbered(text):
        return True
    return (
        len(text) >= 24
        and machine_made(text)
        and _UUID.fullmatch(text) is None
        and not text.startswith("eyJ")
    )


def numbered(text: str) -> bool:
    """True of the number of a licence: groups of capitals and digits."""
    return (
        _NUMBERED.fullmatch(text) is not None and any(map(str.isdigit, text)) and any(map(str.isalpha, text))
    )


def behind_a_name(text: str) -> bool:
    """True of what is hardly anything but a secret."""
    return (
        (machine_made(text) and _UUID.fullmatch(text) is None)
        or strong(text)
        or _FOURS.fullmatch(text) is not None
    )


def drawn_uuid(text: str) -> bool:
    """True of a UUID that was drawn."""
    return _UUID.fullmatch(text) is not None and random_looking(text)


def positional(text: str) -> bool:
    """True of what looks like nothing but a password, among the arguments of a call."""
    return strong(text) or (
        mixed(text) and sum(map(str.isdigit, text)) >= 2 and "." not in text and "/" not in text
    )


_OF_OBJECTS = "pk|pub|public|phc|msg|resp|rs|call|req|toolu|run|step|thread|asst|file|evt|event|cus|pi|price|prod|in|sub|ch|id|hash|sha|cache|img|obj|block|data"
"""What stands before the id of an object, or of what is public."""
_CRYPTO = r"(?:hmac\.(?:new|digest)|HMAC|createHmac|Cipher\w{0,4}|createCipher\w{0,2}|createDecipher\w{0,2}|Fernet|AES\.new|SecretKeySpec|secretbox|SecretBox|pbkdf2\w{0,6}|jwt\.(?:sign|encode|verify|decode)|sign_jwt|encrypt|decrypt)"
_CONNECTS = r"(?:connect|getConnection|createConnection|login|Login|FTP|SMTP\w{0,4}|auth|authenticate|Credentials?|DirectoryEntry|PasswordAuthentication|UsernamePasswordToken|mysqli|PDO)"
_ENCODES = r"(?:Buffer\.from|btoa|b64encode|base64_encode|Base64\.encode\w{0,16}|encodeToString)"
_STORES = r"(?:kv\s(?:put|patch|set)|secrets?\s(?:set|add|create|put)|config:set|--from-literal|variables?\sset|secret:set|env\s(?:set|add))"
_LITERAL = r"b?\\{0,3}[\"'](?P<secret>[^\"'\s\\]{6,200})\\{0,3}[\"']\s?[,)]"

ASSIGNED: tuple[Named, ...] = (
    # MEILI_MASTER=..., private static final String KEY = "..."
    place("api-key", r"[A-Z][A-Z0-9_]{2,60}", rf"{_ASSIGNED}{_TOKEN}", changing,
          r"[A-Z][A-Z0-9_]{2}[\"'\\]{0,4}\s{0,3}(?:=|:|=>|:=)\s{0,3}(?:base64:)?[\"'\\]{0,4}(?:base64:)?[A-Za-z0-9+/_-]{20}",
          before=rf"(?<![A-Za-z0-9$%{{_.])(?!(?:[A-Z0-9]{{1,40}}_){{0,8}}(?:{_HARMLESS_WORDS})(?:_|\b))"),
    # session: ..., "refresh": "...", define('AUTH_SALT', '...')
    place("secret", rf"(?i:{_SECRET_WORDS})", rf"(?i:{_AFTERWARDS}){_ASSIGNED}(?P<secret>[A-Za-z0-9!@#%^&*+/_=()~-]{{10,400}})(?![A-Za-z0-9(.])", under_a_word,
          rf"(?i:(?:{_SECRET_WORDS}){_AFTERWARDS})[\"'\\\])]{{0,4}}\s{{0,3}}(?:=>|:=|[=:]|,\s?[\"'\\])\s{{0,3}}[\"'\\]{{0,4}}(?:base64:)?[A-Za-z0-9!@#%^&*+/_=()~-]{{10}}",
          before=_NO_SECRETS, keys=rf"{_NO_SECRETS}(?i:{_SECRET_WORDS})(?i:{_AFTERWARDS})\Z"),
    place("secret", r"(?i:secret[_-]id)", rf"{_ASSIGNED}(?P<secret>{UUID})", drawn_uuid, r"(?i:secret[_-]id)[\"'\\]{0,4}\s?[=:]\s{0,3}[\"'\\]{0,4}[0-9a-f]{8}-",
          keys=r"(?i:secret[_-]id)\Z"),
    # - name: LICENSE\n  value: "..."
    place("license", r"(?i:licen[cs]e|serial|activation|product)[\w -]{0,16}", rf"[\"'\\]{{0,4}}(?:\s?[=:]\s?|{LINE}\s{{0,12}}value:\s?|\s(?:is|key|code)\s)[\"'\\]{{0,4}}(?P<secret>(?:[A-Z0-9]{{4,6}}-){{3,7}}[A-Z0-9]{{4,6}})(?![\w-])", numbered,
          r"[^A-Za-z0-9-](?:[A-Z0-9]{5}-){3}[A-Z0-9]{5}|[^A-Za-z0-9-](?:[A-Z0-9]{4}-){4}[A-Z0-9]{4}"),
    # Arguments of calls, wherever they stand among them.
    place("password", rf"{_CONNECTS}\(", rf"(?:[^()\n]{{0,120}}?[,=]\s?)?{_LITERAL}", positional, rf"{_CONNECTS}\((?:\w{{1,12}},\s?)?\w{{0,12}}=?[\\\"']{{1,4}}[^\s\"'\\]{{1,60}}[\\\"']{{1,4}},\s?\w{{0,12}}=?[\\\"']"),
    place("api-key", rf"{_CRYPTO}\(", rf"(?:[^()\n]{{0,80}}?,\s?)?{_LITERAL}", opaque, rf"{_CRYPTO}\([^()\n\"']{{0,24}}[\"']"),
    place("password", rf"{_ENCODES}\(", r"\s?[bf]?\\{0,3}[\"'][\w.@+-]{1,40}:(?P<secret>[^\"'\s\\{}$]{4,200})\\{0,3}[\"']", opaque, rf"{_ENCODES}\(\s?[bf]?[\\\"']{{1,4}}[\w.@+-]{{1,40}}:"),
    place("password", r"(?i:pass(?:word|wd|phrase)|credential|secret)\w{0,12}\(", rf"[^()\n]{{0,80}}?(?:value|secret|password|token)\\?[\"']?\s?[:=]\s?{_LITERAL}", positional,
          r"(?i:password|passwd|passphrase|credential|secret)\w{0,12}\(\w{1,12}[\\\"']{0,2}\s?[:=]"),
    # Addresses without slashes, and what an address lets in whoever has it.
    place("url-password", r"\b(?i:sips?|xmpp|smb|imaps?|pop3s?|smtps?|mailto|ftp|ssh|user|proxy)[:=]", r"[\w.+-]{1,40}:(?P<secret>[^\s@/\"'<>]{4,100})@(?=[\w-]{1,60}\.)", mixed,
          r"(?i:sip|sips|xmpp|smb|imap|smtp|mailto|ftp|ssh|user|proxy)[:=][\w.+-]{1,40}:[^\s@/\"'<>]{4}"),
    place("url-key", r"[?&;#](?i:code|ticket|invite|invitation|magic|confirm(?:ation)?|verify|verification|activation|reset|otp|jwt|assertion|t|k)=", r"(?P<secret>[A-Za-z0-9_~.+/=-]{20,2000})", changing,
          r"[?&;#](?i:code|ticket|invite|invitation|magic|confirm(?:ation)?|verify|verification|activation|reset|otp|jwt|assertion|t|k)=[^&#\s\"'<>\\]{8}"),
    # Commands that store what they are given, and those that take it without a switch for it.
    place("command-password", _STORES, rf"[ =](?:[^\n|;]{{0,120}}?[\s=])??(?!(?:[A-Za-z0-9]{{1,40}}[_-]){{0,8}}(?i:{_HARMLESS_WORDS})=)[\w.-]{{1,60}}=\\?[\"']?(?P<secret>[^\s\"'\\$<]{{6,400}})", opaque, rf"{_STORES}[ =]"),
    place("command-password", r"\b(?:htpasswd\s-\w{0,4}n\w{0,4}\s\S{1,80}\s|snmp\w{2,12}\s(?:[^\n]{0,60}\s)?-[cAX]\s|wpa_passphrase\s\S{1,60}\s|smbpasswd\s[^\n]{0,60}\s)", r"\\?[\"']?(?P<secret>[^\s\"'\\-][^\s\"'\\]{5,200})", opaque,
          r"htpasswd\s-|snmp\w{2,12}\s|wpa_passphrase\s|smbpasswd\s"),
    # With whatever a language puts between a name and its value: signs, tags, and words such as `to` and `Some`.
    place("secret", NAME_ENDS, rf"{BETWEEN}(?P<secret>{_ANYTHING}{{12,400}}+)(?!\()", behind_a_name, rf"{NAMES_SEEN}{BETWEEN}{_ANYTHING}{{12}}"),
    place("password", PASSWORD_ENDS, rf"{GIVEN}(?P<secret>{_ANYTHING}{{6,100}}+)(?!\()", mixed, rf"{PASSWORDS_SEEN}{GIVEN}{_ANYTHING}{{6}}"),
    # "Here is the key: ..."
    place("api-key", r"(?i:\b(?:the|my|our|your|a|new)\s(?:[a-z]{2,12}\s)?key\b)", r"(?::|\sis:?|\s[=-])\s{1,3}[\"'`*]{0,3}(?P<secret>[A-Za-z0-9_+/=-]{20,400})(?![A-Za-z0-9_.+/=-])", of_all_kinds,
          r"(?i:[^a-z]key)(?::|\sis:?|\s[=-])\s[\"'`*]{0,3}[A-Za-z0-9_+/=-]{20}"),
    # acme_9sK2..., acme_live_...-..._..., of whatever vendor.
    place("api-key", r"[a-z][a-z0-9]{1,11}_", r"(?P<secret>(?:[a-z]{2,8}_){0,2}[A-Za-z0-9]{36,400})(?![A-Za-z0-9_-])", drawn_tail, r"[a-z0-9]_[A-Za-z0-9]{36}",
          before=rf"(?<![A-Za-z0-9_.-])(?!(?:{_OF_OBJECTS})_)"),
    place("api-key", r"(?:live|prod|production|sandbox|test|secret|token|pat|sk|rk|apikey)[_-]", r"(?P<secret>[A-Za-z0-9_-]{32,400})(?![A-Za-z0-9_-])", changing,
          r"(?:live|prod|production|sandbox|test|secret|token|pat|sk|rk|apikey)[_-][A-Za-z0-9_-]{32}", before=r"(?<![A-Za-z0-9])(?<!pk[_-])"),
    place("api-key", r"[a-z]{2,12}_(?:live|test|sandbox|prod)_", r"(?P<secret>[0-9a-f]{32,128})(?![A-Za-z0-9_-])", machine_made, r"[a-z]_(?:live|test|sandbox|prod)_[0-9a-f]{32}", before=r"(?<![A-Za-z0-9_.-])"),
    # define('AUTH_KEY', '...'): any signs.
    place("secret", r"define\(\s{0,4}[\"'][A-Z_]{0,30}(?:KEY|SALT|SECRET|TOKEN)[\"']\s?,\s{0,24}[\"']", r"(?P<secret>[^\"'\s]{32,200})[\"']", salted, r"define\(\s{0,4}[\"'][A-Z_]{0,30}(?:KEY|SALT|SECRET|TOKEN)[\"']"),
    # X-Acme-Team: 9sK2...
    place("api-key", r"\b[Xx](?:-[A-Za-z]{2,20}){0,3}-(?i:team|app|application|service|user|account|client|tenant|workspace|access|customer|partner|license)", r"[\"'\\]{0,4}\s?[:,]\s?[\"'\\]{0,4}(?P<secret>[A-Za-z0-9_-]{20,200}={0,2})(?![A-Za-z0-9_.+/=-])", of_all_kinds,
          r"[Xx]-[A-Za-z-]{0,30}(?i:team|app|application|service|user|account|client|tenant|workspace|access|customer|partner|license)[\"'\\]{0,4}\s?[:,]\s?[\"'\\]{0,4}[A-Za-z0-9_-]{20}"),
    # setx CONSUMER_SECRET 9sK2..., license_secret | X6YMG-...
    place("secret", rf"{NAME_ENDS}[ \t]{{1,4}}(?:\|[ \t]{{1,4}})?", r"(?P<secret>[A-Za-z0-9+/_-]{20,400}={0,2})(?![A-Za-z0-9+/_.=:(-])", spaced, rf"{NAMES_SEEN}[ \t]{{1,4}}(?:\|[ \t]{{1,4}})?[A-Za-z0-9+/_-]{{20}}"),
    # user kim pass ..., "log in as kim / ..."
    place("password", r"(?i:\buser(?:name)?:?\s\S{1,60}[ ,]{1,2}(?:and\s)?pass(?:word)?:?\s)", r"(?P<secret>[^\s\"'`<>(){}|\\,;]{6,80})", typed, r"(?i:user(?:name)?):?\s[^\s]+[ ,]{1,2}(?i:and\s)?(?i:pass(?:word)?):?\s"),
    place("password", r"(?i:\b(?:log|sign)[ -]?in\s(?:as|with|using)\s)", r"[\w.@+-]{2,60}\s?(?:/|,|\band\b|\bwith\b)\s?(?P<secret>[^\s\"'`<>(){}|\\,;]{6,80}?)(?=[.,;:!]?(?:\s|\Z))", mixed, r"(?i:(?:log|sign)[ -]?in\s(?:as|with|using)\s)"),
    place("code", r"(?i:\b(?:cvv2?|cvc2?)\b)", r"\s?(?:code\s)?[:=#]?\s?(?P<secret>[0-9]{3,4})(?![0-9])", short_code, r"(?i:cv[vc]2?)\s?(?:code\s)?[:=#]?\s?[0-9]{3}"),
    # PASETO (paseto.io).
    place("paseto", r"v[1-4]\.(?:local|public)\.", r"(?P<secret>[A-Za-z0-9_-]{40,4000}(?:\.[A-Za-z0-9_-]{1,400})?)", genuine, r"v[1-4]\.(?:local|public)\.[A-Za-z0-9_-]{20}", before=r"(?<![A-Za-z0-9.])"),
)  # fmt: skip
"""In the order in which they are tried."""

_OWNER = spelled(
    r"(?i:log-?in|zugang|zugangsdaten|acc(?:è|e)s|acceso|accesso|router|vpn|\brdp\b|\bssh\b|telnet|id\s?/\s?p(?:w|ass)\w*)|계정|아이디|账号|帐号|账户|ログイン|логин"
)
_OWNED = re2.compile(rf"(?:{_OWNER})[^\n]{{0,48}}|\d{{1,3}}(?:\.\d{{1,3}}){{3}}[^\n]{{0,40}}")
_PAIR = re.compile(
    rf"(?<![\w/.:@-])[\w.@+-]{{2,40}}(?:\s?[/|]\s?|\s?,\s?|\s(?:and(?: then)?|und|dann|et|y|e)\s)({OPAQUE}{{6,64}})(?!{OPAQUE})"
)
_BEHIND = re.compile(rf"(?:{_OWNER})\s?[:：]\s?")
_NO_HALF = re.compile(r"[/=|]|^[#(]")
_SETTING = re.compile(
    rf"(?:^|\n|\\n)[ \t-]{{0,40}}(?:(?:export|const|let|var|set|final|static)\s{{1,4}}){{0,3}}([A-Za-z][\w.-]{{1,60}})[\"'\\]{{0,4}}\s{{0,8}}(?:=>|:=|=|:)\s{{0,8}}"
    rf"[\"'\\]{{0,4}}([A-Za-z0-9+/_-]{{24,200}}={{0,2}})[\"'\\]{{0,4}}[;,]?[ \t]*(?={LINE}|\Z)"
)
_NAME_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_OF_SETTINGS = (
    "PARENT|THREAD|CALL|MESSAGE|RESPONSE|TOOL|COMPLETION|SIGNATURE|THOUGHT|SNAPSHOT|LAYER|SURROGATE|CACHE|ROUTING|PARTITION|SORT|OBJECT|AFTER|BEFORE|"
    "GCLID|FBCLID|DOC|DOCUMENT|SHEET|SPREADSHEET|FOLDER|VIDEO|TRACK|PLAYLIST|CHANNEL|DEVICE|NODE|LINK|CUSTOMER|ORDER|INVOICE|PAYMENT|PRICE|PRODUCT"
)
"""Words of a setting's name that say the same."""
_SAYS_HARMLESS = frozenset((*_HARMLESS_WORDS.split("|"), *_OF_SETTINGS.split("|")))
_LISTED = re.compile(
    rf"(?i)(?:backup|recovery|scratch|rescue)[ _-]?codes?[^\n\\]{{0,60}}((?:{LINE}[^\n\\]{{0,60}}){{1,12}})"
)
_IN_LINE = re.compile(
    r"(?i)(?:backup|recovery|scratch|rescue)[ _-]?codes?[\"']?\s?[:=]\s{0,4}([\w ,;/-]{8,240})"
)
_LIST = re2.compile(rf"{NAMES_SEEN}s[\"'\\\\]{{0,4}}\s?[:=]")
_LIST_OF = re.compile(rf"{NAME_ENDS}s[\"'\\]{{0,4}}\s?[:=]\Z")
_ITEMS = re.compile(rf"\s{{0,4}}(?:\[[^\]\n]{{0,2000}}|(?:{LINE}[ \t]{{0,24}}- ?[^\n\\]{{1,400}}){{1,32}})")
_ITEM = re.compile(r"([A-Za-z0-9+/_=.~!@#%^*-]{12,400})")
_HALVES = re.compile(r"([a-z0-9]{4,6})-[a-z0-9]{4,6}")
_LISTED_CODE = re.compile(
    r"(?<![\w-])(?=[\w -]{0,40}\d)([A-Za-z0-9]{4,10}(?:[ -][A-Za-z0-9]{4,10}){0,5})(?![\w-])"
)


def pairs_of_owners(text: str) -> Iterator[Place]:
    """The second half of `name / password`, beside a word for a login or the address of a machine."""
    for owner in _OWNED.finditer(text):
        if not TWO_DIGITS.search(text, *owner.span()):
            continue
        for pair in _PAIR.finditer(text, *owner.span()):
            right_behind = _BEHIND.fullmatch(text, owner.start(), pair.start()) is not None
            if not _NO_HALF.search(pair[1]) and (strong(pair[1]) or (right_behind and mixed(pair[1]))):
                yield pair.span(1)


def lines_of_settings(text: str) -> Iterator[Place]:
    """The values of settings, each on a line of its own, that a machine drew, unless a word of the name says what of."""
    for setting in _SETTING.finditer(text):
        words = {word.upper() for word in _NAME_WORDS.findall(setting[1])}
        # h1: a sum, in Go's list of modules.
        if not words & _SAYS_HARMLESS and setting[1] != "h1" and changing(setting[2]):
            yield setting.span(2)


def listed_codes(text: str) -> Iterator[Place]:
    """The codes in the lines below `Backup codes:`, and those on the same line."""
    for listed, least in ((_LISTED, 2), (_IN_LINE, 4)):
        for several in listed.finditer(text):
            for code in _LISTED_CODE.finditer(text, *several.span(1)):
                digits = sum(map(str.isdigit, code[1]))
                if len(code[1]) >= 6 and (digits >= least or (digits and _HALVES.fullmatch(code[1]))):
                    yield code.span(1)


def listed_values(text: str) -> Iterator[Place]:
    """The items of a list under the name of secrets."""
    for name in _LIST.finditer(text):
        items = _ITEMS.match(text, name.end())
        if items is not None and _LIST_OF.search(text, max(0, name.start() - 20), name.end()):
            yield from (
                item.span(1) for item in _ITEM.finditer(text, *items.span()) if behind_a_name(item[1])
            )


ASSIGNED_FINDERS: tuple[tuple[str, Callable[[str], Iterator[Place]], str], ...] = (
    ("password", pairs_of_owners, rf"(?:{_OWNER})(?:\s\w{{2,8}}\s\w{{2,12}})?(?:[\s:(]|：){{1,3}}[\w.@+-]{{2,32}}(?:\s?[/|,]\s?[^\s/|,]{{6}}|\s(?:and|und|dann|et|y|e)\s)|\d\.\d{{1,3}}[ (:,\]]{{1,3}}[\w.]{{2,16}}\s?[/|]\s?[^\s/]{{6}}"),
    ("api-key", lines_of_settings, r"(?:\A|\n|\\n)[ \t-]*(?:(?:export|const|let|var|set|final|static)\s)?[A-Za-z][\w.-]+[\"'\\]{0,4}\s?(?:=>|:=|=|:)\s?[\"'\\]{0,4}[A-Za-z0-9+/_-]{24}"),
    ("secret", listed_values, rf"{NAMES_SEEN}s[\"'\\]{{0,4}}\s?[:=]\s{{0,4}}(?:\[|{LINE}[ \t]{{0,24}}- )"),
    ("recovery-code", listed_codes, rf"(?i:backup|recovery|scratch|rescue)[ _-]?(?i:codes?)(?:[^\n\\]{{0,60}}{LINE}|[\"']?\s?[:=])"),
)  # fmt: skip
"""Rule, what finds it, and its screen."""

__all__ = ["ASSIGNED", "ASSIGNED_FINDERS"]

# ruff: noqa: E501 - a pattern is read in one piece
"""The rules of a Redactor: a form of secret each, and the check that what has the form is one.

Two kinds.  The keys of vendors (`vendors.py`) are known by their own form, wherever they stand.  Any other
secret is known by its name (`names.py`): `password=`, `"client_secret":`, `X-Api-Key:`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import re2

from ....errors import InputError
from .assigned import ASSIGNED, ASSIGNED_FINDERS
from .names import NAMED, Named, genuine, random_looking, told
from .places import PLACES
from .structures import FINDERS, STRUCTURES
from .vendors import VENDORS


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret.

    Raises:
        InputError: the name is not lower-case letters, digits and hyphens.
    """

    name: str
    pattern: str
    """A regular expression over text.  With groups named `secret`, `secret_2`... only what one of them took is replaced."""
    hints: Sequence[str] = ()
    """Letters of which every match holds at least one."""
    check: Callable[[str], bool] | None = None
    """True if a match is a secret after all."""
    screen: str = ""
    """A regular expression of RE2 over bytes that finds something wherever `pattern` does, instead of hints.

    It is what text without secrets costs.  With neither, `pattern` is tried everywhere, which costs more."""
    anchor: str = ""
    """A regular expression of RE2 over UTF-8, where whose matches begin `pattern` is tried, and nowhere else."""
    keys: str = ""
    """A regular expression for the end of a key in JSON, or of an attribute's name, whose value is a secret."""
    finder: Callable[[str], Iterator[tuple[int, int]]] | None = None
    """What finds the places of secrets where that takes more than a pattern, which is "" then; `screen` stands before it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hints", tuple(self.hints))
        if not re.fullmatch(r"[a-z0-9-]{1,40}", self.name):
            raise InputError(f"{self.name!r} cannot name a rule: use lower-case letters, digits and hyphens.")

    @property
    def screening(self) -> str:
        """The expression of RE2 without which nothing matches; empty if there is none."""
        return self.screen or "|".join(re2.escape(hint) for hint in self.hints if hint)


def luhn(text: str) -> bool:
    """True if the digits of a text satisfy the check digit of payment cards (ISO/IEC 7812)."""
    digits = [int(character) for character in text if character.isdigit()]
    doubled = [
        value if position % 2 == 0 else sum(divmod(2 * value, 10))
        for position, value in enumerate(digits[::-1])
    ]
    return len(digits) >= 13 and len(set(digits)) > 1 and sum(doubled) % 10 == 0


def credentials(text: str) -> bool:
    """True of a user's name and password as HTTP's Basic scheme encodes them (RFC 7617)."""
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode()
    except ValueError:
        return False
    return ":" in decoded and decoded.isprintable()


def _rule(named: Named) -> Rule:
    return Rule(
        named.name,
        named.pattern,
        check=named.check,
        screen=named.screen,
        anchor=named.anchor,
        keys=named.keys,
    )


WHET_TOKEN = r"whet-(?:read|write|admin|run)-[A-Za-z0-9_-]{20,}"
"""The form of a server's own tokens, of those of one run too."""
_START = r"(?<![A-Za-z0-9])"
_BLOCK = r"(?:[A-Za-z0-9]+ ){0,4}(?:PRIVATE KEY|SECRET KEY|Static key)(?: (?:BLOCK|V\d))?"
_ENDED = rf"-{{4,5}} ?END {_BLOCK} ?-{{4,5}}"
RULES: tuple[Rule, ...] = (
    # No boundary before it: in an encoded address a letter stands there (`%2Fwhet-run-`).
    Rule("whet-token", WHET_TOKEN, screen=WHET_TOKEN),
    Rule(
        "private-key",
        rf"-{{4,5}} ?BEGIN {_BLOCK} ?-{{4,5}}.*?(?:{_ENDED}|\Z)",
        ("PRIVATE KEY", "SECRET KEY", "Static key"),
    ),
    # The second half of one.  Begun only where the run begins and never given back: each letter is read once.
    Rule(
        "private-key",
        rf"(?<![A-Za-z0-9+/=\\\s])(?:[A-Za-z0-9+/=\\\s]){{16,}}+{_ENDED}",
        screen=r"--- ?END [A-Za-z0-9 ]{0,40}(?:PRIVATE KEY|SECRET KEY|Static key)",
    ),
    Rule(
        "private-key",
        r"Private-Lines: \d{1,4}(?P<secret>(?:\s|\\[nr])[A-Za-z0-9+/=\s\\]{20,}+)",
        ("Private-Lines: ",),
    ),
    Rule(
        "jwt",
        _START + r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
        screen=r"eyJ[A-Za-z0-9_-]{8,}\.eyJ",
    ),
    Rule(
        "jwt",
        _START
        + r"eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{16,}+",
        screen=r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8}",
    ),
    *(Rule(name, _START + form, check=genuine, screen=screen) for name, form, screen in VENDORS),
    Rule(
        "bearer-token",
        r"(?i:bearer)(?:\s|%20|\\[\"']|[\"']){1,4}(?P<secret>(?=[A-Za-z._~+/=-]{0,99}[0-9])[A-Za-z0-9._~+/=-]{16,})",
        screen=r"(?i:bearer)(?:\s|%20|[\\\"']){1,4}[A-Za-z0-9._~+/=-]{16}",
    ),
    Rule(
        "basic-auth",
        r"(?i:basic)\s{1,4}(?P<secret>[A-Za-z0-9+/]{8,}={0,2})",
        check=credentials,
        screen=r"(?i:basic)\s{1,4}[A-Za-z0-9+/]{8}",
    ),
    Rule(
        "url-key",
        r"[?&;](?i:(?:(?:api|app|access|auth|subscription|client|secret|private|account|user|session|id|refresh|license|x-[\w-]{1,20})[_.-]?)?"
        r"(?:key|token|secret)|x-(?:amz|goog)-(?:signature|security-token)|signature|sig|auth|appid|code_verifier|hapikey|pwd?|pass)"
        r"=(?P<secret>[^&#\s\"'<>\\]{8,})",
        check=random_looking,
        screen=r"(?i:key|token|signature|sig|auth|appid|verifier|pwd?|pass|secret)=[^&#\s\"'<>\\]{8}",
    ),
    Rule(
        "url-password",
        r"://[^/\s:@\"'<>\[]{0,200}:(?P<secret>[^/\s\"'<>]{1,200})@(?=[A-Za-z0-9.\[{$-])",
        check=told,
        screen=r"://[^/\s:@\"'<>\[]{0,200}:[^/\s@\"'<>]{1,200}@",
    ),
    # A password with a slash in it, which a URL should not hold and people write all the same.
    Rule(
        "url-password",
        r"(?i:postgres(?:ql)?|mysql|mariadb|mongodb|redis|amqp|mssql)s?(?:\+[a-z0-9]{1,20})?://[^/\s:@\"'<>\[]{0,200}:"
        r"(?P<secret>[^\s@\"'<>]{1,200})@",
        check=told,
        screen=r"(?i:sql|maria[a-z]b|mongodb|postgres|redis|amqp)[a-z0-9+]{0,30}://[^/\s:@\"'<>\[]{0,200}:[^\s@\"'<>]{1,200}@",
    ),
    Rule(
        "url-token",
        r"https?://(?P<secret>[A-Za-z0-9_-]{20,200})@",
        check=random_looking,
        screen=r"https?://[A-Za-z0-9_-]{20,200}@",
    ),
    Rule(
        "password-hash",
        r"\$(?:2[abxy]\$\d\d\$[./A-Za-z0-9]{53}|argon2(?:id|i|d)\$v=\d+\$[^\s\"'\\:]{20,200}|(?:[156y]|apr1)\$[^\s$\"'\\]{1,40}\$[./A-Za-z0-9]{20,})",
        screen=r"\$(?:2[abxy]\$|argon2|(?:[156y]|apr1)\$[^\s$]{1,40}\$)",
    ),
    Rule(  # a derivation's name with what it takes, its salt and its sum: Django's, Werkzeug's, Kerberos'
        "password-hash",
        r"(?<![A-Za-z0-9])(?:pbkdf2|scrypt|bcrypt|argon2|krb5)[\w:-]{0,24}\$[^\s\"'\\<>]{40,4000}",
        screen=r"(?:pbkdf2|scrypt|bcrypt|argon2|krb5)[\w:-]{0,24}\$",
    ),
    Rule(  # PostgreSQL's (RFC 5803)
        "password-hash",
        r"SCRAM-SHA-(?:1|256|512)\$[0-9]{4,7}:[A-Za-z0-9+/=]{12,100}\$[A-Za-z0-9+/=]{20,100}:[A-Za-z0-9+/=]{20,100}",
        screen=r"SCRAM-SHA-[0-9]{1,3}\$",
    ),
    Rule(  # RFC 2307, as directories and mail servers keep them
        "password-hash",
        r"\{(?i:s?sha(?:\d{3})?|s?md5|crypt|plain|cleartext|pbkdf2[\w-]{0,12}|argon2\w{0,2}|(?:blf|sha\d{3}|md5)-crypt)\}(?P<secret>[^\s\"'\\:;,{}]{4,400})",
        check=told,
        screen=r"(?i:sha(?:\d{3})?|md5|crypt|plain|cleartext|pbkdf2[\w-]{0,12}|argon2\w{0,2})\}[^\s\"'\\:;,{}]{4}",
    ),
    Rule(
        "netrc",
        r"(?:login|account)\s{1,20}[^\s]{0,99}[^\s,;:]\s{1,20}password\s{1,20}(?P<secret>[^\s]{3,200})",
        check=told,
        screen=r"(?:login|account)\s{1,20}[^\s]{1,100}\s{1,20}password\s",
    ),
    Rule(
        "command-password",
        r"(?:\bcurl\b(?:[^\n\\]|\\[^\n]|\\\n){0,300}?\s(?:-u|--user)[ =]{0,4}[\"']?[^\s:\"'<]{0,100}[\"']?:[\"']?|\bsshpass\s+-p\s?[\"']?|"
        r"\b(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n]{0,200}?[\s\"']-p[\"']?|\bredis-cli\b[^\n]{0,200}?\s(?:-a|--pass)\s[\"']?|"
        r"\bwandb\s+login\s+(?:--\w+\s+)?|\bConvertTo-SecureString\s+(?:-String\s+)?[\"']|(?i:\b(?:create|alter|grant)\b[^\n;]{0,200}?\bidentified\s+(?:with\s+\S{1,40}\s+)?by)\s+[\"'])"
        r"(?P<secret>[^\s\"'\\]{4,200})",
        check=told,
        screen=r"curl(?:[^\n]|\\\n){0,300}\s(?:-u|--user)|sshpass|(?:mysql|mysqldump|mysqladmin|mariadb)[^\n]{0,200}[\s\"']-p|redis-cli|wandb\s+login|ConvertTo-SecureString|(?i:identified\s+(?:with\s+\S{1,40}\s+)?by)",
    ),
    # Behind the word that begins every bot's address.
    Rule("telegram-token", r"(?<=bot)[0-9]{8,10}:AA[A-Za-z0-9_-]{33}", screen=r"bot[0-9]{8,10}:AA"),
    Rule(
        "password",
        r"(?:^|[\s,{]|\\n)(?:\\{0,7}[\"'])?pass(?:\\{0,7}[\"'])?\s{0,4}[:=]\s{0,4}(?P<quote>\\{0,7}[\"'])"
        r"(?P<secret>(?=[^\"']{0,99}[0-9!@#$%^&+~])[^\"'\n\\]{6,100})(?P=quote)",
        check=told,
        screen=r"pass(?:\\{0,7}[\"'])?\s{0,4}[:=]\s{0,4}\\{0,7}[\"'][^\"'\n\\]{6}",
    ),
    Rule(  # Terraform's
        "password",
        r"variable\s{1,4}\\{0,7}\"[\w-]{0,60}(?:password|secret|token|key)\\{0,7}\"\s{0,4}\{[^{}]{0,300}?\bdefault\s{0,20}=\s{0,4}"
        r"\\{0,7}\"(?P<secret>[^\"\n\\]{6,200})\\{0,7}\"",
        check=random_looking,
        screen=r"variable\s{1,4}\\{0,7}\"[\w-]{0,60}(?:password|secret|token|key)\\{0,7}\"\s{0,4}\{",
    ),
    *(_rule(named) for named in NAMED),
    *(_rule(place) for place in PLACES),
    *(_rule(structure) for structure in STRUCTURES),
    *(_rule(assigned) for assigned in ASSIGNED),
    *(Rule(name, "", finder=finder, screen=screen) for name, finder, screen in (*FINDERS, *ASSIGNED_FINDERS)),
)
"""The default rules of a Redactor."""

EMAIL = Rule("email", r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+", ("@",))
"""Addresses.  Not among `RULES`: an agent that works on mail has little else."""
CARD = Rule(
    "card", r"(?<![0-9.])[0-9](?:[ -]?[0-9]){12,18}(?![0-9])", check=luhn, screen=r"[0-9](?:[ -]?[0-9]){12}"
)
"""Payment card numbers.  Not among `RULES`."""

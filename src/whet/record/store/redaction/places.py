# ruff: noqa: E501 - a pattern is read in one piece
"""Secrets that are known by where they stand: in sentences of many languages, commands, statements of SQL, calls, forms
and the lines of a few files.  What stands there is one only if it looks chosen (`mixed`) or made by a machine.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable

from .letters import drawn
from .names import Named, entropy, genuine, random_looking, seen_by_re2, spelled, told

_WORDS = (
    r"passwor(?:t|d)|passwd|passphrase|passcode|kennwort|zugangscode|(?-i:[A-Za-z]Pass)\b|mots?[ _-]de[ _-]passe|contrasena|clave[ _-](?:de[ _-]acceso|secreta)|(?:parola|codice) d.(?:ordine|accesso)|"
    r"palavra.passe|wachtwoord|toegangscode|losenord|adgangskode|kodeord|passord|salasana|slaptazodis|parool|kata sandi|"
    r"\b(?:mdp|clave|senha|heslo|geslo|parola|sifre|hasl[oa]|pwd?|lozinka)\b|(?:[a-z]pwd?|[_-]pass)\b"
)
_SEEN = _WORDS.replace(r"\b(", r"(?:\A|[^a-z])(").replace(r")\b", ")[^a-z]")
"""The words for a screen, in which a boundary costs more than a letter."""
BEYOND = spelled(
    "code d.accès|contraseña|hasł(?:o|a)|lösenord|jelsz(?:ó|av[a-z]{1,6})|parolă|(?:Ş|ş)ifre[a-z]{0,4}|slaptažodis|mật khẩu|(?:П|п)арол(?:ь|я|а)|(?:Κ|κ)ωδικός|密码|密碼|口令|"
    "パスワード|暗証番号|비밀번호|비번|패스워드|암호|كلمة (?:المرور|السر)|סיסמ(?:ה|ת)|पासवर्ड|รหัสผ่าน"
)
_KEYS = (
    r"(?:api|access|secret|private|licen[sc]e|signing|encryption|app|auth|admin|account|subscription|service|master).?(?:key|token|secret)|(?:my|our|your)\s(?:key|token)|"
    r"(?:client|shared|consumer|webhook|app) secret|api.sleutel|cl?have (?:de |da )?api|clave (?:de )?api|chiave api|klucz api"
)
_KEYS_BEYOND = spelled(
    "api.schlüssel|clé (?:d.)?api|(?:ключ|キー|密钥|密鑰)(?: api)?|api.?(?:ключ|キー|密钥)"
)
_IS = "is|was|are|to|ist|lautet|war|est|sont|es|son|era|è|é|são|jest|brzmi|är|er|on|je|is nu|este|to jest|это"
_ALGORITHM = re.compile(
    r"(?i)(?:sha|md|aes|utf|base|rsa|hs|rs|es|ps|ed|ecdsa|hmac|argon|pbkdf|bcrypt|scrypt|oauth|saml|ldap|http|ipv|tls|ssl|python|php|windows|win|"
    r"office|postgres|mysql|cp|iso|rfc|cve|crc|murmur|[vhpx])[_-]?\d[\w.-]{0,12}"
)
_PLAIN = re.compile(
    r"""(?ix) [a-z\#]{0,3}[\d.,:/-]+[a-z%°]{0,5} | \d{4}-\d\d-\d\d[t_]\d\d.* | (?-i:[A-Z]{2,8})-\d+ | \d+(?:st|nd|rd|th|x)?[-_ ]?[a-z]+ | [\w.+-]+@[\w-]+\.[\w.]+ | \#[0-9a-f]{3,8}
    | .*(?:://|\(|\)|\\[nt]|\.(?:[a-z]\w{0,3}|7z)\Z|=>|->|&&|\[redacted).* | [a-z]+'[a-z]+ | [a-z_-]+[.,;:!?*]* | (?:user|admin|test|item|step|line|page|version|field|option|example|room|gate)[\s_-]?\d{1,3}
    | [a-z_]+[=:]\S* | [a-z_]+[a-z]?\d{0,2} | (?:[a-z]+[/|&+])+[a-z]+ """
)
_NEVER = re.compile(
    r"[$%{<@:!].*|.*[*•]{3}.*|.*x{4,}.*|.*(?:your|example|placeholder|changeme).*", re.IGNORECASE
)


def _letters_drawn(text: str) -> bool:
    return len(text) >= 10 and text.isalnum() and not text.islower() and drawn(text)


def mixed(text: str) -> bool:
    """True of what people choose where it must be safe: letters with two digits, or with a sign between them."""
    text = text.strip("`*_").rstrip(".,;:")
    if (
        not 6 <= len(text) <= 100
        or (_PLAIN.fullmatch(text) and not _letters_drawn(text))
        or _NEVER.fullmatch(text)
        or not told(text)
    ):
        return False
    digits = sum(letter.isdigit() for letter in text)
    signed = any(sign in text[1:-1] for sign in "!#$%^&*+~@") or text[-1] in "!#$"
    letters = any(letter.isascii() and letter.isalpha() for letter in text)
    return (
        letters
        and not _ALGORITHM.fullmatch(text)
        and (digits >= 2 or (signed and (digits > 0 or len(text) >= 8)) or drawn(text))
    )


def argument(text: str) -> bool:
    """True of what may be a password where a command wants one: no port, path, or word of an option."""
    return (
        len(text) >= 4 and not text.isdigit() and not re.fullmatch(r"[\d:-]+(?:/\w+)?", text) and told(text)
    )


def machine_made(text: str) -> bool:
    """True of a key behind no more than its name and a space: 16 letters or more, some of them digits."""
    return (
        len(text) >= 16
        and (sum(map(str.isdigit, text)) >= 2 or (drawn(text) and not text.islower()))
        and entropy(text) > 2.8
        and random_looking(text)
    )


def tail(text: str) -> bool:
    """True of the random part of a key that begins with words, as `acme_live_...`."""
    random = re.split(r"[_-]", text)[-1]
    kinds = [any(map(kind, random)) for kind in (str.isupper, str.islower, str.isdigit)]
    if sum(kinds) < 3 and re.split(r"[_-]", text)[0].lower() not in _SURE:
        return False  # an environment or `cache-key`, and a hash: the name of a build
    return (
        len(random) >= 20
        and (sum(map(str.isdigit, random)) >= 2 or drawn(random))
        and sum(kinds) > 1
        and entropy(random) > 3
        and genuine(text)
    )


def of_all_kinds(text: str) -> bool:
    """True of a key that a machine made of capitals, small letters and digits."""
    kinds = [sum(map(kind, text)) for kind in (str.isupper, str.islower, str.isdigit)]
    return (
        (min(kinds) >= 2 or (min(kinds) == 1 and drawn(text)))
        and entropy(text) > 3.6
        and machine_made(text)
        and not text.startswith(("pk_", "eyJ"))
    )


def short_code(text: str) -> bool:
    """True of a code that was sent to somebody: not the same digit throughout, no year."""
    digits = re.sub(r"\D", "", text)
    return len(set(digits)) > 1 and not re.fullmatch(r"(?:19|20)\d\d", text)


def user_and_password(text: str) -> bool:
    """True of base64 of a user's name and password, or of a key that a machine made."""
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode()
    except ValueError:
        return machine_made(text)
    return (":" in decoded and decoded.isprintable()) or machine_made(text)


def key_block(text: str) -> bool:
    """True of a block with a private key, encoded once more."""
    head = base64.b64decode(text[:80][: len(text[:80]) // 4 * 4])
    return b"PRIVATE KEY" in head


def _begun_key_block(text: str) -> bool:
    """`key_block` of what follows the letters with which a block of PEM in base64 begins."""
    # A function with a name: processes that read are sent the rules.
    return key_block("LS0tLS1CRUdJTi" + text[:62])


def place(
    name: str,
    anchor: str,
    follows: str,
    check: Callable[[str], bool],
    screen: str,
    *,
    before: str = "",
    keys: str = "",
) -> Named:
    """What follows an anchor."""
    seen = seen_by_re2(anchor)
    return Named(
        name,
        f"{before}(?:{anchor})(?:{follows})",
        seen_by_re2(screen),
        keys,
        f"(?:{seen})" if anchor else "",
        check,
    )


_OPEN = r"[\"'`*“„«「『\\]{0,6}"
_CHOSEN = r"[^\s\"'`<>(){}\[\]|\\”“»」』]"
_STOP = r"(?=[.,;:]{0,3}(?:[\s\"'`<>){}\[\]|\\”“»」』]|\Z))"
_LINK = (
    rf"(?:\s?[:：=]\s{{0,3}}|\s{{1,16}}(?:-{{2,8}}>?|->|=>)\s{{1,16}}|\s{{1,2}}(?i:{_IS}):?\s{{1,2}}(?i:now\s|still\s|(?:set|changed|reset)\sto:?\s|:\s?)?|"
    + spelled(r"(?:は|是|为|為|는|은|：|→)\s?)")
)
_SAID = r"[^\n:：=.,;!?<>{}()\[\]\"\\]{0,48}?"

_USER = r"(?:-u|-U|-l|--user(?:name)?|--login)[ =]?\\?[\"']?[^\s\"'-][^\s\"']{0,80}\s+"
_FLAGS = r"(?:-{1,2}[\w-]{1,30}(?:[ =][^\s-][^\s]{0,80})?\s+){0,6}"
_ARGUMENT = r"\\?[\"']?(?P<secret>[^\s\"'\\-][^\s\"'\\]{3,200})"

_STATEMENT = r"(?i:insert\s+into\s+\S{1,80}\s*\()"
_COLUMN = r"[\s\"`\[]*\w{0,40}(?:passw(?:or)?d|passphrase|pwd|secret|token|_pass|(?:api|access|private|encryption|secret)[_-]?key)[\s\"`\]]*"


def _columns() -> str:
    """A value of an INSERT by the place of its column."""
    ways = (
        rf"(?:[^,()]{{1,60}},){{{before}}}(?i:{_COLUMN})[,)][^()]{{0,400}}?\)?\s*(?i:values)\s*\((?:\s*(?:'[^']{{0,200}}'|[^,()']{{1,200}}),){{{before}}}\s*"
        rf"[NE]?'(?P<secret_{before}>[^']{{4,400}})'"
        for before in range(8)
    )
    return "|".join(ways)


_LIKE_A_KEY = "live|test|prod|production|sandbox|dev|staging|sk|rk|pat|tok|token|key|secret|api|apikey|sec|svc|bot|auth|access|refresh"
"""Words in front of the random part of a key."""
_SURE = frozenset({"sk", "rk", "pat", "tok", "token", "secret", "api", "apikey"})
"""Those behind which nobody writes a hash."""
_CODES = (
    r"(?i:(?:verification|security|log-?in|sign-?in|access|one[ -]time|2fa|mfa|sms|pass)[ -]?code|"
    r"one[ -]time[ -](?:password|passcode|pin)|\b(?:otp|pin)\b(?:[ -]?(?:is|number))?|(?:bestaetigungs|sicherheits)code|"
    r"code de (?:verification|securite)|codigo de (?:verificacion|seguridad|seguranca)|codice di verifica)|\bTAN\b"
)
_CODES_SEEN = (
    r"(?i:(?:verification|security|log-?in|sign-?in|access|time|[2m]fa|sms|pass|sicherheits)[ -]?code|one[ -]time[ -]p|(?:\A|[^a-z])(?:otp|pin)[^a-z]|"
    r"bestaetigungscode|code de [sv]|codigo de |codice di )|[^A-Za-z]TAN[^A-Za-z]"
)
_CODES_BEYOND = spelled(
    r"(?i:bestätigungscode|code de (?:vérification|sécurité)|código de (?:verificación|verificação|seguridad|segurança)|验证码|認証コード|код подтверждения)"
)
_CODE = (
    r"(?:[^\n\d.,;!?]{0,24}[:：= ]|是|は)[*\"'`]{0,3}"
    r"(?P<secret>(?:[A-Z]-)?[0-9]{3}[ -][0-9]{3}|(?:[A-Z]-)?[0-9]{4,8})(?![0-9]|[.,:/-][0-9])"
)
_NO_KEYS = "".join(
    f"(?<!(?i:{word[:-1]}))"
    for word in (
        "public", "primary", "foreign", "cache", "sort", "partition", "object", "routing", "bucket", "schema", "sequence", "issuer", "next",
        "site", "last", "evaluated", "idempotency", "publishable", "verify", "page", "start", "cursor", "host", "dedup", "hash", "event", "file",
    )
)  # fmt: skip
"""Words that make a key no secret, without their last letters, with which the anchor begins."""
_CALLS = r"(?:connect|login|Login|[Cc]redentials?|[Aa]uth|AUTH|uthentication|createHmac|getConnection|pw_set|WiFi\.begin|jwt\.(?:sign|encode|verify|decode))"
_TYPED = r"(?i:fill|type|send_?keys|input|input_text|set_?value|press_sequentially|enter|text|value|keys|clear_and_type)"

_CREDENTIALS = r"creds|credentials|zugangsdaten|identifiants|credenciales|credenziali|user(?:name)?\s?[:/]\s?pass(?:word)?"
_SIGNS = r"[0-9!#$%^&*+~@]"
NEAR = rf"(?i:{_SEEN}|{_CREDENTIALS}|wi-?fi)[^\n]{{0,60}}{_SIGNS}"
NEAR_BEYOND = rf"(?i:{BEYOND})[^\n]{{0,120}}{_SIGNS}"
"""The screen of whatever holds the word for a password in one of the languages: what follows needs a digit or a sign."""
_SWITCHES = (
    r"\s(?:-[uUl]|--(?:user|login))[^\n]{0,120}\s-[pPw]|\s-[pPw][^\n]{0,120}\s(?:-[uUl]|--(?:user|login))"
)
_SECRET_WORD = r"(?i:password|passwd|passphrase|pwd|secret|token|(?:api|secret|access|private)[_-]?key)"
_COMMANDS = (
    (r"\b(?:http|https|xh)\s(?:[^\n]{0,80}\s)?(?:-a|--auth)[ =]?[^\s:]{1,80}:", r"(?:http|https|xh)\s(?:[^\n]{0,80}\s)?(?:-a|--auth)[ =]"),
    (r"\b(?:zip|unzip|7z|rar|unrar)\s[^\n]{0,80}?\s?-h?[pP]\s?", r"(?:zip\s(?:-\w{1,12}\s){0,3}-[A-Za-z]{0,3}P\s|(?:7z|rar)\s\w\s[^\n]{0,80}-h?p)"),
    (r"\b(?:ipmitool\s[^\n]{0,120}?-P\s|smbclient\s[^\n]{0,120}?%|ldap\w{2,8}\s[^\n]{0,160}?-w\s)", r"ipmitool\s[^\n]{0,120}-P|smbclient\s[^\n]{0,120}%|ldap\w{2,8}\s[^\n]{0,160}-w"),
    (r"\bopenssl\s[^\n]{0,160}?(?:-k\s|-pass(?:in|out)?\s(?:pass:)?)", r"openssl\s[^\n]{0,160}-(?:k|pass)"),
    (r"(?i:/user:\S{1,80}\s+(?:/pass(?:word)?:)?|\s/(?:p|pass|password):)|\bnet\s+(?i:user)\s+[^\s/]{1,60}\s+", r"(?i:/user:\S|\s/p(?:ass(?:word)?)?:\S|net\s+user\s)"),
    (r"\bhtpasswd\s+-\w*b\w*\s+\S{1,100}\s+\S{1,80}\s+|\brclone\s(?:obscure\s|[^\n]{0,160}?\spass\s)|\b(?:chpasswd|passwd)\b\s?<<<\s?[\"']?[^\s:]{1,60}:", r"htpasswd\s+-|rclone\s(?:obscure|[^\n]{0,160}\spass)\s|passwd\s?<<<"),
    (r"\b(?:change|set)_(?:user_)?password\s+\S{1,60}\s+", r"(?:change|set)_(?:user_)?password\s"),
    (r"--with-token\s?<<<\s?|\brequirepass\s+|\bmasterauth\s+|\bpass:|\bsqlplus\s+[^\s/]{1,60}/|\badd_user\s+\S{1,60}\s+|\bhttp-basic\.\S{1,80}\s+\S{1,60}\s+|"
        r"\balias\s+set\s+\S{1,60}\s+\S{1,80}\s+\S{1,60}\s+|\bunlock-keychain\s+-p\s+|\bssh-keygen\s[^\n]{0,120}?-N\s+", r"with-token\s?<|requirepass\s|masterauth\s|\Wpass:[^\s]{4}|sqlplus\s+[^\s/]{1,60}/\S|add_user\s|http-basic\.\S|alias\s+set\s|unlock-keychain\s|ssh-keygen\s[^\n]{0,120}-N"),
)  # fmt: skip
"""What stands before a password in a command, and a screen for it."""


def _digit(text: str) -> bool:
    """True of what is typed into a field for a password: a digit, or a sign."""
    return mixed(text) or (told(text) and any(map(str.isdigit, text)) and not text.isdigit())


def told_words(text: str) -> bool:
    """True of words that are no sentence."""
    return len(set(re.findall("[a-z]+", text))) >= 10 and not re.search(
        r"\b(?:the|and|is|of|to|are|you)\b", text
    )


def _no_word(text: str) -> bool:
    return told(text) and not text.isalpha()


PLACES = (
    # "das Passwort für den Server lautet ...", "パスワード: ...", "use the password ... to get in"
    place("password", rf"(?i:{_WORDS})", rf"(?:{_SAID}{_LINK}|\s){_OPEN}(?P<secret>{_CHOSEN}{{5,80}}?){_STOP}", mixed, NEAR),
    place("api-key", rf"(?i:{_KEYS})", rf"(?!(?i:[_ -]?ids?)(?![a-z]))(?:{_SAID}{_LINK}|\s){_OPEN}(?P<secret>[A-Za-z0-9_+/.~=-]{{16,400}}){_STOP}", machine_made,
           rf"(?i:{_KEYS})[^\n:=.,;!?<>{{}}\"\\]{{0,48}}[\s:=]{{1,3}}[\"'`*]{{0,3}}[A-Za-z0-9_+/.~=-]{{16}}"),
    place("code", _CODES, _CODE, short_code, rf"(?:{_CODES_SEEN})[^\n0-9]{{0,28}}[0-9]{{3}}"),
    place("password", rf"(?i:{BEYOND})", rf"[\"'\\]{{0,8}}(?:{_SAID}{_LINK}|\s){_OPEN}(?P<secret>{_CHOSEN}{{5,80}}?){_STOP}", mixed, NEAR_BEYOND, keys=rf"(?i:{BEYOND})\Z"),
    place("api-key", rf"(?i:{_KEYS_BEYOND})", rf"(?:{_SAID}{_LINK}|\s){_OPEN}(?P<secret>[A-Za-z0-9_+/.~=-]{{16,400}}){_STOP}", machine_made,
           rf"(?i:{_KEYS_BEYOND})[^\n]{{0,60}}[A-Za-z0-9_+/.~=-]{{16}}"),
    place("code", _CODES_BEYOND, _CODE, short_code, rf"(?:{_CODES_BEYOND})[^\n0-9]{{0,28}}[0-9]{{3}}"),
    # "creds are admin:..."
    place("password", rf"(?i:{_CREDENTIALS})",
           rf"[^\n:]{{0,30}}?[\s:=(]\s?{_OPEN}[\w.@+-]{{2,64}}\s?[:/]\s?(?P<secret>{_CHOSEN}{{5,80}}?){_STOP}", mixed, NEAR),
    place("password", r"(?i:\b(?:admin|root|administrator|postgres|sysadmin|superuser):)", rf"(?P<secret>{_CHOSEN}{{6,80}}?){_STOP}", mixed,
           rf"(?:admin|root|administrator|postgres):[^\s:]{{3,20}}{_SIGNS}"),
    # Commands.
    # MySQL's takes the name of a database behind `-p `.
    place("command-password", rf"\s{_USER}", rf"{_FLAGS}(?:-p|-P|-w)[ =]?{_ARGUMENT}", argument, _SWITCHES, before=r"(?<!mysql)(?<!mysqldump)(?<!mysqladmin)(?<!mariadb)"),
    place("command-password", r"\s(?:-p|-P|-w)[ =]?", rf"{_ARGUMENT}[\"']?\s+{_FLAGS}{_USER}", argument, _SWITCHES),
    *(place("command-password", command, _ARGUMENT, argument, screen) for command, screen in _COMMANDS),
    # SQL.
    place("password", _STATEMENT, _columns(), told, rf"{_STATEMENT}[^)]{{0,400}}(?i:pass|pwd|secret|token|(?:api|access|private|encryption)[_-]?key)"),
    place("password", r"(?i:(?:create|alter)\s+user\s+\S{1,80}\s+identified\s+(?:with\s+\S{1,40}\s+)?by\s+)", r"[\"']?(?P<secret>[^\s\"';\\]{4,200})", told,
           r"(?i:(?:create|alter)\s+user\s+\S{1,80}\s+identified\s)"),
    # Calls and forms.
    place("password", rf"{_CALLS}\(", r"[^()\n]{0,120}?,\s?\\?[\"'](?P<secret>[^\"'\n\\]{6,100})\\?[\"']\s?\)", mixed, rf"{_CALLS}\([^()\n]{{0,60}}[\"'],\s?\\?[\"']"),
    place("password", r"(?i:auth[\"']?\s?[=:]\s?[(\[])", r"\\?[\"'][^\"'\n]{1,80}[\"']\s?,\s?\\?[\"'](?P<secret>[^\"'\n\\]{4,200})\\?[\"']\s?[)\]]", told, r"(?i:auth)[\"']?\s?[=:]\s?[(\[]\\?[\"']"),
    place("password", rf"(?i:{_WORDS})",
           rf"[^\s\"'\\]{{0,12}}\\{{0,3}}[\"']?[\])]{{0,2}}\s?(?:\)?\.\s?{_TYPED}\(\s?|,\s?(?:\\{{0,3}}[\"']?{_TYPED}\\{{0,3}}[\"']?\s?[=:]\s?)?)\\{{0,3}}[\"'](?P<secret>[^\"'\n\\]{{4,100}})\\{{0,3}}[\"']",
           _digit, NEAR),
    # "I typed '...' into the password field", "type[password] [...]", "<Pass encoding=...>...</Pass>", "Pass: ..."
    place("password", r"(?i:\b(?:typ(?:e|ed|ing)|enter(?:ed|ing)?|fill(?:ed)?|input(?:ted)?)\s[\"'`])", r"(?P<secret>[^\s\"'`]{4,80})[\"'`]\s(?:in|into|as|for)\s[^\n.]{0,20}pass", _digit,
           r"[\"'`]\s(?:in|into|as|for)\s[^\n.]{0,20}(?i:pass)"),
    place("password", r"(?i:pass(?:word)?[^\s\]]{0,12}\]\s\[)", r"(?P<secret>[^\s\[\]]{4,80})\]", _digit, r"(?i:pass(?:word)?)[^\s\]]{0,12}\]\s\["),
    place("password", r"(?i:<\w{0,20}(?:pass|keymaterial)\b[^>]{0,60}>)", r"(?P<secret>[^\s<>]{4,200})<", _no_word, r"(?i:pass|keymaterial)[^>a-z][^>]{0,60}>[^\s<>]{4}|(?i:pass|keymaterial)>[^\s<>]{4}"),
    place("password", r"(?i:pass\s?[:=]\s?)", rf"{_OPEN}(?P<secret>{_CHOSEN}{{6,80}}?){_STOP}", mixed, rf"(?i:pass)\s?[:=]\s?[^\s]{{3,40}}{_SIGNS}", before="(?<!oarding )"),
    place("password", r"(?i:(?:\bsecret|pre-shared-key(?:\sascii-text)?|\bcommunity|\brootpw\s--plaintext|\bEAP|\bPSK|\bIDENTIFY)\s(?:[0-9]\s)?)", rf"{_OPEN}(?P<secret>{_CHOSEN}{{6,80}}?){_STOP}", mixed,
           rf"(?:secret|pre-shared-key(?:\sascii-text)?|community|rootpw\s--plaintext|EAP|PSK|IDENTIFY)\s(?:[0-9]\s)?[^\s]{{3,30}}{_SIGNS}"),
    place("password", r"\bcommunity\s", r"(?P<secret>[^\s]{4,80})\s(?:RO|RW|ro|rw)\b", told, r"community\s[^\s]{4,30}\s(?:R[OW]|r[ow])"),
    place("password", r"\becho\s", r"[\"']?(?P<secret>[^\s\"'$`-][^\s\"'`]{3,200})[\"']?\s?\|\s?(?:sudo\s[^\n]{0,20}-S|[^\n]{0,80}?(?:password-stdin|passwd|passphrase-fd|with-token))", told,
           r"echo\s[^\s]{4,200}\s?\|\s?(?:sudo\s[^\n]{0,20}-S|[^\n]{0,80}(?:password-stdin|passwd|passphrase-fd|with-token))"),
    place("api-key", r"\blogin\s(?:--\w{1,20}\s)?", r"(?P<secret>[A-Za-z0-9_-]{24,200})(?=\s|\Z)", machine_made, r"login\s(?:--\w{1,20}\s)?[A-Za-z0-9_-]{24}"),
    place("recovery-code", r"(?i:(?:recovery|backup)[ _-]?codes?)", r"[\"']?\s?[:=]\s{0,4}(?P<secret>[A-Za-z0-9]{4,8}(?:-[A-Za-z0-9]{4,8}){1,5})", short_code, r"(?i:(?:recovery|backup)[ _-]?codes?)[\"']?\s?[:=]\s{0,4}[A-Za-z0-9]{4}"),
    place("seed-phrase", r"(?i:(?:seed|recovery|secret|backup|wallet)[ _-]?(?:phrase|words)|mnemonic)", r"[\"']?(?:\s?[:=]\s?|\s(?:is|are)\s)[\"']?(?P<secret>(?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8})", told_words,
           r"(?i:(?:seed|recovery|secret|backup|wallet)[ _-]?(?:phrase|words)|mnemonic)[\"']?(?:\s?[:=]\s?|\s(?:is|are)\s)[\"']?[a-z]{3,8}[ ,]"),
    place("code", r"", r"(?<![0-9.])(?P<secret>(?:[A-Z]-)?[0-9]{4,8})\sis\syour\s[^\n.]{0,40}(?:code|pin|password)\b", short_code, r"[0-9]\sis\syour\s[^\n.]{0,40}(?:code|pin|password)"),
    place("code", r"", r"(?<![0-9.])(?P<secret>[0-9]{3}[ -][0-9]{3}|[0-9]{4,8})\s(?:as|for)\s(?:[a-z]{1,5}\s)?(?i:one[ -]time|verification|security|log-?in|access|sms|[2m]fa)[ -](?i:code|password|passcode|pin)\b", short_code,
           r"[0-9]\s(?:as|for)\s(?:[a-z]{1,5}\s)?(?i:one[ -]time|verification|security|log-?in|access|sms|[2m]fa)[ -](?i:code|pass|pin)"),
    place("code", r"(?i:\bcode\s)", r"(?P<secret>[0-9]{4,8})\sto\s(?i:sign|log|verify|confirm|complete|access|authenticate)", short_code, r"(?i:code)\s[0-9]{4,8}\sto\s"),
    # Keys of whatever vendor: words that say so, and a long random tail.
    place("api-key", rf"(?:{_LIKE_A_KEY})[_-]", r"(?:[A-Za-z0-9]{1,8}[_-]){0,2}[A-Za-z0-9]{20,400}(?![A-Za-z0-9_-])", tail,
           rf"(?:{_LIKE_A_KEY})[_-](?:[A-Za-z0-9]{{1,8}}[_-]){{0,2}}[A-Za-z0-9]{{20}}", before=r"(?<![A-Za-z0-9])(?<!pk[_-])(?<!cs[_-])"),
    # A key of whatever name, if it is of all kinds of letters.
    place("api-key", r"[a-z0-9](?:Key|[_-]key)|[A-Z0-9]_KEY", r"(?:_[0-9])?[\"'\\]{0,4}(?:\sstring)?\s{0,2}(?:[.?:]{0,2}=|:|,)\s{0,2}[\"'\\]{0,4}(?P<secret>[A-Za-z0-9_+/=-]{20,200})(?![A-Za-z0-9_.+/=-])", of_all_kinds,
           r"(?:[a-z0-9](?:Key|[_-]key)|[A-Z0-9]_KEY)(?:_[0-9])?[\"'\\]{0,4}(?:\sstring)?\s{0,2}(?:[.?:]{0,2}=|:|,)\s{0,2}[\"'\\]{0,4}[A-Za-z0-9_+/=-]{20}", before=_NO_KEYS),
    # Files: .pgpass, .npmrc and Docker's, a name and its value on lines or in elements of their own.
    place("password", r":(?:[0-9]{4,5}|\*):[\w*-]{1,60}:[\w*-]{1,60}:", r"(?P<secret>[^\s:\"']{6,100})(?=\s|\Z)", mixed, r":(?:[0-9]{4,5}|\*):[\w*-]+:[\w*-]+:[^\s:]{6}"),
    place("auth", r"(?:(?i:(?<![A-Za-z])auth)|_AUTH)\\{0,3}[\"']?\s{0,2}[:=]\s{0,2}\\{0,3}[\"']?", r"(?P<secret>[A-Za-z0-9+/_-]{12,400}={0,2})", user_and_password,
           r"(?i:auth)\\{0,3}[\"']?\s{0,2}[:=]\s{0,2}\\{0,3}[\"']?[A-Za-z0-9+/_-]{12}"),
    # A key whose section says what it is: `[encryption]`, `crypt: {`, `cookieSession({ keys: [`.
    place("api-key", r"(?i:(?:credentials?|secrets?|api|auth|authentication|encryption|encrypt|crypt|cipher|signing|security|session|cookie|jwt|oauth|webhook|registry|license)\w{0,10}[\"'\\]{0,4}\s?(?:=>|[:=(\]]))",
           r"[\s{\[(]{0,20}(?:[^\n{}]{0,120}?(?:[\n,;]|\\n)\s{0,12}){0,3}?[\"'\\]{0,4}keys?[\"'\\]{0,4}\s?(?:=>|[:=])\s?\[?[\"'\\]{0,4}(?P<secret>[A-Za-z0-9+/=-]{20,400})", machine_made,
           r"[\s\"'{,(n]keys?[\"'\\]{0,4}\s?(?:=>|[:=])\s?\[?[\"'\\]{0,4}[A-Za-z0-9+/=-]{20}"),
    place("password", _SECRET_WORD, r"\\{0,3}[\"']?(?:\s?:\s?\{)?(?::\n(?:\s{1,20}\w{1,24}:[^\n]{0,80}\n){0,3}?)?(?:\s|\\[nr]){0,20}[\"'\\]{0,4}(?i:value|content|default|defaultValue)[\"'\\]{0,4}:\s\\{0,3}[\"']?(?P<secret>[^\s\"'\\{$&*!|>]{4,400})", _no_word,
           rf"{_SECRET_WORD}(?:[\\\"']{{0,4}}(?:\s?:\s?\{{)?[\s\\nr]{{0,24}}[\"'\\]{{0,4}}(?i:value|content|default)|:\n\s{{1,20}}\w{{1,24}}:\s)"),
    place("password", _SECRET_WORD, r"\\{0,3}[\"']?\s?/?>?\s{0,12}(?:</\w{1,20}>)?\s{0,20}<(?i:value|string|val|content|data)>(?P<secret>[^<>\n]{4,400})<", told,
           rf"{_SECRET_WORD}[\\\"']{{0,4}}\s?/?>?\s{{0,12}}(?:</\w{{1,20}}>)?\s{{0,20}}<(?i:value|string|val|content|data)>"),
    place("digest-auth", r"(?i:digest\s)", r"[^\n]{0,400}?\bresponse=\\?[\"'](?P<secret>[0-9a-f]{32,128})", told, r"(?i:digest)\s[a-z]{4,8}=[^\n]{0,400}response="),
    place("private-key", r"LS0tLS1CRUdJTi", r"(?P<secret>[A-Za-z0-9+/=]{40,})", _begun_key_block, r"LS0tLS1CRUdJTi"),
)  # fmt: skip
"""In the order in which they are tried."""

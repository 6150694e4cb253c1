"""One RFC 822 message from bytes: the light parser that reading thousands of mails needs.

A message of one text part, which is nearly all mail in archives, is split and
decoded by hand; everything else goes to the standard library's parser.  Both
give the same `Mail` (a test holds them to it).  Guesses are named as problems.
Nothing here touches a file; `mailbox.py` does.
"""

from __future__ import annotations

import binascii
import codecs
import email.errors
import email.header
import email.message
import email.parser
import email.policy
import email.utils
import quopri
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from html.parser import HTMLParser

from ...escapes import clean

_FIELD = re.compile(r"([!-9;-~]+)[ \t]*:[ \t]*(.*)", re.DOTALL)
_KNOWN = frozenset(("from", "date", "message-id", "subject", "to", "received", "sender", "return-path"))
_ADDRESS = re.compile(r"[^\s<>\"'(),;:@]{1,200}@[^\s<>\"'(),;:@]{1,200}")
# Repetitions are bounded here and below: with open ones hostile mail takes quadratic time.
_QUOTE = re.compile(
    r"^[^\w\n]{0,40}?-{1,60} ?Original (?:Message|Appointment) ?-"
    r"|^[ \t>]*-{2,}[ \t]*Forwarded\b"
    r"|^[ \t>]*-{3,} ?Forwarded message ?-{3,}"
    r"|^[ \t]*Begin forwarded message:"
    r"|^[ \t]*_{20,}[ \t]*\n(?=[ \t]*From:)"
    r"|^[ \t]*(?:On|Le|Am) .{6,90}(?:wrote|a écrit|schrieb) ?:[ \t]*$"
    r"|^[ \t]*>"
    r"|^[ \t]*From:[ \t].{2,120}\n(?:.*\n){0,2}?[ \t]*(?:Sent|Date|To):[ \t]",
    re.MULTILINE | re.IGNORECASE,
)
_NOTES_TO = re.compile(r"^[ \t]*To:[ \t].*\n(?:(?![ \t]*To:).*\n){0,12}?[ \t]*(?:cc|Subject):", re.MULTILINE)
_NOTES_ABOVE = re.compile(
    r"[ \t]*(?:\S.{0,60}@\S+|Sent by:.*|.*\b\d{1,2}/\d{1,2}/\d{2,4}\b.{0,20}(?:[AP]M)?"
    r"|From:.*|Please respond to.*"
    r"|\"?[A-Z][\w.,'()-]*(?: [\w.,'()\"-]+){0,4}(?<![.!?,])\"?(?: on \d.*)?)?[ \t]*"
)


_NO_CHARSETS = frozenset(("unicode-escape", "unicode_escape", "raw-unicode-escape", "raw_unicode_escape"))
"""Codecs of Python's own source text, which no mail is written in: they make half characters of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """One mail as read; every text is decoded."""

    id: str
    """Message-ID without angle brackets; made from the content where there is none.  Unique in a Reading."""
    sender: str
    """Address in lower case, "" if none could be read."""
    sender_name: str = ""
    to: tuple[str, ...] = ()
    """Addresses of To and Cc."""
    date: datetime | None = None
    """Aware; in the zone that the sender wrote it in."""
    subject: str = ""
    body: str = ""
    own: str = ""
    """The part of the body that the sender wrote: above quoted and forwarded mail."""
    mailbox: str = ""
    """The owner, by the rule in `mailbox.py`."""
    folder: str = ""
    attachments: tuple[str, ...] = ()
    """File names as data; never used as paths."""


def parse_mail(content: bytes) -> tuple[Mail | None, list[str]]:
    """Parse one message.

    Returns:
        The mail, without an owner and perhaps without an id, None if it has none of mail's headers; and the problems.
    """
    problems: list[str] = []
    content = content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").lstrip(b"\n")
    head, _, tail = content.partition(b"\n\n")
    fields = _fields(head, problems)
    if not _KNOWN & fields.keys():
        return None, ["no mail: it does not begin with mail headers"]
    kind = fields.get("content-type", "text/plain").lower()
    attachments: list[str] = []
    if kind.startswith("text/plain") and "attachment" not in fields.get("content-disposition", "").lower():
        raw = _transfer_decoded(tail, fields.get("content-transfer-encoding", ""), problems)
        body = _decoded(raw, _charset(kind), problems)
    else:
        body = _parts(content, attachments, problems)
    body = storable(body.replace("\r\n", "\n").replace("\r", "\n"))
    sender, name = _sender(fields, problems)
    mail = Mail(
        id=_first_token(_text(fields.get("message-id", ""))),
        sender=sender,
        sender_name=name,
        to=tuple(_addresses(fields.get("to", "")) + _addresses(fields.get("cc", ""))),
        date=_date(fields.get("date", ""), problems),
        subject=" ".join(_text(fields.get("subject", "")).split()),
        body=body,
        own=own_part(body),
        attachments=tuple(map(storable, attachments)),
    )
    return mail, problems


def storable(text: str) -> str:
    """The text without NUL, and with U+FFFD for half characters, which no store and no JSON can hold."""
    text = text.replace("\0", "")
    return text if text.isascii() else clean(text)


def own_part(body: str) -> str:
    """The text above the first quoted, original or forwarded message."""
    cut = len(body)
    quote = _QUOTE.search(body)
    if quote:
        cut = quote.start()
    notes = _NOTES_TO.search(body, 0, min(len(body), cut + 2000))
    if notes and notes.start() < cut:
        # Lotus Notes puts the quoted sender and time on the lines above "To:".
        cut = notes.start()
        for _ in range(8):
            above = body.rfind("\n", 0, max(0, cut - 1)) + 1
            if cut == 0 or not _NOTES_ABOVE.fullmatch(body, above, max(above, cut - 1)):
                break
            cut = above
    return body[:cut].strip()


def _fields(head: bytes, problems: list[str]) -> dict[str, str]:
    """Lower-case header name → unfolded value; the first of repeated ones."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError:
        text = head.decode("cp1252", "replace")
        problems.append("headers are not valid UTF-8; read as Windows-1252")
    fields: dict[str, str] = {}
    broken = 0
    for line in re.sub(r"\n(?=[ \t])", "", text).split("\n"):
        match = _FIELD.fullmatch(line)
        if match:
            fields.setdefault(match[1].lower(), match[2].strip())
        elif line.strip() and not line.startswith(("From ", ">From ")):
            broken += 1
    if broken:
        problems.append(f"broken headers: {broken} line(s) without a field name")
    return fields


def _text(value: str) -> str:
    """A header value with its RFC 2047 encoded words decoded; as it stands where they are broken."""
    if "=?" in value:
        try:
            words = email.header.decode_header(value)
            if not any(_made_up(charset) for _, charset in words if charset):
                value = str(email.header.make_header(words))
        except (ValueError, LookupError, email.errors.MessageError):
            pass
    return storable(value)


def _first_token(value: str) -> str:
    match = re.search(r"<([^<>]+)>", value)
    return "".join((match[1] if match else value).split())


def _addresses(value: str) -> list[str]:
    return [address.lower() for address in _ADDRESS.findall(value)] if "@" in value else []


def _sender(fields: dict[str, str], problems: list[str]) -> tuple[str, str]:
    raw = fields.get("from") or fields.get("sender") or fields.get("return-path") or ""
    match = _ADDRESS.search(raw)
    address = match[0].lower().strip("<>.'") if match else ""
    if not address:
        problems.append("broken headers: no sender's address")
    name = raw.replace(match[0], "") if match else raw
    # X-From is what mail exported from Exchange and Notes keeps the display name in.
    return address, _display_name(name) or _display_name(fields.get("x-from", ""))


def _display_name(raw: str) -> str:
    name = re.sub(r"<[^<>]*>|[\"'<>]|\[[^\[\]]*\]|\(\s*\)", " ", _text(raw))
    name = " ".join(name.split("@")[0].split("/")[0].split()).strip(" ,;")
    if name.count(",") == 1:
        last, first = (part.strip() for part in name.split(","))
        name = f"{first} {last}"
    return name


def _date(value: str, problems: list[str]) -> datetime | None:
    try:
        date = email.utils.parsedate_to_datetime(value)
        # A zone of -0000 gives a naive datetime, which compares with no aware one.
        return date if date.tzinfo else date.replace(tzinfo=UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        problems.append(f"broken headers: no readable date in {value[:60]!r}" if value else "no date")
        return None


def _made_up(charset: str) -> bool:
    """True if it names a codec that is not a character set of mail."""
    try:
        return codecs.lookup(charset).name in _NO_CHARSETS
    except (LookupError, ValueError):
        return False  # decoding says so


def _charset(kind: str) -> str:
    match = re.search(r"charset\s*=\s*\"?([^\s\";]+)", kind)
    return match[1] if match else "utf-8"


def _transfer_decoded(raw: bytes, encoding: str, problems: list[str]) -> bytes:
    encoding = encoding.strip().lower()
    if encoding == "quoted-printable":
        return quopri.decodestring(raw)
    if encoding == "base64":
        try:
            return binascii.a2b_base64(raw)
        except binascii.Error as error:
            problems.append(f"body is not valid base64 ({error}); kept as it stands")
    elif encoding not in ("", "7bit", "8bit", "binary"):
        problems.append(f"unknown transfer encoding {encoding[:40]!r}; body kept as it stands")
    return raw


def _decoded(raw: bytes, charset: str, problems: list[str]) -> str:
    if charset.lower() in ("us-ascii", "ascii", "ansi_x3.4-1968") and raw.isascii():
        return raw.decode("ascii")
    try:
        if _made_up(charset):
            raise LookupError
        return raw.decode(charset)
    except UnicodeDecodeError:
        reason = f"body holds bytes that are not {charset}"
    except (LookupError, ValueError):
        reason = f"unknown character set {charset[:40]!r}"
    for guess in ("utf-8", "cp1252"):
        try:
            text = raw.decode(guess)
        except UnicodeDecodeError:
            continue
        problems.append(f"{reason}; read as {guess}")
        return text
    problems.append(f"{reason}; unreadable bytes replaced")
    return raw.decode("utf-8", "replace")


def _parts(content: bytes, attachments: list[str], problems: list[str]) -> str:
    """Text of a multipart or HTML message: its plain parts, else its HTML parts without markup."""
    message = email.parser.BytesParser(policy=email.policy.compat32).parsebytes(content)
    plain: list[str] = []
    html: list[str] = []
    for part in message.walk():
        if part.is_multipart():
            if part.get_content_type() == "message/rfc822" and part is not message:
                attachments.append(_text(part.get_filename() or "message"))
            continue
        name = part.get_filename()
        kind = part.get_content_type()
        if name or part.get_content_disposition() == "attachment" or not kind.startswith("text/"):
            attachments.append(_text(str(name)) if name else f"unnamed {kind}")
            if not kind.startswith("text/"):
                continue
        payload = part.get_payload(decode=True)
        if not isinstance(payload, bytes):
            continue
        text = _decoded(payload, part.get_content_charset("utf-8"), problems)
        (html if kind == "text/html" else plain).append(
            _without_markup(text) if kind == "text/html" else text
        )
    problems.extend(
        f"malformed: {type(defect).__name__}" for part in message.walk() for defect in part.defects
    )
    return "\n\n".join(plain or html)


class _TextOnly(HTMLParser):
    _BREAKS = frozenset(("p", "br", "div", "tr", "li", "h1", "h2", "h3", "h4", "table", "blockquote"))

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style")
        if tag in self._BREAKS:
            self.text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in ("script", "style")))

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.text.append(data)

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Skip `<![if ...]>` and all like it, as browsers do: the standard library fails on unknown ones."""
        end = self.rawdata.find(">", i + 3)
        return -1 if end < 0 else end + 1


def _without_markup(html: str) -> str:
    parser = _TextOnly()
    parser.feed(html)
    parser.close()
    return "\n".join(" ".join(line.split()) for line in "".join(parser.text).splitlines()).strip()

"""A URL as a client may read it, and patterns of URLs.

Clients differ over odd URLs: who is the host of `http://a@b\\@c`, what `0x7f.1` is.  What two clients may read
differently is not understood.  An address or a name of a private network is matched by a pattern that names it, and by
no wildcard.  Names are not looked up: one that resolves to a private address, and a redirect, are for the tool to
check, by asking about the address that it is sent to as about any other call.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from ...errors import InputError
from .shell import NotUnderstood

PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_PRIVATE_NAMES = ("localhost", "local", "internal", "intranet", "lan", "home", "corp", "arpa")


@dataclass(frozen=True, slots=True)
class Location:
    """The parts of a URL by which it is judged."""

    text: str
    scheme: str
    host: str
    """Lower case, punycode; an address in its usual form."""
    port: int
    path: str
    private: bool
    """Of this machine or a private network, as far as the text tells."""


def is_url(text: str) -> bool:
    """True for what begins like a URL."""
    return _URL.match(text.strip()) is not None or text.strip().casefold().startswith(
        ("javascript:", "data:")
    )


def read_url(text: str) -> Location:
    """A URL taken apart.

    Raises:
        NotUnderstood: clients may read it differently, or it has no host.
    """
    if re.search(r"[\x00-\x20\x7f\\<>^`{}|\"]", text):
        raise NotUnderstood(f"the URL {text!r:.100} has a character that clients read differently")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise NotUnderstood(f"the URL {text!r:.100} cannot be read: {error}") from error
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        raise NotUnderstood(f"the URL {text!r:.100} has the scheme {scheme!r}, which is not a network's")
    if "@" in parts.netloc:
        raise NotUnderstood(f"the URL {text!r:.100} has a user in front of its host")
    if "%" in parts.netloc:
        raise NotUnderstood(f"the URL {text!r:.100} has an encoded host")
    host, private = _host(parts.hostname or "", text)
    path = _path(parts.path, text)
    return Location(text, scheme, host, port if port is not None else PORTS[scheme], path, private)


def _host(name: str, text: str) -> tuple[str, bool]:
    if not name:
        raise NotUnderstood(f"the URL {text!r:.100} has no host")
    if ":" in name:
        try:
            return _address(ipaddress.ip_address(name))
        except ValueError as error:
            raise NotUnderstood(f"the URL {text!r:.100} has no host that can be read") from error
    try:
        # IDNA 2003: unusual dots and widths become usual ones, other letters punycode.
        ascii_name = name.encode("idna").decode() if not name.isascii() else name
    except UnicodeError as error:
        raise NotUnderstood(f"the host of {text!r:.100} is no name") from error
    ascii_name = ascii_name.lower().removesuffix(".")
    number = _number(ascii_name)
    if number is not None:
        return _address(ipaddress.IPv4Address(number))
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", ascii_name.rpartition(".")[2]):
        raise NotUnderstood(f"the host of {text!r:.100} looks like an address, and is none")
    if len(ascii_name) > 253 or not _HOST.fullmatch(ascii_name):
        raise NotUnderstood(f"the host of {text!r:.100} is no name")
    last = ascii_name.rpartition(".")[2]
    return ascii_name, "." not in ascii_name or last in _PRIVATE_NAMES


def _number(host: str) -> int | None:
    """An IPv4 address in any notation that the C library reads: `127.1`, `0x7f000001`, `0177.0.0.1`."""
    pieces = host.split(".")
    if len(pieces) > 4:
        return None
    values: list[int] = []
    for piece in pieces:
        if re.fullmatch(r"0x[0-9a-f]+", piece):
            values.append(int(piece, 16))
        elif re.fullmatch(r"0[0-7]*", piece):
            values.append(int(piece, 8))
        elif re.fullmatch(r"[1-9][0-9]*", piece):
            values.append(int(piece))
        else:
            return None
    *leading, final = values
    if any(value > 255 for value in leading) or final >= 256 ** (5 - len(values)):
        return None
    return sum(value << (8 * (3 - byte)) for byte, value in enumerate(leading)) + final


def _address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> tuple[str, bool]:
    if isinstance(address, ipaddress.IPv6Address):
        carried = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        nat64 = address in ipaddress.ip_network("64:ff9b::/96")
        if carried is not None or nat64 or int(address) >> 32 == 0:
            return str(address), True  # an IPv4 address in another dress: nobody writes that by chance
    return str(address), not address.is_global or address.is_multicast


def _path(path: str, text: str) -> str:
    decoded = path
    for _ in range(3):
        decoded = unquote(decoded)
    if (
        "\\" in decoded
        or "\0" in decoded
        or any(piece in (".", "..") for piece in re.split(r"[/;]", decoded))
    ):
        raise NotUnderstood(f"the path of {text!r:.100} leads elsewhere than it says")
    return decoded or "/"


@dataclass(frozen=True, slots=True)
class UrlPattern:
    """`https://api.example.com/v1/**`, `https://*.example.com`, `example.com` or `*`."""

    text: str
    scheme: str
    host: str
    port: int | None
    path: str

    def covers(self, location: Location) -> bool:
        """True if the URL matches."""
        if location.private and "*" in self.host:
            return False
        return self.touches(location)

    def touches(self, location: Location) -> bool:
        """The same, a wildcard for private hosts too: what a deny rule needs."""
        if self.scheme not in ("*", location.scheme) or not fnmatchcase(location.host, self.host):
            return False
        port = self.port if self.port is not None else PORTS.get(self.scheme, PORTS[location.scheme])
        return (self.host == "*" or location.port == port) and _below(self.path, location.path)


def _below(pattern: str, path: str) -> bool:
    if pattern in ("", "/", "/**", "**"):
        return True
    if pattern.endswith("/**"):
        folder = pattern[:-3]
        return fnmatchcase(path, folder) or fnmatchcase(path, f"{folder}/*")
    return fnmatchcase(path, pattern)


@lru_cache(maxsize=1_000)
def url_pattern(text: str) -> UrlPattern:
    """A pattern of URLs.

    Raises:
        InputError: it is none.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = ("*" if text == "*" else "https"), text
    authority, slash, path = rest.partition("/")
    host, colon, port = authority.rpartition(":") if not authority.endswith("]") else (authority, "", "")
    if not colon:
        host, port = authority, ""
    host = host.strip("[]").lower()
    if not host or (port and not port.isdigit()) or "@" in authority:
        raise InputError(f"the URL pattern {text!r} needs a host, such as https://api.example.com/v1/**")
    try:
        host = host if host.isascii() else host.encode("idna").decode()
        host = str(ipaddress.ip_address(host)) if ":" in host else host
    except ValueError as error:
        raise InputError(f"the URL pattern {text!r} has no host: {error}") from error
    return UrlPattern(text, scheme.lower(), host, int(port) if port else None, slash + path)

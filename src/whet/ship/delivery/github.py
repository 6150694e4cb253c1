"""A pull request by GitHub's REST API, of github.com or of a server of one's own.

The token comes from the environment and goes to the one address that the person named; no redirect is followed, and
no address in an answer is asked.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ...errors import InputError
from ...escapes import neutral

TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")
API = "https://api.github.com"
_SLUG = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_REMOTE = re.compile(
    r"(?:https?://(?:[^@/]*@)?|ssh://(?:[^@/]*@)?|[^@/]+@)(?P<host>[^:/]+)(?::\d+)?[:/](?P<slug>[^?#]+)"
)
_MEANT = {
    401: "the token is not valid",
    403: "the token may not open pull requests here",
    404: "there is no such repository, or the token may not see it",
}


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request that was opened, or was there."""

    number: int
    url: str


@dataclass(frozen=True, slots=True)
class GitHub:
    """One repository at one API.

    Raises:
        InputError: the address or the repository's name cannot be used.
    """

    api: str
    repository: str
    """`owner/name`."""

    def __post_init__(self) -> None:
        import httpx2

        url = httpx2.URL(self.api)
        if url.scheme != "https" and not (url.scheme == "http" and _local(url.host)):
            raise InputError(f"{self.api!r}: the token is sent by https alone, or to this machine")
        if url.username or url.password or url.query or not _SLUG.fullmatch(self.repository):
            raise InputError(
                f"{self.api!r} and {self.repository!r} must be the address of an API, such as {API}, and owner/name"
            )

    def file(self, commit: str, path: str) -> str:
        """Address of a file of a commit as a page shows it, where whoever may see the repository sees it."""
        # github.com has its API on a host of its own, every other server below /api/v3.
        pages = self.api.rstrip("/").removesuffix("/api/v3").replace("://api.github.com", "://github.com")
        return f"{pages}/{self.repository}/blob/{commit}/{quote(path)}?raw=true"

    def open(self, *, branch: str, base: str, title: str, body: str) -> PullRequest:
        """Open a pull request; the one that is open already for this branch, with the new body.

        Raises:
            InputError: no token is set, or the server refuses.
        """
        owner = self.repository.partition("/")[0]
        pulls = f"/repos/{self.repository}/pulls"
        content = {"title": title, "body": body}
        standing = self._asked("GET", f"{pulls}?state=open&head={owner}:{branch}&base={base}")
        if isinstance(standing, list) and standing:
            return _pull_request(self._asked("PATCH", f"{pulls}/{int(standing[0]['number'])}", content))
        return _pull_request(self._asked("POST", pulls, {**content, "head": branch, "base": base}))

    def _asked(self, method: str, path: str, content: Mapping[str, str] | None = None) -> Any:
        import httpx2

        token = next((os.environ[name] for name in TOKENS if os.environ.get(name)), None)
        if token is None:
            raise InputError(
                f"opening a pull request needs a token that may write to {self.repository}: set {TOKENS[0]}, or "
                "make the branch alone (--offline)"
            )
        headers = {
            "authorization": f"Bearer {token}",
            "accept": "application/vnd.github+json",
            "x-github-api-version": "2022-11-28",
            "user-agent": "whet",
        }
        local = _local(httpx2.URL(self.api).host)
        try:
            # A redirect would carry the token elsewhere; a proxy for the internet must not see this machine.
            with httpx2.Client(follow_redirects=False, timeout=30.0, trust_env=not local) as client:
                answered = client.request(method, self.api.rstrip("/") + path, headers=headers, json=content)
        except httpx2.HTTPError as error:
            raise InputError(f"{self.api} does not answer: {error or type(error).__name__}") from error
        if 300 <= answered.status_code < 400:
            raise InputError(
                f"{self.api} answers with a redirect, which is not followed: the token would go elsewhere. Give the "
                "address that it means (--api-url), and the repository's name of today (--github)"
            )
        if answered.status_code >= 400:
            complaint = neutral(" ".join(answered.text.split())[:300])
            meant = _MEANT.get(answered.status_code, "it refuses")
            raise InputError(
                f"{self.api}{path.partition('?')[0]}: {answered.status_code}, {meant}: {complaint}"
            )
        try:
            return answered.json()
        except ValueError as error:
            raise InputError(
                f"{self.api} answers with something else than JSON: is it GitHub's API?"
            ) from error


def github_of(remote: str, *, repository: str = "", api: str = "") -> GitHub:
    """The repository and API that a remote's address means, unless they are named.

    Raises:
        InputError: the address does not tell.
    """
    repository = repository or os.environ.get("GITHUB_REPOSITORY", "")
    api = api or os.environ.get("GITHUB_API_URL", "")
    match = _REMOTE.match(remote)
    if match is not None:
        repository = repository or match["slug"].strip("/").removesuffix(".git")
        host = match["host"]
        api = api or (API if host == "github.com" else f"https://{host}/api/v3")
    if not repository or not api:
        raise InputError(
            "the remote's address does not say which repository of GitHub it is: give --github OWNER/NAME and "
            "--api-url URL, or make the branch alone (--offline)"
        )
    return GitHub(api, repository)


def _pull_request(answered: Any) -> PullRequest:
    try:
        return PullRequest(int(answered["number"]), neutral(str(answered["html_url"])))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the API's answer is no pull request: {error!r}") from error


def _local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

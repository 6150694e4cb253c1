"""Who may call what: every route against every kind of caller, hosts, origins, limits, token files."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import httpx2
import pytest
from server_world import TOKENS, bearer
from test_server_shell import Echo

from whet.errors import InputError
from whet.serve import (
    Access,
    HttpRoute,
    RequestLimits,
    Role,
    Server,
    make_tokens,
    running,
    token_file,
    tokens_of,
)


def test_a_token_is_found_in_each_place_and_none_other_will_do() -> None:
    with running(Server(Access(TOKENS), [Echo()])) as url:

        def status(**headers: str) -> int:
            return httpx2.get(
                f"{url}/echo/x", headers={k.replace("_", "-"): v for k, v in headers.items()}, timeout=90
            ).status_code

        token = TOKENS[Role.READ]
        assert status(authorization=f"Bearer {token}") == 200
        assert status(authorization=f"bearer {token}") == 200
        assert status(x_whet_token=token) == 200
        assert status(x_api_key=token) == 200
        assert status(authorization="Bearer sk-of-someone", x_whet_token=token) == 200
        assert status() == 401
        assert status(authorization=token) == 401
        assert status(authorization=f"Basic {token}") == 401
        assert status(authorization=f"Bearer {token}x") == 401
        assert status(authorization=f"Bearer {token[:-1]}") == 401
        assert status(cookie=f"token={token}") == 401
        assert httpx2.get(f"{url}/echo/x?token={token}", timeout=90).status_code == 401


def test_a_token_may_stand_in_a_path_that_says_so() -> None:
    echo = Echo()

    class Scoped(Echo):
        @property
        def routes(self) -> Any:
            return [
                HttpRoute(
                    method="GET",
                    path="/t/{key}/{name}",
                    handler=echo.name,
                    role=Role.WRITE,
                    token_param="key",
                )
            ]

    with running(Server(Access(TOKENS), [Scoped()])) as url:
        assert httpx2.get(f"{url}/t/{TOKENS[Role.WRITE]}/x", timeout=90).status_code == 200
        assert httpx2.get(f"{url}/t/{TOKENS[Role.READ]}/x", timeout=90).status_code == 403
        assert httpx2.get(f"{url}/t/wrong/x", timeout=90).status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "10.0.0.1", ""]
)
def test_a_foreign_host_header_is_refused_before_anything_is_served(host: str) -> None:
    with running(Server(Access(TOKENS), [Echo()])) as url:
        for path in ("/echo/x", "/healthz"):
            refused = httpx2.get(f"{url}{path}", headers={"host": host, **bearer(Role.ADMIN)}, timeout=90)
            assert refused.status_code == 403, path
            assert refused.json()["error"]["type"] == "wrong_host"


@pytest.mark.parametrize(
    ("hosts", "header", "allowed"),
    [
        ((), "LOCALHOST:1", True),
        ((), "[::1]:80", True),
        (("box.example",), "box.example:8000", True),
        (("box.example",), "other.example", False),
        (("0.0.0.0",), "10.1.2.3:8000", True),
        (("0.0.0.0",), "other.example", False),
    ],
)
def test_hosts_are_the_loopback_names_and_what_was_allowed(
    hosts: tuple[str, ...], header: str, allowed: bool
) -> None:
    with running(Server(Access(TOKENS, hosts=hosts), [])) as url:
        assert (
            httpx2.get(f"{url}/healthz", headers={"host": header}, timeout=90).status_code == 200
        ) is allowed


def test_a_page_of_another_origin_is_refused_and_our_own_is_not() -> None:
    with running(Server(Access(TOKENS), [Echo()])) as url:
        ours = url.removeprefix("http://")
        for origin, status in (
            (url, 200),
            (f"https://{ours}", 200),
            ("http://evil.example", 403),
            ("null", 403),
            ("http://localhost:1", 403),
        ):
            answered = httpx2.get(
                f"{url}/echo/x", headers={"origin": origin, **bearer(Role.READ)}, timeout=90
            )
            assert answered.status_code == status, origin


def test_what_a_foreign_page_embeds_is_refused_though_it_sends_no_origin() -> None:
    with running(Server(Access(TOKENS), [Echo()])) as url:
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            answered = httpx2.get(
                f"{url}/echo/x", headers={"sec-fetch-site": site, **bearer(Role.READ)}, timeout=90
            )
            assert answered.status_code == status, site


def test_the_rate_is_counted_for_each_token_apart() -> None:
    with running(Server(Access(TOKENS, limits=RequestLimits(rate=5)), [Echo()])) as url:
        with httpx2.Client(base_url=url, timeout=90) as http:
            answered = [http.get("/echo/x", headers=bearer(Role.READ)) for _ in range(40)]
            other = http.get("/echo/x", headers=bearer(Role.WRITE))
        statuses = [one.status_code for one in answered]
        assert statuses[:5] == [200] * 5
        assert 429 in statuses
        refused = next(one for one in answered if one.status_code == 429)
        assert refused.headers["retry-after"] == "1"
        assert other.status_code == 200


def test_tokens_are_made_once_and_only_this_user_can_read_them(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    assert tokens_of(store) == {}
    made = make_tokens(store)
    assert tokens_of(store) == made
    assert len(set(made.values())) == len(Role)
    assert stat.S_IMODE(os.stat(token_file(store)).st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["runs.db.tokens"]


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_tokens(tmp_path / "runs.db")
    token_file(tmp_path / "runs.db").chmod(0o644)
    with pytest.raises(InputError, match="0644"):
        tokens_of(tmp_path / "runs.db")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"root": "x"}', b'{"read": ""}', b'{"read": "two words"}'])
def test_a_damaged_token_file_says_what_to_do(tmp_path: Path, body: bytes) -> None:
    path = token_file(tmp_path / "runs.db")
    path.write_bytes(body)
    path.chmod(0o600)
    with pytest.raises(InputError, match="Delete it"):
        tokens_of(tmp_path / "runs.db")


@pytest.mark.parametrize("token", ["", "with space", "naïve", "new\nline"])
def test_a_token_that_no_header_can_carry_is_refused(token: str) -> None:
    with pytest.raises(InputError, match="token"):
        Access({Role.ADMIN: token})


def test_a_server_without_any_token_is_refused() -> None:
    with pytest.raises(InputError, match="token"):
        Access({})

"""Who gets in: tokens, rights, sessions, other sites, other names; and what one client cannot do to the others."""

from __future__ import annotations

import base64
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import uvicorn
from typer.testing import CliRunner

from astray.cli.serve_token import tokens as command
from astray.core.errors import AstrayError
from astray.service.access import tokens as access
from astray.service.access.client_limits import ClientLimits, bounded
from astray.service.access.guard import Guard, Standing
from astray.service.access.tokens import Identity, Scope, Token, Tokens, digest_of, narrowed
from astray.service.batches import Batch, FeedFix
from astray.service.store import open_store

OPERATOR, PHONE, READER = "astray_operator", "astray_phone", "astray_reader"
KNOWN = [
    Token(digest_of(OPERATOR), "operator", Scope(), 0.0),
    Token(digest_of(PHONE), "phone", Scope(("send",), ("ana",)), 0.0),
    Token(digest_of(READER), "reader", Scope(("read",), ("ana", "bob")), 0.0),
]


async def told(scope: Any, receive: Any, send: Any) -> None:
    """An application that says what reached it."""
    body = (await receive())["body"]
    who: Identity = scope["state"]["identity"]
    said = {"path": scope["path"], "who": who.name, "agents": who.scope.agents, "bytes": len(body)}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(said)})


@contextmanager
def serving(
    tokens: list[Token], limits: ClientLimits | None = None, **standing: Any
) -> Iterator[tuple[str, list[Any]]]:
    """The guard in front of that application, on a port of this machine."""
    audit: list[Any] = []
    limits = limits or ClientLimits()
    guard = Guard(told, lambda: Tokens(tokens), Standing(**standing), limits, lambda *line: audit.append(line))
    config = uvicorn.Config(
        guard, port=0, http=bounded(limits), log_level="critical", lifespan="off", timeout_keep_alive=2
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", audit
    finally:
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def closed() -> Iterator[str]:
    with serving(KNOWN) as (url, _):
        yield url


@pytest.fixture(scope="module")
def opened() -> Iterator[str]:
    with serving([]) as (url, _):
        yield url


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# -------------------------------------------------------------------- tokens


def test_the_store_keeps_only_the_digest_of_a_token_and_finds_its_owner_by_it(tmp_path: Path):
    store = open_store(tmp_path)
    token = access.add(store.writer, "phone", ["send"], ["ana"])
    rows = store.writer.rows("SELECT * FROM tokens")
    assert token not in str(rows)
    assert not any(token.encode() in path.read_bytes() for path in tmp_path.iterdir())
    owner = Tokens(access.known(store.writer)).owner(token)
    assert owner == Identity("phone", Scope(("send",), ("ana",)))
    assert owner is not None
    assert owner.only_agent == "ana"
    with pytest.raises(AstrayError, match="there is a token named 'phone'"):
        access.add(store.writer, "phone", ["read"])
    with pytest.raises(AstrayError, match="there is no right 'rule'"):
        access.add(store.writer, "king", ["rule"])
    access.remove(store.writer, "phone")
    assert Tokens(access.known(store.writer)).owner(token) is None
    with pytest.raises(AstrayError, match="no token named"):
        access.remove(store.writer, "phone")
    store.close()


def test_a_token_for_a_folder_that_does_not_exist_is_refused(tmp_path: Path):
    for arguments in (["add", str(tmp_path / "misspelt"), "phone"], ["list", str(tmp_path / "misspelt")]):
        refusal = CliRunner().invoke(command, arguments).exception
        assert isinstance(refusal, AstrayError)
        assert "misspelt: there is no such folder; give the one that astray serve has made" in str(refusal)
    assert not list(tmp_path.iterdir())


def test_tokens_are_made_listed_and_removed_while_a_service_has_the_store(tmp_path: Path):
    store = open_store(tmp_path)
    run = CliRunner().invoke
    made = run(command, ["add", str(tmp_path), "phone", "--agent", "ana"])
    assert made.exit_code == 0, made.output
    token = made.stdout.strip()
    assert Tokens(access.known(store.writer)).owner(token) == Identity("phone", Scope(("send",), ("ana",)))
    assert run(command, ["add", str(tmp_path), "operator", "--write"]).exit_code == 0
    listed = run(command, ["list", str(tmp_path)]).stdout
    assert "phone: send for ana" in listed
    assert "operator: read, write for all agents" in listed
    assert token not in listed
    assert run(command, ["remove", str(tmp_path), "phone"]).exit_code == 0
    assert [token.name for token in access.known(store.writer)] == ["operator"]
    store.close()


def test_a_token_of_one_agent_cannot_send_fixes_of_another():
    batch = Batch([FeedFix("ana", 0.0, 45.0, 7.0), FeedFix("bob", 0.0, 45.0, 7.0)], [])
    found = narrowed(Identity("phone", Scope(("send",), ("ana",))), batch)
    assert [fix.agent for fix in found.fixes] == ["ana"]
    assert found.refused[0].index == 1
    assert found.refused[0].agent is None, "whether there is such an agent is not this sender's business"
    assert narrowed(Identity("all", Scope()), batch) == batch


@pytest.mark.parametrize(
    ("host", "tls", "proxy", "tokens", "starts"),
    [
        ("127.0.0.1", False, False, 0, True),
        ("::1", False, False, 0, True),
        ("localhost", False, True, 0, False),
        ("localhost", False, True, 1, True),
        ("0.0.0.0", False, False, 1, False),
        ("0.0.0.0", True, False, 0, False),
        ("0.0.0.0", True, False, 1, True),
        ("192.168.1.5", False, True, 1, True),
        ("example.org", False, False, 1, False),
    ],
)
def test_beyond_loopback_the_service_starts_only_with_tls_or_a_proxy_and_with_a_token(host, tls, proxy, tokens, starts):
    if starts:
        access.check_binding(host, tls=tls, behind_proxy=proxy, tokens=tokens)
        return
    with pytest.raises(AstrayError) as refused:
        access.check_binding(host, tls=tls, behind_proxy=proxy, tokens=tokens)
    assert refused.value.remedy


# -------------------------------------------------------------------- who asks


def test_a_token_is_accepted_as_bearer_basic_and_in_the_path(closed: str):
    basic = "Basic " + base64.b64encode(f"ana:{PHONE}".encode()).decode()
    for path, headers in (
        ("/pub", bearer(PHONE)),
        ("/pub", {"Authorization": basic}),
        (f"/osmand/{PHONE}", {}),
        (f"/traccar/{PHONE}", {}),
    ):
        answer = httpx.post(closed + path, headers=headers, content=b"{}")
        assert answer.status_code == 200, path
        assert answer.json() == {"path": path.replace(f"/{PHONE}", ""), "who": "phone", "agents": ["ana"], "bytes": 2}


@pytest.mark.parametrize(
    ("token", "method", "path", "status"),
    [
        (None, "POST", "/pub", 401),
        (None, "GET", "/api/agents", 401),
        (None, "GET", "/metrics", 401),
        (None, "GET", "/", 200),
        (None, "GET", "/static/page.js", 200),
        (None, "GET", "/healthz", 200),
        ("astray_wrong", "GET", "/api/agents", 401),
        (PHONE, "POST", "/pub", 200),
        (PHONE, "GET", "/osmand", 200),
        (PHONE, "POST", "/api/fixes", 200),
        (PHONE, "GET", "/api/agents", 403),
        (PHONE, "DELETE", "/api/agents/ana", 403),
        (READER, "GET", "/api/agents", 200),
        (READER, "PUT", "/api/settings", 403),
        (READER, "POST", "/pub", 403),
        (READER, "GET", "/osmand", 403),
        (OPERATOR, "PUT", "/api/settings", 200),
        (OPERATOR, "POST", "/pub", 200),
    ],
)
def test_a_token_allows_what_it_was_made_for(closed: str, token: str | None, method: str, path: str, status: int):
    answer = httpx.request(method, closed + path, headers=bearer(token) if token else {})
    assert answer.status_code == status
    if status >= 400:
        assert answer.json()["error"]["reason"]
    if status == 401:
        assert answer.headers["www-authenticate"].startswith("Basic" if path == "/pub" else "Bearer")


def test_login_sets_a_cookie_that_scripts_and_other_sites_cannot_read_and_logout_removes_it(closed: str):
    with httpx.Client(base_url=closed) as browser:
        assert browser.post("/login", json={"token": "astray_wrong"}).status_code == 401
        assert browser.post("/login", content=b"[").status_code == 422
        answer = browser.post("/login", json={"token": OPERATOR}, headers={"Origin": closed})
        assert answer.status_code == 204
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert OPERATOR not in cookie
        assert browser.get("/api/agents").json()["who"] == "operator"
        assert browser.put("/api/settings", headers={"Origin": "http://evil.example"}).status_code == 403
        kept = browser.cookies["astray_session"]
        assert browser.post("/logout", headers={"Origin": closed}).status_code == 204
        assert httpx.get(f"{closed}/api/agents", cookies={"astray_session": kept}).status_code == 401


def test_a_removed_token_ends_its_sessions():
    known = list(KNOWN)
    with serving(known) as (url, audit), httpx.Client(base_url=url) as browser:
        browser.post("/login", json={"token": OPERATOR})
        assert browser.get("/api/agents").status_code == 200
        known.clear()
        known.append(Token(digest_of("astray_other"), "other", Scope(), 0.0))
        until = time.monotonic() + 10
        while browser.get("/api/agents").status_code != 401:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert audit == [("operator", "login")]


# -------------------------------------------------------------------- other sites, other names


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example@127.0.0.1"}, 421),
        ({"Host": "localhost:80"}, 200),
        ({"Host": "[::1]:80"}, 200),
    ],
)
def test_writes_from_other_sites_and_foreign_host_names_are_refused(opened: str, headers: dict[str, str], status: int):
    assert httpx.post(f"{opened}/api/review/1/verdict", headers=headers, content=b"{}").status_code == status
    # A picture in a page of another site could have a fix written.
    assert httpx.get(f"{opened}/osmand?id=a", headers=headers).status_code == status


def test_a_page_of_another_site_cannot_read_by_rebinding_a_name(opened: str):
    assert httpx.get(f"{opened}/api/agents", headers={"Host": "evil.example"}).status_code == 421
    assert httpx.get(f"{opened}/api/agents").json()["who"] == "this machine"


def test_behind_a_proxy_requests_from_this_machine_need_a_token():
    with serving(KNOWN, behind_proxy=True, names=("gps.example.org",), tls=True) as (url, _):
        assert httpx.get(f"{url}/api/agents", headers={"Host": "gps.example.org"}).status_code == 401
        assert httpx.get(f"{url}/api/agents", headers={"Host": "evil.example"}).status_code == 421
        answer = httpx.post(f"{url}/login", json={"token": OPERATOR}, headers={"Host": "gps.example.org"})
        assert "; Secure" in answer.headers["set-cookie"]
        assert "max-age" in answer.headers["strict-transport-security"]


def test_every_answer_has_the_security_headers(opened: str):
    for answer in (httpx.get(f"{opened}/"), httpx.get(f"{opened}/", headers={"Host": "evil.example"})):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers
    assert httpx.get(f"{opened}/api/agents").headers["cache-control"] == "no-store"


# -------------------------------------------------------------------- floods


def raw(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def test_a_body_that_is_too_large_is_refused_with_and_without_content_length(opened: str):
    large = b"x" * 1_048_577
    assert httpx.post(f"{opened}/pub", content=large).status_code == 413
    assert httpx.post(f"{opened}/pub", content=iter([large[:65_536]] * 17)).status_code == 413
    assert httpx.post(f"{opened}/pub", content=large[:-1]).json()["bytes"] == 1_048_576


def test_slow_and_silent_clients_are_disconnected_and_others_are_served():
    limits = ClientLimits(body_seconds=0.5, header_seconds=0.5, connections_each=20)
    with serving([], limits) as (url, _):
        silent, head, body, endless = raw(url), raw(url), raw(url), raw(url)
        head.sendall(b"POST /pub HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        body.sendall(b"POST /pub HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\nabc")
        endless.sendall(b"POST /pub HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X-Filler: " + b"y" * 60_000)
        assert httpx.get(f"{url}/").status_code == 200
        assert body.recv(4096).startswith(b"HTTP/1.1 408 ")
        for given_up in (silent, head, endless):
            with given_up, suppress(ConnectionResetError):
                assert given_up.recv(4096) == b""
        body.close()


def test_a_connection_with_an_endless_head_is_closed(opened: str):
    with raw(opened) as endless:
        endless.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            endless.sendall((b"X-Filler: " + b"y" * 10_000 + b"\r\n") * 1000)


def test_one_address_cannot_take_all_connections():
    with serving([], ClientLimits(connections_each=5, header_seconds=30)) as (url, _):
        held = [raw(url) for _ in range(8)]
        closed = 0
        for one in held:
            one.settimeout(0.5)
            try:
                closed += one.recv(1) == b""
            except ConnectionResetError:
                closed += 1
            except TimeoutError:
                pass
        assert closed == 3
        for one in held:
            one.close()


def test_a_client_with_too_many_requests_must_wait_and_others_need_not():
    with serving(KNOWN, ClientLimits(rate=1.0, burst=5.0)) as (url, _), httpx.Client(base_url=url) as client:
        statuses = [client.get("/api/agents", headers=bearer(READER)).status_code for _ in range(7)]
        assert statuses[:5] == [200] * 5
        assert statuses[6] == 429
        refused = client.get("/api/agents", headers=bearer(READER))
        assert 1 <= int(refused.headers["retry-after"]) <= 10
        assert client.get("/api/agents", headers=bearer(OPERATOR)).status_code == 200


def test_after_many_wrong_tokens_a_client_must_wait():
    with serving(KNOWN, ClientLimits(failures=3.0)) as (url, audit), httpx.Client(base_url=url) as client:
        statuses = [client.get("/api/agents", headers=bearer(f"guess{i}")).status_code for i in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        assert audit == [("127.0.0.1", "wrong token")] * 3
        assert client.get("/api/agents", headers=bearer(READER)).status_code == 200

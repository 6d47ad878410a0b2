"""Tests access to the console: tokens, other sites, owners and request parameters."""

import json

import pytest
from starlette.requests import Request

from safeconsumer.console.guard import Auth
from safeconsumer.console.problems import JSON, Problem
from tests.harness.console.harness import (
    HELD,
    TOKEN,
    fields_of,
    groups,
    held_by,
    writing,
)

PROBLEM = "application/problem+json"
GROUP = f"/group?group={HELD}"


@pytest.fixture
def console():
    """Return a console with an unused login link."""
    return writing(groups())[0]


@pytest.fixture
def browser(console):
    """Return a browser with a session."""
    browser = console.stranger()
    browser.get(console.lasting_link)
    return browser


# ---------------------------------------------------------------- tokens and sessions


@pytest.mark.parametrize("path", ["/", "/group?group=g", "/ready", "/nowhere"])
@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_request_without_a_token_is_refused(console, path, accept):
    answer = console.stranger(accept=accept).get(path)
    assert answer.status_code == 401
    assert "safeconsumer console printed" in answer.text
    is_problem = answer.headers["content-type"] == PROBLEM
    assert is_problem == (accept == "application/json")


def test_wrong_token_is_refused_with_advice_on_the_right_token(console):
    wrong = {"authorization": f"Bearer {TOKEN}x", "accept": "application/json"}
    answer = console.stranger(**wrong).get("/")
    assert answer.status_code == 401
    assert answer.json()["title"] == "that token is not this console's"
    assert answer.json()["detail"].startswith(
        "send Authorization: Bearer with the token"
    )


@pytest.mark.parametrize(
    ("given", "advice"),
    [("Bearer", "open"), ("Bearer ", "start"), ("Bearer x", "start")],
    ids=["no token", "empty", "unknown"],
)
def test_console_without_a_token_file_does_not_accept_a_token(given, advice):
    """An empty token must not be accepted just because the console's own token is empty."""
    headers = {"host": "127.0.0.1:1", "authorization": given}
    encoded = [(name.encode(), text.encode()) for name, text in headers.items()]
    of_http = {"type": "http", "path": "/", "query_string": b"", "headers": encoded}
    request = Request({**of_http, "method": "GET"})
    refusal = Auth(1, owner="alice").refusal(request)
    assert (refusal.status, refusal.detail.partition(" ")[0]) == (401, advice)


def test_login_link_works_once(console):
    first, second = console.stranger(), console.stranger()
    assert first.get(console.link).status_code == 200
    assert first.get("/").status_code == 200
    (session,) = first.cookies.jar
    assert session.has_nonstandard_attr("HttpOnly")
    assert session.get_nonstandard_attr("SameSite") == "strict"
    for path in (console.link, "/", "/login?token="):
        assert second.get(path).status_code == 401


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("HEAD", {}, 200),
        ("GET", {"sec-purpose": "prefetch;prerender"}, 503),
        ("GET", {"purpose": "prefetch"}, 503),
        ("GET", {"x-purpose": "preview"}, 503),
    ],
    ids=["head", "sec-purpose", "purpose", "x-purpose"],
)
def test_login_link_is_not_used_up_by_head_requests_or_prefetching(
    console, method, headers, status
):
    ahead = console.stranger()
    answer = ahead.request(method, console.link, headers=headers)
    assert (answer.status_code, len(ahead.cookies)) == (status, 0)
    person = console.stranger()
    person.get(console.link)
    assert person.get("/").status_code == 200


def test_lasting_login_link_works_for_several_browsers(console):
    for _ in range(2):
        browser = console.stranger()
        browser.get(console.lasting_link)
        assert browser.get("/").status_code == 200


def test_no_page_contains_a_token(console):
    text = "".join(console.page(path) for path in ("/", "/history"))
    assert TOKEN not in text
    assert console.state.auth.token not in text


# ---------------------------------------------------------------- other sites


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""]
)
def test_request_with_another_host_name_is_refused(console, host):
    """A malicious site may resolve its name to the console's address (DNS rebinding)."""
    answer = console.client(host=host.format(port=console.port)).get("/")
    assert answer.status_code == 400
    assert f"through a tunnel with the same port: ssh -L {console.port}:" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:1"},
    ],
    ids=str,
)
@pytest.mark.parametrize("body", [{}, {"json": {}}], ids=["form", "json"])
def test_form_from_another_site_is_refused(browser, headers, body):
    for path in ("/place", "/lift"):
        assert browser.post(path, headers=headers, **body).status_code == 403


def test_form_with_only_an_origin_header_is_accepted(console, browser):
    form = console.form("/place", group=HELD, scopes="@all", reason="db")
    answer = browser.post("/place", headers={"origin": console.url}, data=form)
    assert answer.status_code != 403


@pytest.mark.parametrize("fields", [{}, {"form": "x"}], ids=["none", "forged"])
def test_form_without_its_token_is_refused(console, browser, fields):
    own = {"sec-fetch-site": "same-origin", "origin": console.url}
    assert browser.post("/place", headers=own, data=fields).status_code == 403


@pytest.mark.parametrize("path", ["/", "/static/console.css", "/nowhere", "/live"])
def test_every_response_restricts_the_browser(console, path):
    headers = console.client().get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    is_asset = path.startswith("/static/")
    assert ("no-store" in headers["cache-control"]) != is_asset


def test_every_page_links_to_its_icon(console):
    """Without a link, the browser requests /favicon.ico, which does not exist."""
    browser = console.stranger()
    for path in ("/", console.link, "/", "/nowhere"):
        assert '<link rel="icon" href="/static/icon.svg' in browser.get(path).text


# ---------------------------------------------------------------- programs


@pytest.mark.parametrize(
    ("accept", "is_json"),
    [
        ("application/json", True),
        ("text/plain, Application/JSON;q=0.9", True),
        ("text/html, application/json", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_answer_is_json_if_accept_names_json_and_not_html(console, accept, is_json):
    for path in ("/", "/nowhere"):
        answer = console.client(accept=accept).get(path)
        assert answer.headers["vary"] == "Accept"
        assert ("json" in answer.headers["content-type"]) is is_json


def test_page_and_its_json_have_different_etags(console):
    client = console.client()
    known = {"if-none-match": client.get("/").headers["etag"]}
    answer = client.get("/", headers={"accept": "application/json", **known})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/", GROUP, "/history", "/place"])
def test_head_request_has_the_status_and_content_type_of_get(console, path):
    client = console.client(accept="application/json")
    head, answer = client.head(path), client.get(path)
    assert head.status_code == answer.status_code
    assert head.headers["content-type"] == answer.headers["content-type"]


def test_method_that_a_page_does_not_accept_is_refused(console):
    answer = console.post("/history")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert answer.headers["content-type"] == PROBLEM
    assert answer.json()["detail"] == "it accepts GET, HEAD"


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
@pytest.mark.parametrize("group", ["group-0055", ""], ids=["mistyped", "none"])
def test_unknown_group_is_not_found(console, accept, group):
    client = console.client(accept=accept)
    answer = client.get("/group", params={"group": group})
    assert answer.status_code == 404
    assert "check the spelling" in answer.text
    assert (HELD in answer.text) == bool(group)


HOLD = {"group": HELD, "scopes": "t:0", "reason": "x", "for": "1h"}
LIFT = {"group": HELD, "scope": "topic-005:0", "owner": "alice"}
# A surrogate cannot be encoded in UTF-8, so a response that contains one would fail.
SURROGATE = "\ud800"


@pytest.mark.parametrize(
    ("fields", "title"),
    [
        (LIFT | {"scope": ""}, "give the scope of the hold to lift"),
        (LIFT | {"group": SURROGATE}, "a group must be"),
        (LIFT | {"group": ""}, "a group must be"),
        (LIFT | {"scope": SURROGATE}, "a scope must be"),
        (LIFT | {"owner": SURROGATE}, "owner must be"),
        (LIFT | {"offset": SURROGATE}, "an offset is a number"),
        *((HOLD | {name: SURROGATE}, "") for name in (*HOLD, "extends")),
        (HOLD | {"scopes": ""}, "give a scope to hold"),
        (HOLD | {"scopes": "orders:x"}, "not a partition"),
        (HOLD | {"scopes": "re:("}, "not an RE2 pattern"),
        (HOLD | {"reason": " "}, "give a reason"),
        (HOLD | {"group": ""}, "a group must be"),
        (HOLD | {"for": "soon"}, "not a duration"),
    ],
)
def test_request_with_a_bad_value_is_answered_with_a_problem_document(
    console, fields, title
):
    path = "/lift" if "scope" in fields else "/place"
    client = console.client(accept=JSON, **{"content-type": JSON})
    answer = client.post(path, content=json.dumps(fields))
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)
    assert title in answer.json()["title"]


def test_form_sent_by_a_program_is_refused(console):
    """Another site's page could send a form, but not JSON without a preflight request."""
    client = console.client(accept="application/json")
    assert client.post("/place", data={"group": "g"}).status_code == 415


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"group": 1}', b"[" * 100_000, b"\xff"],
    ids=["empty", "list", "number", "nested", "not UTF-8"],
)
def test_body_that_is_not_a_json_object_of_strings_is_refused(console, body):
    client = console.client(**{"content-type": "application/json"})
    assert client.post("/place", content=body).status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "more"),
    [
        ("GET", "/history?groups=billing", {}),
        ("GET", "/?page=2", {}),
        ("GET", "/lift?hold=scope%3Da", {}),
        ("POST", "/place", {"duration": "10s"}),
        ("POST", "/place", {"form": "9"}),
        ("POST", "/place", {"x\x07": "10s"}),
        ("POST", "/place?dry_run=true", {}),
    ],
)
def test_unknown_parameter_of_a_route_is_refused(console, method, path, more):
    """A misspelt parameter would list the records of all groups, or omit a hold's end."""
    client = console.client(accept="application/json")
    fields = {"group": "g", "scopes": "t:0", "reason": "x", **more}
    body = {"json": fields} if method == "POST" else {}
    answer = client.request(method, path, **body)
    title = "accepts no query" if "dry_run" in path else "is not a parameter of /"
    assert answer.status_code == 400
    assert title in answer.json()["title"]


# ---------------------------------------------------------------- permissions and owners


def test_read_only_console_neither_offers_nor_accepts_changes():
    served, _ = writing(groups(), is_read_only=True)
    for path in ("/place", "/lift"):
        for method in ("GET", "POST"):
            answer = served.client().request(method, path)
            assert answer.status_code == 404
            assert "--read-only" in answer.text
    for path in ("/", GROUP):
        page = served.page(path)
        assert "read only" in page
        for wrong in ("Place a hold", "Lift", "Extend", 'name="hold"'):
            assert wrong not in page


def test_each_user_of_a_proxy_has_separate_holds_and_forms():
    served, writer = writing(held_by("bob"), owner_header="X-Remote-User")
    alice, bob = (served.client(**{"x-remote-user": one}) for one in ("alice", "bob"))
    fields = {"group": HELD, "scopes": "t:0", "reason": "x"}
    lift = {"group": HELD, "hold": "scope=topic-005:0&owner=bob"}
    assert "you are bob" in bob.get("/").text
    form = fields_of(bob.get("/lift", params=lift))
    asked = alice.get("/lift", params=lift)
    assert "is held by bob, not by you" in asked.text
    assert alice.post("/lift", data=form).status_code == 403
    assert alice.post("/lift", data=fields_of(asked)).status_code == 409
    assert writer.written == []
    assert bob.post("/lift", data=form).status_code == 303
    preview = alice.post("/place", json=fields).json()["preview"]
    call = {**fields, "agreed": preview["agreement"]}
    assert alice.post("/place", json=call).status_code == 200
    assert [one.key.owner for one in writer.written] == ["bob", "alice"]


@pytest.mark.parametrize(
    "names", [(), ("alice", "bob"), ("",), ("operator:bob",), ("x" * 1000,)], ids=repr
)
def test_user_without_a_name_from_the_proxy_sees_and_changes_nothing(names):
    served, writer = writing(held_by("bob"), owner_header="X-Remote-User")
    headers = [("x-remote-user", one) for one in names]
    client = served.client()
    for path in ("/", GROUP):
        answer = client.get(path, headers=headers)
        assert answer.status_code == 403
        assert "your user name is unknown" in answer.text
    lift = {"group": HELD, "scope": "topic-005:0", "owner": "bob", "offset": "0"}
    assert client.post("/lift", json=lift, headers=headers).status_code == 403
    assert writer.written == []
    assert client.get("/", headers={"accept": "application/json"}).status_code == 200


def test_owner_header_from_another_machine_is_not_trusted():
    auth = Auth(8642, owner="alice", owner_header="X-Remote-User")

    def request_from(host):
        headers = [(b"x-remote-user", b"bob")]
        return Request({"type": "http", "headers": headers, "client": (host, 1)})

    assert auth.owner_of(request_from("127.0.0.1")) == "bob"
    with pytest.raises(Problem):
        auth.owner_of(request_from("10.0.0.1"))

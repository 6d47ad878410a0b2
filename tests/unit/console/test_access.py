"""Access to the console: tokens, sessions, hosts, origins and owners."""

import json

import pytest
from starlette.requests import Request

from safeconsumer.console.guard import Auth
from safeconsumer.console.problems import JSON, Problem
from tests.harness.console.harness import HELD, TOKEN, carried, groups, held_by, writing

PROBLEM = "application/problem+json"


@pytest.fixture
def console():
    """Make a console whose link nobody has used."""
    return writing(groups())[0]


@pytest.mark.parametrize("path", ["/", "/group?group=g", "/ready", "/nowhere"])
@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_nobody_comes_in_without_the_token(console, path, accept):
    with console.stranger(accept=accept) as stranger:
        answer = stranger.get(path)
    assert answer.status_code == 401
    assert "safeconsumer console printed" in answer.text
    is_problem = answer.headers["content-type"] == PROBLEM
    assert is_problem == (accept == "application/json")


def test_a_wrong_token_is_told_as_one(console):
    wrong = {"authorization": f"Bearer {TOKEN}x", "accept": "application/json"}
    with console.stranger(**wrong) as stranger:
        answer = stranger.get("/")
    assert answer.status_code == 401
    assert answer.json()["title"] == "that token is not this console's"
    assert "--token-file" in answer.json()["detail"]


def test_a_method_that_a_page_does_not_take(console):
    answer = console.post("/history")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert answer.headers["content-type"] == PROBLEM
    assert answer.json()["detail"] == "it takes GET, HEAD"


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
def test_json_is_answered_to_who_names_it(console, accept, is_json):
    """A request that takes anything gets the page, as a browser does."""
    with console.client(accept=accept) as client:
        for path in ("/", "/nowhere"):
            answer = client.get(path)
            assert answer.headers["vary"] == "Accept"
            assert ("json" in answer.headers["content-type"]) is is_json


@pytest.mark.parametrize("path", ["/", f"/group?group={HELD}", "/history", "/place"])
def test_a_program_may_ask_for_the_head_alone(console, path):
    with console.client(accept="application/json") as client:
        head, answer = client.head(path), client.get(path)
    assert head.status_code == answer.status_code
    assert head.headers["content-type"] == answer.headers["content-type"]


HOLD = {"group": HELD, "scopes": "t:0", "reason": "x", "for": "1h"}
LIFT = {"group": HELD, "scope": "topic-005:0", "owner": "alice"}


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (LIFT | {"scope": ""}, "give the scope of the hold to lift"),
        (LIFT | {"group": "\ud800"}, "a group must be"),
        (LIFT | {"group": ""}, "a group must be"),
        (LIFT | {"scope": "\ud800"}, "a scope must be"),
        (LIFT | {"owner": "\ud800"}, "owner must be"),
        (LIFT | {"offset": "\ud800"}, "an offset is a number"),
        *((HOLD | {name: "\ud800"}, "") for name in (*HOLD, "extends")),
        (HOLD | {"scopes": ""}, "give a scope to hold"),
        (HOLD | {"scopes": "orders:x"}, "not a partition"),
        (HOLD | {"scopes": "re:("}, "not an RE2 pattern"),
        (HOLD | {"reason": " "}, "give a reason"),
        (HOLD | {"group": ""}, "a group must be"),
        (HOLD | {"for": "soon"}, "not a duration"),
    ],
)
def test_a_call_that_cannot_be_is_a_problem(console, wish, said):
    """A lone surrogate has no UTF-8: the answer that repeated it failed."""
    path = "/lift" if "scope" in wish else "/place"
    body = {"content": json.dumps(wish), "headers": {"content-type": JSON}}
    with console.client(accept=JSON) as client:
        answer = client.post(path, **body)
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)
    assert said in answer.json()["title"]


def test_a_tag_is_of_one_of_the_two_forms(console):
    with console.client() as client:
        tag = client.get("/").headers["etag"]
        json = {"accept": "application/json", "if-none-match": tag}
        assert client.get("/", headers=json).status_code == 200


def test_the_link_works_once(console):
    """Whoever finds it in a terminal later does not come in."""
    with console.stranger() as first:
        assert first.get(console.link).status_code == 200
        assert first.get("/").status_code == 200
        cookie = first.cookies.jar
        (session,) = cookie
        assert session.has_nonstandard_attr("HttpOnly")
        assert session.get_nonstandard_attr("SameSite") == "strict"
    with console.stranger() as second:
        assert second.get(console.link).status_code == 401
        assert second.get("/").status_code == 401
        assert second.get("/login?token=").status_code == 401


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("HEAD", {}, 200),
        ("GET", {"sec-purpose": "prefetch;prerender"}, 503),
        ("GET", {"purpose": "prefetch"}, 503),
        ("GET", {"x-purpose": "preview"}, 503),
    ],
)
def test_only_a_click_uses_the_link_up(console, method, headers, status):
    """Not a program that looks whether the link is good, nor a browser that guesses."""
    with console.stranger() as looking:
        answer = looking.request(method, console.link, headers=headers)
        assert (answer.status_code, len(looking.cookies)) == (status, 0)
    with console.stranger() as person:
        person.get(console.link)
        assert person.get("/").status_code == 200


def test_a_token_file_works_for_several(console):
    for _ in range(2):
        with console.stranger() as browser:
            browser.get(console.lasting_link)
            assert browser.get("/").status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""]
)
def test_another_host_name_is_not_answered(console, host):
    """A page of others that renames itself to our address gets nothing (rebinding)."""
    with console.client(host=host.format(port=console.port)) as client:
        answer = client.get("/")
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
)
def test_a_page_of_others_changes_nothing(console, headers):
    """The browser brings the cookie along, and says where the request is from."""
    with console.stranger() as browser:
        browser.get(console.lasting_link)
        for path in ("/place", "/lift"):
            assert browser.post(path, headers=headers).status_code == 403
            assert browser.post(path, headers=headers, json={}).status_code == 403


def test_a_form_carries_a_token(console):
    with console.stranger() as browser:
        browser.get(console.lasting_link)
        own = {"sec-fetch-site": "same-origin", "origin": console.url}
        assert browser.post("/place", headers=own, data={}).status_code == 403
        forged = browser.post("/place", headers=own, data={"form": "x"})
        assert forged.status_code == 403


def test_a_program_sends_json_only(console):
    """A form of others cannot send it without asking the browser first."""
    with console.client(accept="application/json") as client:
        answer = client.post("/place", data={"group": "g"})
    assert answer.status_code == 415


@pytest.mark.parametrize("path", ["/", "/static/console.css", "/nowhere", "/live"])
def test_every_answer_tells_the_browser_what_is_allowed(console, path):
    with console.client() as client:
        headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    is_asset = path.startswith("/static/")
    assert ("no-store" in headers["cache-control"]) != is_asset


def test_what_a_program_sends_is_not_in_the_address(console):
    answer = console.post("/place?dry_run=true")
    assert (answer.status_code, answer.json()["title"]) == (
        400,
        "/place takes no query",
    )


def test_bodies_that_are_none(console):
    with console.client(**{"content-type": "application/json"}) as client:
        for body in (b"", b"[]", b'{"group": 1}', b"[" * 100_000, b"\xff"):
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
    ],
)
def test_what_no_route_takes_of_a_program_is_refused(console, method, path, more):
    """``history?groups=billing`` were all groups'; ``duration`` gave a hold no end."""
    wish = {"group": "g", "scopes": "t:0", "reason": "x", **more}
    with console.client(accept="application/json") as client:
        body = {"json": wish} if method == "POST" else {}
        answer = client.request(method, path, **body)
    assert answer.status_code == 400
    assert "is not a parameter of /" in answer.json()["title"]


def test_unknown_groups(console):
    """A typing error is not shown as a group without holds."""
    for accept in ("text/html", "application/json"):
        with console.client(accept=accept) as client:
            for group in ("typo", ""):
                answer = client.get("/group", params={"group": group})
                assert answer.status_code == 404
                assert "check the spelling" in answer.text


def test_nothing_of_a_token_is_logged_or_shown(console):
    with console.client() as client:
        pages = [client.get(path).text for path in ("/", "/history")]
    assert not any(TOKEN in page or console.state.auth.token in page for page in pages)


def test_read_only_has_no_way_to_write():
    served, _ = writing(groups(), is_read_only=True)
    with served.client() as client:
        for path in ("/place", "/lift"):
            for method in ("GET", "POST"):
                answer = client.request(method, path)
                assert answer.status_code == 404
                assert "--read-only" in answer.text
        for path in ("/", f"/group?group={HELD}"):
            page = client.get(path).text
            assert "read only" in page
            for wrong in ("Hold something", "Lift", "Extend", 'name="hold"'):
                assert wrong not in page


def test_every_page_has_its_icon(console):
    """Else a browser asks for /favicon.ico, which there is not."""
    with console.stranger() as browser:
        for path in ("/", console.link, "/", "/nowhere"):
            assert '<link rel="icon" href="/static/icon.svg' in browser.get(path).text


# ---------------------------------------------------------------- who is who


def test_a_proxy_says_who_is_who():
    """Its users have their own holds and forms; another's is lifted by typing."""
    served, writer = writing(held_by("bob"), owner_header="X-Remote-User")
    alice, bob = (served.client(**{"x-remote-user": one}) for one in ("alice", "bob"))
    wish = {"group": HELD, "scopes": "t:0", "reason": "x"}
    lift = {"group": HELD, "hold": "scope=topic-005:0&owner=bob"}
    with alice, bob:
        assert "you are bob" in bob.get("/").text
        form = carried(bob.get("/lift", params=lift))
        assert "is held by bob, not by you" in alice.get("/lift", params=lift).text
        assert alice.post("/lift", data=form).status_code == 403
        mine = carried(alice.get("/lift", params=lift))
        assert alice.post("/lift", data=mine).status_code == 409
        assert writer.written == []
        assert bob.post("/lift", data=form).status_code == 303
        told = alice.post("/place", json=wish).json()["preview"]
        call = {**wish, "agreed": told["agreement"]}
        assert alice.post("/place", json=call).status_code == 200
    assert [one.key.owner for one in writer.written] == ["bob", "alice"]


@pytest.mark.parametrize(
    "names", [(), ("alice", "bob"), ("",), ("operator:bob",), ("x" * 1000,)]
)
def test_who_is_nobody_changes_nothing(names):
    """A header that is missing, or comes from the user besides the proxy."""
    served, writer = writing(held_by("bob"), owner_header="X-Remote-User")
    headers = [("x-remote-user", one) for one in names]
    lift = {"group": HELD, "scope": "topic-005:0", "owner": "bob", "offset": "0"}
    with served.client() as client:
        for path in ("/", f"/group?group={HELD}"):
            answer = client.get(path, headers=headers)
            assert answer.status_code == 403
            assert "it is unknown who you are" in answer.text
        call = client.post("/lift", json=lift, headers=headers)
        assert call.status_code == 403
        program = {"accept": "application/json"}
        assert client.get("/", headers=program).status_code == 200
    assert writer.written == []


def test_only_a_proxy_on_this_machine_is_believed():
    auth = Auth(8642, owner="alice", owner_header="X-Remote-User")

    def asked_from(host):
        headers = [(b"x-remote-user", b"bob")]
        return Request({"type": "http", "headers": headers, "client": (host, 1)})

    assert auth.owner_of(asked_from("127.0.0.1")) == "bob"
    with pytest.raises(Problem):
        auth.owner_of(asked_from("10.0.0.1"))

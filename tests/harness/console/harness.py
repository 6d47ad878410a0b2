"""Makes consoles for tests, either with a made-up snapshot or served on a port."""

import re
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from html import unescape
from http import HTTPStatus
from types import SimpleNamespace
from typing import cast

import httpx2
import pytest
from attrs import define, evolve, field
from kafka.admin import OffsetSpec
from starlette.testclient import TestClient

from safeconsumer.console import serve
from safeconsumer.console.app import create
from safeconsumer.console.guard import LOGIN, Auth
from safeconsumer.console.state import Setup, State
from safeconsumer.group.board import Board
from safeconsumer.group.facts import NO_GROUP
from safeconsumer.group.follower import Follower
from safeconsumer.group.publisher import Change
from safeconsumer.group.settings import Control
from tests.harness.console.synthetic import StaticFollower, alone, hold_of, viewed
from tests.harness.waiting import end_of, wait_for

TOKEN = "a-token-for-scripts-in-tests"  # noqa: S105 - for tests only


class Console:
    """A console in this process that Starlette's TestClient calls without a port."""

    def __init__(self, state, port):
        self.state = state
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._app = create(state)

    @property
    def link(self):
        """The link that the command prints."""
        return f"{self.url}{LOGIN}?token={self.state.auth.token}"

    @property
    def lasting_link(self):
        return f"{self.url}{LOGIN}?token={TOKEN}"

    def client(self, **headers):
        """Make a client that sends the token."""
        return self.stranger(**{"authorization": f"Bearer {TOKEN}", **headers})

    def stranger(self, **headers):
        return TestClient(
            self._app,
            self.url,
            headers=headers,
            follow_redirects=False,
            client=("127.0.0.1", 50_000),
        )

    # ------------------------------------------------------------ calls of a browser

    def page(self, path, **query):
        """Return the text of a page."""
        with self.client() as client:
            answer = client.get(path, params=query or None)
        assert answer.status_code == HTTPStatus.OK, answer.text
        return answer.text

    def form(self, path, **query):
        """Return the fields of a page's form."""
        with self.client() as client:
            return fields_of(client.get(path, params=query))

    def submit(self, path, fields):
        with self.client() as client:
            return client.post(path, data=fields)

    # ------------------------------------------------------------ calls of a program

    def get(self, path, **query):
        """Return the JSON document of a page."""
        with self.client(accept="application/json") as client:
            answer = client.get(path, params=query)
            assert answer.status_code == HTTPStatus.OK, answer.text
            return answer.json()

    def post(self, path, **body):
        with self.client() as client:
            return client.post(path, json=body)

    def plan(self, **fields):
        """Send holds that need a confirmation, without it; return the console's preview."""
        refused = self.post("/place", **fields)
        assert refused.status_code == HTTPStatus.CONFLICT, refused.text
        return refused.json()["preview"]

    def pause(self, **fields):
        """Place holds; if the console asks for confirmation, confirm the plan."""
        answer = self.post("/place", **fields)
        if answer.status_code != HTTPStatus.CONFLICT:
            return answer
        agreed = answer.json()["preview"]["agreement"]
        return self.post("/place", **fields, agreed=agreed)


class Served(Console):
    """A console on its own port, for browsers, scrapers and waiting clients."""

    def __init__(self, state, listener):
        super().__init__(state, listener.getsockname()[1])
        self._listener = listener
        self._server = serve.Server(state)
        self._thread = threading.Thread(
            target=lambda: self._server.run(sockets=[listener])
        )

    def stranger(self, **headers):
        return httpx2.Client(base_url=self.url, headers=headers, timeout=None)

    def __enter__(self):
        self._thread.start()
        wait_for(lambda: self._server.started, "the server")
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Stop the console as an interrupt does; a second call does nothing."""
        self.state.close()
        self._server.should_exit = True
        try:
            end_of(self._thread)
        finally:
            self._listener.close()


@contextmanager
def console(team, **changed):
    """Serve a console for a team's cluster."""
    setup = Setup(
        base=team.broker.client_config,
        settings=team.settings,
        owner="alice",
        port=0,
        token=TOKEN,
    )
    setup = evolve(setup, **changed)
    with ExitStack() as closing:
        listener = closing.enter_context(socket.create_server((serve.HOST, 0)))
        following = closing.enter_context(Follower(setup.base, setup.settings))
        state = serve.make_state(setup, following, listener.getsockname()[1])
        yield closing.enter_context(Served(state, listener))


def _fail():
    pytest.fail("this console must open no connection")


def console_of(still, connect=_fail, port=8642, **changed):
    """Return a console that shows the given snapshot."""
    setup = Setup(
        base={"bootstrap_servers": ["a-big-one:9092"]},
        settings=Control(),
        owner="alice",
        port=port,
        token=TOKEN,
        **changed,
    )
    state = State(
        setup=setup,
        follower=cast("Follower", still),
        auth=Auth(setup.port, TOKEN, owner="alice", owner_header=setup.owner_header),
        connect=connect,
    )
    return Console(state, setup.port)


def fields_of(page):
    """Return the fields of a page's form, unchanged but with every box ticked."""
    sends = page.text.index('method="post"')
    form = page.text[page.text.rindex("<form", 0, sends) :].partition("</form>")[0]
    fields = re.findall(
        r'<(?:input|button)[^>]* name="([^"]+)"[^>]* value="([^"]*)"', form
    )
    return {name: unescape(value) for name, value in fields}


def boxes_of(page):
    """Return the holds that have a checkbox on a group's page, as the form sends them."""
    return [unescape(one) for one in re.findall(r'name="hold" value="([^"]*)"', page)]


def until_complete(served):
    """Wait until the console has read the topics and queried the groups."""

    def is_complete():
        snapshot = served.state.snapshot()
        return snapshot.is_complete and not snapshot.trouble

    wait_for(is_complete, "a complete snapshot")


def row_of(served, group):
    """Return a group's row in the list of groups; an empty row if it is not listed yet."""
    with served.client(accept="application/json") as client:
        answer = client.get("/")
    if answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        return {}  # the console has not yet read the topics to their end
    assert answer.status_code == HTTPStatus.OK, answer.text
    rows = answer.json()["groups"]
    found = [one for one in rows if one["group"] == group]
    return found[0] if found else {}


def until_level(served, group, level):
    """Wait until the list of groups shows a group at this level."""
    wait_for(lambda: row_of(served, group).get("level") == level, level)


def until_settled(served, group, members, reporting):
    """Wait until the list shows the group as stable, with this many members and reports."""

    def is_settled():
        row = row_of(served, group)
        wanted = ("Stable", members, reporting)
        return (row.get("state"), row.get("members"), row.get("reporting")) == wanted

    wait_for(is_settled, "the group")


# A console without a broker, which shows a given snapshot and stores changes in a list.

FREE, HELD, ALARMED = "group-004", "group-005", "group-050"


@define
class Writer:
    """A substitute for the console's connection, which only stores changes in a list."""

    still: StaticFollower
    settings: Control = field(factory=Control)
    written: list[Change] = field(factory=list)
    before: Callable[[], object] = lambda: None  # called before ``holds`` returns
    board: Board = field(factory=lambda: Board(Control()))
    committed: int | None = None  # for all partitions; None means as in the snapshot

    def __enter__(self):
        return self

    def __exit__(self, *_): ...

    def check(self): ...

    def close(self): ...

    def topics(self):
        return ()

    def retention(self, names):
        return dict.fromkeys(names)

    @property
    def admin(self):
        return self

    def list_partition_offsets(self, specs, *_, **__):
        return {
            tp: SimpleNamespace(offset=0 if one == OffsetSpec.EARLIEST else 2000)
            for tp, one in specs.items()
        }

    def describe_topics(self, _):
        return []

    def look(self, group, **_):
        return self.still.known.views[group]

    def group(self, group):
        view = self.still.known.views.get(group)
        facts = NO_GROUP if view is None else view.facts
        if self.committed is None:
            return facts
        return evolve(facts, committed=dict.fromkeys(facts.committed, self.committed))

    def holds(self, group):
        self.before()
        view = self.still.known.views.get(group)
        return () if view is None else view.holds

    def write(self, todo):
        self.written += todo
        return tuple(one.written(20, None) for one in todo)


def writing(still, **changed):
    """Return a console that shows the given snapshot, and its substitute connection."""
    writer = Writer(still)
    return console_of(still, lambda: writer, **changed), writer


def groups():
    return alone(
        viewed(4, is_held=False),
        viewed(5, is_held=True),
        viewed(50, is_held=True, is_obeyed=False),
    )


def held_by(*owners):
    """Make a group in which each owner holds one partition."""
    holds = []
    for number, owner in enumerate(owners):
        one = hold_of(HELD, f"topic-005:{number}")
        holds.append(evolve(one, key=evolve(one.key, owner=owner), offset=number))
    return alone(evolve(viewed(5, is_held=True), holds=tuple(holds)))

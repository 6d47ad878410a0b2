"""Tests the console's connections: shared queries, limits on requests, and responses."""

import asyncio
import threading
from threading import BoundedSemaphore
from types import SimpleNamespace

import pytest
from attrs import evolve
from kafka.errors import KafkaTimeoutError
from starlette.responses import Response

from safeconsumer.console import background, connection, pages
from safeconsumer.console.connection import SharedConnection
from safeconsumer.console.problems import Problem
from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group.facts import NO_GROUP
from safeconsumer.group.plan import Consent, Lift, Need, Place, refusal
from tests.harness.console.harness import HELD, Writer, boxes_of, console_of, held_by
from tests.harness.waiting import LIMIT, wait_for

FORGOTTEN = {"facts": NO_GROUP, "holds": (), "reports": ()}


class Cluster:
    """A fake cluster that answers a query with the query's number, or raises an error."""

    def __init__(self, error=None):
        self.error = error
        self.asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def ask(self, _operator):
        self.asked += 1
        assert self.may_answer.wait(LIMIT)
        if self.error is not None:
            raise self.error
        return self.asked


def shared():
    return SharedConnection(object)


# ---------------------------------------------------------------- shared queries


def test_answer_to_a_query_is_shared_for_a_minute(monkeypatch):
    cluster, lent = Cluster(), shared()
    assert [lent.asked("topics", cluster.ask, LIMIT) for _ in range(3)] == [1, 1, 1]
    assert lent.asked("groups", cluster.ask, LIMIT) == 2
    monkeypatch.setattr(connection, "_VALID_SECONDS", -1.0)
    assert lent.asked("topics", cluster.ask, LIMIT) == 3


@pytest.mark.parametrize(
    "error",
    [ControlTopicError("x"), KafkaTimeoutError(), OSError("x"), Problem(503, "x")],
    ids=repr,
)
def test_failed_query_is_not_repeated_for_a_minute(error):
    cluster, lent = Cluster(error), shared()
    assert [lent.asked("topics", cluster.ask, LIMIT) for _ in range(2)] == [None, None]
    assert cluster.asked == 1


def test_programming_error_in_a_query_is_raised():
    with pytest.raises(ZeroDivisionError):
        shared().asked("topics", Cluster(ZeroDivisionError()).ask, LIMIT)


def test_callers_of_a_slow_query_wait_for_the_same_answer(monkeypatch):
    """The connection does not repeat a pending query, however old the query is."""
    monkeypatch.setattr(connection, "_VALID_SECONDS", -1.0)
    cluster, lent = Cluster(), shared()
    cluster.may_answer.clear()
    assert [lent.asked("topics", cluster.ask, 0.0) for _ in range(2)] == [None, None]
    monkeypatch.setattr(connection, "_VALID_SECONDS", 60.0)
    cluster.may_answer.set()
    assert lent.asked("topics", cluster.ask, LIMIT) == 1


def test_page_query_waits_longer_for_the_connection_than_a_users_action():
    lent, times = shared(), []
    lent._lock = SimpleNamespace(
        acquire=lambda timeout: not times.append(timeout), release=lambda: None
    )
    assert lent.asked("topics", Cluster().ask, LIMIT) == 1
    with lent.lend():
        pass
    of_question, of_click = times
    assert of_question > of_click


def test_closed_connection_does_not_answer_queries():
    lent = shared()
    lent.close()
    assert lent.asked("topics", Cluster().ask, LIMIT) is None


# ---------------------------------------------------------------- the limit on requests


def request_to(console):
    async def is_disconnected():
        return False

    app = SimpleNamespace(state=SimpleNamespace(console=console))
    return SimpleNamespace(method="GET", app=app, is_disconnected=is_disconnected)


def test_request_beyond_the_limit_is_refused_without_a_query():
    console = SimpleNamespace(is_closing=False, slots=BoundedSemaphore(1))
    with console.slots, pytest.raises(Problem) as raised:
        asyncio.run(
            background.answer(request_to(console), lambda _: pytest.fail("no room"))
        )
    assert raised.value.status == 503
    assert raised.value.title == "the console waits for the cluster on behalf of others"


@pytest.mark.parametrize("error", [None, Problem(409, "x")], ids=["answer", "problem"])
def test_finished_request_frees_its_slot(error):
    console = SimpleNamespace(is_closing=False, slots=BoundedSemaphore(1))

    def ask(is_wanted):
        assert is_wanted()
        if error is not None:
            raise error
        return Response()

    for _ in range(2):
        call = background.answer(request_to(console), ask)
        if error is None:
            assert asyncio.run(call).status_code == 200
        else:
            with pytest.raises(Problem) as raised:
                asyncio.run(call)
            assert raised.value is error
        wait_for(lambda: console.slots._value == 1, "a free slot")


# ---------------------------------------------------------------- after a request


@pytest.mark.parametrize(
    ("needs", "text"),
    [
        ((), ""),
        ([Need(consent=Consent.TYPED, why="it is bob's", ask="topic-005:1")], ""),
        ([refusal("it was replaced", "look at the group")],
         "it was replaced: look at the group."),
        ([refusal("it is over.", "Place it."), refusal("it moved", "")],
         "it is over. Place it. it moved."),
    ],
    ids=["none", "to type", "one", "two"],
)  # fmt: skip
def test_lift_page_shows_why_the_lift_is_refused(needs, text):
    plan = SimpleNamespace(action=Lift(group=HELD, holds=()), needs=needs)
    assert pages._error(plan, None) == text
    placing = SimpleNamespace(action=Place.__new__(Place), needs=needs)
    assert pages._error(placing, None) == pages._error(None, None) == ""
    shown = pages._error(plan, Problem(409, "It has changed.", "look at the group"))
    assert shown == "It has changed: look at the group."


class Changing(Writer):
    """A writer that publishes another view of the group, or none, after each write."""

    after = None

    def write(self, todo):
        written = super().write(todo)
        self.still.publish(views={HELD: self.after} if self.after else {})
        return written


@pytest.mark.parametrize(
    ("changes", "page"),
    [
        ({}, f"/group?group={HELD}"),
        ({**FORGOTTEN, "unread": ("no right",)}, f"/group?group={HELD}"),
        (FORGOTTEN, "/"),
        (None, "/"),
    ],
    ids=["known", "unread", "unknown", "gone"],
)
def test_lift_redirects_to_the_group_if_it_is_still_known(changes, page):
    still = held_by("alice", "alice")
    writer, known = Changing(still), still.known.views[HELD]
    writer.after = None if changes is None else evolve(known, **changes)
    served = console_of(still, lambda: writer)
    holds = boxes_of(served.page("/group", group=HELD))
    answer = served.submit("/lift", served.form("/lift", group=HELD, hold=holds))
    assert len(writer.written) == 2
    assert (answer.status_code, answer.headers["location"]) == (303, page)

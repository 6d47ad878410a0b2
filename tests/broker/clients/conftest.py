"""Defines fixtures that make members that use confluent-kafka or aiokafka."""

from contextlib import ExitStack
from functools import partial

import pytest

from safeconsumer.clients import aiokafka_control, librdkafka
from safeconsumer.clients.aiokafka_control import LoopCalls
from tests.harness.group import aiokafka, confluent
from tests.harness.group.fixtures import secured, story, team
from tests.harness.waiting import LIMIT

__all__ = ["secured", "story", "team"]


class PatientConfluent(librdkafka.UpstreamConsumer):
    """The consumer of a control reader; its polls wait until a message arrives."""

    def poll(self, timeout):
        return super().poll(max(timeout, LIMIT))


class PatientAiokafka(aiokafka_control.UpstreamConsumer):
    """The consumer of a control reader; its fetches wait until records arrive."""

    async def getmany(self, *partitions, timeout_ms=0, max_records=None):
        waiting = {"timeout_ms": max(timeout_ms, 1000 * LIMIT)}
        return await super().getmany(*partitions, max_records=max_records, **waiting)


@pytest.fixture
def patient(monkeypatch):
    """Let each turn of a control reader wait until records of the holds topic arrive."""
    monkeypatch.setattr(librdkafka, "UpstreamConsumer", PatientConfluent)
    monkeypatch.setattr(aiokafka_control, "UpstreamConsumer", PatientAiokafka)
    monkeypatch.setattr(aiokafka_control, "_ASK_SECONDS", LIMIT)


class Client:
    """
    Makes members of a team that use one client, and closes all members at the end.

    Attributes:
        kind: the client's name.
    """

    def __init__(self, team, kind, protocol, closing):
        self._team, self.kind, self._protocol = team, kind, protocol
        self._closing = closing
        self._loop = None
        if kind == "aiokafka":
            self._loop = closing.enter_context(aiokafka.Loop())

    @property
    def make(self):
        """Return the client's consumer factory: ``make(control=..., hooks=...)``."""
        if self._loop is None:
            return partial(confluent.confluent, self._team, protocol=self._protocol)
        return partial(
            self._loop.call, aiokafka.aiokafka, self._team, assignor=self._protocol
        )

    def member(self, **more):
        """Make a member that has kafka-python's methods."""
        consumer = self.make(**more)
        made = (
            confluent.BlockingConsumer(consumer)
            if self._loop is None
            else aiokafka.BlockingConsumer(self._loop, consumer)
        )
        self._closing.callback(made.close)
        return made

    def subscribed(self, **more):
        made = self.member(**more)
        made.subscribe([self._team.topic])
        return made

    def running(self, name, **more):
        """Return a context manager that makes a member and polls it in the background."""
        team, protocol = self._team, self._protocol
        if self._loop is None:
            return confluent.ConfluentMember(team, name, protocol, **more)
        return aiokafka.AiokafkaMember(self._loop, team, name, protocol, **more)

    def control_clients(self):
        """Make the clients with which a member reads and writes the control topics."""
        if self._loop is None:
            return librdkafka.control_clients(confluent.settings_of(self._team))
        calls = self._loop.call(LoopCalls)
        self._closing.callback(lambda: self._loop.run(calls.end()))
        return aiokafka_control.control_clients(aiokafka.settings_of(self._team), calls)


@pytest.fixture(params=["confluent-range", "aiokafka-range"])
def client(request, team):
    kind, _, protocol = request.param.partition("-")
    with ExitStack() as closing:
        yield Client(team, kind, protocol, closing)

"""Feeds records of control topics to a ``Board``, without a broker."""

from attrs import evolve
from kafka import TopicPartition

from safeconsumer.group import report_wire, wire
from safeconsumer.group.board import Board, Readable
from safeconsumer.group.facts import GroupFacts
from safeconsumer.group.log_clock import LogClock
from safeconsumer.group.settings import Control
from safeconsumer.group.survey import Survey
from safeconsumer.group.wire import ControlHold, ControlKey
from safeconsumer.testing import make_record
from tests.harness.group.views import report

SETTINGS = Control(holds_topic="ops", status_topic="status")
ALL = Readable(ends={}, reports_are_read=True)
START = 1_000_000.0


class Topics:
    """Control topics whose records are read without delay, and clocks that a test sets."""

    def __init__(self, ahead=0.0, skew=0.0):
        self.at = START  # the broker's time
        self.ahead = ahead  # seconds by which our own clock is ahead
        self.clock = LogClock(lambda: self.at + self.ahead, lambda: self.at)
        self.board = Board(evolve(SETTINGS, clock_skew=skew), self.clock)
        self.offsets = dict.fromkeys(SETTINGS.topics, 0)
        self.written = []
        self.by_hosts = set()  # the topics with timestamps from producers

    def write(self, name, key, value, at=None):
        when = self.at if at is None else at
        kind = 0 if name in self.by_hosts else 1
        figures = {"offset": self.offsets[name], "timestamp": int(when * 1000)}
        one = make_record(value, key, **figures)._replace(timestamp_type=kind)
        self.offsets[name] += 1
        self.written.append((name, one))
        self.board.feed({name: [one]}, self.positions)

    @property
    def positions(self):
        return {TopicPartition(name, 0): at for name, at in self.offsets.items()}

    def report(self, name, at=None, **fields):
        made = report(name, 0, at_ms=int(self.at * 1000), **fields)
        self.write("status", name.encode(), report_wire.encode_report(made), at)
        return made

    def hold(self, scope="@all", ttl_ms=None, *, lifts=False, at=None):
        hold = ControlHold("id", "x", ttl_ms)
        value = None if lifts else wire.encode_hold(hold)
        self.write("ops", wire.encode_key(ControlKey("g", "alice", scope)), value, at)

    def view(self, *members, listen=None):
        """Return the current view of the group."""
        self.board.update(listen)
        asked = GroupFacts(state="Stable", members=members, committed={})
        return self.board.view("g", Survey(facts={"g": asked}), ALL)

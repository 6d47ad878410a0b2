import json
import pickle
import textwrap
from typing import ClassVar

import pytest
from attrs.exceptions import FrozenInstanceError
from kafka import TopicPartition

from safeconsumer import events
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import Hold, Lifetime
from tests.harness.listing import short

HOLD = Hold(scope=scopes.topic("orders"), owner="ops", reason="deploy")
TPS = (("orders", 0), TopicPartition("orders", 1))

VALUES = {
    "at": 1.5,
    "client_id": "c",
    "group_id": "g",
    "holds": (HOLD,),
    "remaining": (HOLD,),
    "holds_on_gained": (HOLD,),
    "topics": ("orders", "audit"),
    "pattern": "re:ord.*",
    "topic": "orders",
    "seconds": 0.25,
    "reason": "a test",
    "generation": 4,
    "member_id": "m-1",
    "fetches": 2,
    "records": None,
    "bytes": 4096,
    "is_taken_over": False,
    "is_called": False,
    "is_whole": False,
    "is_left_alone": False,
}

EVERY = [
    one
    for one in (getattr(events, name) for name in events.__all__)
    if isinstance(one, type) and issubclass(one, events.Event)
]


def _sample(kind):
    return kind(**{name: VALUES.get(name, TPS) for name in kind._fields})


@pytest.mark.parametrize("kind", EVERY, ids=short)
def test_event_as_dict_is_plain_json(kind):
    """Each field is a key, and partitions are written as ``orders:3``."""
    plain = _sample(kind).as_dict()
    assert plain == json.loads(json.dumps(plain))
    assert set(plain) == set(kind._fields)
    partitions = [plain[name] for name in plain if name not in VALUES]
    assert all(value == ["orders:0", "orders:1"] for value in partitions)


def test_partition_in_a_log_line_is_a_valid_target_of_resume():
    """A topic may be named ``re``, which is also the prefix of patterns."""
    expired = events.HoldsExpired(holds=(), flowing=(("re", 3), ("orders", 1)))
    _, shown = expired.as_log_line()
    assert [*map(scopes.parse, shown["flowing"])] == [
        scopes.partition("re", 3),
        scopes.partition("orders", 1),
    ]


def test_event_names_are_unique_and_levels_are_known():
    """Log lines and metrics identify an event by its name."""
    names = [kind.name for kind in EVERY]
    assert len(set(names)) == len(names)
    assert {kind.level for kind in EVERY} <= {"debug", "info", "warning", "error"}


@pytest.mark.parametrize(
    "kind", [one for one in EVERY if one is not events.Event], ids=short
)
def test_match_args_of_an_event_name_its_fields(kind):
    event = _sample(kind)
    assert all(hasattr(event, name) for name in kind.__match_args__)
    assert kind.__match_args__


def test_example_in_the_package_docstring_runs(capsys):
    text = (events.__doc__ or "").split("::\n\n", 1)[1].split("\n\nEvery hook")[0]
    names = {}
    exec(textwrap.dedent(text), names)  # noqa: S102 - our own docstring
    hook = names["hook"]
    assert callable(hook)
    hook(events.HoldsPlaced(holds=(HOLD,), quiet=TPS))
    hook(events.HoldsExpired(holds=(HOLD,)))
    hook(_sample(events.RebalanceCompleted))
    hook(_sample(events.FetchesPurged))
    expected = ["held: orders 2 quiet", "expired: ops", "gained 2"]
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        ("app", "lift with resume('orders:3')"),
        ("ops", "lift with resume('orders:3', owner='ops')"),
        (
            "operator:jo",
            (
                "lift with safeconsumer resume --group GROUP --owner jo orders:3 "
                "--bootstrap HOST:PORT"
            ),
        ),
    ],
    ids=short,
)
def test_assigned_while_held_advises_the_call_or_command_that_lifts_the_hold(
    owner, expected
):
    hold = Hold(scope=scopes.partition("orders", 3), owner=owner)
    tps = (("orders", 3),)
    assert events.AssignedWhileHeld(holds=(hold,), partitions=tps).advice == expected
    many = events.AssignedWhileHeld(holds=(hold,) * 8, partitions=tps).advice
    assert many is not None
    assert many.endswith("; 5 more")
    assert _sample(events.HoldsPlaced).advice is None


def test_events_of_one_class_with_equal_fields_are_equal():
    """Comparison, hash, repr and pickling come from one base class of all events."""
    event = events.ControlReady(topics=("t",), holds=1, seconds=0.5, at=2.0)
    same = events.ControlReady(topics=("t",), holds=1, seconds=0.5, at=2.0)
    assert event == same
    assert hash(event) == hash(same)
    assert event != events.ControlReady(topics=("t",), holds=2, seconds=0.5, at=2.0)
    reason = {"reason": "x", "at": 2.0}
    assert events.ControlUnavailable(**reason) != events.NothingConsumed(**reason)
    assert repr(event) == (
        "ControlReady(at=2.0, client_id=None, group_id=None, topics=('t',), holds=1, "
        "seconds=0.5)"
    )
    assert pickle.loads(pickle.dumps(event)) == event  # noqa: S301 - our own data
    with pytest.raises(FrozenInstanceError):
        event.holds = 3
    with pytest.raises(FrozenInstanceError):
        del event.holds


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"holds": 1, "seconds": 0.5},
        {"topics": (), "holds": 1, "seconds": 0, "x": 1},
    ],
    ids=short,
)
def test_event_refuses_missing_and_unknown_fields(values):
    """The error lists the fields that the event accepts."""
    takes = "takes at, client_id, group_id, topics, holds, seconds; it was given "
    with pytest.raises(TypeError, match=takes + (", ".join(values) or "nothing")):
        events.ControlReady(**values)


@pytest.mark.parametrize(
    "kind", [ClassVar[str], "ClassVar[str]", "typing.ClassVar", ClassVar], ids=short
)
def test_class_variable_of_a_custom_event_is_not_a_field(kind):
    """The annotations in an event class may be strings."""
    body = {"__annotations__": {"name": kind, "bytes": "int"}, "name": "mine"}
    mine = type("Mine", (events.Event,), body)
    assert mine(bytes=3).as_dict() == {
        **dict.fromkeys(("client_id", "group_id")),
        "at": 0.0,
        "bytes": 3,
    }


OWN = Hold(scope=scopes.topic("orders"))
WHOLE = Hold(scope=scopes.topic("orders"), owner="app (all)")
LOAD = Hold(scope=scopes.ALL, owner="worker:drain")
PURGED = {"partitions": TPS, "fetches": 1}
RE = (("re", 3),)  # written as re:re:3, because re:3 would be a pattern
PLAIN = Hold(scope=scopes.partition("re", 3), lifetime=Lifetime.PLAIN)
GIVEN = {"holds": (PLAIN,), "departed": RE, "handed_over": RE}
LIFT = "lift with resume('orders', owner='ops')"

# An event class, its fields, its severity and its advice. Frequent events are "debug":
# full queues make a worker hold partitions, and most rebalances purge an empty fetch.
LINES = [
    (events.HoldsPlaced, {"holds": (LOAD,)}, "debug", None),
    (events.HoldsPlaced, {"holds": (OWN,)}, "debug", None),
    (events.HoldsPlaced, {"holds": (HOLD,)}, "info", None),
    (events.HoldsRemoved, {"holds": (LOAD,)}, "debug", None),
    (events.HoldsRemoved, {"holds": (OWN,)}, "debug", None),
    (events.HoldsRemoved, {"holds": (HOLD,)}, "info", None),
    (events.HoldsRemoved, {"holds": (OWN,), "remaining": (HOLD,)}, "info", LIFT),
    (events.StillHeld, {"holds": (HOLD,)}, "info", LIFT),
    (events.HoldsExpired, {"holds": (OWN,)}, "info", None),
    (events.HoldsEnded, GIVEN, "info", None),
    (events.AssignedWhileHeld, {"holds": (LOAD,)}, "debug", "owner='worker:drain')"),
    (events.AssignedWhileHeld, {"holds": (HOLD, LOAD)}, "warning", LIFT),
    (events.AssignedWhileHeld, {"holds": (OWN,)}, "warning", "resume('orders')"),
    (events.AssignedWhileHeld, {"holds": (WHOLE,)}, "warning", "(*assignment())"),
    (events.ControlReady, {"topics": ("o",), "holds": 2, "seconds": 0.1}, "info", None),
    (events.FetchesPurged, {"bytes": 0, "records": 0, **PURGED}, "debug", None),
    (events.FetchesPurged, {"bytes": 1, "records": 1, **PURGED}, "info", None),
]


@pytest.mark.parametrize(("kind", "fields", "severity", "advice"), LINES, ids=short)
def test_severity_and_advice_of_an_event(kind, fields, severity, advice):
    if kind is events.AssignedWhileHeld:
        fields = {"partitions": TPS, **fields}
    event = kind(**fields)
    assert event.severity == severity
    assert (event.advice is None) if advice is None else advice in event.advice


@pytest.mark.parametrize(
    ("position", "offset", "skipped", "advice"),
    [(10, 100, 90, "seek_to_beginning"), (500, 100, 0, "read before")],
)
def test_advice_for_a_position_out_of_range_depends_on_whether_it_is_below_the_log(
    position, offset, skipped, advice
):
    """A position below the log's start skips offsets; one beyond its end means truncation."""
    event = events.PositionOutOfRange(
        partition=("orders", 0), position=position, offset=offset, skipped=skipped
    )
    assert advice in (event.advice or "")

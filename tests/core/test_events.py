import json

import pytest
from attrs import evolve, fields
from attrs.exceptions import FrozenInstanceError
from kafka import TopicPartition

from safeconsumer import events
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import Hold

HOLD = Hold(scope=scopes.topic("orders"), owner="ops", reason="deploy")
TPS = (("orders", 0), TopicPartition("orders", 1))

VALUES: dict[str, object] = {
    "at": 1.5,
    "client_id": "c",
    "group_id": "g",
    "holds": (HOLD,),
    "remaining": (HOLD,),
    "bit": (HOLD,),
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
}

EVERY = [
    one
    for one in vars(events).values()
    if isinstance(one, type) and issubclass(one, events.Event)
]


def _sample(kind: type[events.Event]) -> events.Event:
    return kind(**{one.name: VALUES.get(one.name, TPS) for one in fields(kind)})


@pytest.mark.parametrize("kind", EVERY)
def test_an_event_is_ready_for_json(kind: type[events.Event]) -> None:
    """
    With a key per field, and partitions as ``orders:3``.
    """
    plain = _sample(kind).as_dict()
    assert plain == json.loads(json.dumps(plain))
    assert set(plain) == {one.name for one in fields(kind)}
    partitions = [plain[name] for name in plain if name not in VALUES]
    assert all(value == ["orders:0", "orders:1"] for value in partitions)


@pytest.mark.parametrize("kind", EVERY)
def test_an_event_never_changes(kind: type[events.Event]) -> None:
    """
    Several hooks may keep it; equal by content.
    """
    event = _sample(kind)
    with pytest.raises(FrozenInstanceError):
        event.at = 2.0  # type: ignore[misc]  # that is the test
    assert event == _sample(kind)
    assert evolve(event, at=2.0) != event


def test_every_event_has_a_name_and_a_level_of_its_own() -> None:
    """
    Log lines and metrics are told apart by it.
    """
    names = [kind.name for kind in EVERY]
    assert len(set(names)) == len(names)
    assert {kind.level for kind in EVERY} <= {"debug", "info", "warning", "error"}


@pytest.mark.parametrize(
    "value",
    [(("orders", 0),), (("orders", 0), ("audit", 1)), (("a", 0), ("b", 1), ("c", 2))],
)
def test_any_number_of_partitions_is_a_list(value: events.Partitions) -> None:
    """
    Two partitions are not taken for one.
    """
    event = events.PauseForgotten(partitions=value)
    assert event.as_dict()["partitions"] == [
        f"{topic}:{number}" for topic, number in value
    ]


def test_partitions_come_in_the_order_people_expect() -> None:
    """
    By topic, then by number and not by its digits.
    """
    mixed = [("b", 1), ("a", 10), ("a", 9)]
    assert events.sorted_partitions(mixed) == (("a", 9), ("a", 10), ("b", 1))

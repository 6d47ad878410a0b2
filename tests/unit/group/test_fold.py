"""The one fold: by offset, whatever the order and the times; tombstones are forgotten."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.group import wire
from safeconsumer.group.fold import Fold, Written, side_by_side
from safeconsumer.group.wire import ControlKey
from tests.harness.group.lab import GROUP_TOPIC, OPS, written
from tests.unit.group.patience import patient

SOURCES = {OPS: "operator", GROUP_TOPIC: "group"}


def stands(fold):
    return {(one.key.owner, one.key.scope): one.offset for one in fold.holds()}


records = st.lists(
    st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 9)), max_size=12
)


def as_log(drawn):
    return [
        written("orders", offset, held=held, owner=owner, at=float(at))
        for offset, (owner, held, at) in enumerate(drawn)
    ]


# How many records are read at once, which of its own are heard then, and if after them.
hearings = st.lists(
    st.tuples(
        st.integers(1, 4), st.lists(st.integers(0, 11), max_size=3), st.booleans()
    ),
    min_size=12,
    max_size=12,
)


@patient
@given(records, hearings)
def test_forgetting_changes_nothing(drawn, heard):
    """Its own records are heard at any time after they are written, also twice."""
    log = as_log(drawn)
    fold, plain = Fold(SOURCES), Fold(SOURCES)
    at = 0
    for count, indexes, is_after in heard:
        own = [log[index] for index in indexes if index < len(log)]
        batch = log[at : at + count]
        at += len(batch)
        for several in (batch, own) if is_after else (own, batch):
            fold.take(OPS, several)
            for one in several:
                plain.take(OPS, [one])
            if several is batch:
                fold.read_through(OPS, at)
        assert stands(fold) == stands(plain)
    last = {one.key: one for one in log}
    assert len(fold.holds()) == sum(one.value is not None for one in last.values())


def test_an_old_hold_of_its_own_is_not_held_again():
    """Written, read, lifted by an operator and forgotten; then acknowledged."""
    fold = Fold(SOURCES)
    fold.take(GROUP_TOPIC, [written("orders", 0), written("orders", 1, held=False)])
    fold.read_through(GROUP_TOPIC, 2)
    assert not fold.take(GROUP_TOPIC, [written("orders", 0)]).fresh
    assert stands(fold) == {}


def test_a_topic_made_anew_twice_begins_at_zero_twice():
    fold = Fold(SOURCES)
    for _ in range(3):
        assert fold.take(OPS, [written("orders", 4)]).fresh
        assert fold.take(OPS, [written("orders", 7, held=False)]).fresh
        fold.read_through(OPS, 8)
        fold.begin_again(OPS)
    assert fold.take(OPS, [written("orders", 0)]).fresh
    assert stands(fold) == {("alice", "orders"): 0}


def test_the_other_topic_is_not_made_anew_with_it():
    fold = Fold(SOURCES)
    before, beside = written("orders", 4), written("audit", 4)
    (one,) = fold.take(OPS, [before]).fresh
    (other,) = fold.take(GROUP_TOPIC, [beside]).fresh
    assert not fold.is_outlived(one)
    fold.begin_again(OPS)
    assert fold.is_outlived(one)
    assert not fold.is_outlived(other)
    (again,) = fold.take(OPS, [before]).fresh
    assert not fold.is_outlived(again)


def test_the_last_entry_of_a_hold():
    """What is restored after a try that failed: held, lifted, or never written."""
    fold = Fold(SOURCES)
    key = ControlKey("g", "alice", "orders")
    never = fold.last(OPS, key)
    assert (never.topic, never.key, never.hold) == (OPS, key, None)
    fold.take(OPS, [written("orders", 0, reason="old"), written("orders", 3, at=2.0)])
    (held,) = fold.holds()
    assert fold.last(OPS, key) == held
    assert held.place == (0, 3)
    assert fold.last(GROUP_TOPIC, key).hold is None
    fold.take(OPS, [written("orders", 5, held=False)])
    lifted = fold.last(OPS, key)
    assert (lifted.hold, lifted.place) == (None, (0, 5))


def test_what_stands_for_operators():
    fold = Fold(SOURCES)
    fold.take(OPS, [written("orders", 3, at=0.0, reason="r"), written("a", 4, at=2.5)])
    fold.take(GROUP_TOPIC, [written("orders", 7, group="h", at=-0.001)])
    told = [(one.source, one.key.group, one.offset, one.at) for one in fold.holds()]
    assert told == [
        ("operator", "g", 3, 0.0),
        ("operator", "g", 4, 2.5),
        ("group", "h", 7, None),
    ]
    assert [one.offset for one in fold.holds("g")] == [3, 4]
    assert [one.offset for one in fold.holds("h")] == [7]
    (reason, _) = [one.hold and one.hold.reason for one in fold.holds("g")]
    assert reason == "r"


def past(topic, *times):
    """Return records of one topic, each of another hold."""
    fold = Fold(SOURCES)
    log = [written(f"orders:{n}", n, at=time) for n, time in enumerate(times)]
    return fold.take(topic, log).fresh


def test_records_of_the_same_time_keep_the_order_of_the_topics():
    several = [*past(OPS, 7.0, 7.0), *past(GROUP_TOPIC, 7.0, 7.0)]
    assert side_by_side(several) == tuple(several)


def test_two_topics_are_merged_by_time_each_in_its_own_order():
    """A clock that went back, or a record without a time, moves nothing before it."""
    operator = past(OPS, 10.0, 5.0, -0.001, 30.0)
    group = past(GROUP_TOPIC, -0.001, 7.0, 20.0, 40.0)
    assert [one.at for one in operator] == [10.0, 5.0, None, 30.0]
    merged = side_by_side([*operator, *group])
    assert [(one.source, one.offset) for one in merged] == [
        ("group", 0),
        ("group", 1),
        ("operator", 0),
        ("operator", 1),
        ("operator", 2),
        ("group", 2),
        ("operator", 3),
        ("group", 3),
    ]
    assert side_by_side([]) == ()


def test_what_is_not_read_yet_is_not_forgotten():
    """An own tombstone is heard before the hold that it lifts is read."""
    fold = Fold(SOURCES)
    fold.take(OPS, [written("orders", 5, held=False)])
    fold.read_through(OPS, 5)
    assert not fold.take(OPS, [written("orders", 5, held=False)]).fresh
    fold.take(OPS, [written("orders", 4)])
    assert stands(fold) == {}


def test_of_a_month_only_the_last_record_of_a_hold_is_decoded(monkeypatch):
    """Each was, with its JSON: a start with 240,000 of them took 16 s and more."""
    decoded = []
    decode = wire.decode_hold

    def counted(data):
        decoded.append(data)
        return decode(data)

    monkeypatch.setattr(wire, "decode_hold", counted)
    fold = Fold(SOURCES)
    month = [written(f"t:{n % 5}", n, held=n % 2 == 0) for n in range(1_000)]
    garbage = Written(month[0].key, b"garbage", 1_000, 0)
    fold.take(OPS, [*month, garbage])
    assert len(decoded) == 6
    assert stands(fold) == {("alice", "t:1"): 996, ("alice", "t:3"): 998}


def test_ten_thousand_owners_that_came_and_went_leave_nothing():
    """A deploy's owner is new each time."""
    fold = Fold(SOURCES)

    def come_and_go(start):
        for n in range(start, start + 10_000, 100):
            owners = [f"deploy-{k}" for k in range(n, n + 100)]
            held = [written("o", 2 * n + i, owner=o) for i, o in enumerate(owners)]
            gone = [
                written("o", 2 * n + 100 + i, owner=o, held=False)
                for i, o in enumerate(owners)
            ]
            fold.take(OPS, [*held, *gone])
            fold.read_through(OPS, 2 * n + 200)

    come_and_go(0)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    come_and_go(10_000)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 100_000
    assert stands(fold) == {}

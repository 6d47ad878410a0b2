"""The audit, the members and the history command decode control records in the same way."""

import json
import math

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.audit.control import (
    Control,
    Record,
    Span,
    Topic,
    complete_since,
    control_of,
    decode,
    from_history,
    holds_of,
    place_of,
)
from safeconsumer.cli.control_topics import history_since
from safeconsumer.errors import JournalError
from safeconsumer.group import wire
from safeconsumer.group.fold import Fold, RawRecord
from safeconsumer.group.history import entries, history_document
from safeconsumer.group.topics import Facts
from tests.harness.audit.journals import MemberJournal, verdict_on
from tests.harness.chance import by_day
from tests.harness.group.lab import HOLDS

SETTINGS = {
    "min.compaction.lag.ms": "60000",
    "message.timestamp.type": "LogAppendTime",
}
FACTS = Facts(HOLDS, 1, SETTINGS)

KEYS = [
    b"1\0g\0alice\0orders",
    b"1\0g\0alice\0orders:3",
    b"1\0h\0bob\0re:ord.*",
    b"1\0g\0bob\0@all",
    b"2\0g\0alice\0orders",
    b"2\0g\0alice\0?",
    b"2\0g\0alice\0orders\0more",
    *(b"1\0g\0alice\0?", b"1\0g\0alice", b"1\0g\0 \0orders", b"1\0\0a\0orders"),
    *(b"01\0g\0a\0orders", b"0\0g\0a\0orders", b"x", b"\xff", b""),
    *(b"1\0g\0a\0orders\0more", b"1\0g\0a\n\0orders", b"1\0g\0a\0orders:-1"),
]
VALUES = [
    None,
    b'{"v":1,"id":"a"}',
    b'{"v":1,"id":"b","reason":"x","ttl_ms":3000}',
    b'{"v":1,"id":"c","ttl_ms":9000}',
    b'{"v":2,"ttl_ms":1000}',
    *(b'{"v":1}', b'{"v":1,"id":"a","ttl_ms":0}', b'{"v":1,"id":"a","ttl_ms":true}'),
    *(b'{"v":0,"id":"a"}', b'{"v":1,"id":"a","reason":"\\n"}', b"[]", b"{", b""),
    *(b'{"v":true,"id":"a"}', b'{"v":1,"id":"a","ttl_ms":999999999999999}', b"\xff"),
]

logs = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.sampled_from(VALUES),
        st.integers(0, 5),
    ),
    max_size=14,
)


def as_log(drawn):
    """Return records, each written some seconds after the previous one."""
    log = []
    at = 100
    for number, (key, value, after) in enumerate(drawn):
        at += after
        log.append(RawRecord(key, value, number, at * 1000))
    return log


def decoded(log):
    found = (decode(one.key, one.value, one.at_ms / 1000) for one in log)
    return [one for one in found if one is not None]


def history(log, group=None):
    """Return the output of ``safeconsumer history`` for these records."""
    fold = Fold()
    several = [
        record
        for one in log
        for record in fold.take((one,))[0]
        if group in {None, record.key.group}
    ]
    found = entries(several, lambda _: 0.0, 1e9)
    document = history_document(group, FACTS, found, 940.0, until=990.0, cluster="c")
    return json.dumps(document)


@by_day(50)
@given(logs)
def test_history_and_audit_find_the_same_holds(drawn):
    log = as_log(drawn)
    assert from_history("file", history(log)).spans == holds_of(decoded(log))


def test_key_of_a_later_version_names_a_separate_hold():
    """Lifting a hold that a later version placed leaves the hold of version 1 in force."""
    log = [
        RawRecord(b"1\0g\0alice\0orders", b'{"v":1,"id":"a"}', 0, 100_000),
        RawRecord(b"2\0g\0alice\0orders", None, 1, 105_000),
        RawRecord(b"2\0g\0alice\0orders\0more", b'{"v":2}', 2, 110_000),
    ]
    held = [(one.scope, one.start, one.end) for one in holds_of(decoded(log))]
    assert held == [("orders", 100.0, math.inf), ("@all", 110.0, math.inf)]
    assert from_history("file", history(log)).spans == holds_of(decoded(log))


def test_history_written_by_release_0_5_is_refused():
    """Such a history is older than any readable journal, and names holders of two topics."""
    document = json.loads(history([RawRecord(KEYS[0], VALUES[1], 0, 100_000)]))
    (record,) = document["records"]
    del record["version"], record["extra"]
    record["source"] = "operator"
    with pytest.raises(JournalError, match="not output of `safeconsumer history"):
        from_history("file", json.dumps(document))


@by_day(50)
@given(logs, st.integers(100, 180))
def test_members_and_audit_find_the_same_holds_in_force(drawn, at):
    log = as_log(drawn)
    fold = Fold()
    for one in log:
        if one.at_ms <= at * 1000:
            fold.take((one,))
    obeyed = {
        (one.key.group, one.owner, wire.encode_key(one.key))
        for one in fold.holds()
        if one.in_force(at + 0.5, 0.0)
    }
    spans = holds_of(decoded([one for one in log if one.at_ms <= at * 1000]))
    held = [one for one in spans if one.start <= at + 0.5 < one.end]
    assert len(held) == len(obeyed)
    assert {(one.group, one.holder) for one in held} == {key[:2] for key in obeyed}


def test_history_is_as_complete_as_its_least_complete_topic():
    ops = Topic("ops", "LogAppendTime", 10.0)
    assert control_of([ops, Topic("own", "LogAppendTime", 20.0)], []).since == 20.0
    found = from_history("file", history([]))
    assert found == Control(since=940.0, until=990.0, cluster="c")


HELD = b'{"v":1,"id":"a"}'
EXTENDED = b'{"v":1,"id":"a","since_ms":100000}'
ALICE, BOB = b"1\0g\0alice\0orders", b"1\0g\0bob\0orders"


@pytest.mark.contract("S5")
@pytest.mark.parametrize(
    ("records", "end", "since"),
    [
        pytest.param([], 0, 0, id="an empty topic"),
        pytest.param([(0, ALICE, HELD), (1, ALICE, None)], 2, 0, id="complete"),
        pytest.param([(0, ALICE, None)], 1, 0, id="complete, lift without a hold"),
        pytest.param([(1, BOB, HELD)], 2, 101, id="first record missing"),
        pytest.param(
            [(1, BOB, HELD), (2, BOB, None)], 3, 101, id="lifts a present hold"
        ),
        pytest.param([(1, BOB, HELD), (3, BOB, None)], 4, 103, id="two gaps"),
        pytest.param(
            [(1, BOB, HELD), (2, ALICE, None)], 3, 102, id="lifts a missing hold"
        ),
        pytest.param(
            [(1, BOB, HELD), (2, ALICE, EXTENDED)], 3, 102, id="extends a missing hold"
        ),
        pytest.param(
            [(1, BOB, HELD), (2, BOB, EXTENDED)], 3, 101, id="extends a present hold"
        ),
        pytest.param([(0, ALICE, HELD)], 2, 900, id="last record missing"),
        pytest.param(
            [(0, ALICE, HELD), (1, b"junk", b"junk"), (2, ALICE, None)],
            *(3, 0),
            id="an unreadable record is not a gap",
        ),
        pytest.param(
            [(0, ALICE, HELD), (1, None, b"{")],
            *(2, 0),
            id="the last record is unreadable",
        ),
    ],
)
def test_control_topic_is_complete_after_its_last_gap(records, end, since):
    """The audit and the history command compute the same time for any compaction lag."""
    places = [place_of(at, key, value, 100.0 + at) for at, key, value in records]
    assert complete_since(places, end, 900.0) == since
    several = [
        RawRecord(key, value, at, 100_000 + at * 1000) for at, key, value in records
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("time.time", lambda: 900.0)
        assert history_since(several, end) == since


def test_topic_that_could_not_be_read_is_not_complete():
    assert history_since([], None) > 1e9


def test_unreadable_record_does_not_count_as_a_gap():
    places = [
        place_of(number, b"x", value, 100.0)
        for number, value in enumerate((b"\xff", b"[" * 100_000, b"[]"))
    ]
    assert complete_since(places, 3, 900.0) == 0


@pytest.mark.parametrize(
    ("topic", "trouble"),
    [
        (Topic("ops", None, None), "the settings of ops are unknown"),
        (Topic("ops", "CreateTime", 1.0), "records of ops have their writers' times"),
    ],
)
def test_history_of_a_topic_without_broker_timestamps_is_reported_as_unreliable(
    topic, trouble
):
    assert trouble in control_of([topic], []).trouble


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"topics": 1}', "[{}]"])
def test_file_that_is_not_a_history_is_refused(text):
    with pytest.raises(
        JournalError, match="is not output of `safeconsumer history -o json`"
    ):
        from_history("file", text)


EVE = Span(group="g", holder="operator:eve", scope="orders", start=1000, end=1001)


@pytest.mark.parametrize("is_working", [False, True])
@pytest.mark.parametrize(
    ("control", "why"),
    [
        (None, "only the control topics show when"),
        (
            Control(group="h"),
            "eve held orders: the given history is of the group h",
        ),
        (Control(trouble="the settings of ops are unknown"), "ops are unknown"),
        (Control(since=1100.0), "complete since 1970-01-01 00:18:20Z, and the"),
        (Control(since=1000.1), "lack the hold of orders by operator:eve that entry "),
        (Control(spans=(evolve(EVE, group="h"),), since=1000.0), "lack the hold of"),
        (Control(spans=(EVE,), since=1000.0), ""),
    ],
)
def test_hold_is_not_judged_unless_the_control_topics_contain_it(
    control, why, *, is_working
):
    member = MemberJournal()
    if is_working:
        member.then("working", order="partition")
    member.assigned("orders:0")
    member.then("hold", scope="orders", owner="operator:eve", written=member.at)
    member.then("lift", scope="orders", owner="operator:eve").poll("orders:0", 0, 2)
    result = verdict_on(member, control=control)
    assert result.findings == ()
    checks = {"G2", "W10"} if is_working else {"G2"}
    assert set(result.unjudged) == (checks if why else set())
    assert all(why in cause for cause in result.unjudged.values())


def test_audit_decodes_reset_targets_as_the_history_does():
    reset = b'"reset":{"to":{"t":[[0,4],[1,7]]},"topic_ids":{},"asked":"x"}'
    log = [
        RawRecord(b"1\0g\0alice\0t", b'{"v":1,"id":"a",' + reset + b"}", 0, 1000),
        RawRecord(
            b"1\0g\0bob\0t", b'{"v":1,"id":"a","ttl_ms":9000,' + reset + b"}", 1, 1000
        ),
        RawRecord(b"1\0g\0eve\0t", b'{"v":1,"id":"a","reset":{"to":[]}}', 2, 1000),
    ]
    found = control_of([], decoded(log)).targets
    assert found == from_history("file", history(log)).targets
    assert found.keys() == {
        ("g", "operator:alice", "t:0", 4),
        ("g", "operator:alice", "t:1", 7),
    }


def test_history_names_a_reset_partition_of_a_topic_named_re_as_a_valid_target():
    value = b'{"v":1,"id":"a","reset":{"to":{"re":[[3,4]]},"topic_ids":{},"asked":"x"}}'
    log = [RawRecord(b"1\0g\0alice\0re", value, 0, 1000)]
    text = history(log)
    assert '"to": {"re:re:3": 4}' in text
    assert from_history("file", text).targets == control_of([], decoded(log)).targets


def test_reset_target_is_valid_until_its_hold_is_lifted_or_names_another_target():
    def placed(*offsets, at, is_held=True):
        targets = tuple((f"t:{number}", one) for number, one in enumerate(offsets))
        more = {"scope": "t", "covers": "t", "at": at, "is_held": is_held}
        return Record(group="g", holder="operator:eve", targets=targets, **more)

    records = [
        placed(4, 7, at=10),
        placed(4, 9, at=20),
        placed(at=30, is_held=False),
        placed(4, at=40),
    ]
    assert control_of([], records).targets == {
        ("g", "operator:eve", "t:0", 4): [(10, 30), (40, math.inf)],
        ("g", "operator:eve", "t:1", 7): [(10, 20)],
        ("g", "operator:eve", "t:1", 9): [(20, 30)],
    }

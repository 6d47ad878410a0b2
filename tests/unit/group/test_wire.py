"""Encoded control records and reports are decoded unchanged; garbage does not raise."""

import json

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.group import report_wire, wire
from safeconsumer.group.report_wire import Report
from safeconsumer.group.wire import ControlHold, ControlKey, Reset
from tests.harness.listing import short

# Only characters for which str.isprintable() is true, because a filter would reject half
# of the texts.
printable = st.text(
    st.just(" ") | st.characters(exclude_categories=["C", "Z"]), max_size=40
)
names = printable.filter(str.strip)
keys = st.builds(
    ControlKey,
    group=names,
    owner=names,
    scope=st.sampled_from(["@all", "orders", "orders:3", "re:ord.*"]),
)
topics = printable.filter(bool)
offsets = st.dictionaries(
    st.tuples(topics, st.integers(0, 2**31 - 1)),
    st.integers(0, 2**63 - 1),
    min_size=1,
    max_size=3,
)
moves = st.builds(
    Reset,
    to=offsets.map(lambda to: tuple(sorted((*tp, at) for tp, at in to.items()))),
    topic_ids=st.dictionaries(topics, printable, max_size=3).map(
        lambda ids: tuple(sorted(ids.items()))
    ),
    asked=printable,
    texts=st.dictionaries(st.tuples(topics, st.integers(0, 9)), printable).map(
        lambda texts: tuple(sorted((*tp, one) for tp, one in texts.items()))
    ),
)
holds = st.builds(
    ControlHold,
    hold_id=printable,
    reason=st.none() | printable,
    ttl_ms=st.none() | st.integers(1, wire.MAX_TTL_MS),
    host=st.none() | printable,
    principal=st.none() | printable,
    since_ms=st.none() | st.integers(0, 10**13),
)
lasting = st.builds(evolve, holds, ttl_ms=st.none(), reset=st.none() | moves)
ranges = st.dictionaries(
    topics,
    st.lists(st.integers(0, 2**31 - 1), max_size=5).map(report_wire.ranges_of),
    max_size=3,
)
counts = st.integers(0, 2**40)
reports = st.builds(
    Report,
    group=names,
    member=names,
    client_id=printable,
    host=printable,
    state=st.sampled_from(["ready", "unavailable", "stopped"]),
    at_ms=counts,
    applied=st.dictionaries(topics, counts, max_size=3),
    holds=counts,
    skipped=counts,
    assigned=ranges,
    quiet=ranges,
    gated=counts,
    is_partial=st.booleans(),
    outages=st.lists(printable, max_size=4).map(tuple),
    recreated=st.lists(printable, max_size=4).map(tuple),
    member_id=st.none() | printable,
    generation=st.none() | st.integers(-1, 2**31 - 1),
    resets=st.none() | st.lists(printable, max_size=4).map(tuple),
    busy=ranges,
)


BARE = Report(group="g", member="m", applied={}, assigned={}, quiet={})


def as_read(report):
    return report_wire.decode_report(report_wire.encode_report(report))


@given(keys)
def test_key_is_decoded_as_it_was_encoded(key):
    assert wire.decode_key(wire.encode_key(key)) == key


@given(holds | lasting)
def test_hold_is_decoded_as_it_was_encoded(hold):
    assert wire.decode_hold(wire.encode_hold(hold)) == hold


@given(reports)
def test_report_is_decoded_as_it_was_encoded(report):
    assert as_read(report) == report


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 60_000,
        b'{"v":' + b"9" * 60_000 + b"}",
        b'{"v":1,"id":"x","ttl_ms":1e9999}',
        b'{"v":1,"id":"x","ttl_ms":true}',
        b'{"v":1,"id":"x","ttl_ms":0}',
        b'{"v":1,"id":"x","reason":"two\\nlines"}',
        b'{"v":1}',
        b'{"v":true,"id":"x"}',
        b'{"v":0,"id":"x"}',
        b" " * (wire.MAX_VALUE_BYTES + 1),
        b'"v"',
    ],
    ids=short,
)
def test_invalid_hold_values_are_decoded_as_none(data):
    assert wire.decode_hold(data) is None


RESET = {"to": {"t": [[0, 4]]}, "topic_ids": {"t": "id"}, "asked": "4"}


@pytest.mark.parametrize(
    "document",
    [
        [],
        {**RESET, "to": {}},
        {**RESET, "to": {"t": []}},
        {**RESET, "to": {"t": [[0, -1]]}},
        {**RESET, "to": {"t": [[0, 4], [True, 4]]}},
        {**RESET, "to": {"t": [[0]]}},
        {**RESET, "to": {"t": {"0": 4}}},
        {**RESET, "topic_ids": {"t": 7}},
        {**RESET, "topic_ids": None},
    ],
    ids=short,
)
def test_partly_unreadable_reset_is_ignored(document):
    """The hold with such a reset is still in force."""
    value = json.dumps({"v": 1, "id": "x", "reset": document}).encode()
    assert wire.decode_hold(value) == ControlHold("x")


@pytest.mark.parametrize(
    "texts", [7, {"-2": 7}, {"-2": {"t": [True]}}, {"\n": {"t": [0]}}], ids=short
)
def test_unreadable_target_texts_of_a_reset_are_ignored(texts):
    document = {**RESET, "asked": "", "texts": texts}
    value = json.dumps({"v": 1, "id": "x", "reset": document}).encode()
    expected = Reset((("t", 0, 4),), (("t", "id"),))
    assert wire.decode_hold(value) == ControlHold("x", reset=expected)


def test_single_target_text_applies_to_every_partition():
    """Versions before 0.9 write only one target text for all partitions."""
    value = json.dumps({"v": 1, "id": "x", "reset": RESET}).encode()
    assert wire.decode_hold(value).reset.typed() == {("t", 0): "4"}


def test_reset_in_a_hold_with_a_time_limit_is_ignored():
    value = json.dumps({"v": 1, "id": "x", "ttl_ms": 5, "reset": RESET}).encode()
    assert wire.decode_hold(value) == ControlHold("x", ttl_ms=5)


def test_value_written_by_a_later_version_counts_as_a_hold_without_a_time_limit():
    data = b'{"v":7,"reason":"new","ttl_ms":5,"more":[1]}'
    assert wire.decode_hold(data) == ControlHold(reason="new", version=7)


def test_key_of_a_later_version_is_decoded_with_its_scope():
    """A later version's key may have additional fields after the known fields."""
    expected = ControlKey("g", "o", "orders", ("x", "y"), 3)
    assert wire.decode_key(b"3\0g\0o\0orders\0x\0y") == expected


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1",
        b"1\0g\0o",
        b"1\0\0o\0s",
        b"1\0g\0 \0s",
        b"1\0g\0o\0",
        b"0\0g\0o\0s",
        b"01\0g\0o\0s",
        b"x\0g\0o\0s",
        b"1\0g\0o\0s\0more",
        b"1\0g\n\0o\0s",
        b"1\0g\0o\0" + b"s" * wire.MAX_KEY_BYTES,
    ],
    ids=short,
)
def test_invalid_keys_are_decoded_as_none(data):
    assert wire.decode_key(data) is None


@pytest.mark.parametrize(
    "lines", [None, 3, "text", {"a": 1}, ["\x1b[31m", 3, "x" * 401]], ids=short
)
def test_invalid_lines_about_outages_are_ignored(lines):
    document = json.loads(report_wire.encode_report(BARE))
    read = report_wire.decode_report(
        json.dumps({**document, "outages": lines}).encode()
    )
    assert read is not None
    assert read.outages == ()


def test_lines_about_outages_are_limited_in_number_and_length():
    read = as_read(evolve(BARE, outages=("x" * 2000,) * 100))
    assert read is not None
    assert [len(one) for one in read.outages] == [400] * 4


@pytest.mark.parametrize("topics", [2_000, 10_000])
def test_report_that_is_too_large_omits_its_partitions(topics):
    many = {f"team.orders.{one:05}.v1": ((0, 5), (7, 9)) for one in range(topics)}
    is_partial = topics > 2_000
    read = as_read(evolve(BARE, holds=4, assigned=many, quiet=many))
    assert read is not None
    assert (read.is_partial, read.holds) == (is_partial, 4)
    assert dict(read.assigned) == ({} if is_partial else many)


@pytest.mark.parametrize(
    "name", ["nightly\tload", "a\nb", "a\u00a0b", "\ud800"], ids=short
)
def test_unprintable_name_does_not_make_a_report_unreadable(name):
    """Earlier versions write unprintable names unchanged."""
    made = evolve(BARE, member=name, client_id=name, busy={"orders": ((0, 0),)})
    document = json.loads(report_wire.encode_report(made))
    assert document["client_id"].isprintable()
    plain = {**document, "client_id": name, "member": name, "host": name}
    for data in (report_wire.encode_report(made), json.dumps(plain).encode()):
        read = report_wire.decode_report(data)
        assert read is not None
        assert dict(read.busy) == {"orders": ((0, 0),)}
        assert read.client_id.isprintable()
        assert read.member.isprintable()


UNPRINTABLE = ["\ud800", "\x1b[31m", "", "x" * 250]


@pytest.mark.parametrize("topic", UNPRINTABLE, ids=short)
@pytest.mark.parametrize("name", ["applied", "assigned", "quiet"])
def test_report_with_an_invalid_topic_is_decoded_as_none(topic, name):
    """Commands and pages print topic names."""
    document = json.loads(report_wire.encode_report(BARE))
    value = 7 if name == "applied" else [[0, 1]]
    data = json.dumps({**document, name: {topic: value}}).encode()
    assert report_wire.decode_report(data) is None


@pytest.mark.parametrize("topic", UNPRINTABLE, ids=short)
@pytest.mark.parametrize("name", ["to", "topic_ids"])
def test_reset_that_names_an_invalid_topic_is_ignored(topic, name):
    value = [[0, 4]] if name == "to" else "id"
    document = {**RESET, name: {topic: value}}
    data = json.dumps({"v": 1, "id": "x", "reset": document}).encode()
    assert wire.decode_hold(data) == ControlHold("x")


def test_report_without_a_version_is_decoded_as_none():
    document = json.loads(report_wire.encode_report(BARE))
    assert document.pop("v") == wire.VERSION
    assert report_wire.decode_report(json.dumps(document).encode()) is None


def test_report_of_too_many_partitions_is_decoded_as_none():
    """Counting the partitions would take an hour."""
    assert as_read(evolve(BARE, quiet={"t": ((0, 2**31 - 1),)})) is None


@pytest.mark.parametrize("host", [1, None, "bell\x07", "x" * 256, ["a"]], ids=short)
def test_invalid_host_or_principal_is_ignored_and_the_hold_is_kept(host):
    data = json.dumps({"v": 1, "id": "a", "reason": None, "host": host, "principal": 2})
    assert wire.decode_hold(data.encode()) == ControlHold("a")


def test_unknown_fields_of_a_later_version_are_ignored():
    hold = ControlHold("a", "why", 5, host="build7", principal="User:alice")
    known = json.loads(wire.encode_hold(ControlHold("a", "why", 5)))
    document = json.loads(wire.encode_hold(hold))
    assert {**document, **known} == document
    assert wire.decode_hold(
        json.dumps({**known, "later": [1]}).encode()
    ) == ControlHold("a", "why", 5)

"""When a transaction's end counts, and what no end brings back."""

import pytest

from safeconsumer.testing import _codes
from tests.harness.testing.asking import cluster_of
from tests.harness.testing.requests import (
    Writer,
    commit,
    committed,
    in_kit,
    writer_in,
)

GROUP = "g"
ENDED = 10.0  # seconds after which a transaction's end is written everywhere


def test_an_end_is_acknowledged_before_it_counts():
    """Who asks for offsets in between has the old one, unless it asks for stable ones."""
    cluster, clock = cluster_of()
    place = in_kit(cluster, clock)
    writer = writer_in(place)
    log, place_of = cluster.log(writer.topic, 0), (place, GROUP, writer.topic)
    cluster.transactions.end_takes = ENDED
    commit(*place_of, 1)
    told = [writer.adds(), writer.writes(), writer.adds_offsets(GROUP)]
    told += [writer.commits_offset(GROUP, 5), writer.ends(is_committed=True)]
    assert told == [_codes.NONE] * 5
    assert (log.stable_end, committed(*place_of)) == (1, 1)
    assert committed(*place_of, is_stable=True) == -_codes.UNSTABLE_OFFSET_COMMIT
    concurrent = _codes.CONCURRENT_TRANSACTIONS
    assert writer.adds() == writer.adds_offsets(GROUP) == concurrent
    assert writer.ends(is_committed=True) == concurrent
    assert writer.ends(is_committed=False) == _codes.INVALID_TXN_STATE
    assert Writer(place, writer.topic, writer.id).begins() == concurrent
    clock.pass_(ENDED)
    assert (log.stable_end, committed(*place_of, is_stable=True)) == (3, 5)
    assert writer.ends(is_committed=True) == writer.adds() == _codes.NONE


def test_who_begins_anew_aborts_what_is_open_and_comes_again():
    """As in Kafka: the fence is there at once, the end of the abort is waited for."""
    cluster, clock = cluster_of()
    old = writer_in(in_kit(cluster, clock))
    new = Writer(old.place, old.topic, old.id)
    assert [old.adds(), old.writes()] == [_codes.NONE] * 2
    assert new.begins() == _codes.CONCURRENT_TRANSACTIONS
    assert old.ends(is_committed=True) == _codes.PRODUCER_FENCED
    clock.pass_(1)
    assert new.begins() == _codes.NONE
    assert [one.first for one in cluster.log(old.topic, 0).aborted] == [1]


@pytest.mark.parametrize("gone", ["topic", "group"])
def test_what_was_deleted_is_not_committed_by_a_transaction(gone):
    """A topic of the same name would begin in its middle."""
    cluster, clock = cluster_of()
    writer = writer_in(in_kit(cluster, clock))
    assert writer.adds_offsets(GROUP) == writer.commits_offset(GROUP, 5) == 0
    if gone == "topic":
        cluster.delete_topic(writer.topic)
        cluster.create_topic(writer.topic)
    else:
        cluster.offsets.forget_group(GROUP)
    writer.ends(is_committed=True)
    clock.pass_(1)
    assert cluster.committed(GROUP) == {}


def test_deleted_records_leave_later_aborts_known():
    """A reader of committed records would be given the rest of an aborted transaction."""
    cluster, clock = cluster_of()
    writer = writer_in(in_kit(cluster, clock))
    log = cluster.log(writer.topic, 0)
    for _ in range(2):
        writer.adds()
        writer.writes()
        writer.ends(is_committed=False)
        clock.pass_(1)
    assert [(one.first, one.last) for one in log.aborted] == [(1, 2), (3, 4)]
    log.delete_before(3)
    assert [(one.first, one.last) for one in log.aborted] == [(3, 4)]

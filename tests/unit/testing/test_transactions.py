"""Tests when the end of a transaction takes effect, and which offsets it affects."""

import pytest

from safeconsumer.testing import _codes
from safeconsumer.testing._nodes import TRANSACTION
from tests.harness.testing.asking import cluster_of
from tests.harness.testing.requests import (
    Writer,
    commit,
    committed,
    in_kit,
    writer_in,
)

GROUP = "g"
ENDED = 10.0  # seconds until a transaction's end has been written to all partitions


def test_end_of_a_transaction_is_acknowledged_before_it_takes_effect():
    """Until then, OffsetFetch returns the old offset, or an error with require_stable."""
    cluster, clock = cluster_of()
    place = in_kit(cluster, clock)
    writer = writer_in(place)
    log, place_of = cluster.log(writer.topic, 0), (place, GROUP, writer.topic)
    cluster.transactions.end_takes = ENDED
    commit(*place_of, 1)
    errors = [writer.adds(), writer.writes(), writer.adds_offsets(GROUP)]
    errors += [writer.commits_offset(GROUP, 5), writer.ends(is_committed=True)]
    assert errors == [_codes.NONE] * 5
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


def test_new_producer_aborts_the_open_transaction_and_must_retry():
    """As in Kafka, the old producer is fenced immediately, and the abort completes later."""
    cluster, clock = cluster_of()
    old = writer_in(in_kit(cluster, clock))
    new = Writer(old.place, old.topic, old.id)
    assert [old.adds(), old.writes()] == [_codes.NONE] * 2
    assert new.begins() == _codes.CONCURRENT_TRANSACTIONS
    assert old.ends(is_committed=True) == _codes.PRODUCER_FENCED
    clock.pass_(1)
    assert new.begins() == _codes.NONE
    assert [one.first for one in cluster.log(old.topic, 0).aborted] == [1]


def test_transaction_that_exceeds_its_timeout_is_aborted_and_its_producer_fenced():
    """Without the fence, the producer would start another transaction and miss the abort."""
    cluster, clock = cluster_of()
    writer = writer_in(in_kit(cluster, clock))
    assert [writer.adds(), writer.writes()] == [_codes.NONE] * 2
    clock.pass_(61)
    clock.pass_(1)
    assert [one.first for one in cluster.log(writer.topic, 0).aborted] == [1]
    assert writer.adds() == writer.ends(is_committed=True) == _codes.PRODUCER_FENCED


def test_broker_that_is_not_the_coordinator_of_a_transaction_refuses_its_requests():
    cluster, clock = cluster_of()
    writer = writer_in(in_kit(cluster, clock))
    cluster.nodes.move_coordinator(TRANSACTION, writer.id, 2)
    errors = [writer.adds(), writer.adds_offsets(GROUP), writer.ends(is_committed=True)]
    assert errors == [_codes.NOT_COORDINATOR] * 3


@pytest.mark.parametrize("gone", ["topic", "group"])
def test_transaction_does_not_commit_offsets_for_a_deleted_topic_or_group(gone):
    """Otherwise a group could start at a wrong offset of a new topic of the same name."""
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


def test_deletion_of_records_keeps_the_list_of_later_aborted_transactions():
    """Otherwise a reader with ``read_committed`` would get aborted records."""
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

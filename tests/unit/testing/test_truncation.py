"""Tests the readers of a log that lost records in an unclean election."""

import pytest

from safeconsumer.testing import _codes
from safeconsumer.testing._leader_epochs import LeaderEpochs
from tests.harness.testing.asking import (
    batch,
    fetch,
    records_in,
    with_topic,
)
from tests.harness.testing.requests import fetched


def truncated(offset):
    """Return a cluster with a truncated topic ``t``, which had 10 records in two batches."""
    cluster, client = with_topic()
    for first in (0, 5):
        cluster.append("t", 0, [b"%d" % number for number in range(first, first + 5)])
    cluster.truncate("t", 0, offset)
    return cluster, client


@pytest.mark.parametrize("offset", [0, 3, 5, 10], ids=lambda one: f"at-{one}")
def test_records_below_the_truncation_stay_and_new_records_follow(offset):
    cluster, client = truncated(offset)
    assert cluster.append("t", 0, [b"new"]) == offset
    records = records_in(client.ask(fetch((0, 0), all_room=10**6), 11))
    kept = [(number, b"%d" % number) for number in range(offset)]
    assert records == [*kept, (offset, b"new")]


def test_reader_beyond_the_truncation_gets_the_diverging_epoch():
    cluster, client = truncated(5)
    cluster.append("t", 0, 10)
    answer = client.ask(fetch((0, 10), last_epoch=0), 12)
    assert fetched(answer) == (_codes.NONE, (0, 5), (0, 15), [])


def test_reader_with_the_old_leader_epoch_is_fenced():
    _, client = truncated(5)
    answer = client.ask(fetch((0, 5), epoch=0), 12)
    assert fetched(answer)[0] == _codes.FENCED_LEADER_EPOCH


def test_waiting_fetch_is_answered_when_the_log_is_truncated():
    cluster, client = with_topic()
    cluster.append("t", 0, 10)
    client.send(fetch((0, 10), wait=60_000, last_epoch=0), 12)
    assert client.answers == []
    cluster.truncate("t", 0, 5)
    assert fetched(client.answers[0])[1] == (0, 5)


def test_producer_can_repeat_a_truncated_batch():
    """The new leader knows only the producer's batches that are in its log."""
    cluster, client = with_topic()
    numbered = [
        batch(b"v", producer_id=7, producer_epoch=0, base_sequence=one)
        for one in range(2)
    ]
    assert [client.produce("t", one).base_offset for one in numbered] == [0, 1]
    cluster.truncate("t", 0, 1)
    assert client.produce("t", numbered[1]).base_offset == 1
    assert cluster.log("t", 0).end == 2


def test_transaction_with_a_truncated_end_is_open_again():
    cluster, client = with_topic()
    log = cluster.log("t", 0)
    cluster.append("t", 0, 1)
    cluster.transactions.check_part = lambda *_: None
    client.produce(
        "t",
        batch(
            b"v",
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        ),
    )
    log.end_transaction(7, 0, 0, is_committed=False)
    assert (log.stable_end, len(log.aborted)) == (3, 1)
    cluster.truncate("t", 0, 2)
    assert (log.stable_end, len(log.aborted)) == (1, 0)


@pytest.mark.parametrize(
    ("epoch", "found"),
    [
        (-1, (-1, -1)),
        (0, (0, 5)),
        (1, (0, 5)),  # the leader in this epoch wrote no records
        (2, (2, 8)),
        (3, (3, 12)),
        (4, (-1, -1)),
    ],
)
def test_leader_epoch_ends_at_the_first_record_of_a_later_epoch(epoch, found):
    epochs = LeaderEpochs()
    for start in (5, 5, 8):
        epochs.begin(start)
    assert epochs.end_of(epoch, 12) == found


def test_leader_epoch_whose_records_were_deleted_ends_at_the_log_start():
    epochs = LeaderEpochs()
    for start in (5, 8):
        epochs.begin(start)
    epochs.delete_before(6)
    assert (epochs.oldest, epochs.end_of(0, 12)) == (1, (0, 6))
    epochs.delete_before(3)
    assert epochs.oldest == 1

"""Tests commits with a journal's note on a broker that refuses notes."""

from types import SimpleNamespace

import pytest
from kafka.errors import OffsetMetadataTooLargeError
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._kafka.network import LoopFuture
from safeconsumer._kafka.pausing.commits import OwnedOffsets
from safeconsumer._kafka.pausing.notes import Notes
from safeconsumer.errors.kafka_python import NotOwnedError

T = TopicPartition("t", 0)


class Broker:
    """A broker that responds to commits with the given errors, in turn."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.sent = []
        self.notes = Notes(SimpleNamespace(create_future=LoopFuture))

    def commit(self, note, answer=None):
        """Start a commit; return its coroutine if it waits for its turn or a response."""
        offsets = {T: OffsetAndMetadata(7, "", -1)}
        commit = OwnedOffsets(offsets, {}, None, {})
        commit.note = note

        async def send():
            self.sent.append(commit[T].metadata)
            if answer is not None:
                await answer
            if self.errors and (error := self.errors.pop(0)) is not None:
                raise error

        waiting = self.notes.send(commit, send)
        return waiting if is_waiting(waiting) else None


def is_waiting(coroutine):
    try:
        coroutine.send(None)
    except StopIteration:
        return False
    return True


def test_commit_refused_for_another_reason_is_not_sent_again_without_its_note():
    broker = Broker(OffsetMetadataTooLargeError(), NotOwnedError("lost meanwhile"))
    with pytest.raises(NotOwnedError):
        broker.commit("a#1")
    broker.commit("a#3")
    assert broker.sent == ["a#1", "", "a#3"]


@pytest.mark.parametrize(
    ("note", "forgets", "sent"),
    [
        ("a#2", False, ["a#1", "a#2", "a#3"]),
        ("a#10", False, ["a#1", "a#10"]),
        ("a#2", True, ["a#1", "a#2"]),
    ],
    ids=["as-long", "longer", "another-broker"],
)
def test_commit_waits_for_an_earlier_commit_with_a_longer_note(note, forgets, sent):
    broker, answer = Broker(), LoopFuture()
    broker.commit("a#1")
    if forgets:
        broker.notes.forget()
    first = broker.commit(note, answer)
    second = broker.commit("a#3")
    assert broker.sent == sent
    answer.success(None)
    waiting = [one for one in (first, second) if one is not None]
    assert [is_waiting(one) for one in waiting] == [False] * len(waiting)
    assert broker.sent == ["a#1", note, "a#3"]

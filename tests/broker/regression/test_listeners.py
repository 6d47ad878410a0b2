"""What a rebalance listener may do, and what it sees."""

from typing import Any

import pytest
from kafka import AsyncConsumerRebalanceListener, OffsetAndMetadata
from kafka.structs import TopicPartition

from tests.broker.regression.groups import group
from tests.harness.regression.choices import HOWS, PROTOCOLS, PROTOCOLS_AND_HOWS
from tests.harness.regression.lab import Lab
from tests.harness.regression.members import InListener
from tests.harness.regression.support import delivered, wait_until

pytestmark = pytest.mark.any_broker


class InAsyncListener(AsyncConsumerRebalanceListener):
    """A listener of coroutines around one function."""

    def __init__(self, assigned: Any) -> None:  # noqa: ANN401 - a function
        self.assigned = assigned

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.assigned(set(assigned))

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        del revoked


LISTENERS: dict[str, Any] = {"sync": InListener, "async": InAsyncListener}


@pytest.mark.contract("P7")
@pytest.mark.parametrize(("assignor", "how"), PROTOCOLS_AND_HOWS)
@pytest.mark.parametrize("kind", LISTENERS)
def test_pause_seek_and_resume_in_a_listener_stand(
    lab: Lab, client: str, kind: str, assignor: str, how: str
) -> None:
    """What the listener paused is quiet at once, and starts where it sought."""
    topic, tps = lab.topic_with(each=10, partitions=3)
    paused, sought, resumed = tps
    reader = lab.reader(client, group=lab.name("g"), assignor=assignor, how=how)
    consumer = reader.consumer

    def assigned(partitions: set[TopicPartition]) -> None:
        if not partitions:
            return  # a first join may come before the topic's metadata
        consumer.pause(paused, resumed)
        consumer.seek(sought, 7)
        consumer.seek(paused, 4)
        consumer.resume(resumed)

    consumer.subscribe([topic], listener=LISTENERS[kind](assigned=assigned))
    reader.until_joined(reader.owns(tps))
    before = delivered(reader.log, [sought])
    reader.drain({sought: range(7 + before, 10)})
    reader.reaches(lambda: delivered(reader.log, [resumed]) == 10)
    assert delivered(reader.log, [paused]) == 0
    assert consumer.position(paused) == 4
    assert consumer.paused() == {paused}
    consumer.resume(paused)
    reader.drain({paused: range(4, 10)})


@pytest.mark.parametrize("assignor", PROTOCOLS)
def test_paused_does_not_list_what_is_being_revoked(
    lab: Lab, client: str, assignor: str
) -> None:
    """Partitions that wait for their revocation are no pause of the user's."""
    here = group(lab, client, assignor=assignor)
    consumer = here.reader.consumer
    seen: list[set[TopicPartition]] = []
    listener = InListener(
        revoked=lambda _tps: seen.append(set(consumer.paused())),
        assigned=lambda _tps: seen.append(set(consumer.paused())),
    )
    consumer.subscribe([here.topic, here.witness.topic], listener=listener)
    consumer.pause(*here.witnesses)
    here.ghost()
    assert seen
    assert all(paused <= set(here.witnesses) for paused in seen)


@pytest.mark.parametrize("assignor", PROTOCOLS)
def test_an_asynchronous_commit_on_revocation_does_not_hang(
    lab: Lab, client: str, assignor: str
) -> None:
    """``commit_async`` in the listener works, paused partitions included."""
    here = group(lab, client, assignor=assignor)
    consumer = here.reader.consumer
    answers: list[tuple[Any, Any]] = []

    def commit(revoked: set[TopicPartition]) -> None:
        # Named one by one: a cooperative rebalance has already taken them away, and a
        # commit without offsets is one of what is assigned.
        taken = here.taken()
        offsets = {
            tp: OffsetAndMetadata(taken[tp], "", -1) for tp in revoked & set(here.tps)
        }
        if offsets:
            consumer.commit_async(offsets, lambda *answer: answers.append(answer))

    topics = [here.topic, here.witness.topic]
    consumer.subscribe(topics, listener=InListener(revoked=commit))
    here.reader.take(7)
    here.pause()
    here.ghost()
    here.reader.until(lambda: answers)
    offsets, answer = answers[0]
    assert not isinstance(answer, Exception)
    taken = here.taken()
    assert set(offsets) >= set(here.tps) - here.mine()
    assert {tp: consumer.committed(tp) for tp in offsets} == {
        tp: taken[tp] for tp in offsets
    }


@pytest.mark.contract("P12")
def test_a_commit_in_a_listener_is_refused_with_what_works(
    lab: Lab, client: str
) -> None:
    """It cannot work on the IO thread; the error says so, and polling goes on."""
    here = group(lab, client)
    errors: list[Exception] = []

    def commit(_tps: set[TopicPartition]) -> None:
        try:
            here.reader.consumer.commit()
        except RuntimeError as error:
            errors.append(error)

    topics = [here.topic, here.witness.topic]
    here.reader.consumer.subscribe(topics, listener=InListener(revoked=commit))
    ghost = here.ghost()
    ghost.stop()
    here.reader.until(here.alone())
    assert errors
    lab.beats(here.reader, here.witness)
    assert all("commit_async" in str(error) for error in errors)


@pytest.mark.parametrize("how", HOWS)
def test_close_in_the_middle_of_a_batch(lab: Lab, client: str, how: str) -> None:
    """Half-read and parked batches do not keep a consumer from closing."""
    here = group(lab, client, how=how, taking=5)
    consumer = here.reader.consumer
    consumer.pause(*here.tps[:2])
    here.reader.round(limit=1)
    consumer.close(timeout_ms=5000)
    survivor = here.start_ghost()
    wait_until(lambda: survivor.consumer.assignment() >= set(here.tps))


@pytest.mark.parametrize("assignor", PROTOCOLS)
def test_a_listener_that_raises_once_forgets_no_pause(
    lab: Lab, client: str, assignor: str
) -> None:
    """``poll`` raises once, and what was paused and kept is still paused."""
    here = group(lab, client, assignor=assignor)
    consumer = here.reader.consumer
    failures = [ValueError("once")]

    def fail(_tps: set[TopicPartition]) -> None:
        if failures:
            raise failures.pop()

    topics = [here.topic, here.witness.topic]
    consumer.subscribe(topics, listener=InListener(assigned=fail, revoked=fail))
    here.pause()
    ghost = here.start_ghost()
    with pytest.raises(Exception, match="rebalance callback"):
        here.reader.until(here.shared_with(ghost))
    here.reader.until(here.shared_with(ghost))
    kept = here.mine()
    assert here.leaked(kept) == 0
    assert kept <= consumer.paused()

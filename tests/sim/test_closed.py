"""Calls on a closed consumer, and a consumer that is dropped without ``close``."""

import gc
import weakref

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import IllegalStateError
from kafka.structs import OffsetAndMetadata

from safeconsumer import Lifetime, SafeConsumer, SafeConsumerError
from safeconsumer.errors import ConsumerClosedError, HoldSettingError
from tests.sim.group.operating import CONTROL, Operator
from tests.sim.reading import Reader

P0 = TopicPartition("t", 0)
AT = OffsetAndMetadata(1, "", -1)

NEEDS_THE_NETWORK = {
    "assign": lambda consumer: consumer.assign([TopicPartition("u", 0)]),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([P0]),
    "bootstrap": lambda consumer: consumer.bootstrap(),
    "commit": lambda consumer: consumer.commit({P0: AT}),
    "commit_async": lambda consumer: consumer.commit_async({P0: AT}),
    "committed": lambda consumer: consumer.committed(P0),
    "end_offsets": lambda consumer: consumer.end_offsets([P0]),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({P0: 1}),
    "partitions_for_topic": lambda consumer: consumer.partitions_for_topic("new"),
    "subscribe": lambda consumer: consumer.subscribe(["t"]),
    "topics": lambda consumer: consumer.topics(),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
}
ANSWERED = {
    "close": lambda consumer: consumer.close(),
    "holds": lambda consumer: consumer.holds(),
    "partitions_for_topic": lambda consumer: consumer.partitions_for_topic("t"),
    "pause": lambda consumer: consumer.pause(P0),
    "paused": lambda consumer: consumer.paused(),
    "quiet": lambda consumer: consumer.quiet(),
    "resume": lambda consumer: consumer.resume(P0),
    "subscription": lambda consumer: consumer.subscription(),
    # a SIGTERM handler may run after close()
    "wakeup": lambda consumer: consumer.wakeup(),
}


@pytest.mark.parametrize("is_automatic", [True, False])
@pytest.mark.parametrize("is_member", [True, False])
def test_call_on_a_closed_consumer_raises_consumer_closed_error(
    lab, *, is_member, is_automatic
):
    """``RuntimeError``, which kafka-python raises, is one of the error's base classes."""
    lab.topic("t", 1, records=3)
    how = {"group_id": "g", "enable_auto_commit": is_automatic}
    topics, tps = (("t",), ()) if is_member else ((), (P0,))
    reader = Reader(lab, SafeConsumer, *topics, tps=tps, **how)
    reader.take(3)
    reader.consumer.close()
    for name, call in NEEDS_THE_NETWORK.items():
        with pytest.raises(ConsumerClosedError) as caught:
            call(reader.consumer)
        assert name in str(caught.value), name
        assert isinstance(caught.value, (SafeConsumerError, RuntimeError)), name
        assert isinstance(caught.value, IllegalStateError), name
    if not is_member:
        assert reader.consumer.position(P0) == 3
    with pytest.raises(IllegalStateError, match="closed"):
        reader.consumer.poll(10)
    for call in ANSWERED.values():
        call(reader.consumer)


def test_pause_on_a_closed_consumer_checks_its_arguments_and_holds_nothing(lab):
    lab.topic("t", 1, records=3)
    reported = []
    reader = Reader(lab, SafeConsumer, tps=[P0], hooks=[reported.append])
    consumer = reader.consumer
    consumer.close()
    reported.clear()
    consumer.pause(P0)
    consumer.pause("t", owner="ops", lifetime=Lifetime.UNTIL_RESUMED)
    consumer.pause_all()
    with consumer.held("t"):
        assert consumer.holds() == ()
    assert (consumer.resume(P0), consumer.paused(), consumer.quiet()) == (
        (),
        set(),
        set(),
    )
    assert reported == []
    with pytest.raises(HoldSettingError):
        consumer.pause(P0, for_=-1)


# ------------------------------------------------------------ dropped without close()

WAYS = {
    "stock": (KafkaConsumer, {}),
    "plain": (SafeConsumer, {}),
    "handover": (SafeConsumer, {"pause_handover": "assignor"}),
    "journal": (SafeConsumer, {"journal": "journal"}),
    "control": (SafeConsumer, {"control": CONTROL}),
}


@pytest.mark.contract("P13")
@pytest.mark.parametrize("how", ["poll", "iterate"])
@pytest.mark.parametrize("way", WAYS)
def test_consumer_dropped_without_close_is_garbage_collected(lab, way, how, tmp_path):
    """The thread and sockets stay, but refer to no object that the program got."""
    Operator(lab)
    tps = lab.topic("t", 2, records=20)
    kind, settings = WAYS[way]
    if "journal" in settings:
        settings = {"journal": tmp_path}
    reader = Reader(lab, kind, "t", how=how, **settings)
    reader.take(15)  # the consumer is in the middle of an iteration
    reader.consumer.pause(tps[0])
    dropped = weakref.ref(reader.consumer)
    del reader
    gc.collect()
    assert dropped() is None

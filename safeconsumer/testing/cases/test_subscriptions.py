"""Tests changed subscriptions, and topics that are deleted and recreated."""

from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.quiet import pause
from safeconsumer.testing.cases.team import team

PART = "Over changed subscriptions"


def test_paused_consumer_unsubscribes_and_resubscribes(lab: Lab) -> None:
    """
    Paused partitions stay paused through unsubscribe() and subscribe().

    kafka-python (3.0, 2.3) and aiokafka forget the pause, as documented for the Java
    client. With safeconsumer, a plain pause ends as well, but a strict pause stays in
    force. confluent-kafka passes.
    """
    here = team(lab)
    paused = here.pause(how="named")
    here.consumer.unsubscribe()
    here.consumer.subscribe(here.topic, here.witness.topic)
    here.regain()
    here.beat()
    paused.prove()


def test_paused_topic_is_unsubscribed_and_resubscribed(lab: Lab) -> None:
    """
    A paused topic that is unsubscribed and subscribed again is still paused.

    kafka-python (3.0, 2.3) and aiokafka forget the pause, as documented for the Java
    client. confluent-kafka passes.
    """
    here = team(lab)
    paused = here.pause()
    here.consumer.subscribe(here.witness.topic)
    here.consumer.owns({here.witness}, "only the other topic")
    here.beat()
    here.consumer.subscribe(here.topic, here.witness.topic)
    here.regain()
    here.beat()
    paused.prove()


def test_paused_topic_deleted_and_recreated(lab: Lab) -> None:
    """
    A paused topic that is deleted and recreated is still paused.

    kafka-python (3.0, 2.3) and aiokafka forget the pause, as documented for the Java
    client. confluent-kafka passes.
    """
    # Subscribe by pattern, because a request for a topic by name may create the topic.
    stem = lab.name("again")
    tps = lab.topic(4, f"{stem}-goes")
    (witness,) = lab.topic(1, f"{stem}-stays")
    consumer = lab.consumer(lab.name("g"))
    consumer.subscribe_pattern(f"{stem}.*")
    consumer.owns({*tps, witness}, "the first assignment")
    paused = pause(lab, consumer, tps)
    lab.drop(tps)
    consumer.owns({witness}, "the topic is gone")
    lab.topic(len(tps), tps[0].topic)
    consumer.owns({*tps, witness}, "the new topic")
    lab.produce(tps, 20)
    lab.beat(consumer, witness)
    paused.prove()

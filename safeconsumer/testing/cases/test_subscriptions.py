"""Changed subscriptions, and topics that are deleted and recreated."""

from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.quiet import pause
from safeconsumer.testing.cases.team import team

PART = "Over changed subscriptions"


def test_paused_consumer_unsubscribed_and_back(lab: Lab) -> None:
    """
    Paused partitions are still paused after unsubscribe() and subscribe().

    kafka-python 3.0, 2.3 and aiokafka forget the pause, as the Java client documents.
    A plain pause of safeconsumer ends there as well, and a strict one stays.
    confluent-kafka passes.
    """
    here = team(lab)
    paused = here.pause(how="named")
    here.consumer.unsubscribe()
    here.consumer.subscribe(here.topic, here.witness.topic)
    here.regain()
    here.beat()
    paused.prove()


def test_paused_topic_unsubscribed_and_back(lab: Lab) -> None:
    """
    A paused topic is unsubscribed and subscribed again: it is still paused.

    kafka-python 3.0, 2.3 and aiokafka forget the pause, as the Java client documents.
    confluent-kafka passes.
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


def test_topic_created_again(lab: Lab) -> None:
    """
    A paused topic is deleted and recreated: it is still paused.

    kafka-python 3.0, 2.3 and aiokafka forget the pause, as the Java client documents.
    confluent-kafka passes.
    """
    # By pattern: a consumer that asks for a topic by name may have it created.
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

"""The cost of a call does not grow with other holds and topics."""

from kafka.structs import TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer._kafka.consumed import Consumed
from safeconsumer.holds import view
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.scope import Partition, Topic
from safeconsumer.holds.view import Holds
from tests.harness.kafka.offline import offline


def test_overlapping_a_topic_reads_the_holds_of_that_topic_only(monkeypatch):
    looked_at = []
    overlap = view._overlap

    def counted(asked, held):
        looked_at.append(held)
        return overlap(asked, held)

    monkeypatch.setattr(view, "_overlap", counted)
    others = [Hold(scope=Partition("orders", one), owner="app") for one in range(99)]
    own = Hold(scope=Topic("invoices"), owner="app")
    assert Holds([*others, own]).overlapping(Topic("invoices")) == (own,)
    assert looked_at == [Topic("invoices")]


def test_known_topics_takes_assigned_topics_without_a_query(monkeypatch):
    """Earlier, each query scanned the whole assignment: a second with 5,000 topics."""
    asked = []
    monkeypatch.setattr(Consumed, "may_have", lambda _, topic: asked.append(topic))
    with offline(SafeConsumer) as consumer:
        consumer.assign([TopicPartition("orders", 0), TopicPartition("invoices", 0)])
        assert set(Consumed(consumer).known_topics()) == {"orders", "invoices"}
    assert asked == []


class Unlisted(dict):
    """Partitions that can be looked up, but not iterated."""

    def __iter__(self):
        message = "all partitions of the topic were looked at"
        raise AssertionError(message)


def test_covered_of_a_thousand_partitions_reads_the_one_that_is_held():
    """Earlier, each read after a pause scanned the whole assignment."""
    tps = {("orders", number): ("orders", number) for number in range(1000)}
    held = Holds([Hold(scope=Partition("orders", 7), owner="app")])
    assert held.covered({"orders": Unlisted(tps)}) == {("orders", 7)}

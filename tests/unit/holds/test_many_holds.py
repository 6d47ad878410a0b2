"""The cost of a call does not grow with the number of other holds and topics."""

from kafka.structs import TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer._kafka.consumed import Consumed
from safeconsumer.events import HoldsRemoved
from safeconsumer.holds import view
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.scope import ALL, Partition, Topic
from safeconsumer.holds.view import Holds
from tests.harness.holds.lab import LedgerLab
from tests.harness.kafka.offline import offline


class Unlisted(dict):
    """Holds or partitions that can be looked up, but not iterated."""

    def __iter__(self):
        message = "all of the topic were looked at"
        raise AssertionError(message)

    values = __iter__


def test_search_for_holds_that_overlap_a_topic_skips_the_holds_on_other_topics():
    others = [Hold(scope=Partition("orders", one), owner="app") for one in range(99)]
    own = Hold(scope=Topic("invoices"), owner="app")
    holds = Holds([*others, own])
    holds._narrow["orders"] = Unlisted(holds._narrow["orders"])
    assert holds.overlapping(Topic("invoices")) == (own,)


def test_search_for_overlapping_holds_compares_a_shared_scope_only_once(monkeypatch):
    """A program may use an owner for each job; with 4,000 owners a lift took 7 ms."""
    looked_at = []
    overlap = view._overlap

    def counted(asked, held):
        looked_at.append(held)
        return overlap(asked, held)

    monkeypatch.setattr(view, "_overlap", counted)
    many = [Hold(scope=ALL, owner=f"job-{number}") for number in range(99)]
    assert Holds(many).overlapping(Topic("invoices")) == (*many,)
    assert looked_at == [ALL]


def test_lift_for_many_owners_searches_once_for_the_remaining_holds(monkeypatch):
    asked = []
    overlapping = Holds.overlapping

    def counted(holds, scope):
        asked.append(scope)
        return overlapping(holds, scope)

    monkeypatch.setattr(Holds, "overlapping", counted)
    lab = LedgerLab()
    many = [Hold(scope=ALL, owner=f"operator:{number}") for number in range(99)]
    lab.ledger.follow(many, ())
    lab.ledger.follow((), [one.key for one in many[:-1]])
    lab.ledger.deliver()
    (removed,) = lab.log.of(HoldsRemoved)
    assert (removed.remaining, asked) == ((many[-1],), [ALL])


def test_known_topics_include_assigned_topics_without_a_query_for_each(monkeypatch):
    """Previously, each query scanned the whole assignment; with 5,000 topics it took 1 s."""
    asked = []
    monkeypatch.setattr(Consumed, "may_have", lambda _, topic: asked.append(topic))
    with offline(SafeConsumer) as consumer:
        consumer.assign([TopicPartition("orders", 0), TopicPartition("invoices", 0)])
        assert set(Consumed(consumer).known_topics()) == {"orders", "invoices"}
    assert asked == []


def test_covered_looks_up_only_the_held_partition_among_a_thousand():
    """Previously, each read after a pause scanned the whole assignment."""
    tps = {("orders", number): ("orders", number) for number in range(1000)}
    held = Holds([Hold(scope=Partition("orders", 7), owner="app")])
    assert held.covered({"orders": Unlisted(tps)}) == {("orders", 7)}


def test_new_hold_remains_if_all_earlier_holds_with_its_scope_end():
    first, second, third = (Hold(scope=ALL, owner=one) for one in "abc")
    holds = Holds([first, second])
    after = holds.without([first.key, second.key], [third])
    assert ([*after], [*holds]) == ([third], [first, second])

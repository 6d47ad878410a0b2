"""Which holds cover a partition."""

from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition

from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.partitions import Coverage, covered
from safeconsumer.group.wire import ControlHold, ControlKey

TOPICS = ("orders", "audit", "orders.dlq")
SCOPES = (
    "@all",
    *TOPICS,
    "re:ord.*",
    "re:x",
    *(f"{topic}:{number}" for topic in TOPICS for number in range(3)),
)
PARTITIONS = [TopicPartition(topic, number) for topic in TOPICS for number in range(4)]


def hold(scope, owner):
    key = ControlKey("g", owner, scope)
    return HoldRecord(key=key, hold=ControlHold("id", "x"), at=1.0, offset=1)


@given(st.lists(st.tuples(st.sampled_from(SCOPES), st.sampled_from("ab"))))
def test_coverage_is_what_each_says_in_their_order(placed):
    holds = [hold(*one) for one in placed]
    coverage = Coverage(holds)
    for tp in PARTITIONS:
        assert coverage.covering(tp) == tuple(one for one in holds if one.covers(tp))
    expected = [tp for tp in PARTITIONS if any(one.covers(tp) for one in holds)]
    assert list(covered(holds, PARTITIONS)) == expected


def test_a_key_of_a_later_version_covers_everything():
    later = hold("orders:0", "a")
    later = HoldRecord(
        key=ControlKey("g", "a", "orders:0", ("later",)),
        hold=later.hold,
        at=1.0,
        offset=1,
    )
    assert Coverage([later]).covering(TopicPartition("audit", 3)) == (later,)

"""Retention passes the position of a partition, held or not."""

import pytest
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient

from safeconsumer import SafeConsumer
from tests.sim.lab import Lab
from tests.sim.playing import simulated


def passed(lab: Lab, kind: type[KafkaConsumer], **settings: object) -> list[int]:
    """Delete half of a topic below a held position; return what is delivered after."""
    (tp,) = lab.topic("t")
    for number in range(100):
        lab.append(tp, first=number)  # a batch each
    consumer = kind(
        **lab.settings(group_id=None, max_partition_fetch_bytes=200, **settings)
    )
    consumer.assign([tp])
    consumer.seek(tp, 10)
    consumer.pause(tp)
    for _ in range(3):
        consumer.poll(200)
    admin = KafkaAdminClient(**lab.connection)
    admin.delete_records({tp: 60})
    admin.close()
    consumer.resume(tp)
    found: list[int] = []
    while len(found) < 40:
        batches = consumer.poll(500).values()
        found += [record.offset for batch in batches for record in batch]
    consumer.close()
    return found


@pytest.mark.contract("P8")
@pytest.mark.parametrize("kind", [SafeConsumer, KafkaConsumer])
@simulated()
def test_a_held_partition_goes_on_at_the_first_record_that_is_left(
    lab: Lab, kind: type[KafkaConsumer]
) -> None:
    """P8: what is left comes once, in order; stock does so with `earliest`."""
    assert passed(lab, kind) == list(range(60, 100))


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="retention past a hold is told by nobody"
)
@simulated()
def test_what_retention_took_from_a_held_partition_is_an_event(lab: Lab) -> None:
    """An event names the old position, the new one and how many are gone."""
    told: list[str] = []
    passed(lab, SafeConsumer, hooks=[lambda event: told.append(repr(event))])
    assert [one for one in told if "10" in one and "60" in one and "50" in one]

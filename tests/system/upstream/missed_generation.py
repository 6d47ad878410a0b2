"""kafka-python: a member that missed a generation goes on where it was itself."""

from kafka import OffsetAndMetadata

from tests.system.upstream.stage import a_topic, stock, tp, until


def shown() -> str | None:
    with a_topic(10) as broker:
        consumer = stock(broker, "billing")
        consumer.subscribe(["orders"])
        until(
            lambda: consumer.assignment() and consumer.position(tp()) == 10,
            lambda: consumer.poll(500),
        )
        # It joins, and the answer to its SyncGroup does not come through. Whoever had
        # the partition in that generation committed 4: records 4 to 9 are not done.
        broker.fail("SyncGroup", "REBALANCE_IN_PROGRESS")
        before = consumer._coordinator._generation
        consumer._coordinator.request_rejoin()
        consumer.commit({tp(): OffsetAndMetadata(4, "", -1)})
        until(
            lambda: (
                consumer._coordinator._generation is not before
                and consumer.assignment()
            ),
            lambda: consumer.poll(500),
        )
        at = consumer.position(tp())
        consumer.close(autocommit=False)
    return f"committed is 4; it goes on at {at}" if at != 4 else None

"""
kafka-python: what is committed automatically by unsubscribe() is refused by the broker.

The commit is sent a moment later, as no member of the group. Of a static member it is
answered with FENCED_INSTANCE_ID, and then every later ``poll`` raises that.
"""

from tests.system.upstream.stage import a_topic, stock, tp, until


def shown() -> str | None:
    lost = rounds = 0
    with a_topic(10) as broker:
        for number in range(20):
            consumer = stock(broker, f"billing-{number}", enable_auto_commit=True)
            consumer.subscribe(["orders"])
            until(
                lambda consumer=consumer: (
                    consumer.assignment() and consumer.position(tp()) == 10
                ),
                lambda consumer=consumer: consumer.poll(500),
            )
            consumer.unsubscribe()
            rounds += 1
            lost += consumer.committed(tp()) is None
            consumer.close(autocommit=False)
    return f"{lost} of {rounds} commits lost" if lost else None

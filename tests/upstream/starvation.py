"""
kafka-python: what was paused in the middle of a batch never comes after the resume.
"""

from tests.upstream.stage import a_topic, produce, stock, tp


def shown() -> str | None:
    with a_topic(partitions=2) as broker:
        consumer = stock(broker)
        consumer.assign([tp(0), tp(1)])
        produce(broker, tp(1), 300)
        while not consumer.poll(500, max_records=10):
            pass
        consumer.pause(tp(1))
        produce(broker, tp(0), 5)
        while not consumer.poll(500):
            pass
        consumer.resume(tp(1))
        came = sum(len(own) for _ in range(10) for own in consumer.poll(500).values())
        consumer.close()
    return f"290 records after the resume: {came} in 10 polls" if came < 290 else None

"""kafka-python: subscribed while a metadata answer is on its way, it reads nothing."""

from tests.system.upstream.stage import a_topic, stock


def shown() -> str | None:
    with a_topic(3) as broker:
        consumer = stock(broker, client_id="late")
        held = broker.hold("Metadata", client_id="late")
        consumer._cluster.request_update()  # as it does by itself now and then
        held.wait()
        consumer.subscribe(["orders"])
        held.release()
        came = sum(len(own) for _ in range(16) for own in consumer.poll(500).values())
        consumer.close()
    return None if came else "3 records are there; 0 came in 8 s of polling"

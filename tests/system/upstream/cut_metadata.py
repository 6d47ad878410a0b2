"""kafka-python: poll raises when a connection breaks before a pattern subscriber joins."""

from kafka.errors import KafkaConnectionError

from tests.system.upstream.stage import a_topic, stock, until


def shown() -> str | None:
    with a_topic(5) as broker:
        consumer = stock(broker, "billing")
        consumer.subscribe(pattern="^orders$")
        until(consumer.assignment, lambda: consumer.poll(500))
        broker.fail("Metadata", "DISCONNECT")
        consumer._coordinator.request_rejoin()
        try:
            for _ in range(10):
                consumer.poll(500)
        except KafkaConnectionError as error:
            return f"{type(error).__name__} came out of poll"
        finally:
            consumer.close(autocommit=False)
    return None

"""kafka-python: a static member whose place was taken polls on, and nothing tells it."""

import time

from kafka.errors import KafkaError

from tests.system.upstream.stage import a_topic, stock, until


def shown() -> str | None:
    with a_topic(5) as broker:
        first = stock(broker, "billing", group_instance_id="one")
        first.subscribe(["orders"])
        until(first.assignment, lambda: first.poll(500))
        second = stock(broker, "billing", group_instance_id="one")
        second.subscribe(["orders"])
        until(second.assignment, lambda: second.poll(500))
        errors = polls = 0
        end = time.monotonic() + 5
        while time.monotonic() < end:
            polls += 1
            try:
                first.poll(100)
            except KafkaError:
                errors += 1
        still = bool(first.assignment())
        first.close(autocommit=False, timeout_ms=500)
        second.close()
    if errors or not still:
        return None
    return f"{polls} polls in 5 s after another took its place: no error, it keeps all"

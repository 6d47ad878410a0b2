"""kafka-python: allow_auto_create_topics=False is ignored; the broker may create topics."""

import logging
from logging.handlers import BufferingHandler

from tests.system.upstream.stage import a_topic, stock


def shown() -> str | None:
    handler = BufferingHandler(100_000)
    logging.getLogger().addHandler(handler)
    logging.getLogger("kafka").setLevel(logging.DEBUG)
    with a_topic(1) as broker:
        consumer = stock(broker, allow_auto_create_topics=False)
        consumer.subscribe(["no-such-topic"])
        consumer.poll(1000)
        consumer.close()
    asked = [one.getMessage() for one in handler.buffer]
    asked = [one for one in asked if "Request" in one and "no-such-topic" in one]
    wrong = [one for one in asked if "allow_auto_topic_creation=True" in one]
    return f"{len(wrong)} of {len(asked)} requests allow it" if wrong else None

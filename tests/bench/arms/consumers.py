"""The two compared consumers, and the calls that every arm makes."""

from tests.harness.waiting import repeat_until

BOUND = 60.0


def make(client, config, **more):
    """
    Make a stock or a safe consumer that begins at the start of each partition.

    Neither commits by itself: the number of commits within a measurement is random. Both
    decode records by kafka-python's own code, so that only safety is compared.
    """
    if client == "safe":
        from safeconsumer import SafeConsumer as cls  # noqa: N813, PLC0415 - only then

        more = {"decoder": "python", **more}
    else:
        from kafka import KafkaConsumer as cls  # noqa: N813, PLC0415 - only then
    config = {name: _tuple(value) for name, value in config.items()}
    settings = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        **config,
        **more,
    }
    return cls(**settings)


def poll_until(consumer, condition):
    """
    Poll until the condition holds, and drop the records one by one.

    Each poll may wait long: a poll that gives up during a join makes the stock client
    forget that join, sometimes for good.
    """
    for _ in repeat_until(condition, "the records of a measurement", BOUND):
        consumer.poll(5000, max_records=1)


def _tuple(value):
    # A version came as a JSON list; a list of addresses stays one.
    if isinstance(value, list) and all(isinstance(one, int) for one in value):
        return tuple(value)
    return value

"""Makes the two consumers that are compared, and polls them."""

from tests.harness.waiting import repeat_until

BOUND = 60.0


def make(client, config, **more):
    """
    Make a stock or a safe consumer that reads each partition from its start.

    Auto-commit is disabled, because it would make a random number of commits during a
    measurement. By default both consumers decode records with kafka-python's own code,
    so that the figures show only the cost of safety.
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
    Poll one record at a time until the condition holds, and drop the records.

    Each poll has a long timeout, because the stock client forgets a join, sometimes
    permanently, if the poll that started the join times out.
    """
    for _ in repeat_until(condition, "the records of a measurement", BOUND):
        consumer.poll(5000, max_records=1)


def _tuple(value):
    # JSON has turned the tuple of a version into a list; a list of addresses must stay
    # a list.
    if isinstance(value, list) and all(isinstance(one, int) for one in value):
        return tuple(value)
    return value

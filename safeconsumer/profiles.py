"""
Settings of kafka-python that suit one purpose better than its defaults.

Each is a plain dictionary of kafka-python's own keys, for any of its consumers::

    from safeconsumer import KafkaConsumer, profiles

    KafkaConsumer("orders", group_id="billing", **profiles.THROUGHPUT)

To change one of them as well, merge: ``{**profiles.LATENCY, "max_poll_records": 100}``.
"""

from typing import Final

THROUGHPUT: Final[dict[str, int]] = {
    "max_poll_records": 5_000,
    "max_partition_fetch_bytes": 4 * 1024 * 1024,
    "fetch_min_bytes": 64 * 1024,
    "fetch_max_wait_ms": 100,
    "receive_buffer_bytes": 1024 * 1024,
}
"""
Suits backlogs, with many records for each call and for each request.

A record may come up to 100 ms later than with the defaults, because the broker waits
for 64 KiB; four times as many bytes per partition are in memory, at most the 50 MiB of
``fetch_max_bytes`` for each broker. Handle what a ``poll`` returns within
``max_poll_interval_ms``: it is ten times as much. Measured in ``design/benchmarks.md``.
"""

LATENCY: Final[dict[str, int]] = {
    "fetch_min_bytes": 1,
    "fetch_max_wait_ms": 50,
    "retry_backoff_ms": 20,
}
"""
Suits records that are wanted at once, also of a partition that was just resumed.

While nothing comes the broker is asked 20 times a second instead of twice: a request
that is already waiting at the broker knows nothing of a partition that was resumed or
assigned meanwhile, and kafka-python has one request under way for each broker.
"""

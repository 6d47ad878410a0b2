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
}
"""
Suits backlogs, with many records for each call and for each request.

A record may come up to 100 ms later than with the defaults, because the broker waits
for 64 KiB or for that time; while nothing comes it is asked ten times a second instead
of twice. Up to four times as many bytes of a partition are in memory, at most the 50
MiB of ``fetch_max_bytes`` for each broker. A ``poll`` returns up to ten times as many
records, all of which have to be handled within ``max_poll_interval_ms``.
"""

LATENCY: Final[dict[str, int]] = {
    "fetch_min_bytes": 1,
    "fetch_max_wait_ms": 50,
    "retry_backoff_ms": 20,
}
"""
Suits partitions that are resumed, gained or in trouble, and are wanted at once.

Records of a partition that is being fetched come at once with the defaults, too. But a
request that waits at the broker knows nothing of a partition that was resumed or
assigned meanwhile, and kafka-python has one request under way for each broker: here
that one ends after 50 ms instead of 500. What failed is tried again after 20 ms instead
of 100. It costs CPU: while nothing comes the broker is asked 20 times a second instead
of twice, and a consumer that is wholly paused looks around 50 times a second instead of
ten.
"""

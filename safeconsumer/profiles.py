"""
Settings of kafka-python that suit one purpose better than its defaults.

Each is a mapping of kafka-python's own keys, for any of its consumers::

    from safeconsumer import KafkaConsumer, profiles

    KafkaConsumer("orders", group_id="billing", **profiles.THROUGHPUT)

It cannot be changed; merge what is to differ:
``{**profiles.LATENCY, "max_poll_records": 100}``. Take one of them: of two, the later
one wins where they contradict each other. On the command line, where ``--profile`` is
something else, give each key with ``safeconsumer run --set KEY=VALUE``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

THROUGHPUT: Final[Mapping[str, int]] = MappingProxyType(
    {
        "max_poll_records": 5_000,
        "max_partition_fetch_bytes": 4 * 1024 * 1024,
        "fetch_min_bytes": 64 * 1024,
        "fetch_max_wait_ms": 100,
    }
)
"""
Suits backlogs, with many records for each call and for each request.

A record may come up to 100 ms later than with the defaults, because the broker waits
for 64 KiB or for that time; while nothing comes it is asked ten times a second instead
of twice. Up to four times as many bytes of a partition are in memory, at most the 50
MiB of ``fetch_max_bytes`` for each broker. ``parked_max_bytes`` (64 MiB) has room for
one full answer: where several brokers lead many partitions, raise it to 64 MiB for each
of them, or a pause throws some of what was fetched away and fetches it again. A
``poll`` returns up to ten times as many records, all of which have to be handled within
``max_poll_interval_ms``; the limits of a ``Worker`` must have room for one.
"""

LATENCY: Final[Mapping[str, int]] = MappingProxyType(
    {
        "fetch_min_bytes": 1,
        "fetch_max_wait_ms": 50,
        "reconnect_backoff_max_ms": 1_000,
    }
)
"""
Suits partitions that are wanted at once when they are resumed, or their broker is back.

Records of a partition that is being fetched come at once with the defaults, too. But a
request that waits at the broker knows nothing of a partition that was resumed or
assigned meanwhile, and kafka-python has one request under way for each broker: here
that one ends after 50 ms instead of 500. A broker that was away is connected to within
a second or so of its return, instead of up to 30. It costs CPU: while nothing comes a
broker is asked 20 times a second instead of twice. A rebalance is learnt of by
heartbeats, every ``heartbeat_interval_ms`` (3 s), as before.
"""

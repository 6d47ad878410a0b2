"""Topics, and what the group has not committed of them yet."""

import math
import time
from contextlib import closing

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from safeconsumer.group.settings import Control
from safeconsumer.group.topics import HOLDS_SETTINGS
from tests.system.soak.settings import GROUP, PARTITIONS, TOPICS

_UNKNOWN = {"?": math.inf}


def create_topics(cluster):
    for name in TOPICS:
        cluster.create_topic(name, PARTITIONS)
    cluster.create_topic(Control().holds_topic, 1, HOLDS_SETTINGS)


def left_after(cluster, limit):
    """
    Wait until the group has committed everything; return what it still lacks.

    Args:
        cluster: the brokers.
        limit: seconds without progress: a slow machine leaves a backlog, and a record
            that is about to be read is not lost.

    Returns:
        Records by partition; empty when all is committed, ``{"?": inf}`` if no broker
        could tell.
    """
    left = _left(cluster)
    least, since = math.inf, time.monotonic()
    while left and time.monotonic() < since + limit:
        time.sleep(1)
        left = _left(cluster)
        if sum(left.values()) < least:
            least, since = sum(left.values()), time.monotonic()
    return left


def _left(cluster):
    tps = [TopicPartition(name, n) for name in TOPICS for n in range(PARTITIONS)]
    settings = {**cluster.client_config, "group_id": GROUP, "enable_auto_commit": False}
    try:
        with closing(KafkaConsumer(**settings)) as asking:
            ends = asking.end_offsets(tps)
            done = {tp: asking.committed(tp) or 0 for tp in tps}
    except (KafkaError, TimeoutError):  # a broker is away, or slow
        return _UNKNOWN
    return {
        f"{tp.topic}:{tp.partition}": ends[tp] - done[tp]
        for tp in tps
        if ends[tp] > done[tp]
    }

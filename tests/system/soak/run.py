"""Runs one soak, from the start of the brokers to the verdict."""

import contextlib
import math
import time
from contextlib import ExitStack, closing
from importlib.metadata import version

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from safeconsumer.group.settings import Control
from safeconsumer.group.topics import HOLDS_SETTINGS
from tests.harness.brokers.cluster import Cluster
from tests.harness.brokers.settings import KAFKA_VERSION
from tests.system.soak.nemesis import SoakNemesis
from tests.system.soak.producer import Producer
from tests.system.soak.settings import GROUP, PARTITIONS, TOPICS
from tests.system.soak.verdict import judged, write_history

_DRAIN = 120.0
_TRIES = 3
_UNKNOWN = {"?": math.inf}


def soak(settings):
    """Run a soak; return its result, which is also in ``result.json``."""
    settings.journals.mkdir(parents=True)
    settings.logs.mkdir(parents=True)
    began = time.time()
    with ExitStack() as stack:
        print("soak: starting brokers", flush=True)  # noqa: T201 - for a person who waits
        cluster = _started(stack)
        _create_topics(cluster)
        producer = Producer(cluster.bootstrap, settings.rate, settings.journals)
        stack.callback(producer.end)
        nemesis = stack.enter_context(SoakNemesis(settings, cluster, producer))
        nemesis.run(60 * settings.minutes, settings.faults or math.inf)
        if nemesis.operator is not None:
            nemesis.lift_group_holds()
        producer.end()
        left = _left_after(cluster, _DRAIN)
        nemesis.finish()
        if settings.is_ours:
            write_history(settings, cluster.bootstrap)
    done = {
        "consumer": settings.consumer,
        "seed": settings.seed,
        "assignor": settings.assignor,
        "workers": settings.workers if settings.is_ours else 0,
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "minutes": settings.minutes,
        "left": left,
        "unanswered": producer.unanswered,
        "crashed": nemesis.crashed,
        "stuck": nemesis.stuck,
        "kafka-python": version("kafka-python"),
        "kafka": KAFKA_VERSION,
    }
    return judged(settings, done)


def _started(stack):
    # The ports were free when they were chosen, but another process may bind one of
    # them before the broker does.
    for _ in range(_TRIES - 1):
        with contextlib.suppress(RuntimeError):
            return stack.enter_context(Cluster())
    return stack.enter_context(Cluster())


def _create_topics(cluster):
    for name in TOPICS:
        cluster.create_topic(name, PARTITIONS)
    cluster.create_topic(Control().holds_topic, 1, HOLDS_SETTINGS)


def _left_after(cluster, limit):
    """
    Wait until the group has committed all records; return how many are missing.

    Args:
        cluster: the brokers.
        limit: the longest time without progress, in seconds. Each sign of progress
            restarts this time, because a backlog on a slow machine is not a loss.

    Returns:
        The number of missing records by partition. The result is empty if all records
        are committed, and ``{"?": inf}`` if no broker responded.
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
    except (KafkaError, TimeoutError):  # a broker is down or responds slowly
        return _UNKNOWN
    return {
        f"{tp.topic}:{tp.partition}": ends[tp] - done[tp]
        for tp in tps
        if ends[tp] > done[tp]
    }

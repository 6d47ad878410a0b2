"""Queries brokers about a stream's topics: partitions, ids, start and end offsets."""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import kafka.errors as kafka_errors
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from safeconsumer.errors.base import SparkSettingError
from safeconsumer.group import clients
from safeconsumer.spark.offsets import Offsets
from safeconsumer.spark.python.settings import Settings

_ASK_TIMEOUT_MS = 20_000
# The number of attempts for a topic with an error, and the seconds between them: a
# leader election may be in progress. Without retries the topic's partitions would
# silently not be read.
_TRIES = 3
_BETWEEN = 0.1
_UNKNOWN = kafka_errors.UnknownTopicOrPartitionError.errno

Described = Mapping[str, Any]


class Topics:
    """
    Queries the topics of one stream, over permanent connections.

    The object is also the :class:`~safeconsumer.spark.clients.Cluster` of its stream,
    and as such answers with the results of the last plan's queries.

    Thread rules: only one thread may use this.

    Args:
        settings: the settings of the stream.

    Attributes:
        ids: the topics' ids by name, if brokers report ids.
        planned_firsts: the first offsets at the last plan.
        made_again: the topics that were recreated between the last two calls of
            :meth:`partitions`.
    """

    errors: tuple[type[Exception], ...] = (OSError, kafka_errors.KafkaError)

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        level = settings.fetching.get("isolation_level", "read_uncommitted")
        self._queries = clients.Queries(
            {**settings.connection, "isolation_level": level}
        )
        self.ids: dict[str, str] = {}
        self.planned_firsts: Offsets = {}
        self.made_again: tuple[str, ...] = ()

    def partitions(self) -> list[tuple[str, int]]:
        """
        Return the partitions that the stream currently reads, sorted.

        Raises:
            KafkaError: a broker does not answer, or a topic is missing or access to it
                is refused.
            SparkSettingError: ``assign`` names a partition that does not exist.
        """
        described = self._described()
        self._note_ids(described)
        found = {
            (one["name"], int(part["partition_index"]))
            for one in described
            for part in one["partitions"]
        }
        if self._settings.topics_option != "assign":
            return sorted(found)
        if missing := sorted(set(self._settings.wanted) - found):
            message = f"option assign names partitions that do not exist: {missing}"
            raise SparkSettingError(message)
        return sorted(self._settings.wanted)

    def bounds(
        self, partitions: Collection[tuple[str, int]]
    ) -> tuple[Offsets, Offsets]:
        """
        Return the partitions' start and end offsets.

        With ``read_committed`` the end offsets are the last stable offsets.

        Raises:
            KafkaError: a broker does not answer.
        """
        if not partitions:
            return {}, {}
        asked = [TopicPartition(*tp) for tp in partitions]
        consumer = self._queries.consumer
        firsts = consumer.beginning_offsets(asked, timeout_ms=_ASK_TIMEOUT_MS)
        ends = consumer.end_offsets(asked, timeout_ms=_ASK_TIMEOUT_MS)
        return _plain(firsts), _plain(ends)

    def firsts(
        self,
        partitions: Collection[tuple[str, int]],
        until: float,  # noqa: ARG002 - it sends no request
    ) -> dict[tuple[str, int], int]:
        """Return the first offsets at the last plan."""
        known = self.planned_firsts
        return {tp: known[tp] for tp in partitions if tp in known}

    def topic_ids(self, names: Collection[str], until: float) -> dict[str, str]:  # noqa: ARG002 - as above
        """Return the topics' ids."""
        return {name: self.ids[name] for name in names if name in self.ids}

    def close(self) -> None:
        """Close the connections; the next call creates new ones."""
        self._queries.close()

    # ------------------------------------------------------------ inside

    def _described(self) -> Sequence[Described]:
        admin = self._queries.admin
        for tries_left in reversed(range(_TRIES)):
            names = self._names(admin)
            described = admin.describe_topics(names) if names else []
            found = [one for one in described if self._is_meant(one)]
            bad = {one["name"]: one["error_code"] for one in found if one["error_code"]}
            if not bad:
                return found
            if tries_left:
                time.sleep(_BETWEEN)
        name, code = next(iter(bad.items()))
        error = kafka_errors.for_code(code)
        message = f"topic {name} cannot be read: {error.__name__}"
        raise error(message)

    def _names(self, admin: KafkaAdminClient) -> list[str]:
        match self._settings.topics_option:
            case "subscribe":
                return list(self._settings.wanted)
            case "assign":
                return sorted({topic for topic, _ in self._settings.wanted})
        # The pattern may match just a part of the name, as in the official source.
        matches: Callable[[str], object] = re.compile(self._settings.wanted).search
        return sorted(name for name in admin.list_topics() if matches(name))

    def _is_meant(self, one: Described) -> bool:
        if self._settings.topics_option != "subscribepattern":
            return True
        # Leave out internal topics, as the official source does, and topics that the
        # broker does not know, which may have just been deleted.
        return not one["is_internal"] and one["error_code"] != _UNKNOWN

    def _note_ids(self, described: Iterable[Described]) -> None:
        ids = {
            one["name"]: str(one["topic_id"])
            for one in described
            if one.get("topic_id")
        }
        self.made_again = tuple(
            sorted(name for name, id_ in ids.items() if self.ids.get(name, id_) != id_)
        )
        self.ids.update(ids)
        if self.made_again:
            self.close()  # the clients still know the old topics


def _plain(offsets: Mapping[TopicPartition, int]) -> dict[tuple[str, int], int]:
    return {(tp.topic, tp.partition): at for tp, at in offsets.items()}

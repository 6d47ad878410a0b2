"""Journals what kafka-python's own consumer does, for the soak, which judges it too."""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

from kafka import ConsumerRebalanceListener

from safeconsumer.holds import scope as scopes
from safeconsumer.journal.deliveries import Deliveries
from safeconsumer.journal.format import scope_text, tp_text
from safeconsumer.journal.recorder import Recorder
from safeconsumer.journal.writer import JournalWriter


class Recorded:
    """
    Passes calls on to a consumer, and journals its polls, pauses and commits.

    It sees rebalances through the listener of :meth:`subscribe`.

    Args:
        consumer: the consumer that does the work.
        journal: the journal.
        group: the consumer's group.
        generation: returns the group's generation.
    """

    def __init__(
        self,
        consumer: Any,  # noqa: ANN401 - a client
        journal: JournalWriter,
        group: str,
        generation: Callable[[], int],
    ) -> None:
        self._consumer = consumer
        self._generation = generation
        self._recorder = Recorder(journal, "", group)
        self._came = Deliveries(journal)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the consumer's
        return getattr(self._consumer, name)

    def poll(self, timeout_ms: float) -> Mapping[Any, Any]:
        began = self._recorder.began()
        polled: Mapping[Any, Any] = self._consumer.poll(timeout_ms)
        for tp, records in polled.items():
            self._came.write(tp, records, began)
        return polled

    def pause(self, *targets: Any, owner: str) -> None:  # noqa: ANN401 - the consumer's
        with self._calling("pause", targets, owner):
            self._consumer.pause(*targets, owner=owner)

    def pause_all(self, *, owner: str) -> None:
        with self._calling("pause", ["@all"], owner):
            self._consumer.pause_all(owner=owner)

    def resume(self, *targets: Any, owner: str) -> None:  # noqa: ANN401 - the consumer's
        with self._calling("resume", targets, owner):
            self._consumer.resume(*targets, owner=owner)

    def _calling(
        self, op: str, targets: Collection[Any], owner: str
    ) -> AbstractContextManager[None]:
        names = [scope_text(scopes.of(one)) for one in targets]
        return self._recorder.calling(op, {"scopes": names, "owner": owner})

    def commit(self, offsets: Mapping[Any, Any], timeout_ms: float) -> None:
        by_name = {tp_text(tp): one.offset for tp, one in offsets.items()}
        with self._recorder.calling("commit", {"offsets": by_name}):
            self._consumer.commit(offsets, timeout_ms=timeout_ms)

    def subscribe(self, *, pattern: str) -> None:
        self._consumer.subscribe(pattern=pattern, listener=_Listener(self._owned))

    def _owned(self, event: str, partitions: Collection[Any]) -> None:
        self._came.forget(partitions)
        if partitions:
            names = sorted(map(tp_text, partitions))
            fields = {"partitions": names, "generation": self._generation()}
            self._recorder.tell(event, fields)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
    def __init__(self, owned: Callable[[str, Collection[Any]], None]) -> None:
        self._owned = owned

    def on_partitions_revoked(self, revoked: Any) -> None:  # noqa: ANN401 - the consumer's
        self._owned("revoked", revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:  # noqa: ANN401 - the consumer's
        self._owned("assigned", assigned)

    def on_partitions_lost(self, lost: Any) -> None:  # noqa: ANN401 - the consumer's
        self._owned("lost", lost)

"""Journals the deliveries, calls and ownerships of any client's consumer, for the soak."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from safeconsumer import events
from safeconsumer._kafka.errors import BlockingCallInListenerError
from safeconsumer.audit.calls import Calls, Seen
from safeconsumer.audit.deliveries import Deliveries
from safeconsumer.audit.journaling import scopes_text
from safeconsumer.audit.reading import covered, tp_of
from safeconsumer.events.dispatch import Hook
from safeconsumer.journal.format import scope_text, tp_text
from safeconsumer.journal.writer import JournalWriter


class Recorded:
    """
    Passes all calls on to a consumer, and journals them.

    It works with any object that has kafka-python's methods. It sees rebalances through
    the listener of :meth:`subscribe`, so call that, and do not subscribe in the
    constructor. It does not see what a client commits by itself
    (``enable_auto_commit``): the journal says so, and the checks that need commits (A4,
    A5, A6, W4) are not judged.

    Thread rules: those of the consumer.

    Args:
        consumer: the consumer that does the work.
        journal: the journal.
        generation: returns the group's generation, if it is known.
        group: the consumer group; None: the ``group_id`` of the consumer's ``config``,
            or the journal's own group if it has none.

    Raises:
        JournalError: the entry with the group could not be written.
    """

    def __init__(
        self,
        consumer: Any,  # noqa: ANN401 - any client
        journal: JournalWriter,
        *,
        generation: Callable[[], int] | None = None,
        group: str | None = None,
    ) -> None:
        self._consumer = consumer
        self._journal = journal
        self._generation = generation
        self._calls = Calls(journal)
        self._came = Deliveries(journal)
        self._sought: set[Any] = set()
        found = group or _group_of(consumer)
        if found:
            journal.belong_to(found)
        commits = _config_of(consumer, "enable_auto_commit")
        self._is_blind = bool(_group_of(consumer) and commits)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the consumer's
        return getattr(self._consumer, name)

    # ------------------------------------------------------------ records

    def poll(self, *args: Any, **kwargs: Any) -> Mapping[Any, Any]:  # noqa: ANN401 - the consumer's
        """Poll, and journal the runs of records that came."""
        with self._calls.around("poll") as call:
            polled: Mapping[Any, Any] = self._consumer.poll(*args, **kwargs)
            moves_on = [*args[2:], kwargs.get("update_offsets", True)][0]
            write = self._came.came if moves_on else self._came.peeked
            for tp, records in polled.items():
                write(tp, records, poll=call)
        return polled

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - a record
        with self._calls.around("poll") as call:
            record = next(self._consumer)
            self._came.came((record.topic, record.partition), [record], poll=call)
        return record

    # ------------------------------------------------------------ calls

    def pause(self, *targets: Any, **kwargs: Any) -> None:  # noqa: ANN401 - the consumer's
        """Pause, and journal when it was called and when it returned."""
        named = scopes_text(targets)
        with self._calls.around("pause", self._hold(named, kwargs), self._seen(named)):
            self._consumer.pause(*targets, **kwargs)
            self._journal.write_running()

    def pause_all(self, **kwargs: Any) -> None:  # noqa: ANN401 - the consumer's
        """Pause the whole consumer, and journal it as :meth:`pause` does."""
        named = ["@all"]
        with self._calls.around("pause", self._hold(named, kwargs), self._seen(named)):
            self._consumer.pause_all(**kwargs)
            self._journal.write_running()

    def resume(self, *targets: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the consumer's
        """Resume, and journal when it was called and when it returned."""
        named = scopes_text(targets)
        with self._calls.around("resume", self._hold(named, kwargs), self._seen(named)):
            return self._consumer.resume(*targets, **kwargs)

    def resume_all(self, **kwargs: Any) -> Any:  # noqa: ANN401 - the consumer's
        """Lift every hold of an owner, and journal it as :meth:`resume` does."""
        owner = kwargs.get("owner", "app")
        held = [
            scope_text(one.scope)
            for one in self._consumer.holds()
            if one.owner == owner
        ]
        with self._calls.around("resume", self._hold(held, kwargs), self._seen(held)):
            return self._consumer.resume_all(**kwargs)

    def _seen(self, named: list[str]) -> Seen:
        # The consumer is not asked for gated partitions, so the judge can only find
        # partitions that are missing from paused(), not those that are too many.
        def seen() -> Mapping[str, object]:
            number, at = self._journal.number, self._journal.now()
            ask = getattr(self._consumer, "paused", None)
            if ask is None:  # a client without this method
                return {}
            here = covered(named, map(tuple, self._consumer.assignment()))
            paused = here & set(map(tuple, ask()))
            return {
                "seen": number,
                "seen_at": at,
                "assigned": sorted(map(tp_text, here)),
                "paused": sorted(map(tp_text, paused)),
            }

        return seen

    def _hold(self, named: list[str], kwargs: Mapping[str, Any]) -> dict[str, object]:
        said: dict[str, object] = {"scopes": named, "owner": kwargs.get("owner", "app")}
        limit = kwargs.get("for_")
        if limit is not None:  # counted from before the call: it really ends later
            seconds = getattr(limit, "total_seconds", lambda: limit)()
            said["until"] = self._journal.now() + seconds
        return said

    def seek(self, partition: Any, offset: int, *args: Any) -> None:  # noqa: ANN401 - the consumer's
        """Seek, and journal it."""
        name = f"{partition[0]}:{partition[1]}"
        with self._calls.around("seek", {"offsets": {name: offset}}):
            self._consumer.seek(partition, offset, *args)
        self._came.begins_at(partition, offset)

    def seek_to_beginning(self, *partitions: Any) -> Any:  # noqa: ANN401 - the consumer's
        """Seek to the first records, of all partitions if none is named."""
        with self._seeking(partitions):
            return self._consumer.seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: Any) -> Any:  # noqa: ANN401 - the consumer's
        """Seek behind the last records, of all partitions if none is named."""
        with self._seeking(partitions):
            return self._consumer.seek_to_end(*partitions)

    @contextmanager
    def _seeking(self, partitions: Iterable[Any]) -> Iterator[None]:
        # The next record shows the new position; an earlier commit asks for it.
        tps = list(partitions) or list(self._assigned())
        said = {tp_text((tp[0], tp[1])): None for tp in tps}
        with self._calls.around("seek", {"offsets": said}):
            yield
        self._came.forget(tps)
        self._sought.update(tps)

    def commit(self, offsets: Any = None, **kwargs: Any) -> Any:  # noqa: ANN401 - the consumer's
        """Commit, and journal the committed offsets."""
        with self._calls.around("commit", {"offsets": self._offsets(offsets)}):
            return self._consumer.commit(offsets, **kwargs)

    def commit_async(self, offsets: Any = None, callback: Any = None) -> Any:  # noqa: ANN401 - the consumer's
        """Commit without waiting; the return is journaled when the answer comes."""
        answer = self._calls.begin("commit", {"offsets": self._offsets(offsets)})

        def answered(given: Any, result: Any) -> None:  # noqa: ANN401 - upstream's
            answer(is_done=not isinstance(result, Exception))
            if callback is not None:
                callback(given, result)

        return self._consumer.commit_async(offsets, callback=answered)

    def _offsets(self, offsets: Any) -> dict[str, int]:  # noqa: ANN401 - the consumer's
        if offsets is None:
            self._settle()
            return {name: self._reached(name) for name in [*self._came.next]}
        return {f"{tp[0]}:{tp[1]}": one.offset for tp, one in offsets.items()}

    def _settle(self) -> None:
        # A client commits where a seek has led, if it knows that by now.
        self._sought -= {tp for tp in self._sought if tp_text(tp) in self._came.next}
        for tp in self._sought & set(self._assigned()):
            at = self._known_position(tp)
            if at is not None:
                self._came.begins_at(tp, at)
                self._sought.discard(tp)

    def _known_position(self, tp: Any) -> int | None:  # noqa: ANN401 - the consumer's
        ask = getattr(self._consumer, "position", None)
        if ask is None:
            return None
        try:
            at: int | None = ask(tp, timeout_ms=0)
        except BlockingCallInListenerError:
            return None  # a listener commits what has a position, and waits for none
        except TypeError:  # a client that knows no limit
            at = ask(tp)
        return at

    def _reached(self, name: str) -> int:
        # A client commits its position, which moves past transaction markers.
        known = self._came.next[name]
        ask = getattr(self._consumer, "position", None)
        tp = next((tp for tp in self._assigned() if tp_text(tp) == name), None)
        now = None if ask is None or tp is None else ask(tp)
        if now is None or now <= known:
            return known
        self._journal.write("moved", {"tp": name, "from": known, "next": now})
        self._came.begins_at(tp_of(name), now)
        return int(now)

    def _assigned(self) -> Iterable[Any]:
        ask = getattr(self._consumer, "assignment", None)
        return () if ask is None else ask()

    # ------------------------------------------------------------ ownership

    def subscribe(self, *args: Any, listener: Any = None, **kwargs: Any) -> None:  # noqa: ANN401 - the consumer's
        """Subscribe; journal assigned, revoked and lost partitions."""
        telling = _listener(self._owned, listener)
        self._consumer.subscribe(*args, listener=telling, **kwargs)

    def assign(self, partitions: Iterable[Any]) -> None:
        """Assign by hand, which counts as ownership."""
        before, after = set(self._consumer.assignment()), set(partitions)
        if before - after:
            self._owned("revoked", before - after)
        self._consumer.assign(list(after))
        if after - before:
            self._owned("assigned", after - before)

    def _owned(self, event: str, partitions: Collection[Any]) -> None:
        names = sorted(f"{tp[0]}:{tp[1]}" for tp in partitions)
        self._came.forget(map(tp_of, names))
        self._sought.difference_update(partitions)
        known: dict[str, object] = {}
        if self._generation is not None:
            known["generation"] = self._generation()
        if event == "assigned" and self._is_blind:
            known["commits"] = False
        if names:
            self._journal.write(event, {"partitions": names, **known})


def _group_of(consumer: Any) -> str:  # noqa: ANN401 - any client
    known = _config_of(consumer, "group_id")
    return known if isinstance(known, str) else ""


def _config_of(consumer: Any, name: str) -> Any:  # noqa: ANN401 - any client
    config = getattr(consumer, "config", None)
    return config.get(name) if isinstance(config, Mapping) else None


def purges_hook(journal: JournalWriter) -> Hook:
    """Make a hook for ``SafeConsumer(hooks=...)`` that journals data that was thrown away."""

    def write(event: events.Event) -> None:
        match event:
            case events.FetchesPurged():
                count = event.records if len(event.partitions) == 1 else None
                _purged(journal, event.partitions, count, "its ownership ended")
            case events.ParkedDataDropped():
                _purged(journal, event.partitions, None, "too much was parked")

    return write


def _purged(
    journal: JournalWriter, tps: events.Partitions, count: int | None, why: str
) -> None:
    known = {} if count is None else {"count": count}
    for tp in tps:
        journal.write("purged", {"tp": tp_text(tp), **known, "why": why})


def _listener(tell: Any, inner: Any) -> Any:  # noqa: ANN401 - kafka-python's types
    from kafka import ConsumerRebalanceListener  # noqa: PLC0415 - reading needs no Kafka

    class Telling(ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
        """Journals ownerships, and passes them on."""

        def on_partitions_revoked(self, revoked: Any) -> None:  # noqa: ANN401 - upstream's
            tell("revoked", revoked)
            if inner is not None:
                inner.on_partitions_revoked(revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:  # noqa: ANN401 - upstream's
            tell("assigned", assigned)
            if inner is not None:
                inner.on_partitions_assigned(assigned)

        def on_partitions_lost(self, lost: Any) -> None:  # noqa: ANN401 - upstream's
            tell("lost", lost)
            if inner is not None:
                inner.on_partitions_lost(lost)

    return Telling()

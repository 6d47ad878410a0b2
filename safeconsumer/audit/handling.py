"""Journals handlers and dead letters, so that a worker can be judged."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from safeconsumer.journal.format import DEAD_LETTER, SKIPPED, tp_text
from safeconsumer.journal.writer import JournalWriter, Running


class Handling:
    """
    Writes when each call of a handler begins and ends, and which dead letters arrived.

    The worker is not involved: a wrapper around the handler writes the start in its
    first line and the end in its last one, before the worker learns of it.

    Thread rules: any thread.

    Args:
        journal: the journal in which the consumer writes too.
        order: the worker's order: partition, key or unordered.
    """

    def __init__(self, journal: JournalWriter, *, order: str) -> None:
        self._journal = journal
        self._order = order
        self._ids = itertools.count(1)
        journal.write("working", {"order": order})

    def around(self, handle: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """
        Return a handler for a :class:`Worker` without ``batch``, run in its threads.

        If an entry cannot be written, the record fails with ``JournalError``.
        """

        def handling(record: Any, context: Any) -> Any:  # noqa: ANN401 - upstream's
            name = tp_text((record.topic, record.partition))
            said = {"tp": name, "offset": record.offset, "id": next(self._ids)}
            about = {"attempt": context.attempt, "epoch": context.assignment_epoch}
            self._journal.write("handle", {**said, "lane": self._lane(record), **about})
            is_done = False
            try:
                answer = handle(record, context)
                is_done = True
            finally:
                self._journal.write("handled", {**said, "ok": is_done})
            return answer

        return handling

    def watch(self, running: Running) -> None:
        """
        Write the records in handlers with each hold (W10).

        Args:
            running: :meth:`Worker.running`.
        """
        self._journal.running = running

    def letters(self, producer: Any) -> Any:  # noqa: ANN401 - upstream's
        """Return a producer for a :class:`DeadLetter` that journals acknowledged letters."""
        return _Letters(producer, self._journal)

    def _lane(self, record: Any) -> str | None:  # noqa: ANN401 - upstream's
        if self._order == "key":
            return "" if record.key is None else f"={record.key.decode('latin-1')}"
        return "" if self._order == "partition" else None


class _Sends(Protocol):
    def send(self, topic: str, **said: Any) -> Any:  # noqa: ANN401 - upstream's
        """As kafka-python's producer."""


class _Letters:
    def __init__(self, producer: _Sends, journal: JournalWriter) -> None:
        self._producer = producer
        self._journal = journal

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the producer's
        return getattr(self._producer, name)

    def send(self, topic: str, **said: Any) -> Any:  # noqa: ANN401 - upstream's
        """Send it; its acknowledgement is journaled before the worker learns of it."""
        headers = dict(said["headers"])
        future = self._producer.send(topic, **said)
        return future.add_callback(lambda _: self._arrived(headers))

    def _arrived(self, headers: Mapping[str, bytes]) -> None:
        topic, partition, offset = (
            headers[f"dead-letter-{name}"].decode()
            for name in ("topic", "partition", "offset")
        )
        name = tp_text((topic, int(partition)))
        said = {"tp": name, "offset": int(offset), "why": DEAD_LETTER}
        self._journal.write("completed", said)


def skips_hook(journal: JournalWriter) -> Callable[[Any], None]:
    """Make a hook for ``Worker(on_event=...)`` that journals skipped records."""

    def write(event: Any) -> None:  # noqa: ANN401 - any event
        if getattr(event, "then", None) == "skip":
            said = {"tp": event.partition, "offset": event.offset, "why": SKIPPED}
            journal.write("completed", said)

    return write

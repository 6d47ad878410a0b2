"""Checks, for any consumer, that no record of a paused partition is delivered."""

import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from attrs import frozen

from safeconsumer.holds.hold import APP
from safeconsumer.holds.scope import Everything
from safeconsumer.testing._wishes import Intent


class LeakError(AssertionError):
    """Records of paused partitions were delivered; the message lists them."""


class NothingToCheckError(AssertionError):
    """In a block of :class:`NoLeak` nothing was paused, or nothing was polled."""


@frozen(kw_only=True)
class Leak:
    """One record that was handed out although its partition was paused."""

    topic: str
    partition: int
    offset: int
    seconds: float
    is_flag_set: bool


class NoLeak:
    """
    Fail if a record of a paused partition is delivered while this context is open.

    It works for kafka-python's ``KafkaConsumer`` and its subclasses, with ``poll()``
    and with iteration. The test's calls count, not what the client remembers of them:
    partitions paused and holds in force on entry, ``targets``, and every ``pause()``
    and ``pause_all()`` inside, until its owner's ``resume()`` of the same target or
    until its ``for_`` is over. For a hold that may end by itself, a plain pause too, the
    client is asked whether it has ended. On exit it raises :class:`LeakError`; or
    :class:`NothingToCheckError`, if nothing was ever to be silent, or nobody polled:
    such a test proves nothing.

    Args:
        consumer: the consumer to check; it gets a subclass of its class meanwhile.
        targets: partitions, topic names or compiled patterns (whole name) that are to
            count as paused although this consumer did not pause them itself.
    """

    def __init__(self, consumer: Any, *targets: Any) -> None:  # noqa: ANN401
        self._consumer = consumer
        self._class: type[Any] = type(consumer)
        self._intent = Intent(getattr(consumer, "holds", tuple))
        if hasattr(consumer, "holds"):
            self._intent.add_holds()
        else:
            self._intent.add(consumer.paused())
        self._intent.add(targets)
        self._opened = time.monotonic()
        self._inside = threading.local()
        self._is_polled = False
        self.leaks: list[Leak] = []

    def check(self) -> None:
        """Raise :class:`LeakError` now if anything has leaked so far."""
        if self.leaks:
            raise LeakError(_message(self.leaks, self._consumer))

    def __enter__(self) -> Self:
        self._consumer.__class__ = _watching(self._class, self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._consumer.__class__ = self._class
        if error is None:
            self.check()
            self._check_that_it_could_fail()

    def _check_that_it_could_fail(self) -> None:
        name = _name_of(self._consumer)
        if not self._intent.is_any:
            message = (
                f"nothing was paused, so nothing of {name} could leak: call pause() "
                "before the block or in it, or name targets that are to be silent"
            )
            raise NothingToCheckError(message)
        if not self._is_polled:
            message = (
                f"{name} was not polled in the block, so nothing could leak: poll it, "
                "or iterate over it"
            )
            raise NothingToCheckError(message)

    # Called by the watched consumer

    def poll(self, poll: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Poll, and check the records."""
        self._is_polled = True
        records = poll(*args, **kwargs)
        if not getattr(self._inside, "iteration", False):
            for batch in records.values():
                for record in batch:
                    self._delivered(record)
        return records

    def step(self, step: Any) -> Any:  # noqa: ANN401
        """Take one step of an iteration, and check the record."""
        # Iteration polls too, and then drops what was paused since: only what it
        # hands out in the end has been delivered.
        self._inside.iteration = self._is_polled = True
        try:
            record = step()
        finally:
            self._inside.iteration = False
        self._delivered(record)
        return record

    def pause(self, pause: Any, *args: Any, targets: Any, **options: Any) -> Any:  # noqa: ANN401
        """Pause, and note that the targets must be silent from now on."""
        since = time.monotonic()
        result = pause(*args, **options)
        self._intent.add(targets, since=since, **options)
        return result

    def resume(self, resume: Any, *args: Any, targets: Any, **options: Any) -> Any:  # noqa: ANN401
        """Resume, and note that the targets may be delivered from then on."""
        lifted = self._intent.lift(targets, **options)
        try:
            return resume(*args, **options)
        except BaseException:
            self._intent.restore(lifted)
            raise

    def _delivered(self, record: Any) -> None:  # noqa: ANN401
        if not self._intent.covers((record.topic, record.partition)):
            return
        known = {tuple(partition) for partition in self._consumer.paused()}
        leak = Leak(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            seconds=time.monotonic() - self._opened,
            is_flag_set=(record.topic, record.partition) in known,
        )
        self.leaks.append(leak)


def _watching(cls: type[Any], watch: NoLeak) -> type[Any]:
    class Watched(cls):  # type: ignore[misc]  # a class known only now
        def poll(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            return watch.poll(super().poll, *args, **kwargs)

        def __next__(self) -> Any:  # noqa: ANN401
            return watch.step(super().__next__)

        def pause(self, *targets: Any, **options: Any) -> Any:  # noqa: ANN401
            return watch.pause(super().pause, *targets, targets=targets, **options)

        def resume(self, *targets: Any, **options: Any) -> Any:  # noqa: ANN401
            return watch.resume(super().resume, *targets, targets=targets, **options)

        # Only what has them gets here: a stock consumer's call fails as it should.

        def pause_all(self, **options: Any) -> Any:  # noqa: ANN401
            return watch.pause(super().pause_all, targets=(Everything(),), **options)

        def resume_all(self, **options: Any) -> Any:  # noqa: ANN401
            owner = options.get("owner", APP)
            held = tuple(one.scope for one in self.holds() if one.owner == owner)
            return watch.resume(super().resume_all, targets=held, **options)

    Watched.__name__, Watched.__qualname__ = cls.__name__, cls.__qualname__
    return Watched


def _message(leaks: list[Leak], consumer: Any) -> str:  # noqa: ANN401
    count = f"{len(leaks)} record{'s' * (len(leaks) > 1)}"
    head = f"{count} of paused partitions delivered by {_name_of(consumer)}:"
    return "\n".join([head, *_lines(leaks)])


def _name_of(consumer: Any) -> str:  # noqa: ANN401
    return f"{type(consumer).__module__}.{type(consumer).__qualname__}"


def _lines(leaks: list[Leak]) -> Iterator[str]:
    for topic, partition in sorted({(leak.topic, leak.partition) for leak in leaks}):
        own = [k for k in leaks if (k.topic, k.partition) == (topic, partition)]
        why = (
            "paused() still named the partition"
            if own[0].is_flag_set
            else "the client had forgotten the pause: paused() did not name it"
        )
        yield (
            f"  {topic}:{partition}: {len(own)} in all, offsets {own[0].offset} to "
            f"{own[-1].offset}, the first after {own[0].seconds:.2f} s; {why}"
        )

"""
The product's face: a ``KafkaConsumer`` whose pauses hold.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from kafka.consumer.fetcher import ConsumerRecord
from kafka.structs import TopicPartition

from safeconsumer._control import Attachable, Attached
from safeconsumer._kafka import compat
from safeconsumer._kafka import fork as _fork
from safeconsumer._kafka.adopt import adopt
from safeconsumer._kafka.decoding.decoders import choose, log_once
from safeconsumer._kafka.errors import (
    ForkedConsumerError,
)
from safeconsumer._kafka.facade import Parts
from safeconsumer._kafka.handover.carrying import checked_handover
from safeconsumer._kafka.pausing.draining import DEFAULT_PARKED_MAX_BYTES
from safeconsumer._kafka.pausing.iteration import GATING_STEP_MS
from safeconsumer.errors import (
    HoldSettingError,
)
from safeconsumer.events.dispatch import Hook, LazyHook
from safeconsumer.holds.early import (
    EarlyHolds,
    Fits,
    first_unfit,
    fits_assignment,
    fits_subscription,
)
from safeconsumer.holds.hold import (
    Lifetime,
    checked_lifetime,
)
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.pausing import PausingCalls

if TYPE_CHECKING:
    from safeconsumer.audit.writer import JournalWriter

DEFAULT_HOOKS: tuple[Hook, ...] = (LazyHook("safeconsumer.events.log:log_event"),)


class SafeConsumer(PausingCalls):
    """
    A drop-in for ``kafka.KafkaConsumer`` that delivers nothing a hold covers.

    A *hold* is one owner's wish that a scope be quiet: a partition, a topic, a pattern
    over topics, or the whole consumer. It survives rebalances, lost membership and
    changed subscriptions until its owner lifts it, it expires, or its lifetime ends.
    A partition flows when no hold covers it.

    Args:
        topics: as kafka-python's: topics to subscribe to.
        start_paused: place a hold on the whole consumer before the first poll; lift
            it with :meth:`resume_all`.
        default_lifetime: the lifetime of holds that are placed without one.
        strict_pause: refuse to pause anything that is not assigned at that moment.
        parked_max_bytes: how much fetched data of quiet partitions is kept for their
            resume, in bytes as it came from the broker; beyond it the oldest is
            dropped and fetched again.
        decoder: what reads record batches: ``compiled`` (the extra ``fast``: a fifth of
            the CPU time), ``python`` (kafka-python's own), or ``auto``, which takes the
            compiled one where it can be had and never fails.
        control: a :class:`~safeconsumer.Control` makes this member obey operator and
            group holds that are kept in Kafka; None: none of it runs.
        pause_handover: whether a partition that is paused here stays paused at its next
            owner (KAFKA-13463): ``offsets`` marks its committed offset, ``assignor``
            tells the group at its next join, ``off`` does not.
        journal: a folder in which this consumer keeps a journal of what it does, for
            ``safeconsumer audit``, or a ``safeconsumer.audit.writer.JournalWriter`` of
            its own; None: nothing is written and none of it is loaded.
        hooks: what takes the events; by default they become structlog lines.
        configs: as kafka-python's, all of them.

    Raises:
        UnsupportedKafkaPythonError: the installed kafka-python is not one we know;
            no thread was started.
        MissingExtraError: ``decoder="compiled"`` and it cannot be had; the message has
            the install line.
        JournalError: the folder of ``journal`` cannot be written; from later calls if
            something could not be written down.
        ControlTopicError: a topic of ``control`` would not keep holds for good.

    Thread rules: ``pause``, ``resume``, ``pause_all``, ``resume_all``, ``held``,
    ``paused``, ``holds`` and ``explain`` on any thread, in a rebalance listener and in
    a signal handler. ``poll`` and iteration on one thread at a time.
    """

    def __init__(  # noqa: PLR0913 - one keyword per choice, all with defaults
        self,
        *topics: str,
        start_paused: bool = False,
        default_lifetime: Lifetime = Lifetime.UNTIL_RESUMED,
        strict_pause: bool = False,
        parked_max_bytes: int = DEFAULT_PARKED_MAX_BYTES,
        decoder: str = "auto",
        control: Attachable | None = None,
        pause_handover: str = "off",
        journal: "str | os.PathLike[str] | JournalWriter | None" = None,
        hooks: Iterable[Hook] = DEFAULT_HOOKS,
        **configs: Any,  # noqa: ANN401 - upstream's keys and types
    ) -> None:
        compat.require_supported()
        self._default_lifetime = checked_lifetime(default_lifetime)
        self._strict_pause = strict_pause
        _check_parked_max_bytes(parked_max_bytes)
        handover = checked_handover(pause_handover, configs.get("group_id"))
        chosen = choose(decoder)
        settings = {**self.DEFAULT_CONFIG, **configs}  # as upstream will settle them
        journaling = None if journal is None else _journaling(journal, settings)
        if journaling is not None:
            hooks = (*hooks, journaling.hook)
        self._ledger = PauseLedger(
            hooks, client_id=settings["client_id"], group_id=settings["group_id"]
        )
        self._poll_guard = threading.Lock()
        self._early = EarlyHolds()
        self._control: Attached | None = None
        with ExitStack() as undo:
            if journaling is not None:
                undo.callback(journaling.end)
            super().__init__(**configs)
            undo.callback(super().close, autocommit=False, timeout_ms=0)  # it has begun
            _fork.watch(self, _ForkedConsumer)
            adopt(self, self._ledger, parked_max_bytes, chosen.records, handover)
            self._parts = Parts(self)
            self._decoder = chosen.name
            log_once(chosen)
            if journaling is not None:
                journaling.begin(self)
            if control is not None:
                self._control = control.attach(self._ledger, self.config)
                undo.callback(self._control.close)
            if start_paused:
                self.pause_all(reason="start_paused")
            if topics:
                self.subscribe(topics=topics)
            undo.pop_all()

    @property
    def decoder(self) -> str:
        """
        Which decoder reads record batches: ``compiled`` or ``python``.
        """
        return self._decoder

    # ------------------------------------------------------------ records

    def poll(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """
        Return records of partitions that no hold covers at the moment of return.

        As kafka-python's otherwise. Partitions gained during a call that began with
        everything assigned quiet stay quiet until it returns (KAFKA-13463). After
        ``next(consumer)`` it returns the rest of what the iteration had taken.

        Raises:
            ConcurrentPollError: another thread is in the middle of this call or of a
                step of an iteration, or this is a hook that such a call runs.
            ForkedConsumerError: the consumer was made in another process.
            FencedInstanceIdError: another member took over the ``group_instance_id``.
            BlockingCallInListenerError: called in a rebalance listener, as every call
                that waits for the network.
        """
        with self._one_poll():
            self._ledger.deliver()
            is_gating = self._ledger.begin_call()
            if is_gating and not update_offsets:  # for an iteration
                timeout_ms = min(timeout_ms, GATING_STEP_MS)
            records: dict[TopicPartition, list[ConsumerRecord]]
            try:
                records = super().poll(timeout_ms, max_records, update_offsets)
            finally:
                self._ledger.end_call()
                is_late = self._ledger.deliver()
            return self._without_quiet(records) if is_late else records

    # ------------------------------------------------------------ upstream's calls

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """
        Assign partitions by hand; as kafka-python's. Holds stay and bite.

        Raises:
            NotConsumedError: a hold was placed, before anything was subscribed or
                assigned, on something that is not among the partitions.
        """
        if not partitions:  # upstream's rule
            self.unsubscribe()
            return
        fits = fits_assignment(set(partitions))
        with self._checking_early(fits, "assign()"), self._reassigning():
            super().assign(partitions)

    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        listener: Any = None,  # noqa: ANN401 - upstream's listener classes
    ) -> None:
        """
        Subscribe to topics or a pattern; as kafka-python's. Holds stay and bite.

        Raises:
            NotConsumedError: a hold was placed, before anything was subscribed or
                assigned, on a topic that is not among these.
        """
        fits = fits_subscription(topics, pattern)
        with self._checking_early(fits, "subscribe()"):
            super().subscribe(topics=topics, pattern=pattern, listener=listener)
        self._ledger.choose_anew()
        self._iterator = None

    def unsubscribe(self) -> None:
        """
        Give up subscription and assignment; as kafka-python's. Holds stay.

        Raises:
            BlockingCallInListenerError: called in a rebalance listener.
        """
        self._refuse_in_listener("unsubscribe")
        with self._reassigning():
            super().unsubscribe()
            self._ledger.choose_anew()

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:  # noqa: FBT001, FBT002 - upstream's signature
        """
        Close the consumer; as kafka-python's. Buffered data is thrown away.

        Raises:
            BlockingCallInListenerError: called in a rebalance listener.
        """
        self._refuse_in_listener("close")
        if self._control is not None:
            self._control.close()
        with self._reassigning():
            try:
                super().close(autocommit=autocommit, timeout_ms=timeout_ms)
            finally:
                self._iterator = None
                self._parts.clear_buffers()
                self._ledger.close()

    # ------------------------------------------------------------ inside

    @contextmanager
    def _checking_early(self, fits: Fits, call: str) -> Iterator[None]:
        keys = self._early.keys()
        unfit = first_unfit(keys, self._ledger.view().state, fits)
        if unfit is not None:
            self._parts.refuse_early_hold(unfit, call)
        yield
        self._early.forget(keys)  # not if upstream refused

    @contextmanager
    def _reassigning(self) -> Iterator[None]:
        quiet = frozenset(self._ledger.view().quiet)
        try:
            yield
        finally:
            self._parts.tell_departed(quiet)
            self._ledger.deliver()


class _ForkedConsumer(SafeConsumer):
    """
    What a consumer becomes in a forked child: every public name raises, and iteration.
    """

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - whatever is there
        if not name.startswith("_"):
            _refuse_forked()
        return super().__getattribute__(name)

    def __iter__(self) -> NoReturn:
        _refuse_forked()

    def __next__(self) -> NoReturn:
        # A generator that the parent began would go on yielding here.
        _refuse_forked()


def _refuse_forked() -> NoReturn:
    message = (
        "this consumer was made before the process was forked and its threads "
        "stayed behind; make a consumer in the child process"
    )
    raise ForkedConsumerError(message)


KafkaConsumer = SafeConsumer
"""The same class under upstream's name, so that one import line changes."""


def _journaling(
    journal: "str | os.PathLike[str] | JournalWriter", settings: dict[str, Any]
) -> Any:  # noqa: ANN401 - it stands above this module, for those who want one
    module = import_module("safeconsumer.audit.journaling")
    return module.Journaling(journal, settings["client_id"], settings["group_id"])


def _check_parked_max_bytes(value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        message = (
            f"parked_max_bytes must be a number of bytes, 0 or more, not {value!r}"
        )
        raise HoldSettingError(message)

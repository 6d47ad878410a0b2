"""Defines the programs that members run: they poll, iterate or run a Worker."""

from collections import deque
from functools import partial

from kafka.errors import (
    FencedInstanceIdError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
)
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer import Lifetime, Worker
from tests.harness.scopes import short

_STEP = 20.0  # seconds to sleep between two checks for a stop
_AT_ONCE = 25  # maximum number of records between two checks for other work


class Member:
    """
    A program that consumes topics in its own process, simulated or real.

    Args:
        host: the program's clock, its random draws, and the constants of its world.
        book: the object that records everything the program does, for a judge.
        make: a function that returns the consumer; it is called on the polling thread.
        topics: a list of topics, or a pattern.

    Attributes:
        todo: the calls that the polling thread must make before its next poll.
        is_over: whether the program should close its consumer and exit.
        is_calm: whether the program should make no more calls that delay other members.
        has_ended: whether the program has finished, either of its own accord or because
            it was stopped.
    """

    is_worker = False

    def __init__(self, host, book, make, topics):
        self.host, self.book, self.topics = host, book, topics
        self._make = make
        self.todo = deque()
        self.is_over = self.is_calm = self.has_ended = False
        self.consumer = None

    def live(self):
        """Consume until the program is stopped or fenced."""
        try:
            self.consumer = self._make()
            self.subscribe(self.topics)
            self.run()
        except KafkaTimeoutError as error:  # no broker could be reached at the start
            self.book.log(f"could not begin: {error}")
        except FencedInstanceIdError:
            self.book.left("fenced")
        finally:
            self.has_ended = True
        if self.consumer is not None:
            self.consumer.close(autocommit=False, timeout_ms=self.host.closing_ms)
        self.book.left("closed")

    def run(self):
        while not self.is_over:
            while self.todo:
                self.todo.popleft()()
            try:
                self.take()
            except self.host.tolerated as error:
                self.book.failed(error)
            self.book.look(self.consumer)

    def take(self):
        self._polled()

    def _polled(self):
        most = self.host.rng.choice(self.host.batches)
        polled = self.consumer.poll(self.poll_ms, max_records=most)
        for tp, records in polled.items():
            self.book.delivered(tp, [one.offset for one in records])
        return polled

    @property
    def poll_ms(self):
        return int(self.consumer.config["consumer_timeout_ms"])

    def stop(self):
        self.is_over = True

    # Calls that the nemesis makes

    def call(self, method, *given):
        """Let the program make a call before its next poll."""
        self.todo.append(partial(getattr(self, method), *given))

    def call_beside(self, method, *given):
        """Let another thread of the program make a call, if the program allows such calls."""
        self.host.beside(self, partial(getattr(self, method), *given))

    @property
    def holds(self):
        """The owners and scopes of all holds except those that a ``with`` block lifts."""
        return [key for key in self.book.holds if not key[0].startswith("block")]

    # Calls that may run on any thread

    def pause(self, owner, scope, seconds):
        """Place a strict hold; if the consumer refuses the hold, only log the refusal."""
        began, lifetime = self.host.now, Lifetime.UNTIL_RESUMED
        with self.host.ordering:
            try:
                if scope == "@all":
                    self.consumer.pause_all(owner=owner, for_=seconds)
                else:
                    self.consumer.pause(
                        scope, owner=owner, for_=seconds, lifetime=lifetime
                    )
            except IllegalStateError as error:
                self.book.log(f"{type(error).__name__}: {scope}")
                return
            until = float("inf") if seconds is None else began + seconds
            self.book.placed(owner, scope, until)

    def resume(self, owner, scope):
        with self.host.ordering:
            self.book.lifted(owner, scope)
            self.consumer.resume(scope, owner=owner)

    def hold_for_a_block(self, scope, seconds):
        owner = f"block-{next(self.host.serial)}"
        try:
            with self.consumer.held(scope, owner=owner):
                self.book.placed(owner, scope)
                self.nap(seconds)
                self.book.lifted(owner, scope)
        except IllegalStateError as error:
            self.book.log(f"{type(error).__name__}: {scope}")

    def nap(self, seconds):
        """Do nothing for this many seconds, or until the run ends or becomes calm."""
        self.book.log(f"naps for {seconds:.0f} s")
        end = self.host.now + seconds
        while self.host.now < end and not (self.is_calm or self.is_over):
            self.host.sleep(min(_STEP, end - self.host.now))

    def calm_down(self):
        """Lift all holds except those that a ``with`` block lifts; place no more holds."""
        self.is_calm = True
        self.lift_all()

    def lift_all(self):
        """Lift all holds except those that a ``with`` block lifts."""
        for owner, scope in self.holds:
            self.resume(owner, scope)

    # Calls that run on the polling thread

    def subscribe(self, topics):
        """Subscribe, perhaps to new topics; only log the error if a hold forbids the call."""
        is_pattern = isinstance(topics, str)
        try:
            wanted = {"pattern" if is_pattern else "topics": topics}
            listener = self.host.listener(self.book)
            self.consumer.subscribe(**wanted, listener=listener)
        except IllegalStateError as error:
            self.book.log(f"subscribe: {error}")
            return
        self.topics = topics
        self.book.log(f"subscribed to {topics}")

    def unsubscribe(self):
        self.consumer.unsubscribe()
        self.book.left("unsubscribed")
        self.topics = []

    def seek(self):
        """Seek to an offset that the member has already passed."""
        assigned = self.consumer.assignment()
        known = [
            tp
            for tp, one in sorted(self.book.owned.items())
            if one.next is not None and tp in assigned
        ]
        if known:
            tp = self.host.rng.choice(known)
            start = self.book.judge.logs.log(tp).start
            to = self.host.rng.randint(start, max(start, self.book.owned[tp].next))
            self.consumer.seek(tp, to)
            if tp in self.book.owned:
                self.book.sought(tp, to)

    def commit(self, kind):
        """Commit the delivered records, asynchronously or not, or commit explicit offsets."""
        offsets = {
            tp: OffsetAndMetadata(one.next, "", -1)
            for tp, one in self.book.owned.items()
            if one.next is not None
        }
        try:
            if kind == "async":
                self.consumer.commit_async()
            elif kind == "sync":
                self.consumer.commit(timeout_ms=20_000)
            elif offsets:
                self.consumer.commit(offsets, timeout_ms=20_000)
            self.book.log(f"commit, {kind}: {short(*offsets)}")
        except KafkaError as error:
            self.book.log(f"commit: {type(error).__name__}")


class Committing(Member):
    """A member that processes the records of each poll, and commits them."""

    def take(self):
        polled = self._polled()
        if not polled:
            return
        self.host.sleep(self.host.rng.uniform(0.0, self.host.working))
        done = {
            tp: OffsetAndMetadata(records[-1].offset + 1, "", -1)
            for tp, records in polled.items()
        }
        self.consumer.commit(done, timeout_ms=3000)


class Iterating(Member):
    def take(self):
        """Consume a limited number of records; stop early if none arrive or a call is due."""
        for taken, record in enumerate(self.consumer, start=1):
            tp = TopicPartition(record.topic, record.partition)
            self.book.delivered(tp, [record.offset])
            if self.todo or self.is_over or taken == _AT_ONCE:
                break


class Working(Member):
    """A member that runs a Worker; the worker's listener wraps the consumer's listener."""

    is_worker = True
    worker: Worker | None = None

    def run(self):
        self.book.is_worker = True
        settings = self.host.worker_settings()
        self.worker = Worker(self.consumer, self._handle, **settings)
        self.worker.run()

    def stop(self):
        super().stop()
        if self.worker is not None:
            self.worker.stop()

    def _handle(self, record, _):
        tp = TopicPartition(record.topic, record.partition)
        done = self.book.begins(tp, record.offset)
        if not self.is_calm:
            self.host.work()
        done()

"""Programs of a churn: they poll, iterate or are Workers, and carry out their todo list."""

import threading
from collections import deque

from kafka.errors import (
    FencedInstanceIdError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
)
from kafka.serializer import Deserializer
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer import Lifetime, Limits, Retry, SafeConsumer, Worker
from tests.harness.scopes import short
from tests.sim.meddling import elsewhere
from tests.sim.reading import Listener

_STEP = 20.0  # seconds after which a program that naps looks whether the churn is over
_AT_ONCE = 25  # records that an iteration takes before its program does something else


class Meddler(Deserializer):
    """
    Lets another thread make calls between fetch and delivery.

    Attributes:
        todo: the calls, which end before the next record is deserialized.
    """

    def __init__(self):
        self.todo = deque()

    def deserialize(self, topic, headers, data):
        del topic, headers
        while self.todo:
            elsewhere(self.todo.popleft())
        return data


class Member:
    """
    A program in a process of its own that consumes topics.

    Attributes:
        todo: calls that it makes before its next poll, in the thread that polls.
        meddler: makes calls in the middle of its next poll that takes records.
        is_over: whether it is to close its consumer and end.
        is_calm: whether it is to make no more calls that delay other members.
        has_ended: whether its program has ended, by itself or when it was stopped.
    """

    def __init__(self, lab, book, topics, settings):
        self.lab, self.book, self.topics = lab, book, topics
        self.todo = deque()
        self.meddler = Meddler()
        self.is_over = self.is_calm = self.has_ended = False
        self.consumer = None
        self.instance = settings.get("group_instance_id")
        self.process, self.thread = lab.start(book.name, lambda: self._live(settings))

    def _live(self, settings):
        try:
            settings["value_deserializer"] = self.meddler
            self.consumer = SafeConsumer(**self.lab.settings(**settings))
            self.subscribe(self.topics)
            self.run()
        except KafkaTimeoutError as error:  # no broker is reachable at the start
            self.book.log(f"could not begin: {error}")
        except FencedInstanceIdError:
            self.book.left("fenced")
        finally:
            self.has_ended = True
        if self.consumer is not None:
            self.consumer.close(autocommit=False)
        self.book.left("closed")

    def run(self):
        while not self.is_over:
            while self.todo:
                self.todo.popleft()()
            self.take()
            self._check()

    def take(self):
        most = self.lab.rng.choice((1, 7, 50))
        for tp, records in self.consumer.poll(self.poll_ms, max_records=most).items():
            self.book.delivered(tp, [one.offset for one in records])

    @property
    def poll_ms(self):
        return int(self.consumer.config["consumer_timeout_ms"])

    def stop(self):
        self.is_over = True

    def _check(self):
        self.book.listed_as_held(self.consumer.quiet())
        self.book.listed_as_held(self.consumer.paused(), owner="app")
        for tp in sorted(self.book.owned):
            try:
                position = self.consumer.position(tp, timeout_ms=0)
            except (KafkaError, IllegalStateError):  # the member has left meanwhile
                continue
            if position is not None:
                self.book.stands_at(tp, position)

    # Calls that any thread may make

    def pause(self, owner, scope, seconds):
        """Place a strict hold; one that this consumer refuses is only logged."""
        began, lifetime = self.lab.now, Lifetime.UNTIL_RESUMED
        try:
            if scope == "@all":
                self.consumer.pause_all(owner=owner, for_=seconds)
            else:
                self.consumer.pause(scope, owner=owner, for_=seconds, lifetime=lifetime)
        except IllegalStateError as error:
            self.book.log(f"{type(error).__name__}: {scope}")
            return
        until = float("inf") if seconds is None else began + seconds
        self.book.placed(owner, scope, until)

    def resume(self, owner, scope):
        self.book.lifted(owner, scope)
        self.consumer.resume(scope, owner=owner)

    def hold_for_a_block(self, scope, seconds):
        owner = f"block-{next(self.lab.world.serial)}"
        try:
            with self.consumer.held(scope, owner=owner):
                self.book.placed(owner, scope)
                self.nap(seconds)
                self.book.lifted(owner, scope)
        except IllegalStateError as error:
            self.book.log(f"{type(error).__name__}: {scope}")

    def nap(self, seconds):
        """Do nothing for so long, or until the churn is over."""
        self.book.log(f"naps for {seconds:.0f} s")
        end = self.lab.now + seconds
        while self.lab.now < end and not (self.is_calm or self.is_over):
            self.lab.sleep(min(_STEP, end - self.lab.now))

    def calm_down(self):
        """Lift all holds but those that end by themselves, and place no more."""
        self.is_calm = True
        self.lift_all()

    def lift_all(self):
        """Lift all holds but those that end by themselves."""
        for owner, scope in list(self.book.holds):
            if not owner.startswith("block"):
                self.resume(owner, scope)

    # Calls of the thread that polls

    def subscribe(self, topics):
        """Subscribe, perhaps to other topics than before, unless a hold forbids that."""
        try:
            book = self.book
            listener = Listener(book.assigned, book.revoked, book.lost)
            self.consumer.subscribe(topics, listener=listener)
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
        """Seek to an offset that it has already passed."""
        assigned = self.consumer.assignment()
        known = [
            tp
            for tp, one in sorted(self.book.owned.items())
            if one.next is not None and tp in assigned
        ]
        if known:
            tp = self.lab.rng.choice(known)
            start = self.book.judge.logs.log(tp).start
            to = self.lab.rng.randint(start, max(start, self.book.owned[tp].next))
            self.consumer.seek(tp, to)
            if tp in self.book.owned:
                self.book.sought(tp, to)

    def commit(self, kind):
        """Commit the delivered records (sync, async), or offsets of the book."""
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


class Iterating(Member):
    def take(self):
        """Take some records, until none come for a while or there is more to do."""
        for taken, record in enumerate(self.consumer, start=1):
            tp = TopicPartition(record.topic, record.partition)
            self.book.delivered(tp, [record.offset])
            if self.todo or self.is_over or taken == _AT_ONCE:
                break


class Working(Member):
    """A member that is a Worker; the listener is the consumer's, beneath the worker's."""

    worker: Worker | None = None

    def run(self):
        rng = self.lab.rng
        self.book.is_worker = True
        self.worker = Worker(
            self.consumer,
            self._handle,
            order="partition",
            concurrency=rng.choice((1, 4, 8)),
            limits=Limits(records=rng.choice((20, 200))),
            retry=Retry(attempts=10),
        )
        self.worker.run()

    def stop(self):
        super().stop()
        if self.worker is not None:
            self.worker.stop()

    def _handle(self, record, _):
        rng, tp = self.lab.rng, TopicPartition(record.topic, record.partition)
        done = self.book.begins(tp, record.offset)
        if self.is_calm:
            done()
            return
        if rng.random() < 0.02:
            self.lab.sleep(rng.choice((10, 100, 400)))
        elif rng.random() < 0.5:
            self.lab.sleep(rng.uniform(0, 2))
        if rng.random() < 0.05:
            message = "once more"
            raise ValueError(message)
        done()


def in_another_thread(member, call):
    """Make a call in another thread of the member's program."""
    thread = threading.Thread(target=call, name="other")
    member.lab.world.spawn(thread.start, "other's start", member.process)

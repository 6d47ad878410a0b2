"""
Random histories in which one call starts in the middle of another.

The inner call runs on the polling thread, from a deserializer or a signal handler, or on
another thread. A signal handler may also raise. In addition, pauses expire, deserializers
fail, and the consumer is closed in the middle of a batch.
"""

import threading
from collections import deque
from contextlib import suppress

from kafka.errors import IllegalStateError
from kafka.serializer import Deserializer
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer, events
from safeconsumer.errors import NotConsumedError
from tests.harness.signals import TimeLimitError
from tests.sim.histories import WEIGHTS, History
from tests.sim.interrupting import interrupting
from tests.sim.reading import Listener, raised

_INNER = {
    "seek": 4,
    "seek_to_an_end": 1,
    "pause": 3,
    "resume": 3,
    "commit": 1,
    "wake_up": 1,
    "append": 1,
}
# Calls that do not wait for the IO thread. A thread that runs a signal handler may
# block the IO thread.
_ON_ANY_THREAD = ("seek", "seek_to_an_end", "pause", "resume", "wake_up", "append")
_MOST_PLACES = 900
_NO_MOVE = object()
# Seconds for which an automatic commit may be in flight.
_UNDER_WAY = 3.0


class Acting(Deserializer):
    """
    A deserializer that calls a function when it receives one of the next values.

    Attributes:
        countdown: the number of values before the one that causes the call.
        act: the function to call, or None.
    """

    countdown, act = 0, None

    def deserialize(self, topic, headers, data):
        del topic, headers
        if self.act is not None:
            self.countdown -= 1
            if self.countdown < 0:
                act, self.act = self.act, None
                act()
        return data


class UnreadableError(Exception):
    """The error that the deserializer raises, once, for a value that it cannot read."""


class Repeating(SafeConsumer):
    """A consumer whose own ``poll`` may poll twice in one iteration step."""

    def poll(self, timeout_ms=0, **options):
        if not self._safe_iteration.is_stepping():
            return super().poll(timeout_ms, **options)
        most = self.chance.choice([None, 1, 3])
        found = super().poll(timeout_ms, max_records=most)
        if found and self.chance.random() < 0.5:
            for tp, records in super().poll(0, max_records=most).items():
                found[tp] = [*found.get(tp, ()), *records]
        return found


class MeddledHistory(History):
    """A history with the additional operations of this module."""

    weights = WEIGHTS | {
        "meet_in_a_deserializer": 8,
        "meet_in_a_handler": 8,
        "meet_on_another_thread": 6,
        "interrupt_reading": 6,
        "interrupt_another_call": 5,
        "fail_a_deserializer": 3,
        "pause_for_a_time": 3,
        "hold_a_block": 1,
        "reopen": 1,
        "subscribe_again": 1,
        "commit_offsets": 1.5,
        "share": 1.5,
        "lose_the_membership": 0.5,
        "recreate": 0.5,
    }

    def __init__(self, lab):
        self.acting = Acting()
        self.expires = {}  # when timed pauses expire, by scope and owner
        self.is_reading = self.is_over = False
        self.moved = {}  # the positions that calls within the current call have set
        self.found = {}  # the offsets of the current call, by partition
        self.late = set()  # the pauses that a concurrent call placed
        # The recreated partitions whose new log the consumer has not noticed yet.
        self.recreating = set()
        self.sought = set()  # the recreated partitions to which the program has sought
        self.just_recreated = {}  # first offsets after a recreation, by this call's events
        self.committed = {}  # the committed offsets that were judged
        # The next offsets before each of the last calls, and the times of these calls.
        self.lately = deque()
        self.asked = []  # the next offsets when commit_async was called
        self.begins = {}  # offsets committed when a rebalance ended, by event and partition
        lab.cluster.creates_topics = False
        self.kind = Repeating if lab.world.seed % 3 == 2 else SafeConsumer
        self.others = []  # other members of the group
        super().__init__(lab)

    def _consumer(self):
        consumer = super()._consumer()
        consumer.chance = self.rng
        return consumer

    def subscribe(self, consumer, **more):
        super().subscribe(consumer, listener=Listener(self._assigned), **more)

    def more_settings(self):
        return {"value_deserializer": self.acting}

    # ------------------------------------------------------------ judging

    def got(self, tp, offset, way):
        self.check_pauses(tp, way)
        self.found.setdefault(tp, []).append(offset)

    def check_pauses(self, tp, way):
        """Assert that no pause covers a partition whose records have arrived."""
        held = [k for k, tps in self.held.items() if tp in tps and k not in self.late]
        now = self.lab.now
        held = [key for key in held if self.expires.get(key, now + 1) > now]
        assert not held, f"P1: {tp} by {way}, though {held}"

    def moves_to(self, tp, offset):
        if tp in self.recreating:
            self.sought.add(tp)
        if self.is_reading:
            self.moved[tp] = offset
        else:
            self.next[tp] = offset

    def _forget(self, ends):
        super()._forget(ends)
        self.expires = {k: at for k, at in self.expires.items() if k in self.held}

    def on_event(self, event):
        if isinstance(event, events.RebalanceCompleted):
            for tp in event.gained:
                self.begins[id(event), tp] = self.lab.committed(tp, "g")
        super().on_event(event)

    def begin_of(self, tp, event):
        if isinstance(event, events.TopicRecreated):
            self.recreating.discard(tp)
            is_first = event.begins == "earliest"
            is_sought = tp in self.sought
            begin = self.lab.cluster.log(*tp).start if is_first else None
            self.just_recreated[tp] = None if is_sought else begin
            return None
        at, log = self.begins.get((id(event), tp)), self.lab.cluster.log(*tp)
        is_there = at is not None and log.start <= at <= log.end
        return at if is_there else None

    def do(self, name):
        self.lately.append((dict(self.next), self.lab.now))
        while len(self.lately) > 4 and self.lately[0][1] < self.lab.now - _UNDER_WAY:
            self.lately.popleft()
        super().do(name)
        self.note_moves()
        for tp in self.tps if self.has_group else ():
            at = self.lab.committed(tp, "g")
            if at is not None and at != self.committed.get(tp):
                self.committed[tp] = at
                # An automatic commit may have been in flight since an earlier call.
                earlier = *(one for one, _ in self.lately), *self.asked
                ends = [*(one.get(tp) for one in earlier), self.next[tp]]
                is_fit = any(
                    one is None or not self._between(tp, one, at) for one in ends
                )
                assert is_fit, f"P8: {at} of {tp} is committed at {ends} by {name}"

    def read(self, call):
        """Make a call that may return records, and judge the records."""
        self.is_reading = True
        try:
            with suppress(UnreadableError):
                call()
        finally:
            self.is_reading = False
        self.settle()

    def settle(self):
        """Check the offsets that arrived in a call during which positions may have moved."""
        found, self.found = self.found, {}
        moved, self.moved = self.moved, {}
        begins, self.just_recreated = self.just_recreated, {}
        self.next |= {tp: at for tp, at in begins.items() if tp not in {*found, *moved}}
        for tp in {*found, *moved}:
            if tp in begins or tp in self.recreating:
                self.next[tp] = None  # some records may be from the deleted topic
                continue
            self._settle(tp, found.get(tp, []), moved.get(tp, _NO_MOVE))
        self.late = set()

    def _settle(self, tp, offsets, move):
        # Each pair is a possible next offset and the target of a pending move, if any.
        pairs = [(self.next[tp], move)]
        for offset in offsets:
            after = []
            for following, to in pairs:
                if self._fits(tp, following, offset):
                    after.append((offset + 1, to))
                if to is not _NO_MOVE and self._fits(tp, to, offset):
                    after.append((offset + 1, _NO_MOVE))
            where = f"{self.next[tp]}, moved to {move}"
            assert after, f"P8: {tp} has {offsets[:9]}, at {offset}, after {where}"
            pairs = after
        ends = {following if to is _NO_MOVE else to for following, to in pairs}
        self.next[tp] = ends.pop() if len(ends) == 1 else self._one_of(tp, ends)

    def _one_of(self, tp, ends):
        state = self.consumer._subscription.assignment.get(tp)
        if None in ends or state is None or state.position is None:
            return None
        at = state.position.offset
        fitting = [one for one in ends if self._fits(tp, one, at)]
        assert fitting, f"P8: {tp} is at {at}, not at {ends}"
        return max(fitting)

    def _fits(self, tp, following, offset):
        if following is None:
            return True
        return offset >= following and not self._between(tp, following, offset)

    # ------------------------------------------------------------ reading

    def poll(self):
        self.read(super().poll)

    def step(self):
        self.read(super().step)

    def position(self):
        if not self.is_reading:
            super().position()

    def commit(self):
        if not self.is_reading:
            super().commit()
        elif self.has_group:
            assigned = self.consumer.assignment()
            if raised(lambda: self.consumer.commit(timeout_ms=3000)):
                return
            self.note_moves()
            for tp in assigned:
                at = self.lab.committed(tp, "g")
                if at is not None and tp not in self.moved:
                    self.not_passed(tp, at, "the offset committed in a call")

    def commit_async(self):
        self.asked.append(dict(self.next))
        super().commit_async()

    def peek(self):
        """Poll without moving positions, and check the first record of each partition."""
        found = {}
        self.is_reading = True
        with suppress(UnreadableError):
            wait = self.rng.choice([0, 200])
            found = self.consumer.poll(wait, update_offsets=False)
        self.is_reading = False
        self.note_moves()
        self.settle()
        for tp, records in found.items():
            self.check_pauses(tp, "a peek")
            if records and tp not in self.recreating:
                self.follows(tp, records[0].offset, "a peek")

    def _reading(self):
        """Return a function that polls or steps once."""
        if self.rng.random() < 0.5:
            most, wait = (
                self.rng.choice([None, 1, 3, 20]),
                self.rng.choice([0, 20, 300]),
            )
            return lambda: self._judged(
                self.consumer.poll(wait, max_records=most).items(), "poll"
            )
        return lambda: self._judged_one(next(self.consumer, None))

    def _judged(self, batches, way):
        for tp, records in batches:
            for one in records:
                self.returned.append((tp, one.offset, way))

    def _judged_one(self, record):
        if record is not None:
            tp = next(one for one in self.tps if one.partition == record.partition)
            self.returned.append((tp, record.offset, "iteration"))

    def _judge_returned(self):
        self.note_moves()
        for tp, offset, way in self.returned:
            self.got(tp, offset, way)

    # ------------------------------------------------------------ meetings

    def _inner(self, *names):
        names = names or tuple(_INNER)
        return self.rng.choices(names, [_INNER[one] for one in names])[0]

    def _meet(self, call):
        self.returned = []

        def read():
            with suppress(UnreadableError, TimeLimitError):
                call()
            self._judge_returned()

        self.read(read)

    def meet_in_a_deserializer(self):
        name, read = self._inner(), self._reading()
        self.acting.countdown = self.rng.choice([0, 1, 2, 5])
        self.acting.act = getattr(self, name)
        self._meet(read)
        self.acting.act = None

    def meet_in_a_handler(self):
        name, read = self._inner(*_ON_ANY_THREAD), self._reading()
        places = interrupting()
        number = self.rng.randrange(_MOST_PLACES)

        def come():
            before = dict(self.held)
            getattr(self, name)()
            self.late = self.held.keys() - before.keys()

        self._meet(lambda: places.reach(number, read, come))

    def meet_on_another_thread(self):
        name, read = self._inner(*_ON_ANY_THREAD), self._reading()
        delay = self.rng.choice([0, 0.001, 0.01, 0.1])

        def act():
            self.lab.sleep(delay)
            before = dict(self.held)
            with suppress(IllegalStateError, AssertionError):
                getattr(self, name)()
            self.late = self.held.keys() - before.keys()

        thread = threading.Thread(target=act)

        def both():
            thread.start()
            read()
            thread.join()

        self._meet(both)

    def interrupt_reading(self):
        interrupts, read = interrupting(), self._reading()
        number = self.rng.randrange(_MOST_PLACES)
        self._meet(lambda: interrupts.at(number, read))

    def interrupt_another_call(self):
        """Interrupt a call, and then repeat the call, as a program would."""
        names = "seek", "seek_to_an_end", "pause", "resume", "commit", "position"
        name, number = self.rng.choice(names), self.rng.randrange(200)
        drawn = self.rng.getstate()
        if interrupting().at(number, getattr(self, name)):
            self.rng.setstate(drawn)
            getattr(self, name)()

    def fail_a_deserializer(self):
        def fail():
            raise UnreadableError

        read = self._reading()
        self.acting.countdown = self.rng.choice([0, 1, 2, 5])
        self.acting.act = fail
        self._meet(read)
        self.acting.act = None
        self._meet(self._reading())  # an error may be pending for the next call

    # ------------------------------------------------------------ further operations

    def pause_for_a_time(self):
        tp, seconds = self.rng.choice(self.tps), self.rng.choice([0.01, 0.3, 2])
        scope, tps = self.rng.choice(
            [(f"t:{tp.partition}", {tp}), ("t", set(self.tps))]
        )
        if raised(lambda: self.consumer.pause(scope, owner="timed", for_=seconds)):
            return  # the partition is not assigned
        self.held[scope, "timed"] = tps
        self.expires[scope, "timed"] = self.lab.now + seconds - 0.0001

    def hold_a_block(self):
        tp = self.rng.choice(self.tps)
        if not (self.is_member or tp in self.consumer.assignment()):
            return
        with suppress(NotConsumedError), self.consumer.held(f"t:{tp.partition}"):
            self.held[f"t:{tp.partition}", "block"] = {tp}
            for name in self.rng.choices(("poll", "step", "seek"), k=3):
                getattr(self, name)()
        self._forget(lambda key: key[1] == "block")

    def commit_offsets(self):
        some = [one for one in self.consumer.assignment() if self.next[one] is not None]
        if self.has_group and some:
            tp = self.rng.choice(sorted(some))
            offsets = {tp: OffsetAndMetadata(self.next[tp], "", -1)}
            if self.rng.random() < 0.3:
                self.asked.append(dict(self.next))
                self.consumer.commit_async(offsets)
            elif not raised(lambda: self.consumer.commit(offsets, timeout_ms=3000)):
                at = self.lab.committed(tp, "g")
                assert at == offsets[tp].offset, f"P8: {at} of {tp} is committed"

    def reopen(self):
        """Close the consumer, perhaps in the middle of a batch, and create another."""
        before = [self.lab.committed(tp, "g") for tp in self.tps]
        self.consumer.close(autocommit=self.rng.random() < 0.5)
        self.note_moves()
        for tp, earlier in zip(self.tps, before, strict=True):
            at = self.lab.committed(tp, "g")
            if at != earlier:
                self.not_passed(tp, at, "the offset committed at the end")
        self.consumer = self._consumer()
        self.held, self.expires = {}, {}
        self.next = dict.fromkeys(self.tps)

    def share(self):
        """Let another member join or leave the group."""
        if not self.is_member:
            return
        if self.others:
            self.others.pop().leave()
            return
        assignor = self.consumer.config["partition_assignment_strategy"][0]
        settings = {"group_id": "g", "assignor": assignor, "log": False}
        self.others.append(self.lab.member(SafeConsumer, "t", **settings))

    def lose_the_membership(self):
        if self.is_member:
            self.lab.cluster.fail("Heartbeat", error=25, count=1)
            self.lab.sleep(4)

    def recreate(self):
        """Delete the topic, and create it again."""
        self.lab.cluster.delete_topic("t")
        self.lab.sleep(self.rng.choice([0, 0.5]))
        self.lab.topic("t", len(self.tps))
        self.recreating, self.sought, self.committed = set(self.tps), set(), {}
        for tp in self.tps:
            self.producing[tp].clear()
            self.next[tp] = None
            for earlier in *(one for one, _ in self.lately), *self.asked:
                earlier[tp] = None
            self._append(tp, self.rng.choice([0, 1, 20]))

    def _assigned(self, tps):
        """Seek or pause in a listener, at random."""
        for tp in () if self.is_over else sorted(tps):
            match self.rng.choice(["seek", "pause", *[""] * 8]):
                case "seek":
                    log = self.lab.cluster.log(*tp)
                    to = self.rng.randint(log.start, log.end)
                    self.moves_to(tp, to)
                    self.consumer.seek(tp, to)
                case "pause":
                    self.consumer.pause(tp, owner="ops")
                    self.held[f"t:{tp.partition}", "ops"] = {tp}

    def _let_all_flow(self):
        self.is_over = True
        while self.others:
            self.share()
        super()._let_all_flow()

    def subscribe_again(self):
        if self.is_member:
            self.consumer.unsubscribe()
            self.subscribe(self.consumer)
            self.next = dict.fromkeys(self.tps)
            self._forget(lambda key: key[1] == "whole")
            self._forget(lambda key: key[1] == "app" and key[0].startswith("t:"))

"""All other calls on a worker's or pump's consumer are harmless or are refused by name."""

import itertools
from contextlib import contextmanager, suppress
from operator import attrgetter, methodcaller

import pytest
from kafka.errors import IllegalStateError
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer import Commit, Drain, Pump, SafeConsumer, events
from safeconsumer.errors import (
    BlockingCallInListenerError,
    CommitRefusedError,
    ConcurrentPollError,
    ConsumerInUseError,
    LifespanError,
    SafeConsumerError,
)
from tests.sim.reading import Listener
from tests.sim.worker.working import (
    OFTEN,
    Handler,
    Working,
    committed,
    consumer,
    filled,
    taken,
)


@pytest.mark.contract("W4")
def test_poll_in_a_hook_does_not_take_a_record_from_the_worker(lab):
    """A worker's hook runs between two polls of the worker, on the polling thread."""
    filled(lab, 1, *[""] * 30)
    taken = []

    def polls(event):
        if isinstance(event, events.PartitionStarted):
            with suppress(ConcurrentPollError):
                taken.append(run.consumer.poll(500))

    handler = Handler(lab)
    run = Working(lab, handler, on_event=polls, settings={"max_poll_records": 2})
    lab.until(lambda: committed(lab) == [30])
    run.stop()
    assert handler.offsets() == [*range(30)]
    assert not any(taken)


# Calls that would end the membership, or the assignment, of a consumer that is in use

NEVER = Commit(every=1000.0)


def leaves_a_block(consumer):
    with consumer:
        pass


ENDINGS = {
    "close": lambda c: c.close(),
    "close immediately": lambda c: c.close(autocommit=False, timeout_ms=0),
    "with": leaves_a_block,
    "unsubscribe": lambda c: c.unsubscribe(),
    "assign": lambda c: c.assign([TP]),
    "assign nothing": lambda c: c.assign([]),
}
each_ending = pytest.mark.parametrize("ending", list(ENDINGS))


def refused(consumer, ending):
    with pytest.raises(ConsumerInUseError, match=r"worker\.stop\(\)"):
        ENDINGS[ending](consumer)
    return True


def half_done(lab):
    """Start a worker that has handled all records, and has committed none."""
    filled(lab, 1, *[""] * 6)
    handler = Handler(lab)
    run = Working(lab, handler, commit=NEVER)
    run.done(6)
    assert committed(lab) == [0]
    return run, handler


@pytest.mark.contract("W4")
def test_changing_the_assignment_of_a_workers_consumer_is_refused(lab):
    filled(lab, 2, *[""] * 3)
    handler = Handler(lab)
    reading = consumer(lab)
    reading.assign([TP])
    run = Working(lab, handler, given=reading, commit=NEVER)
    run.done(3)
    with pytest.raises(ConsumerInUseError):
        reading.assign([TopicPartition("t", 1)])
    assert reading.assignment() == {TP}
    run.stop()
    assert committed(lab)[0] == 3


@pytest.mark.contract("W4")
@pytest.mark.parametrize("call", [*ENDINGS, "commit"])
def test_refused_call_in_a_handler_stops_its_worker(lab, call):
    """Another attempt would fail the same way, and the record would become a dead letter."""
    filled(lab, 1, *[""] * 4, "calls", "")
    calls = {**ENDINGS, "commit": lambda consumer: consumer.commit()}
    handler = Handler(lab, calls=lambda *_: calls[call](run.consumer))
    run = Working(lab, handler, commit=NEVER, on_exhausted="skip")
    refusal = CommitRefusedError if call == "commit" else ConsumerInUseError
    assert isinstance(run.ends(), refusal)
    assert committed(lab) == [4]
    assert handler.offsets() == [*range(5)]


@pytest.mark.contract("W4")
@pytest.mark.parametrize("whose", ["worker", "consumer"])
@each_ending
def test_hook_cannot_end_the_consumer_of_a_worker(lab, ending, whose):
    """The consumer's hooks run in the worker's own poll."""
    filled(lab, 1, *[""] * 4)
    tried = []

    def hook(event):
        ours = events.PartitionStarted, events.RebalanceCompleted
        if isinstance(event, ours) and not tried:
            tried.append(refused(run.consumer, ending))

    handler = Handler(lab)
    options = {"on_event": hook}
    if whose == "consumer":
        options = {"settings": {"hooks": [hook]}}
    run = Working(lab, handler, **options)
    run.done(4)
    run.stop()
    assert tried == [True]
    assert committed(lab) == [4]
    assert handler.offsets() == [*range(4)]


@pytest.mark.contract("W4")
@each_ending
def test_consumer_of_a_pump_cannot_be_ended_in_its_block(lab, ending):
    filled(lab, 1, *[""] * 4)
    reading = consumer(lab, "t", max_poll_records=2)
    with Pump(reading, commit=NEVER) as pump:
        taken(lab, pump, 2)[0].done()
        assert refused(reading, ending)
    assert committed(lab) == [2]
    reading.unsubscribe()
    reading.close()


@pytest.mark.contract("W4", "W8")
def test_lifespan_that_closes_the_consumer_raises_and_the_worker_closes_it(lab):
    @contextmanager
    def lifespan():
        yield
        run.consumer.close()

    filled(lab, 1, *[""] * 4)
    run = Working(lab, Handler(lab), commit=NEVER, lifespan=lifespan)
    run.done(4)
    run.worker.stop()
    assert isinstance(run.ends(), LifespanError)
    assert isinstance(run.error.__cause__, ConsumerInUseError)
    assert committed(lab) == [4]
    assert run.consumer._closed


@pytest.mark.contract("W4", "W8")
def test_consumer_may_be_closed_after_its_worker(lab):
    run, _ = half_done(lab)
    run.stop()
    for ending in ("close", "close immediately", "with"):
        ENDINGS[ending](run.consumer)
    assert committed(lab) == [6]


@pytest.mark.contract("W4", "W8")
def test_consumer_left_open_by_its_worker_may_be_closed_by_the_program(
    lab, monkeypatch
):
    """A second Ctrl-C may end the worker before the worker closes its consumer."""
    run, _ = half_done(lab)

    def interrupted(_seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(run.worker._runner, "stop", interrupted)
    run.worker.stop()
    assert isinstance(run.ends(), KeyboardInterrupt)
    assert not run.consumer._closed
    run.consumer.close()
    assert committed(lab) == [6]


@pytest.mark.contract("W4")
def test_subscription_may_change_while_a_worker_is_running(lab):
    lab.topic("u", 1)
    run, handler = half_done(lab)
    run.consumer.subscribe(["u"])
    lab.until(lambda: run.consumer.assignment() == {TopicPartition("u", 0)})
    assert committed(lab) == [6]
    run.stop()
    assert handler.offsets() == [*range(6)]


# Every public call, from a handler and from a listener


TP = TopicPartition("t", 0)
NEXT = {TP: OffsetAndMetadata(2, "", -1)}
END = {TP: OffsetAndMetadata(4, "", -1)}

REFUSED = CommitRefusedError
IN_USE = ConsumerInUseError
BLOCKS = BlockingCallInListenerError


def held_for_a_block(consumer):
    with consumer.held("t"):
        pass


def paused_and_resumed(consumer):
    consumer.pause(TP)
    consumer.resume(TP)


def everything_paused_and_resumed(consumer):
    consumer.pause_all()
    consumer.resume_all()


VALUES = ["busy", "decoder", "hook_failures", "DEFAULT_CONFIG"]
VALUES += ["DEFAULT_SESSION_TIMEOUT_MS_PRE_KIP_735"]
QUESTIONS = ["assignment", "bootstrap_connected", "holds", "metrics", "paused", "quiet"]
QUESTIONS += ["subscription", "resume_all", "wakeup"]
# By name: the call, its error in a handler, and its error in a listener. None means
# that the call is harmless, and that all records are handled and committed afterwards.
CALLS = {
    **{name: (attrgetter(name), None, None) for name in VALUES},
    **{name: (methodcaller(name), None, None) for name in QUESTIONS},
    "__iter__": (lambda c: next(iter(c)), ConcurrentPollError, BLOCKS),
    "__next__": (next, ConcurrentPollError, BLOCKS),
    "assign": (lambda c: c.assign([TP]), IN_USE, IN_USE),
    "beginning_offsets": (lambda c: c.beginning_offsets([TP]), None, BLOCKS),
    "bootstrap": (lambda c: c.bootstrap(timeout_ms=1000), None, BLOCKS),
    "close": (lambda c: c.close(), IN_USE, BLOCKS),
    "commit": (lambda c: c.commit(NEXT), REFUSED, REFUSED),
    "commit without offsets": (lambda c: c.commit(), REFUSED, REFUSED),
    "commit_async": (lambda c: c.commit_async(NEXT), REFUSED, REFUSED),
    "commit_async without offsets": (lambda c: c.commit_async(), REFUSED, REFUSED),
    "committed": (lambda c: c.committed(TP), None, BLOCKS),
    "end_offsets": (lambda c: c.end_offsets([TP]), None, BLOCKS),
    "explain": (lambda c: c.explain(TP), None, None),
    "group_metadata": (lambda c: c.group_metadata(), REFUSED, REFUSED),
    "held": (held_for_a_block, None, None),
    "highwater": (lambda c: c.highwater(TP), None, None),
    "offsets_for_times": (lambda c: c.offsets_for_times({TP: 0}), None, BLOCKS),
    "partitions_for_topic": (lambda c: c.partitions_for_topic("t"), None, None),
    "pause": (paused_and_resumed, None, None),
    "pause_all": (everything_paused_and_resumed, None, None),
    "poll": (lambda c: c.poll(100), ConcurrentPollError, BLOCKS),
    "position": (lambda c: c.position(TP), None, BLOCKS),
    "resume": (lambda c: c.resume(TP), None, None),
    "seek": (lambda c: c.seek(TP, 0), None, None),
    "seek_to_beginning": (lambda c: c.seek_to_beginning(TP), None, None),
    "seek_to_end": (lambda c: c.seek_to_end(TP), None, None),
    "subscribe": (lambda c: c.subscribe(["t"]), None, None),
    "topics": (lambda c: c.topics(), None, BLOCKS),
    "unsubscribe": (lambda c: c.unsubscribe(), IN_USE, BLOCKS),
}


def test_every_public_name_of_the_consumer_is_in_the_table():
    public = {name for name in dir(SafeConsumer) if not name.startswith("_")}
    assert {name.split()[0] for name in CALLS} == {*public, "__iter__", "__next__"}


class Calling:
    """Makes a call once, and records its error."""

    def __init__(self, call):
        self.call = call
        self.consumer = None
        self.raised = []

    def __call__(self, *_):
        if self.raised:
            return
        self.raised.append(None)
        try:
            self.call(self.consumer)
        except Exception as error:  # noqa: BLE001 - the test compares it
            self.raised[0] = error


def pumped(lab, reading, handler, calling):
    """Take batches until everything is committed, or until no record can arrive."""
    with Pump(reading, commit=OFTEN) as pump:
        end = lab.now + 20.0
        while committed(lab) != [8] and lab.now < end and not reading._closed:
            for batch in pump.turn():
                calling()
                for record in batch.records:
                    handler(record, batch)
                batch.done()


def worked(lab, reading, handler, executor):
    run = Working(lab, handler, given=reading, executor=executor, commit=OFTEN)
    end = lab.now + 20.0
    while committed(lab) != [8] and lab.now < end and run._thread.is_alive():
        lab.sleep(0.1)
    run.worker.stop()
    run.ends()


# Where the call is made, the reader, and whether every run has the case. Every run makes
# all calls in a handler; two more of its cases make only the calls that are refused.
PLACES = [
    ("a handler", "thread", lambda _: True),
    ("a handler", "pump", lambda refusals: refusals[0]),
    ("a listener", "thread", any),
    ("a handler", "asyncio", lambda _: False),
    ("a listener", "pump", lambda _: False),
]
PLAYED = [
    pytest.param(name, *place, marks=() if is_common(refusals) else pytest.mark.nightly)
    for name, (_, *refusals) in CALLS.items()
    for *place, is_common in PLACES
]
# These calls skip records, as the program intends.
SKIP = {"seek_to_end"}


@pytest.mark.contract("W4", "W8")
@pytest.mark.parametrize(("name", "where", "kind"), PLAYED)
def test_call_in_a_handler_or_listener_is_refused_or_harmless(lab, name, where, kind):
    filled(lab, 1, "calls", *[""] * 7)
    call, *expected = CALLS[name]
    calling = Calling(call)
    reading = calling.consumer = consumer(lab, max_poll_records=2)
    in_listener = calling if where == "a listener" else len
    listener = Listener(assigned=lambda tps: tps and in_listener(tps), revoked=len)
    reading.subscribe(["t"], listener=listener)
    handler = Handler(lab, calls=calling)
    in_handler = calling if where == "a handler" else Calling(lambda _: None)
    handler.does["calls"] = in_handler
    if kind == "pump":
        with suppress(SafeConsumerError, IllegalStateError):  # the consumer was closed
            pumped(lab, reading, handler, in_handler)
        reading.close()
    else:
        worked(lab, reading, handler, kind)
    (raised,) = calling.raised
    refusal = expected[where == "a listener"]
    assert isinstance(raised, refusal or type(None)), raised
    last = Working(lab, handler, name="b")
    lab.until(lambda: committed(lab) == [8])
    last.stop()
    assert name in SKIP or {*handler.offsets()} == {*range(8)}


@pytest.mark.contract("W4")
@pytest.mark.parametrize("kind", ["worker", "pump"])
def test_commit_in_a_listener_is_refused(lab, kind):
    filled(lab, 2, *["slow"] * 4)
    handler = Handler(lab, slow=0.5)
    refused = []

    def departs(tps):
        try:
            if tps:
                reading.commit_async()
        except CommitRefusedError as error:
            refused.append(error)

    reading = consumer(lab, heartbeat_interval_ms=200)
    reading.subscribe(["t"], listener=Listener(revoked=departs))
    if kind == "pump":
        with Pump(reading, drain=Drain(revoke=2.0, shutdown=0.0)) as pump:
            out = taken(lab, pump, 8)
            second = Working(lab, handler, name="b")
            second.owns(1)
            assert len(out) > 1
        reading.close()
    else:
        first = Working(lab, handler, given=reading)
        first.done(2)
        second = Working(lab, handler, name="b")
        second.owns(1)
        first.stop()
    lab.until(lambda: committed(lab) == [4, 4])
    second.stop()
    assert refused
    calls = {(one.partition, one.offset) for one in handler.calls}
    assert calls == {*itertools.product(range(2), range(4))}


@pytest.mark.contract("W4", "P17")
def test_commits_work_again_after_the_block_of_a_pump(lab):
    filled(lab, 1, *[""] * 4)
    reading = consumer(lab, "t", max_poll_records=2)
    with Pump(reading) as pump:
        taken(lab, pump, 2)[0].done()
        with pytest.raises(CommitRefusedError, match="commits finished records"):
            reading.commit()
    (records,) = reading.poll(5000).values()
    assert [one.offset for one in records] == [2, 3]
    for commit in (reading.commit, lambda: reading.commit(END), reading.commit_async):
        commit()
    assert committed(lab) == [4]
    assert reading.group_metadata().generation_id > 0
    reading.close()

"""Tests a worker's promises on a broker, with threads, coroutines and processes."""

import signal
import threading
from contextlib import closing

import pytest
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient

from safeconsumer import DeadLetter, Drain, Limits, Pump, Retry, Worker
from safeconsumer._kafka.membership import Membership
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.brakes import BACKPRESSURE
from tests.broker.worker.handlers import AsyncRecording, Recording
from tests.harness.polling import poll_all_until
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.any_broker


QUICK = Retry(attempts=3, first=0.05, most=0.1)


@pytest.fixture(params=["thread", "asyncio", "process"])
def executor(request):
    return str(request.param)


@pytest.fixture
def recording(executor, tmp_path):
    return (AsyncRecording if executor == "asyncio" else Recording)(tmp_path)


@pytest.fixture
def run(lab, executor, recording):
    def start(handle=None, **settings):
        settings = {"concurrency": 3, "retry": QUICK, **settings}
        return lab.run(handle or recording, executor=executor, **settings)

    return start


@pytest.mark.contract("W7")
def test_dead_letter_completes_its_record(lab, run, recording):
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "fail", "reject", ""]}, key=lambda n: b"k%d" % n)
    dead = lab.other_topic()
    running = run(dead_letter=DeadLetter(lab.producer, dead))
    running.wait_done(4)
    report = running.end()
    assert (report.dead_letters, lab.committed()) == (2, {0: 4})
    assert recording.offsets()[0] == [0, 1, 1, 1, 2, 3]
    letters = lab.read(dead, 2)
    assert [one.value for one in letters] == [b"fail", b"reject"]
    headers = dict(letters[0].headers)
    assert headers["dead-letter-offset"] == b"1"
    assert headers["dead-letter-topic"] == lab.topic.encode()
    assert headers["dead-letter-attempts"] == b"3"
    assert headers["dead-letter-exception"] == b"builtins.ValueError"


def test_stalled_handler_is_reported_with_its_stack(lab, run, executor, recording):
    lab.new_topic(partitions=1)
    lab.produce({0: ["until=go"]})
    running = run(limits=Limits(age=0.2), drain=Drain(shutdown=0.1))
    place = f"{lab.topic}:0 offset 0: its handler has run for"
    at = {
        "thread": "time.sleep(seconds)",
        "asyncio": "await asyncio.sleep(seconds)",
        "process": place,  # the stack of another process cannot be read
    }[executor]

    def is_named():
        reasons = running.worker.healthy().reasons
        return any(place in one and at in one for one in reasons)

    wait_for(is_named, f"it to be found at {at}")

    def reported():
        events = running.events
        return [one for one in events if type(one) is worker_events.HandlerStalled]

    wait_for(reported, "its event")
    assert bool(reported()[0].stack) is (executor != "process")
    (recording.folder / "go").touch()


# Here each of the other promises has one test on a broker; the simulated world tests
# the details.


class Gate:
    """A handler that waits until the test releases it."""

    def __init__(self):
        self.opened = threading.Event()
        self.began = []

    def __call__(self, record, _context):
        self.began.append((record.partition, record.offset))
        assert self.opened.wait(30)


@pytest.mark.contract("W1", "W9")
def test_backpressure_bounds_kept_records_and_names_its_hold(lab):
    lab.new_topic(partitions=2)
    lab.produce({0: ["v"] * 200, 1: ["v"] * 200})
    gate = Gate()
    consumer = lab.consumer(max_poll_records=10)
    running = lab.run(gate, consumer, limits=Limits(records=40), concurrency=2)
    wait_for(lambda: BACKPRESSURE in running.worker.stats().paused, "a hold")
    consumer.pause(lab.topic, owner="ops", reason="a test")
    stats = running.worker.stats()
    assert stats.queued + stats.running <= 40
    owners = {hold.owner for hold in consumer.holds()}
    assert {"ops", BACKPRESSURE} <= owners
    lines = [line for tp in consumer.assignment() for line in consumer.explain(tp)]
    assert any(BACKPRESSURE in line for line in lines)
    gate.opened.set()
    wait_for(
        lambda: not running.worker.stats().running, "the running handlers to finish"
    )
    assert running.worker.stats().queued  # W10: the worker obeys the hold of "ops"
    assert "ops" in {hold.owner for hold in consumer.holds()}
    assert running.worker.stats().done < 400
    consumer.resume(lab.topic, owner="ops")
    running.wait_done(400)
    wait_for(lambda: not running.worker.stats().paused, "its hold to be lifted")
    assert not consumer.holds()
    assert running.worker.stats().leaked == 0


@pytest.mark.contract("W2")
def test_handler_slower_than_max_poll_interval_does_not_evict_the_worker(lab):
    """kafka-python's own consumer is evicted if it does not poll for as long."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    gate = Gate()
    times = {"max_poll_interval_ms": 1_500, "session_timeout_ms": 6000}
    consumer = lab.consumer(**times)
    running = lab.run(gate, consumer, drain=Drain(revoke=0.2))
    wait_for(lambda: gate.began, "the handler to begin")
    membership = Membership(consumer)
    generation = membership.generation()
    config = {**lab.broker.client_config, **times}
    other = f"{lab.group}-stock"
    stock = KafkaConsumer(lab.topic, group_id=other, **config)
    with closing(stock), KafkaAdminClient(**lab.broker.client_config) as admin:
        poll_all_until(stock, stock.assignment)

        def state():
            return admin.describe_groups([other])[other]["group_state"]

        wait_for(lambda: state() == "Empty", "the member to be evicted", pause=0.1)
    assert membership.generation() == generation
    gate.opened.set()
    running.wait_done(1)
    assert membership.generation() == generation
    running.end()
    assert lab.committed() == {0: 1}


def test_signal_handler_stops_a_waiting_pump(lab):
    lab.new_topic(partitions=1)
    consumer = lab.consumer()
    pump = Pump(consumer)
    before = signal.signal(signal.SIGUSR1, lambda *_: pump.stop())
    main = threading.main_thread().ident
    assert main is not None

    def ask():
        wait_for(consumer.assignment, "it to wait for a batch")
        signal.pthread_kill(main, signal.SIGUSR1)

    asking = threading.Thread(target=ask)
    try:
        asking.start()
        with pump:
            assert list(pump) == []
    finally:
        asking.join()
        signal.signal(signal.SIGUSR1, before)
    assert not [one for one in threading.enumerate() if one.name == "safeconsumer-pump"]


def test_worker_that_cannot_handle_a_signal_does_not_start(lab):
    lab.new_topic(partitions=1)
    worker = Worker(lab.consumer(), Gate())
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises((OSError, ValueError)):
        worker.run(signals=(signal.SIGTERM, signal.SIGKILL))
    assert signal.getsignal(signal.SIGTERM) is before
    assert worker.stats().state == "new"
    worker.stop(drain=False)
    assert worker.run().done == 0


@pytest.mark.contract("W11")
def test_handler_can_pause_its_topic(lab, recording, run):
    lab.new_topic(partitions=1)
    count = lab.produce({0: ["pause=0.5", *[""] * 10]})
    running = run()
    running.wait_done(count)
    running.end()
    first, second, *others = recording.traces()
    assert (first.offset, second.offset, second.attempt) == (0, 0, 1)
    assert second.began - first.ended >= 0.5
    assert [one.offset for one in others] == [*range(1, 11)]


@pytest.mark.contract("W12")
def test_worker_commits_the_start_position_of_idle_partitions(lab):
    lab.new_topic(partitions=3)
    lab.produce({0: ["before"] * 4, 1: ["before"] * 2})
    running = lab.run(Gate(), lab.consumer(auto_offset_reset="latest"))
    wait_for(lambda: None not in lab.committed().values(), "a floor")
    assert lab.committed() == {0: 4, 1: 2, 2: 0}
    running.end()

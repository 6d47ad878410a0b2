"""A held partition is not quiet while a program works on records of that partition."""

import asyncio

import pytest

from safeconsumer import Drain, Pump, SafeConsumer, Worker
from safeconsumer.holds.scope import ALL, Partition
from tests.harness.listing import short
from tests.sim.group.operating import CONTROL, operated
from tests.sim.lab import GROUP
from tests.sim.worker.working import in_thread

NAP = 0.5  # seconds for which a program works on a record


class Program:
    """A process with some kind of program, which works for a while on each record."""

    def __init__(self, lab, kind):
        self.lab, self._kind = lab, kind
        self.written = []
        self.wrote_at = 0.0
        self.consumer = None
        self.is_over = False
        self.stop_more = lambda: None
        self.process, self._thread = lab.start("a", self._live)
        lab.until(lambda: self.consumer is not None)

    def _live(self):
        self.consumer = SafeConsumer(
            "t",
            **self.lab.settings(
                group_id=GROUP, client_id="a", control=CONTROL, max_poll_records=100
            ),
            heartbeat_interval_ms=500,
            consumer_timeout_ms=200,
        )
        while not self.is_over:
            self._kind(self)
        self.consumer.close(autocommit=False)

    def work(self, record):
        self.lab.sleep(NAP)
        self.note(record)

    def note(self, record):
        self.written.append((record.topic, record.partition, record.offset))
        self.wrote_at = self.lab.now

    def stop(self):
        self.is_over = True
        self.stop_more()
        self._thread.join()


def poll(program):
    for records in program.consumer.poll(200).values():
        for record in records:
            program.work(record)


def peek(program):
    consumer = program.consumer
    for tp, records in consumer.poll(200, update_offsets=False).items():
        for record in records:
            program.work(record)
        consumer.seek(tp, records[-1].offset + 1)


def iterate(program):
    for record in program.consumer:
        program.work(record)


def step_and_leave(program):
    for record in program.consumer:
        program.work(record)
        break


def work_in_threads(program):
    """Poll, and work in threads; ``consumer.busy`` returns the threads' partitions."""
    running = {}
    program.consumer.busy = lambda: [
        tp for tp, one in running.items() if one.is_alive()
    ]
    for tp, records in program.consumer.poll(200).items():
        running[tp] = in_thread(lambda some=records: [*map(program.work, some)])
    return running


def own_thread(program):
    """Poll, work on the records in threads, and keep polling until the threads are done."""
    running = work_in_threads(program)
    while any(one.is_alive() for one in running.values()):
        program.consumer.pause(*running, owner="backpressure")
        program.consumer.poll(200)
    program.consumer.resume(*running, owner="backpressure")


def worker(program, handle, **options):
    made = Worker(program.consumer, handle=handle, **options)
    program.stop_more = made.stop
    made.run()


def worker_threads(program):
    worker(program, lambda record, _: program.work(record))


def worker_batches(program, batch=4, **options):
    def handle(records, _):
        for record in records:
            program.work(record)

    worker(program, handle, batch=batch, **options)


def worker_asyncio(program):
    async def handle(record, _):
        await asyncio.sleep(NAP)
        program.note(record)

    worker(program, handle, executor="asyncio")


def pump(program):
    with Pump(program.consumer) as made:
        program.stop_more = made.stop
        for batch in made:
            for record in batch.records:
                program.work(record)
            batch.done()


def pump_answered_later(program):
    """Receive batches on one thread, and finish them on others."""
    with Pump(program.consumer) as made:
        program.stop_more = made.stop
        for batch in made:
            in_thread(lambda one=batch: ([*map(program.work, one.records)], one.done()))


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    "kind",
    [
        *(poll, peek, iterate, step_and_leave, own_thread),
        *(worker_threads, worker_batches, worker_asyncio, pump, pump_answered_later),
    ],
    ids=short,
)
@operated(nightly=10)
def test_no_program_writes_after_its_group_is_quiet(lab, operator, kind):
    """Each kind of program is reported as quiet within two seconds after its last write."""
    lab.topic("t", records=8)
    program = Program(lab, kind)
    lab.until(lambda: len(program.written) >= 3)
    operator.hold()
    operator.wait_until_quiet()
    written = [*program.written]
    assert lab.now - program.wrote_at < 2.0
    lab.sleep(5)
    assert program.written == written
    operator.lift()
    lab.until(lambda: len(program.written) == 8)
    assert len({*program.written}) == 8
    program.stop()


@operated()
def test_partition_is_quiet_when_its_records_in_a_batch_are_done(lab, operator):
    """The iteration continues with the other partition."""
    lab.topic("t", 2, records=12)
    program = Program(lab, iterate)
    lab.until(lambda: len(program.written) >= 3)
    iterator, (_, number, _) = program.consumer._iterator, program.written[-1]
    operator.hold(f"t:{number}")
    operator.wait_until_quiet(Partition("t", number))
    assert program.consumer._iterator is iterator
    program.stop()


def consumer_with_records(operator):
    """Return a consumer that obeys control topics, and whose last poll returned records."""
    lab = operator.lab
    lab.topic("t", records=8)
    consumer = SafeConsumer(
        "t",
        **lab.settings(
            group_id=GROUP, client_id="a", control=CONTROL, max_poll_records=2
        ),
    )
    while not consumer.poll(200):
        pass
    return consumer


def counted(consumer):
    """Return a list that gets an item whenever a poll or a step requests a report."""
    asked = []
    consumer._safe_iteration.when_done = lambda: asked.append(1)
    return asked


@operated()
def test_poll_requests_one_report_only_after_records_of_a_held_partition(operator):
    consumer = consumer_with_records(operator)
    asked = counted(consumer)
    consumer.poll(200)
    assert asked == []
    consumer.pause("t")
    assert consumer.poll(200) == {}
    assert asked == [1]
    assert consumer.poll(200) == {}
    assert asked == [1]
    consumer.close()


def busy_partitions(consumer):
    return {one.partition for one in consumer._subscription.busy()}


@pytest.mark.parametrize(
    "change",
    [
        lambda consumer: consumer.seek(next(iter(consumer.assignment())), 0),
        lambda consumer: consumer.unsubscribe(),
        lambda consumer: consumer.commit(),
        lambda consumer: consumer.wakeup(),
        lambda consumer: consumer.pause("t"),
    ],
    ids=["seek", "unsubscribe", "commit", "wakeup", "pause"],
)
@operated()
def test_partition_stays_busy_until_the_next_poll(operator, change):
    consumer = consumer_with_records(operator)
    assert busy_partitions(consumer) == {0}
    change(consumer)
    assert busy_partitions(consumer) == {0}
    consumer.pause_all()
    consumer.poll(0)
    assert busy_partitions(consumer) == set()
    consumer.close()


@operated()
def test_iteration_step_stopped_by_a_wakeup_finishes_the_previous_record(operator):
    consumer = consumer_with_records(operator)
    consumer.config["consumer_timeout_ms"] = 500
    next(consumer)
    assert busy_partitions(consumer) == {0}
    consumer.pause("t")
    asked = counted(consumer)
    consumer.wakeup()
    with pytest.raises(StopIteration):
        next(consumer)
    assert (busy_partitions(consumer), asked) == (set(), [1])
    consumer.close()


@operated()
def test_partition_whose_records_a_poll_puts_back_is_not_busy(operator):
    """The pause comes between the drain and the final check of the poll."""
    consumer = consumer_with_records(operator)
    drain = consumer._fetcher.fetched_records

    def drained_and_held(*given):
        found = drain(*given)
        consumer.pause("t")
        return found

    consumer._fetcher.fetched_records = drained_and_held
    assert consumer.poll(200) == {}
    assert busy_partitions(consumer) == set()
    consumer.close()


@operated()
def test_partition_of_polled_records_is_busy_again_after_a_pump(lab, operator):
    """In the pump's ``with`` block only records in batches count, not all polled records."""
    consumer = consumer_with_records(operator)
    with Pump(consumer) as pump:
        batch = next(iter(pump))
        assert busy_partitions(consumer) == {0}
        consumer.pause("t")
        batch.done()
        lab.until(lambda: busy_partitions(consumer) == set())
    consumer.resume("t")
    while not consumer.poll(200):
        pass
    assert busy_partitions(consumer) == {0}
    consumer.close()


@operated()
def test_batch_left_in_a_pump_counts_as_busy_until_it_is_done(operator):
    consumer = consumer_with_records(operator)
    consumer.pause_all()
    consumer.poll(0)
    consumer.resume_all()
    with Pump(consumer, drain=Drain(shutdown=0.1)) as pump:
        batch = next(iter(pump))
    consumer.pause_all()
    consumer.poll(0)
    assert busy_partitions(consumer) == {0}
    batch.done()
    assert busy_partitions(consumer) == set()
    consumer.close()


def worker_that_outlives_a_drain(program):
    worker_batches(program, batch=20, drain=Drain(revoke=0.1))


def place(given):
    topic, partition, *_ = given
    return topic, partition


@pytest.mark.contract("G8")
@pytest.mark.parametrize("kind", [own_thread, worker_that_outlives_a_drain], ids=short)
@operated(nightly=5)
def test_partition_is_not_quiet_while_its_former_owner_works_on_it(lab, operator, kind):
    """A rebalance has given the partition to a member that obeys the hold."""
    lab.topic("t", 2, records=6)
    program = Program(lab, kind)
    lab.until(lambda: len(program.written) >= 1)
    other = operator.member("b")
    lab.until(lambda: other.consumer and other.consumer.assignment())
    (gone,) = other.consumer.assignment()
    before = len(program.written)
    operator.hold(str(Partition(*gone)))
    operator.wait_until_quiet(Partition(*gone))
    written = [*map(place, program.written)].count(gone)
    assert gone in map(place, program.written[before:])
    lab.sleep(3)
    assert [*map(place, program.written)].count(gone) == written
    program.stop()


def thread_that_outlives_close(program):
    """Close the consumer while a thread works on polled records."""
    running = work_in_threads(program)
    program.is_over = bool(running)


def worker_that_outlives_close(program):
    """Stop a worker whose drain is too short for its handler, which continues."""
    worker_batches(program, batch=8, drain=Drain(shutdown=0.1))
    program.is_over = True


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    "kind", [thread_that_outlives_close, worker_that_outlives_close], ids=short
)
@operated()
def test_closed_member_that_is_still_working_is_not_quiet(lab, operator, kind):
    lab.topic("t", records=8)
    program = Program(lab, kind)
    operator.member("b")
    lab.until(lambda: len(program.written) >= 1)
    program.stop_more()
    lab.until(lambda: program.is_over, 20)
    operator.hold()
    operator.wait_until_quiet()
    written = [*program.written]
    lab.sleep(10)
    assert program.written == written


@pytest.mark.contract("G8")
@operated()
def test_member_without_reports_is_not_quiet_once_its_hold_may_have_ended(
    lab, operator
):
    """The hold expires by the member's own clock, and the member delivers records."""
    lab.topic("t", records=8)
    one = operator.member(max_poll_records=1, enable_auto_commit=True)
    lab.until(lambda: len(one.records) == 8)
    operator.hold(for_=25)
    operator.wait_until_quiet()
    lab.cluster.fail("Produce", error=19)  # NOT_ENOUGH_REPLICAS
    (tp,) = lab.partitions("t")
    lab.append(tp, 200, 8)
    lab.until(lambda: len(one.records) > 8, 100)
    with operator.looking() as looking:
        for _ in range(7):
            lab.append(tp, 1, 300)
            assert not looking.look(GROUP).quietness([ALL]).is_reached
            lab.sleep(10)


@operated(nightly=3)
def test_busy_is_not_called_after_close_has_returned(lab, operator):
    """The last call of ``busy`` takes longer than ``close`` waits."""
    consumer = consumer_with_records(operator)
    asked = []

    def busy():
        asked.append(lab.now)
        lab.sleep(20)
        return ()

    consumer.busy = busy
    consumer.pause("t")
    lab.until(lambda: bool(asked))
    consumer.close(autocommit=False)
    closed = lab.now
    assert closed < asked[-1] + 20
    lab.sleep(60)
    assert [one for one in asked if one > closed] == []


@pytest.mark.contract("G8")
@pytest.mark.parametrize("has_pumped", [False, True], ids=["a loop", "after a pump"])
@operated()
def test_closed_loop_has_no_busy_partition(operator, *, has_pumped):
    consumer = consumer_with_records(operator)
    if has_pumped:
        with Pump(consumer, drain=Drain(shutdown=0.1)) as pump:
            batch = next(iter(pump))
        batch.done()
    while not consumer.poll(200):
        pass
    assert busy_partitions(consumer) == {0}
    consumer.close()
    assert busy_partitions(consumer) == set()

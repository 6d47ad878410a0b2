"""
The public API as a type checker sees it. No code here runs.

``mypy`` checks that valid code passes, that results have these types, and that wrong
code fails: each wrong line has a ``type: ignore``, and an unneeded one is an error.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict, assert_type

from kafka import TopicPartition

import safeconsumer
import safeconsumer.spark as safe
from safeconsumer import (
    ALL,
    Batch,
    Breaker,
    Commit,
    Context,
    Control,
    DeadLetter,
    Drain,
    Hold,
    KafkaConsumer,
    Lifetime,
    Limits,
    Operator,
    Pause,
    Pump,
    Record,
    Reject,
    Retry,
    RetryLater,
    SafeConsumer,
    SafeConsumerError,
    Worker,
    metrics,
)
from safeconsumer.errors import (
    BlockingCallInListenerError,
    BlockingCallInSignalHandlerError,
    HoldSettingError,
    IllegalTargetError,
    MissingExtraError,
    NotConsumedError,
    RecordFailedError,
    TargetTypeError,
    UnsupportedKafkaPythonError,
)
from safeconsumer.events import AssignedWhileHeld, Event, HoldEvent
from safeconsumer.holds import Everything, Partition, Pattern, Topic
from safeconsumer.journal.writer import JournalWriter
from safeconsumer.spark.python import SafeKafkaSource
from safeconsumer.worker import Failure, Health, Report, Stats, Tracing, WorkerControl

TP = TopicPartition("orders", 3)


def use(*values: object) -> None:
    """Accept any values, so that the checker does not report them as unused."""


def construct() -> None:
    """Make consumers with upstream's keys and ours, under either name."""

    def hook(event: Event) -> None:
        use(event.as_dict())
        assert_type(event.as_log_line(), tuple[str, dict[str, object]])
        match event:
            case AssignedWhileHeld(holds, partitions):
                assert_type(holds, tuple[Hold, ...])
                use(partitions)
            case HoldEvent(holds):
                assert_type(holds, tuple[Hold, ...])

    assert_type(SafeConsumer(), SafeConsumer)
    assert_type(KafkaConsumer("orders", "audit"), SafeConsumer)
    assert_type(safeconsumer.KafkaConsumer(bootstrap_servers=["x:1"]), SafeConsumer)
    SafeConsumer(
        "orders",
        group_id="g",
        start_paused=True,
        default_lifetime=Lifetime.WHILE_ASSIGNED,
        parked_max_bytes=1024,
        hooks=[hook],
    )
    SafeConsumer(log=False)
    SafeConsumer(hooks=(), log=True)
    SafeConsumer(group_id="g", control=Control(clock_skew=timedelta(seconds=5)))
    SafeConsumer(group_id="g", control=Control.prefixed("payments_", clock_skew=5))
    SafeConsumer(group_id="g", control=Control(unavailable="run", trust_topic=True))
    SafeConsumer(group_id="g", pause_handover="assignor")
    SafeConsumer(journal="journals")
    SafeConsumer(journal=Path("journals"))
    SafeConsumer(journal=JournalWriter("journals", member="a"))
    SafeConsumer(journal=True)  # type: ignore[arg-type]  # must be refused
    SafeConsumer(control=True)  # type: ignore[arg-type]  # must be refused
    consumer = SafeConsumer(group_id="g", control=Control())
    consumer.busy = lambda: {TopicPartition("orders", 3)}
    consumer.busy = lambda: 3  # type: ignore[assignment]  # must be refused
    SafeConsumer(start_paused="yes")  # type: ignore[arg-type]  # must be refused
    SafeConsumer(hooks=hook)  # type: ignore[arg-type]  # must be refused
    SafeConsumer(default_lifetime="forever")  # type: ignore[arg-type]  # must be refused


def place(consumer: SafeConsumer) -> None:
    """Hold partitions, topics and patterns, with an owner, reason, duration and lifetime."""
    consumer.pause()
    consumer.pause(TP, "orders", "orders:3", "re:ord.*", re.compile("ord.*"), ALL)
    consumer.resume(*(hold.scope for hold in consumer.holds()))
    assert_type(consumer.hook_failures, Mapping[str, int])
    consumer.pause(*consumer.assignment())
    consumer.pause(TP, owner="ops", reason="deploy", for_=1.5)
    consumer.pause(TP, for_=timedelta(minutes=1), lifetime=Lifetime.UNTIL_RESUMED)
    consumer.pause_all(owner="ops", reason="deploy", for_=60, lifetime=None)
    assert_type(consumer.resume(TP, "orders", owner="ops"), tuple[Hold, ...])
    assert_type(consumer.resume_all(owner="ops"), tuple[Hold, ...])
    assert_type(consumer.wakeup(), None)
    block: AbstractContextManager[None]
    block = consumer.held(TP, reason="batch", owner="ops", for_=5)
    use(block)
    with consumer.held("orders") as nothing:
        assert_type(nothing, None)
    # The checker accepts a target of any type: kafka-python ships no types, so its
    # TopicPartition is Any, and a union with Any accepts everything.
    consumer.pause(TP, "ops", reason=5)  # type: ignore[arg-type]  # must be refused
    consumer.pause(TP, until=5)  # type: ignore[call-arg]  # must be refused
    consumer.pause_all("orders")  # type: ignore[call-arg]  # must be refused


def operate(settings: Control) -> None:
    """Hold a whole group, and lift the hold."""
    with Operator({"bootstrap_servers": "localhost"}, settings) as operator:
        operator.pause("g", TP, "orders", "@all", owner="ops", reason="full", for_=60)
        operator.pause("g", re.compile("a.*"), owner="ops", for_=timedelta(hours=1))
        assert_type(operator.resume("g", TP, owner="ops", force=True), None)
        operator.pause("g", TP)  # type: ignore[call-arg]  # must be refused


def ask(consumer: SafeConsumer) -> None:
    """Query pauses and holds."""
    for tp in consumer.paused() | consumer.paused(owner="ops") | consumer.quiet():
        consumer.explain(tp)
    consumer.paused("ops")  # type: ignore[call-arg]  # must be refused
    assert_type(consumer.holds(), tuple[Hold, ...])
    assert_type(consumer.explain(TP), tuple[str, ...])


def read(consumer: SafeConsumer) -> None:
    """Read records, which have typed fields except for the results of deserializers."""
    for tp, records in consumer.poll(timeout_ms=100, max_records=10).items():
        assert_type(tp.topic, str)
        assert_type(tp.partition, int)
        for record in records:
            assert_type(record.offset, int)
            assert_type(record.headers, Sequence[tuple[str, bytes | None]])
            assert_type(record.value, Any)
            record.key.whatever()
            as_handled: Record[bytes | None, bytes | None] = record
            use(as_handled, record.checksum, record._asdict())
            use(record.ofset)  # type: ignore[attr-defined]  # must be refused
    for one in consumer:
        use(one.offset)
    consumer.commit()
    consumer.commit({TP: None}, timeout_ms=5)
    consumer.assign([TP])
    consumer.subscribe(["orders"])
    consumer.subscribe(pattern="ord.*", listener=None)
    consumer.unsubscribe()
    consumer.close(autocommit=False, timeout_ms=100)


def hold(one: Hold) -> None:
    """Read the properties of a hold, which is frozen."""
    assert_type(one.owner, str)
    assert_type(one.reason, str | None)
    assert_type(one.placed_at, float)
    assert_type(one.expires_at, float | None)
    assert_type(one.lifetime, Lifetime)
    assert_type(str(one.scope), str)
    assert_type(one.as_dict(), dict[str, object])
    one.owner = "other"  # type: ignore[misc]  # must be refused


def errors() -> None:
    """Check that our errors have a common base class, and the bases that users catch."""
    ours: list[type[SafeConsumerError]] = [NotConsumedError, RecordFailedError]
    values: list[type[ValueError]] = [HoldSettingError, IllegalTargetError]
    not_here: type[NotConsumedError] = IllegalTargetError
    runtime: type[RuntimeError] = BlockingCallInListenerError
    runtime = BlockingCallInSignalHandlerError
    wrong_type: type[TypeError] = TargetTypeError
    imports: list[type[ImportError]] = [MissingExtraError, UnsupportedKafkaPythonError]
    use(ours, values, not_here, runtime, wrong_type, imports)


def takes_a_consumer(function: Callable[[Any], None]) -> Callable[[SafeConsumer], None]:
    """Pass our consumer to code that was written for upstream's consumer."""
    return function


def handle(record: Any, context: Context) -> None:
    """Handle a record on a thread."""
    assert_type(context.attempt, int)
    if record.key is None:
        raise Reject("keyless")  # noqa: EM101 - an example
    if record.value is None:
        raise Pause(for_=300, scope="partition", reason="a sick partition")
    raise RetryLater(2.5)


async def handle_async(_record: object, context: Context) -> None:
    """Handle a record in a coroutine."""
    assert_type(context.deadline, float | None)
    assert_type(context.revoked.is_set(), bool)
    await context.revoked


def work(consumer: SafeConsumer, producer: Any) -> None:
    """Use a worker as its users do."""
    worker = Worker(
        consumer,
        handle,
        order="key",
        executor="thread",
        limits=Limits(records=1000),
        retry=Retry(attempts=3),
        dead_letter=DeadLetter(producer, "orders.dlq"),
        drain=Drain(revoke=5.0),
        commit=Commit(every=1.0),
        breaker=Breaker(on=(ConnectionError, TimeoutError), failures=3),
    )
    Pause(timedelta(minutes=1), "group")  # type: ignore[arg-type]  # no such scope
    Breaker()  # type: ignore[call-arg]  # must be refused
    assert_type(worker.run(signals=(15,)), Report)
    assert_type(worker.stop(timeout=1.0), Report | None)
    assert_type(worker.healthy(), Health)
    assert_type(worker.hook_failures, Mapping[str, int])
    assert_type(worker.stats(), Stats)
    Worker(consumer, handle_async, executor="asyncio")
    Worker(consumer, handle, batch=9, batch_within=0.5)
    Worker(consumer, handle, trace=True)
    Worker(consumer, handle, trace=Tracing(parent=True))
    Worker(consumer, handle, trace="yes")  # type: ignore[arg-type]  # no such setting
    served = Worker(
        consumer,
        handle_async,
        executor="asyncio",
        handler_timeout=30.0,
        lifespan=nullcontext,
    )

    async def serve() -> None:
        assert_type(await served.serve(signals=(15,)), Report)

    Worker(consumer, handle, order="key")
    Worker(consumer, lambda record, context: use(record.offset, context.attempt))
    Worker(consumer, handle, order="random")  # type: ignore[arg-type]  # no such order
    Worker(consumer, handle, on_exhausted="drop")  # type: ignore[arg-type]  # no such way
    use(serve)


def take_batches(consumer: SafeConsumer) -> None:
    """Use a pump as its users do."""
    with Pump(consumer, order="partition", on_exhausted="skip") as pump:
        for batch in pump:
            assert_type(batch, Batch)
            batch.done([0, 1])
            batch.fail(RetryLater(5.0), 2)
            batch.fail(Reject("all the others"))
            assert_type(pump.healthy(), Health)
            assert_type(pump.stats(), Stats)
            batch.fail("text")  # type: ignore[arg-type]  # must be refused
    Pump(consumer, order="key")  # type: ignore[arg-type]  # no such order


class Order(TypedDict):
    """The result of a deserializer."""

    amount: int


def typed_work(consumer: SafeConsumer) -> None:
    """Annotate a record's key and value in the handler's signature."""

    def handle(record: Record[str | None, Order], context: Context) -> None:
        assert_type(record.key, str | None)
        assert_type(record.value["amount"], int)
        assert_type(record.offset, int)
        assert_type(record.headers, Sequence[tuple[str, bytes | None]])
        record.value["price"]  # type: ignore[typeddict-item]  # no such key
        record.offset = 3  # type: ignore[misc]  # must be refused
        use(context.attempt)

    async def handle_async(record: Record[str, dict[str, int]], _: Context) -> None:
        assert_type(record.value, dict[str, int])

    def handle_batch(records: list[Record[bytes, str]], context: Context) -> None:
        for record in records:
            assert_type(record.value, str)
        use(context)

    def handle_any_batch(records: Sequence[Record[object, str]], _: Context) -> int:
        return len(records)

    def takes_one(record: Record[str, str]) -> None:
        use(record)

    def takes_a_number(record: int, context: Context) -> None:
        use(record, context)

    class Handler:
        def __call__(self, record: Record[str, str], context: Context) -> None:
            use(record, context)

    Worker(consumer, handle)
    Worker(consumer, Handler())
    Worker(consumer, handle_async, executor="asyncio")
    Worker(consumer, handle_batch, batch=100)
    Worker(consumer, handle_any_batch, batch=100)
    wider: Record[str | None, object]
    narrow: Record[str, Order] = takes_records()
    wider = narrow  # records are read-only
    use(wider)
    Worker(consumer, takes_one)  # type: ignore[arg-type]  # without a context
    Worker(consumer, takes_a_number)  # type: ignore[arg-type]  # a record is not a number


def takes_records() -> Any:
    """Return the same types as kafka-python's consumer."""


def metric(consumer: SafeConsumer, worker: Worker) -> None:
    """Export figures to Prometheus."""
    metrics.Collector(worker).add(consumer)
    assert_type(metrics.METRICS, tuple[metrics.Metric, ...])
    assert_type(worker.stats().last_poll_at, float | None)


def spark(session: Any) -> None:
    """Hold a session's streams, and get the packages that a session needs."""
    assert_type(safe.jars("folder"), str)
    assert_type(safe.packages(), str)
    controller = safe.register(session)
    assert_type(controller, safe.Controller)
    controller.pause("orders", TopicPartition("orders", 3), reason="x", for_=1.5)
    controller.pause(re.compile("ord.*"), for_=timedelta(hours=1), owner="alice")
    assert_type(controller.resume("orders"), tuple[Hold, ...])
    assert_type(controller.holds(), tuple[Hold, ...])
    assert_type(controller.explain("orders:3"), tuple[str, ...])
    assert_type(controller.lag(), dict[tuple[str, int], int])
    session.dataSource.register(SafeKafkaSource)
    assert_type(SafeKafkaSource.name(), str)
    controller.skip("orders:3", to=4711, reason="poison", owner="alice")
    controller.skip(TopicPartition("orders", 3), to=0, reason="made again")
    controller.skip("orders:3", to=4711, reason="poison", query="billing")
    controller.skip("orders:3", to=4711)  # type: ignore[call-arg]  # a reason is needed
    controller.register("x")  # type: ignore[attr-defined]  # there is no such method


def scopes(hold: Hold) -> str:
    """Match the four kinds of scopes of a hold, all of which are public."""
    match hold.scope:
        case Partition(topic=topic, partition=number):
            return f"{topic}:{number}"
        case Topic(name) | Pattern(name):
            return name
        case Everything():
            return "@all"


def steer(failure: Failure) -> None:
    """Distinguish ordinary errors from exceptions that control a worker."""
    assert_type(failure.attempts, int)
    use(isinstance(failure.error, WorkerControl))

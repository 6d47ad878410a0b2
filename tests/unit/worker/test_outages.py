"""W11: pauses by handlers and breakers hold topics."""

import math
from datetime import timedelta

import pytest
from kafka.errors import MessageSizeTooLargeError

from safeconsumer import Breaker, Pause, Retry, RetryLater
from safeconsumer.errors import HoldSettingError, WorkerSettingError
from safeconsumer.holds.hold import BREAKER, OUTAGE
from safeconsumer.holds.scope import Topic
from safeconsumer.worker import BatchFailure, Reject
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.calls import Slot, all_done, batch_failed
from safeconsumer.worker.dead_letters import call_sink
from safeconsumer.worker.partition import Order, Outcome
from tests.harness.worker.desk import Desk, done_by

EACH_ORDER = pytest.mark.parametrize("order", Order)
DOWN = ConnectionError("down")
BREAKS = Breaker(on=(ConnectionError,), failures=2, first=10.0, factor=3.0)
_RETRY = Retry(attempts=5, first=0.0, jitter=False)


def claim(desk):
    return desk.decisions.queue.claim()


def fail(desk, error, task=None):
    """Fail the first record of a task, leave its other records, and return its offset."""
    task = claim(desk) if task is None else task
    first = task.record(task.indexes[0]).offset
    desk.decisions.complete(
        Outcome(task=task, failed=[(task.indexes[0], error)], left=task.indexes[1:])
    )
    return first


def fail_batch(desk, error):
    """Fail the next batch with an error."""
    desk.decisions.complete(batch_failed(claim(desk), error, 0.0))


def succeed(desk, task):
    desk.decisions.complete(all_done(task, 0.0))


def broken(order=Order.KEY, records=6, **policy):
    """Return a ``Desk`` with these records and a circuit breaker that has just opened."""
    desk = Desk(order, breaker=BREAKS, quantum=1, **policy, records=records)
    fail(desk, DOWN)
    desk.pass_time(0.0)
    fail(desk, DOWN)
    assert owners(desk) == {BREAKER}
    return desk


def regain(desk, count):
    """Lose the partition, get it back, and add this many records."""
    desk.regain()
    desk.admit(count)


def owners(desk):
    return {hold.owner for hold in desk.ledger.view().holds}


# ------------------------------------------------------------ pauses


def test_pause_does_not_count_as_an_attempt():
    """Attempts from before the pause still count."""
    desk = Desk(Order.PARTITION, on_exhausted="skip", records=1)
    fail(desk, ValueError())
    desk.pass_time(1.0)
    for _ in range(5):
        task = claim(desk)
        assert task.attempt == 2
        fail(desk, Pause(60.0), task)
        desk.pass_time(60.0)
    fail(desk, ValueError())
    desk.pass_time(2.0)
    fail(desk, ValueError())
    assert desk.decisions.skipped == 1
    assert desk.decisions.outages.pauses == 5


def test_pause_is_reported_by_one_event():
    """The event has the reason that the handler gave."""
    desk = Desk(Order.PARTITION, records=1)
    fail(desk, Pause(timedelta(minutes=1), reason="why"))
    (event,) = desk.events
    assert event == worker_events.WorkPaused(
        partition="orders:0",
        offset=0,
        attempt=1,
        scope="orders",
        seconds=60.0,
        reason="why",
    )


def test_later_pause_never_shortens_an_earlier_pause():
    """Each event reports how long the longest pause of its scope still lasts."""
    desk = Desk(Order.UNORDERED, quantum=1, records=3)
    first, second, third = claim(desk), claim(desk), claim(desk)
    fail(desk, Pause(60.0), first)
    desk.clock.now += 20.0
    fail(desk, Pause(10.0), second)
    fail(desk, Pause(90.0), third)
    assert [one.seconds for one in desk.events] == [60.0, 40.0, 90.0]
    assert desk.decisions.outages.pauses == 3
    desk.pass_time(89.9)
    assert desk.work() == []
    desk.pass_time(0.1)
    assert desk.work() == [0, 1, 2]


def test_pause_is_reported_before_an_earlier_record_of_its_batch_fails():
    """The event for the pause comes before the event for the earlier record's retry."""
    desk = Desk(Order.PARTITION, is_batch=True, quantum=4, records=2)
    fail_batch(desk, BatchFailure({0: ValueError(), 1: Pause(60.0)}))
    assert [(one.name, one.offset) for one in desk.events] == [
        ("work_paused", 1),
        ("record_retried", 0),
    ]
    assert desk.decisions.outages.pauses == 1


def test_pause_that_cannot_be_placed_fails_its_record():
    """The record is retried, as after any other error."""
    desk = Desk(Order.PARTITION)
    desk.decisions.outages._place = _refusing
    desk.admit(2)
    fail(desk, Pause(60.0))
    assert desk.kinds == [worker_events.RecordRetried]
    desk.pass_time(1.0)
    assert desk.work() == [0, 1]


def _refusing(*_):
    message = "not consumed any more"
    raise LookupError(message)


@pytest.mark.parametrize("scope", ["topic", "all"])
def test_pause_by_a_record_of_a_departing_partition_holds_its_scope(scope):
    desk = Desk(Order.PARTITION, records=2)
    task = claim(desk)
    desk.decisions.queue.drop_queued([desk.epoch])
    fail(desk, Pause(60.0, scope=scope), task)
    assert owners(desk) == {OUTAGE}
    assert desk.work() == []
    assert desk.kept.running == 0
    desk.kept.close(desk.epoch)
    assert desk.kept.records == 0


@EACH_ORDER
@pytest.mark.parametrize("error", [None, DOWN])
def test_call_of_an_earlier_ownership_does_not_affect_the_breaker(order, error):
    """Only a record of the current ownership closes the breaker."""
    desk = broken(order, 3, retry=_RETRY)
    desk.pass_time(10.0)
    old = claim(desk)
    regain(desk, 3)
    if error is None:
        succeed(desk, old)
    else:
        fail(desk, error, old)
    assert owners(desk) == set()
    assert worker_events.BreakerClosed not in desk.kinds
    assert desk.work() == [0, 1, 2]
    assert worker_events.BreakerClosed in desk.kinds


def test_dead_letter_in_flight_completes_its_record_during_a_pause():
    desk = Desk(Order.UNORDERED, quantum=1, sink=print, records=3)
    fail(desk, Reject("planted"))
    letter = desk.decisions.queue.claim()
    fail(desk, Pause(60.0))
    assert done_by(desk.decisions, letter) == [0]
    assert desk.work() == []
    assert desk.kept.done == 1
    desk.pass_time(60.0)
    assert desk.work() == [1, 2]


@pytest.mark.contract("W10")
@pytest.mark.parametrize("order", list(Order))
def test_dead_letter_waits_for_the_end_of_a_pause(order):
    """A letter that was claimed just before the pause is put back."""
    desk = Desk(order, sink=pytest.fail, records=2, retry=Retry(attempts=1))
    fail(desk, ValueError("planted"))
    claimed = desk.decisions.queue.claim()
    desk.pause()
    desk.decisions.complete(call_sink(pytest.fail, claimed, Slot()))
    assert desk.work() == []
    desk.resume()
    assert desk.work() == [0, 1]
    assert desk.decisions.dead_letters == 1


@pytest.mark.contract("W11")
def test_dead_letter_that_fails_does_not_open_the_breaker():
    desk = Desk(Order.PARTITION, breaker=BREAKS, retry=_RETRY, sink=print, records=2)
    for error in (Reject("planted"), DOWN, DOWN, DOWN):
        assert fail(desk, error) == 0
        desk.pass_time(1.0)
    assert owners(desk) == set()
    assert desk.work() == [0, 1]


@pytest.mark.contract("W11")
def test_acknowledged_dead_letter_does_not_close_the_breaker():
    desk = Desk(Order.KEY, breaker=BREAKS, retry=_RETRY, sink=print, records=3)
    fail(desk, Reject("planted"))
    letter = claim(desk)
    fail(desk, DOWN)
    fail(desk, DOWN)
    assert owners(desk) == {BREAKER}
    fail(desk, MessageSizeTooLargeError(), letter)
    desk.pass_time(10.0)
    letter = claim(desk)
    assert letter.letter is not None
    assert done_by(desk.decisions, letter) == [0]
    assert worker_events.BreakerClosed not in desk.kinds
    assert len(desk.work()) == 2
    assert worker_events.BreakerClosed in desk.kinds


# ------------------------------------------------------------ pauses by batches


_NO_HOLD = ("unordered", "key")


@pytest.mark.parametrize("scope", ["key", "topic"])
@pytest.mark.parametrize("order", [Order.PARTITION, Order.UNORDERED])
def test_paused_batch_is_repeated_as_a_whole(order, scope):
    desk = Desk(order, is_batch=True, quantum=4, records=6)
    fail_batch(desk, Pause(60.0, scope))
    assert desk.work() == ([4, 5] if (order.value, scope) == _NO_HOLD else [])
    desk.pass_time(60.0)
    assert list(claim(desk).ordinals) == [0, 1, 2, 3]


def test_any_record_in_a_batch_may_pause_the_topic():
    """The hold is placed immediately, even if earlier records of the batch wait."""
    desk = Desk(
        Order.PARTITION, is_batch=True, quantum=4, on_exhausted="skip", records=4
    )
    errors = {1: ValueError(), 2: Reject("no"), 3: Pause(60.0)}
    fail_batch(desk, BatchFailure(errors))
    assert owners(desk) == {OUTAGE}
    desk.pass_time(59.9)
    assert desk.work() == []
    desk.pass_time(0.1)
    assert desk.work() == [1, 3]
    assert (desk.decisions.skipped, desk.kept.records) == (1, 0)
    assert not desk.epoch.failed


def test_records_for_which_a_batch_requests_a_pause_are_retried_together():
    desk = Desk(Order.PARTITION, is_batch=True, quantum=4, records=4)
    errors = {at: Pause(60.0) for at in (1, 2, 3)}
    fail_batch(desk, BatchFailure(errors))
    desk.pass_time(60.0)
    assert list(claim(desk).ordinals) == [1, 2, 3]
    assert [str(one.scope) for one in desk.ledger.view().holds] == []


# ------------------------------------------------------------ invalid pauses


TIMES = (0, -1.0, math.inf, math.nan, None, "300", True, 10**400)
SCOPES = ("group", None)
REASONS = ("a bell \a", "x" * 1025, 3)


@pytest.mark.parametrize(
    "settings",
    [
        *({"for_": seconds} for seconds in TIMES),
        *({"for_": 1.0, "scope": scope} for scope in SCOPES),
        *({"for_": 1.0, "reason": reason} for reason in REASONS),
    ],
)
def test_invalid_pause_is_refused_at_its_construction(settings):
    with pytest.raises(HoldSettingError):
        Pause(**settings)


# ------------------------------------------------------------ the breaker


@pytest.mark.contract("W11")
def test_open_breaker_holds_the_topic_with_its_reason():
    desk = broken()
    (hold,) = desk.ledger.view().holds
    assert (hold.scope, hold.owner) == (Topic("orders"), BREAKER)
    assert hold.reason == "ConnectionError('down'), 2 times in a row"
    assert hold.expires_at == desk.clock.now + 10.0
    opened = desk.events[-2]
    assert opened == worker_events.BreakerOpened(
        topic="orders", tries=0, seconds=10.0, reason=hold.reason
    )
    (line,) = desk.decisions.outages.problems()
    assert line.startswith(f"orders: stopped by a breaker: {hold.reason}; ")
    assert line.endswith("; held for 10.0 s")
    desk.pass_time(9.9)
    assert desk.work() == []


def test_failure_after_a_breakers_hold_was_lifted_does_not_count_as_an_attempt():
    """The next failure holds the topic again, for the first interval."""
    desk = broken()
    used = dict(desk.failures)
    for _ in range(9):
        desk.ledger.remove([(Topic("orders"), BREAKER)])
        fail(desk, DOWN)
        assert [type(one) for one in desk.events[-3:-1]] == [
            worker_events.BreakerClosed,
            worker_events.BreakerOpened,
        ]
        closed, opened = desk.events[-3:-1]
        assert closed == worker_events.BreakerClosed(
            topic="orders", tries=0, seconds=0.0, is_lifted=True
        )
        assert (opened.tries, opened.seconds) == (0, 10.0)
        assert owners(desk) == {BREAKER}
    assert desk.failures == used
    assert desk.decisions.outages.opened == 10


@pytest.mark.parametrize("is_well", [False, True])
def test_lifted_hold_closes_the_breaker_before_the_next_result(is_well):
    """The next result may come long after the lift, when the hold would have expired."""
    desk = broken()
    desk.pass_time(1.0)
    desk.ledger.remove([(Topic("orders"), BREAKER)])
    assert desk.decisions.outages.problems() == []
    late = claim(desk)
    desk.pass_time(60.0)
    closed = [e for e in desk.events if isinstance(e, worker_events.BreakerClosed)]
    assert closed == [
        worker_events.BreakerClosed(
            topic="orders", tries=0, seconds=1.0, is_lifted=True
        )
    ]
    if is_well:
        succeed(desk, late)
        fail(desk, DOWN)
        assert not owners(desk)
    else:
        fail(desk, DOWN, late)
        (hold,) = desk.ledger.view().holds
        assert hold.expires_at == desk.clock.now + 10.0
    assert desk.kinds.count(worker_events.BreakerClosed) == 1


def test_default_number_of_attempts_is_enough_to_open_a_default_breaker():
    """Otherwise a record would be given up before the breaker opens."""
    assert Retry().attempts >= Breaker(on=(OSError,)).failures


def test_hold_lifted_by_a_signal_handler_closes_the_breaker_in_the_next_loop_iteration():
    desk = broken()
    with desk.kept.lock:
        desk.ledger.remove([(Topic("orders"), BREAKER)])
        assert worker_events.BreakerClosed not in desk.kinds
    desk.pass_time(0.0)
    assert desk.kinds[-1] is worker_events.BreakerClosed


def test_result_of_a_call_from_before_the_hold_does_not_affect_the_hold():
    """A late failure does not prolong the hold, and a late success does not lift the hold."""
    desk = Desk(Order.UNORDERED, breaker=BREAKS, quantum=1, records=6)
    early = [claim(desk) for _ in range(4)]
    fail(desk, DOWN, early[0])
    fail(desk, DOWN, early[1])
    fail(desk, DOWN, early[2])
    succeed(desk, early[3])
    (hold,) = desk.ledger.view().holds
    assert hold.expires_at == desk.clock.now + 10.0
    assert desk.failures == {0: 1}
    assert worker_events.BreakerClosed not in desk.kinds
    desk.pass_time(10.0)
    assert desk.work() == [0, 1, 2, 4, 5]


def test_other_errors_neither_open_nor_close_the_breaker():
    """Whether the breaker closes depends on the next call."""
    desk = Desk(Order.UNORDERED, breaker=BREAKS, quantum=1, records=8)
    for error in (DOWN, ValueError(), RetryLater(50.0), Reject("no"), DOWN):
        assert not owners(desk)
        fail(desk, error)
    assert owners(desk) == {BREAKER}
    desk.pass_time(10.0)
    fail(desk, ValueError())
    assert worker_events.BreakerClosed not in desk.kinds
    succeed(desk, claim(desk))
    assert worker_events.BreakerClosed in desk.kinds


def test_several_failures_after_a_hold_renew_the_hold_only_once():
    desk = Desk(Order.UNORDERED, breaker=BREAKS, quantum=1, records=6)
    fail(desk, DOWN)
    fail(desk, DOWN)
    desk.pass_time(10.0)
    known = desk.failures
    for task in [claim(desk) for _ in range(4)]:
        fail(desk, DOWN, task)
    (hold,) = desk.ledger.view().holds
    assert hold.expires_at == desk.clock.now + 30.0
    assert (desk.failures, desk.work()) == (known, [])


def test_success_between_two_failures_resets_the_count_of_failures():
    desk = Desk(Order.PARTITION, breaker=BREAKS, records=6)
    fail(desk, DOWN)
    desk.pass_time(1.0)
    succeed(desk, claim(desk))
    fail(desk, DOWN)
    assert not owners(desk)


def test_success_within_a_call_resets_the_count_of_failures():
    desk = Desk(Order.UNORDERED, breaker=BREAKS, records=6)
    fail(desk, DOWN)
    desk.epoch.pace = 0.0
    task = claim(desk)
    task.finish(0)
    failed, left = [(1, DOWN)], task.indexes[2:]
    desk.decisions.complete(Outcome(task=task, finished=[0], failed=failed, left=left))
    assert not owners(desk)


@pytest.mark.parametrize("answer", ["raises", "BatchFailure"])
def test_failed_batch_counts_as_one_failure(answer):
    desk = Desk(Order.PARTITION, breaker=BREAKS, is_batch=True, quantum=3, records=3)
    fail(desk, DOWN)
    desk.pass_time(1.0)
    task = claim(desk)
    assert not owners(desk)
    succeed(desk, task)
    desk.admit(6)
    error = DOWN if answer == "raises" else BatchFailure({0: DOWN, 1: DOWN, 2: DOWN})
    fail_batch(desk, error)
    assert not owners(desk)


def test_batch_that_opens_the_breaker_is_repeated_as_a_whole():
    breaker = Breaker(on=(ConnectionError,), failures=1)
    desk = Desk(Order.PARTITION, breaker=breaker, is_batch=True, quantum=3, records=3)
    fail_batch(desk, DOWN)
    assert desk.epoch.failed == {}
    desk.pass_time(5.0)
    assert list(claim(desk).ordinals) == [0, 1, 2]


def test_failures_in_a_departing_partition_count_for_its_topic():
    desk = Desk(Order.KEY, breaker=BREAKS, quantum=1, records=6)
    tasks = [claim(desk), claim(desk)]
    desk.decisions.queue.drop_queued([desk.epoch])
    for task in tasks:
        fail(desk, DOWN, task)
    assert owners(desk) == {BREAKER}
    regain(desk, 6)
    assert desk.work() == []
    desk.pass_time(10.0)
    assert desk.work() == [0, 1, 2, 3, 4, 5]


def test_failure_while_the_hold_is_placed_opens_the_breaker_once():
    """A record fails on another thread after the decision, before the hold is placed."""
    desk = Desk(Order.UNORDERED, breaker=BREAKS, quantum=1, records=6)
    late, place = claim(desk), desk.place

    def placing(*args):
        fail(desk, DOWN, late)
        place(*args)

    desk.decisions.outages._place = placing
    fail(desk, DOWN)
    fail(desk, DOWN)
    (hold,) = desk.ledger.view().holds
    assert hold.expires_at == desk.clock.now + 10.0
    assert desk.kinds.count(worker_events.BreakerOpened) == 1
    assert late.indexes[0] not in desk.failures
    desk.pass_time(10.0)
    assert desk.work() == [0, 1, 2, 3, 4, 5]


def test_topic_is_still_handled_if_a_breaker_cannot_hold_it():
    """If its hold cannot be placed, the breaker does not open; failures count as attempts."""
    desk = Desk(Order.UNORDERED, breaker=BREAKS, quantum=1)
    outages, opened = desk.decisions.outages, []

    def refusing(*_):
        opened.append(outages.opened)
        _refusing()

    outages._place = refusing
    desk.admit(3)
    fail(desk, DOWN)
    fail(desk, DOWN)
    assert desk.failures == {0: 1, 1: 1}
    (closed,) = (e for e in desk.events if isinstance(e, worker_events.BreakerClosed))
    assert not closed.is_lifted
    assert closed.error is not None
    assert [*opened, outages.opened] == [0, 0]
    assert desk.work() == [2]


def test_reason_of_a_breaker_is_always_printable():
    breaker = Breaker(on=(ConnectionError,), failures=1)
    desk = Desk(Order.PARTITION, breaker=breaker, records=1)
    fail(desk, ConnectionError("\n\ud800" + "\U0001f4a5" * 2000))
    (hold,) = desk.ledger.view().holds
    assert hold.reason is not None
    assert hold.reason.isprintable()
    assert len(hold.reason.encode()) < 1024


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"on": ()}, "tuple of at least one exception class"),
        ({"on": ConnectionError}, "tuple of exception classes"),
        ({"on": (BaseException,)}, "tuple of exception classes"),
        ({"on": (3,)}, "tuple of exception classes"),
        ({"failures": 0}, "1 or more"),
        ({"first": 0}, "above 0"),
        ({"factor": 0.5}, "must not get shorter"),
        ({"first": 10.0, "most": 9.0}, "must not get shorter"),
        ({"most": float("inf")}, "finite"),
    ],
)
def test_invalid_breakers_are_refused(settings, match):
    with pytest.raises(WorkerSettingError, match=match):
        Breaker(**{"on": (OSError,), **settings})

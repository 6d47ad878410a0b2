"""W7: how many records become dead letters before the worker stops for it."""

import pytest

from safeconsumer import DeadLetter, Reject, Retry
from safeconsumer.errors import DeadLetterLimitError
from tests.sim.playing import simulated
from tests.sim.worker.working import (
    Handler,
    Working,
    committed,
    filled,
    in_each_order,
    put,
)

ONCE = Retry(attempts=1)


class Letters:
    """A producer that notes which records it was given, by their offsets."""

    def __init__(self):
        self.sent = []

    def send(self, _topic, *, value, **_):
        self.sent.append(value)


def wrong_password(*_):
    message = "wrong password"
    raise ConnectionError(message)


async def wrong_password_async(*_):
    wrong_password()


@pytest.mark.contract("W7")
@in_each_order
@simulated(seeds=1)
def test_a_supervisor_that_restarts_loses_few_records(lab, executor, order):
    """A wrong password makes every record fail, however often the worker starts."""
    filled(lab, 4, *[str(number) for number in range(100)], keys="abcdefg")
    letters = Letters()
    handle = wrong_password_async if executor == "asyncio" else wrong_password
    for number in range(8):
        run = Working(
            lab,
            handle,
            name=f"w{number}",
            executor=executor,
            order=order,
            retry=ONCE,
            dead_letter=DeadLetter(letters, "dead"),
        )
        error = run.ends()
        assert isinstance(error, DeadLetterLimitError)
        assert "each of the first 6 records failed for good" in str(error)
    assert len(letters.sent) <= 40


@pytest.mark.contract("W7")
@simulated(seeds=1)
def test_a_batch_that_fails_as_a_whole_is_no_success(lab):
    filled(lab, 1, *[str(number) for number in range(100)])
    letters = Letters()
    run = Working(
        lab,
        wrong_password,
        batch=50,
        retry=ONCE,
        dead_letter=DeadLetter(letters, "dead"),
    )
    assert isinstance(run.ends(), DeadLetterLimitError)
    assert len(letters.sent) <= 5


@pytest.mark.contract("W7")
@simulated(seeds=1)
def test_a_poisoned_record_alone_in_a_topic_is_a_dead_letter(lab):
    """The topic is idle afterwards, and then has good records."""
    (tp,) = filled(lab, 1, "bad")
    letters = Letters()
    run = Working(
        lab,
        Handler(lab, bad=Reject("told to")),
        dead_letter=DeadLetter(letters, "dead"),
    )
    run.done(1)
    lab.sleep(60)
    put(lab, tp, "good")
    run.done(2)
    assert (letters.sent, run.stop().dead_letters, committed(lab)) == ([b"bad"], 1, [2])


@pytest.mark.contract("W7")
@simulated(seeds=1)
def test_a_topic_of_poison_alone_ends_after_some_starts(lab):
    """Each start moves five records, so none is in the way for ever."""
    filled(lab, 1, *["bad"] * 12)
    letters = Letters()
    ends = []
    for number in range(3):
        run = Working(
            lab,
            Handler(lab, bad=Reject("told to")),
            name=f"w{number}",
            dead_letter=DeadLetter(letters, "dead"),
        )
        if number == 2:
            run.done(2)
            run.worker.stop()
        ends.append((type(run.ends()), committed(lab)))
    limit = DeadLetterLimitError
    assert ends == [(limit, [5]), (limit, [10]), (type(None), [12])]
    assert len(letters.sent) == 12

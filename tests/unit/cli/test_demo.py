"""The command: its options, its exit statuses, what it prints; and its referee."""

from contextlib import nullcontext

import pytest
from attrs import evolve
from click.testing import CliRunner
from kafka import TopicPartition

from safeconsumer.cli import demo
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.demo.playing import Result
from safeconsumer.demo.situations import SITUATIONS
from safeconsumer.demo.table import table
from safeconsumer.demo.tally import Counts, Failure, Tally
from tests.harness.listing import short

TP = TopicPartition("orders", 0)


def run(*arguments):
    return CliRunner().invoke(safeconsumer, ["demo", *arguments])


def result(situation, client, failure, error=None):
    """Return a play of 500 records, 7 of which went wrong if there was a failure."""
    wrong = {failure: 7}
    leaked, lost = wrong.get(Failure.LEAKED, 0), wrong.get(Failure.LOST, 0)
    counts = Counts(
        produced=500,
        while_paused=leaked,
        when_wanted=500 - leaked - lost,
        lost=lost,
        twice=wrong.get(Failure.TWICE, 0),
    )
    return Result(
        situation=situation, client=client, counts=counts, seconds=4.2, error=error
    )


def as_known(situation):
    """Both clients, each as is known or promised of it."""
    return [
        result(situation, one, None if one.is_ours else situation.known)
        for one in situation.clients
    ]


def failing(failure):
    def played(situation):
        *others, ours = as_known(situation)
        return [*others, result(situation, ours.client, failure)]

    return played


def holding(situation):
    return [result(situation, one, None) for one in situation.clients]


def failing_otherwise(situation):
    *others, ours = as_known(situation)
    return [*(result(situation, one.client, Failure.TWICE) for one in others), ours]


def cut(situation):
    *others, ours = as_known(situation)
    return [*others, evolve(ours, error="waited in vain")]


def cut_before_the_end(situation):
    """Report what was not asked for any more, and so is not lost."""
    *others, ours = as_known(situation)
    return [*others, result(situation, ours.client, Failure.LOST, error="too late")]


def cut_after_a_leak(situation):
    """Report what was delivered, and cannot be taken back."""
    *others, ours = as_known(situation)
    return [*others, result(situation, ours.client, Failure.LEAKED, error="too late")]


@pytest.mark.parametrize(
    ("played", "status"),
    [
        (as_known, Status.DONE),
        *((failing(one), Status.FAILED) for one in Failure),
        (cut_after_a_leak, Status.FAILED),
        (holding, Status.FAILED),
        (failing_otherwise, Status.FAILED),
        (cut, Status.FAILED),
        (cut_before_the_end, Status.FAILED),
    ],
)
def test_the_exit_status_is_that_of_the_worst_result(played, status, monkeypatch):
    """The worst result decides; a play cut short says why, below the table."""
    ended = ended_as(monkeypatch, played)

    assert ended.exit_code == status
    cuts = [one for each in map(played, SITUATIONS) for one in each if one.error]
    for one in cuts:
        assert f"{one.situation.name}, {one.title}: {one.error}" in ended.stdout


def ended_as(monkeypatch, played, *arguments):
    """Run the command, whose situations end at once, as told."""

    def play_all(picked, *_):
        return [one for situation in picked for one in played(situation)]

    monkeypatch.setattr(demo, "EmbeddedBroker", nullcontext)
    monkeypatch.setattr(demo, "play_all", play_all)
    return run(*arguments)


def test_situations_without_a_call_in_kafka_python_are_not_counted(monkeypatch):
    """A thread pool is the program's, and there is no pause of a group."""
    ended = ended_as(monkeypatch, as_known)

    said = ended.stdout.splitlines()[-1]
    assert said == (
        "SafeConsumer leaked 0, lost 0 and duplicated 0 records in 6 situations; "
        "KafkaConsumer failed in 4 of 4: it delivered 21 records while paused and never "
        "delivered 7."
    )
    assert (
        "worker          a thread pool     500      0    493     7     0"
        in ended.stdout
    )


def test_picked_situations_are_played_in_their_order(monkeypatch):
    picked = ("--situation", "group", "--situation", "ticket-loop")
    ended = ended_as(monkeypatch, as_known, *picked)

    rows = [line.split() for line in ended.stdout.splitlines() if " 4.2 " in line]
    assert [one[0] for one in rows] == ["ticket-loop", "SafeConsumer", "group"]


MID_BATCH, POOL = "pauses in mid-batch", "lost by a thread pool"


@pytest.mark.parametrize(
    ("played", "explained"),
    [
        pytest.param(holding, [], id="nobody lost"),
        pytest.param(
            lambda situation: as_known(situation) if situation.name == "worker" else [],
            [POOL],
            id="the pool lost",
        ),
        pytest.param(
            lambda situation: [
                result(situation, one, None if one.is_ours else Failure.LOST)
                for one in situation.clients
            ],
            [MID_BATCH, POOL],
            id="KafkaConsumer lost, too",
        ),
    ],
)
def test_the_table_explains_only_the_losses_that_it_shows(played, explained):
    lines = "\n".join(table([one for each in map(played, SITUATIONS) for one in each]))
    assert [one for one in (MID_BATCH, POOL) if one in lines] == explained


@pytest.mark.parametrize("arguments", [("--situation", "nope"), ("extra",)], ids=short)
def test_wrong_usage_is_status_2(arguments):
    ended = run(*arguments)

    assert ended.exit_code == Status.USAGE
    assert arguments[-1] in ended.stderr


def test_each_record_is_counted_once():
    """By its first delivery; again is wrong only below what was committed."""
    tally = Tally()
    for offset in range(6):
        tally.produced(TP, offset)
    assert tally.begun == set()
    tally.delivered(TP, 0)
    tally.paused()
    tally.delivered(TP, 0)
    tally.delivered(TP, 1)
    tally.resumed()
    tally.committed({TP: 2})
    for offset in (1, 2, 2, 3):
        tally.delivered(TP, offset)

    expected = Counts(produced=6, while_paused=1, when_wanted=3, lost=2, twice=1)
    assert expected == tally.counts()
    assert (tally.missing, tally.handed_out) == (2, 4)
    assert tally.begun == {TP}

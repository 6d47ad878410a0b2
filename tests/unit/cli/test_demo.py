"""Tests the exit status, the lines and the record counts of ``safeconsumer demo``."""

from contextlib import nullcontext

import pytest
from click.testing import CliRunner
from kafka import TopicPartition

from safeconsumer.cli import demo
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.demo.playing import Result
from safeconsumer.demo.situations import SITUATIONS
from safeconsumer.demo.table import table
from safeconsumer.demo.tally import Counts, Failure, Tally

TP = TopicPartition("orders", 0)
KNOWN = object()  # a placeholder for the client's known failure in the situation


def played(situation, *, stock=KNOWN, ours=None, error=None):
    """Return each client's result in a situation; a failure affects 7 of 500 records."""
    results = []
    for client in situation.clients:
        failure = ours if client.is_ours else stock
        failure = situation.known if failure is KNOWN else failure
        wrong = {failure: 7}
        leaked, lost = wrong.get(Failure.LEAKED, 0), wrong.get(Failure.LOST, 0)
        counts = Counts(
            produced=500,
            while_paused=leaked,
            when_wanted=500 - leaked - lost,
            lost=lost,
            twice=wrong.get(Failure.TWICE, 0),
        )
        results.append(
            Result(
                situation=situation,
                client=client,
                counts=counts,
                seconds=4.2,
                error=error if client.is_ours else None,
            )
        )
    return results


def run(*arguments):
    return CliRunner().invoke(safeconsumer, ["demo", *arguments])


@pytest.fixture
def play(monkeypatch):
    """Return a function that runs the command with this outcome in each situation."""

    def run_with(*arguments, **outcome):
        monkeypatch.setattr(demo, "EmbeddedBroker", nullcontext)
        monkeypatch.setattr(
            demo,
            "play_all",
            lambda picked, *_: [
                one for each in picked for one in played(each, **outcome)
            ],
        )
        return run(*arguments)

    return run_with


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        pytest.param({}, Status.DONE, id="known failures"),
        *(
            pytest.param({"ours": one}, Status.FAILED, id=f"ours: {one.name}")
            for one in Failure
        ),
        pytest.param({"stock": None}, Status.FAILED, id="stock does not fail"),
        pytest.param({"stock": Failure.TWICE}, Status.FAILED, id="stock duplicates"),
        pytest.param({"error": "cut"}, Status.FAILED, id="cut short"),
        *(
            pytest.param(
                {"ours": one, "error": "cut"},
                Status.FAILED,
                id=f"cut short: {one.name}",
            )
            for one in (Failure.LEAKED, Failure.LOST)
        ),
    ],
)
def test_worst_result_sets_the_status_and_errors_are_printed_after_the_table(
    play, outcome, status
):
    ended = play(**outcome)
    assert ended.exit_code == status
    for situation in SITUATIONS:
        ours = situation.clients[-1].title
        is_named = f"{situation.name}, {ours}: cut" in ended.stdout
        assert is_named is ("error" in outcome)


def test_summary_counts_only_situations_that_kafka_python_can_run(play):
    """KafkaConsumer has no thread pool of its own, and it cannot pause a group."""
    ended = play()
    assert ended.stdout.splitlines()[-1] == (
        "SafeConsumer leaked 0, lost 0 and duplicated 0 records in 6 situations; "
        "KafkaConsumer failed in 4 of 4: it delivered 21 records while paused and never "
        "delivered 7."
    )
    row = "worker          a thread pool     500      0    493     7     0"
    assert row in ended.stdout


def test_selected_situations_run_in_the_order_of_the_full_list(play):
    ended = play("--situation", "group", "--situation", "ticket-loop")
    rows = [line.split() for line in ended.stdout.splitlines() if " 4.2 " in line]
    assert [one[0] for one in rows] == ["ticket-loop", "SafeConsumer", "group"]


MID_BATCH, POOL = "pauses in mid-batch", "lost by a thread pool"


@pytest.mark.parametrize(
    ("names", "stock", "explained"),
    [
        ({one.name for one in SITUATIONS}, None, []),
        ({"worker"}, KNOWN, [POOL]),
        ({one.name for one in SITUATIONS}, Failure.LOST, [MID_BATCH, POOL]),
    ],
    ids=["none", "pool", "both"],
)
def test_table_explains_only_those_kinds_of_loss_that_occurred(names, stock, explained):
    situations = [one for one in SITUATIONS if one.name in names]
    results = [one for each in situations for one in played(each, stock=stock)]
    lines = "\n".join(table(results))
    assert [one for one in (MID_BATCH, POOL) if one in lines] == explained


@pytest.mark.parametrize("arguments", [("--situation", "nope"), ("extra",)], ids=str)
def test_wrong_usage_gives_exit_status_2(arguments):
    ended = run(*arguments)
    assert ended.exit_code == Status.USAGE
    assert arguments[-1] in ended.stderr


def test_tally_counts_first_deliveries_and_repeated_committed_records():
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

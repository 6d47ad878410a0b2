"""Tests the public cases as users run them: on their own class, in their own folder."""

from pathlib import Path

import pytest

from safeconsumer.testing.cases import options

pytest_plugins = ["pytester"]

CASES = ("--pyargs", "safeconsumer.testing.cases", "-p", "no:cacheprovider")

SOME = "position_while or resume_in_mid or one_bad_partition or starts_paused"

CLASSES = """
from kafka import KafkaConsumer


class Refusing(KafkaConsumer):
    def pause(self, *partitions):
        raise RuntimeError("not today")


number = 3
"""

# Consumer classes that keep paused partitions quiet but lose records.
LOSING = """
from kafka import AsyncConsumerRebalanceListener
from kafka.structs import OffsetAndMetadata
from safeconsumer import SafeConsumer


class PausedTwice(SafeConsumer):
    def pause(self, *targets, **options):
        again = self.paused() & self.assignment() & set(targets)
        super().pause(*targets, **options)
        for tp in again:
            self.seek(tp, self.position(tp) + 1)


class FlowingInARebalance(SafeConsumer):
    owned = frozenset()

    def poll(self, *args, **options):
        records = super().poll(*args, **options)
        owned, self.owned = self.owned, frozenset(self.assignment())
        if owned != self.owned:
            for tp in (owned & self.owned) - self.paused():
                if (self.highwater(tp) or 0) - self.position(tp) > 100:
                    self.seek(tp, self.position(tp) + 10)
        return records


class KeptInARebalance(SafeConsumer):
    owned = frozenset()

    def poll(self, *args, **options):
        records = super().poll(*args, **options)
        owned, self.owned = self.owned, frozenset(self.assignment())
        if owned != self.owned:
            for tp in owned & self.owned & self.paused():
                if self.end_offsets([tp])[tp] - self.position(tp) > 100:
                    self.seek(tp, self.position(tp) + 10)
        return records


class CommittedWhereRevoked(SafeConsumer):
    stopped = {}

    def pause(self, *targets, **options):
        super().pause(*targets, **options)
        self.stopped = {tp: self.position(tp) for tp in targets}

    def subscribe(self, *topics, listener, **options):
        class Listener(AsyncConsumerRebalanceListener):
            async def on_partitions_assigned(_, assigned):
                listener.on_partitions_assigned(assigned)

            async def on_partitions_revoked(_, revoked):
                fetched = {
                    tp: OffsetAndMetadata(self.stopped[tp] + 10, "", -1)
                    for tp in self.stopped.keys() & set(revoked)
                }
                if fetched:
                    await self.commit_async(fetched)
                listener.on_partitions_revoked(revoked)

        super().subscribe(*topics, listener=Listener(), **options)


class Iterated(SafeConsumer):
    def __next__(self):
        super().__next__()
        return super().__next__()


class WiderPause(SafeConsumer):
    def poll(self, *args, **options):
        records = super().poll(*args, **options)
        wide = any(type(one.scope).__name__ != "Partition" for one in self.holds())
        for tp in self.paused() & self.assignment() if wide else ():
            self.seek_to_end(tp)
        return records
"""


@pytest.mark.timeout(300)
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("consumer", "expected"),
    [
        ("safeconsumer:SafeConsumer", {"passed": 5}),
        ("kafka:KafkaConsumer", {"passed": 1, "failed": 2, "skipped": 2}),
        ("mine:Refusing", {"failed": 3, "skipped": 2}),
    ],
)
def test_cases_pass_fail_or_are_skipped_depending_on_the_consumer_class(
    pytester, consumer, expected
):
    """Our class passes; kafka-python's class fails some cases, and others are skipped."""
    pytester.makepyfile(mine=CLASSES)
    done = pytester.runpytest_subprocess(
        *CASES, "--consumer", consumer, "-k", SOME, "-rs", timeout=280
    )
    done.assert_outcomes(**expected, deselected=done.parseoutcomes()["deselected"])
    done.stdout.fnmatch_lines([f"consumer: {consumer}, broker: the embedded one"])


@pytest.mark.timeout(300)
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("consumer", "case", "count"),
    [
        ("PausedTwice", "paused_before_each_poll", 2),
        ("FlowingInARebalance", "when_a_member_joins", 2),
        ("KeptInARebalance", "another_member_read_on", 2),
        ("CommittedWhereRevoked", "another_member_read_on", 2),
        ("Iterated", "hundred_pauses", 1),
        ("WiderPause", "starts_paused", 2),
    ],
)
def test_cases_detect_a_class_that_loses_records(pytester, consumer, case, count):
    """After the pause, some member must deliver each record of the partition exactly once."""
    pytester.makepyfile(mine=LOSING)
    done = pytester.runpytest_subprocess(
        *CASES, "--consumer", f"mine:{consumer}", "-k", case, timeout=280
    )
    done.assert_outcomes(failed=count, deselected=done.parseoutcomes()["deselected"])


@pytest.mark.timeout(300)
@pytest.mark.nightly
def test_failed_case_shows_the_clients_traceback(pytester):
    pytester.makepyfile(mine=CLASSES)
    done = pytester.runpytest_subprocess(
        *CASES, "--consumer=mine:Refusing", "-k", "position_while", timeout=280
    )
    done.stdout.fnmatch_lines(
        ["E * Failed: bare RuntimeError: not today", "*mine.py*in pause*"]
    )


def test_cases_that_use_a_group_run_with_each_assignor(pytester):
    done = pytester.runpytest_inprocess(
        *CASES,
        "--consumer=kafka:KafkaConsumer",
        "--bootstrap=localhost:1",
        "--collect-only",
        "-q",
    )
    done.stdout.fnmatch_lines_random(
        [
            "*::test_paused_partition_moves_and_returns[[]range[]]",
            "*::test_paused_partition_moves_and_returns[[]cooperative-sticky[]]",
            "*::test_resume_in_mid_batch[[]range[]]",
        ]
    )
    done.stdout.no_fnmatch_line("*test_resume_in_mid_batch[[]cooperative*")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--consumer MODULE:CLASS is missing*safeconsumer:SafeConsumer"),
        (["--consumer=kafka"], "*it is MODULE:CLASS*AttributeError*"),
        (["--consumer=broken:X"], "*importing it raised RuntimeError: oh"),
        (["--consumer=mine:number"], "*neither a class nor a function"),
        (
            ["--consumer=kafka:KafkaConsumer", "--bootstrap=localhost"],
            "--bootstrap 'localhost': write HOST:PORT",
        ),
    ],
)
def test_invalid_options_of_the_cases_are_refused_before_the_first_case(
    pytester, arguments, message
):
    pytester.makepyfile(mine=CLASSES, broken="raise RuntimeError('oh')")
    done = pytester.runpytest_inprocess(*CASES, *arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_unreachable_broker_is_refused_before_the_first_case(monkeypatch):
    """By default the check for a broker takes at most ten seconds."""
    monkeypatch.setattr(options, "_ANSWERS_WITHIN_MS", 300)
    with pytest.raises(pytest.UsageError, match="no Kafka broker answers"):
        options.check_broker("127.0.0.1:1")


OTHERS_OPTIONS = """
def pytest_addoption(parser):
    parser.addoption("--consumer", default="theirs")
    parser.addoption("--bootstrap", default="theirs")
"""

OTHERS_TEST = """
def test_both(pytestconfig):
    assert pytestconfig.getoption("--consumer") == "theirs"
    assert pytestconfig.getoption("--bootstrap") == "theirs"
"""


def test_another_project_may_define_options_with_the_same_names(pytester):
    pytester.makeconftest(OTHERS_OPTIONS)
    pytester.makepyfile(OTHERS_TEST)
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


def test_session_without_the_cases_has_no_option_consumer(pytester):
    pytester.makepyfile("def test_nothing(): pass")
    done = pytester.runpytest_inprocess("--consumer=kafka:KafkaConsumer")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*unrecognized arguments: --consumer*"])
    done = pytester.runpytest_inprocess(*CASES, "--help")
    done.stdout.fnmatch_lines(["*--consumer=MODULE:CLASS", "*--bootstrap=HOST:PORT"])


HERE = Path(options.__file__).parent


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("safeconsumer.testing.cases", True),
        ("safeconsumer.testing.cases.test_rebalances", True),
        ("safeconsumer.testing.cases.test_rebalances::test_frozen", True),
        (str(HERE), True),
        (f"{HERE}/test_rebalances.py::test_frozen", True),
        ("safeconsumer.testing.cases_of_mine", False),
        ("safeconsumer.testing", False),
        (str(HERE.parent), False),
        ("tests/cases", False),
    ],
    ids=lambda value: str(value).replace(str(HERE.parents[2]), "."),
)
def test_cases_are_selected_by_name_or_path(argument, expected, tmp_path):
    assert options.are_asked_for(["other", argument], tmp_path) == expected

"""Tests the rule for regressions and the table of speed figures."""

import pytest

from tests.bench import figures, speed
from tests.bench.__main__ import parsed
from tests.harness.processes import ran_python

ROUNDS = 3
EXACT = [1.0] * 6


def judged(now, again):
    values = {
        "before": EXACT,
        "now": [now] * 6,
        "now again": [now * one for one in again],
    }
    return figures.judged("row", "CPU per record", values, ROUNDS)


@pytest.mark.parametrize(
    ("now", "again", "passed"),
    [
        pytest.param(0.5, EXACT, True, id="half"),
        pytest.param(1.019, EXACT, True, id="1.9 % more"),
        pytest.param(1.021, EXACT, False, id="2.1 % more"),
        pytest.param(1.03, [1, 1, 1, 1, 1.02, 1], False, id="noise in one lap"),
        pytest.param(1.03, [1, 1, 1, 1, 1.02, 1.02], True, id="noise in a round"),
        pytest.param(1.03, [1, 1, 0.98, 0.98, 1, 1], True, id="less in a round"),
        pytest.param(1.05, [1, 1, 0.98, 0.98, 1, 1], False, id="more than the noise"),
    ],
)
def test_slowdown_is_a_regression_above_two_percent_and_twice_the_noise(
    now, again, passed
):
    assert judged(now, again).passed is passed


def test_one_slow_lap_does_not_count_as_a_regression():
    slow = [9.0, *EXACT[1:]]
    values = {"before": EXACT, "now": slow, "now again": slow}
    assert figures.judged("row", "time", values, ROUNDS).passed


def test_report_has_one_sentence_per_figure():
    names = ("row", "name", "measured", "at_most", "passed")
    several = [judged(now, EXACT) for now in (0.9, 0.99, 1.01, 1.1)]
    rows = [{name: getattr(one, name) for name in names} for one in several]
    assert list(figures.sentences(rows)) == [
        "row: CPU per record is 10.0% less than before.",
        "row: CPU per record is 1.0% less than before, which could be chance.",
        "row: CPU per record is 1.0% more than before, which could be chance.",
        "row: CPU per record is 10.0% more than before, a regression: 2.0% could be chance.",
    ]


@pytest.mark.parametrize("page", speed.PAGES, ids=lambda page: page.name)
def test_speed_table_of_a_page_matches_the_stored_data(page):
    text = page.read_text("utf-8")
    assert text == speed.written(page, text)


def test_stored_data_contains_the_ratios_and_values_from_a_report():
    row = "iteration"
    measured = {
        (row, "records/s / aiokafka"): 1.23456,
        (row, "CPU per record / confluent-kafka, tuned"): 1.23456,
        (row, "records/s, aiokafka"): 9,
        ("resumed", "500 records after resume, aiokafka"): 0.4,
    }
    versions = dict.fromkeys(("aiokafka", "confluent-kafka", "kafka-python"), "1")
    report = {
        "date": "2026-11-25T12:00:00+00:00",
        "machine": {"cores": 2},
        "versions": {"python": "3.11.7", **versions},
        "figures": [
            {"row": row, "name": name, "measured": value}
            for (row, name), value in measured.items()
        ],
    }
    kept = speed.kept(report)
    assert kept["stamp"].startswith(
        "We measured on 2026-11-25, on 2 cores, Python 3.11.7, Apache Kafka "
    )
    assert kept["iteration"] == {
        "kafka-python": {},
        "aiokafka": {"records/s": 1.235},
        "confluent-kafka, tuned": {"CPU per record": 1.235},
    }
    assert kept["resumed"] == {"aiokafka": 0.4}


@pytest.mark.parametrize(
    "arguments",
    [
        "speed --against HEAD",
        "overhead --kafka=java --write",
        "speed --kafka=embedded --write",
        "speed --kafka=java --write --brief",
        "speed --kafka=java --write --only 500",
        "spark --only 500",
    ],
)
def test_options_that_contradict_each_other_are_refused(arguments):
    with pytest.raises(SystemExit):
        parsed(arguments.split())


# README's second command runs without these clients, which the extra ``ci`` installs.
_WITHOUT = """
import runpy, sys
for name in ("aiokafka", "confluent_kafka", "pyspark"):
    sys.modules[name] = None
sys.argv = ["tests.bench", *sys.argv[1:]]
runpy.run_module("tests.bench", run_name="__main__")
"""


def test_help_of_the_benchmark_works_without_other_clients():
    ended = ran_python("-c", _WITHOUT, "speed", "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "one-by-one" in ended.stdout

"""A regression is what chance does not explain; the table of speed is what was measured."""

import importlib

import pytest

from tests.bench import figures, speed
from tests.bench.options import ROWS, parsed
from tests.harness.processes import ran_python

ROUNDS = 3
EXACT = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]


def of(now, again):
    values = {
        "before": EXACT,
        "now": [now] * 6,
        "now again": [now * one for one in again],
    }
    return figures.judged("row", "CPU per record", values, ROUNDS)


@pytest.mark.parametrize(
    ("now", "again", "passed"),
    [
        (0.5, EXACT, True),
        (1.019, EXACT, True),
        (1.021, EXACT, False),
        # One lap is no round; a round is what its processes were lucky or unlucky with.
        (1.03, [1.0, 1.0, 1.0, 1.0, 1.02, 1.0], False),
        (1.03, [1.0, 1.0, 1.0, 1.0, 1.02, 1.02], True),
        (1.03, [1.0, 1.0, 0.98, 0.98, 1.0, 1.0], True),
        (1.05, [1.0, 1.0, 0.98, 0.98, 1.0, 1.0], False),
    ],
)
def test_what_is_a_regression(now, again, passed):
    """More than 2 %, and more than twice what the same state took more or less."""
    assert of(now, again).passed is passed


def test_one_slow_lap_is_no_regression():
    values = {"before": EXACT, "now": [9.0, *EXACT[1:]], "now again": [9.0, *EXACT[1:]]}
    assert figures.judged("row", "time", values, ROUNDS).passed


def test_each_figure_has_a_sentence():
    said = [_said(of(now, EXACT)) for now in (0.9, 0.99, 1.01, 1.1)]
    assert list(figures.sentences(said)) == [
        "row: CPU per record is 10.0% less than before.",
        "row: CPU per record is 1.0% less than before, which could be chance.",
        "row: CPU per record is 1.0% more than before, which could be chance.",
        "row: CPU per record is 10.0% more than before, a regression: 2.0% could be chance.",
    ]


def _said(one):
    return {
        **{name: getattr(one, name) for name in ("row", "name", "measured", "at_most")},
        "passed": one.passed,
    }


@pytest.mark.parametrize("page", speed.PAGES, ids=lambda page: page.name)
def test_the_table_of_speed_is_made_of_the_data(page):
    text = page.read_text("utf-8")
    assert text == speed.written(page, text)


def test_the_data_are_a_report_s_ratios():
    row = "iteration"
    names = ("records/s / aiokafka", "CPU per record / confluent-kafka, tuned")
    figures = [{"row": row, "name": name, "measured": 1.23456} for name in names]
    name = "500 records after resume, aiokafka"
    figures.append({"row": "resumed", "name": name, "measured": 0.4})
    versions = dict.fromkeys(("aiokafka", "confluent-kafka", "kafka-python"), "1")
    report = {
        "date": "2026-11-25T12:00:00+00:00",
        "machine": {"cores": 2},
        "versions": {"python": "3.11.7", **versions},
        "figures": [
            *figures,
            {"row": row, "name": "records/s, aiokafka", "measured": 9},
        ],
    }
    kept = speed.kept(report)
    assert kept["stamp"].startswith(
        "It was measured 2026-11-25, on 2 cores, Python 3.11.7, Apache Kafka "
    )
    assert kept["ratios"]["iteration"] == {
        "kafka-python": {},
        "aiokafka": {"records/s": 1.235},
        "confluent-kafka, tuned": {"CPU per record": 1.235},
    }
    assert kept["values"]["resumed"] == {"aiokafka": 0.4}


@pytest.mark.parametrize(
    "arguments",
    [
        "speed --against HEAD",
        "overhead --kafka=java --write",
        "speed --kafka=embedded --write",
        "speed --kafka=java --write --brief",
        "speed --kafka=java --write --only 500",
    ],
)
def test_options_that_contradict(arguments):
    with pytest.raises(SystemExit):
        parsed(arguments.split())


# Of the extra ``ci``, which what is measured needs, and README's second command does not.
_WITHOUT = """
import runpy, sys
for name in ("aiokafka", "confluent_kafka", "pyspark"):
    sys.modules[name] = None
sys.argv = ["tests.bench", *sys.argv[1:]]
runpy.run_module("tests.bench", run_name="__main__")
"""


def test_the_programs_help_needs_no_other_clients():
    ended = ran_python("-c", _WITHOUT, "speed", "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "one-by-one" in ended.stdout


@pytest.mark.parametrize("name", ROWS)
def test_a_row_can_be_asked_for_by_its_name(name):
    """The options list them, so that ``--help`` imports no other client."""
    assert set(importlib.import_module(f"tests.bench.{name}").ROWS) == set(ROWS[name])

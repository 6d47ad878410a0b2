"""Results as a table, as lines and as JSON."""

import io
import json

from rich.console import Console, RenderableType

from safeconsumer.cli import panels
from safeconsumer.demo import (
    SCENARIOS,
    Failure,
    PartitionView,
    Progress,
    State,
)
from safeconsumer.demo import table as render
from tests.harness.cli.results import as_known, result, scenario

NARROW = 80
ALL = [each for one in SCENARIOS for each in as_known(one.name)]


def printed(what: RenderableType, width: int = NARROW) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_row_holds_what_became_of_the_records() -> None:
    """In the order of the headings; what a scenario does not have is a dash."""
    rows = [result("moved-away", "stock", Failure.LEAKED)]

    *_, row = printed(render.table([scenario("moved-away")], rows))

    expected = ["moved-away", "KafkaConsumer", "500", "7", "440", "0", "0", "4.2"]
    assert [*expected, "FAILED"] == row.split()


def test_the_document_says_what_the_table_says() -> None:
    """Every count by its full name, and what it means for the exit status."""
    document = render.document(
        [scenario("forgotten-join")],
        as_known("forgotten-join"),
        broker="embedded",
        versions={"kafka-python": "3.0.12"},
        seconds=7.04,
    )

    stock, safe = json.loads(json.dumps(document))["results"]
    assert stock == {
        "scenario": "forgotten-join",
        "client": "stock",
        "produced": 500,
        "delivered_while_paused": 0,
        "delivered_after_resume": 440,
        "missing": 0,
        "duplicated": 7,
        "seconds": 4.25,
        "failures": ["duplicated"],
        "as_known": True,
        "error": None,
    }
    assert (safe["failures"], safe["as_known"]) == ([], True)
    assert (document["exit_status"], document["seconds"]) == (0, 7.0)


def view(state: State, *, wrong: int = 0, width: int = NARROW) -> list[str]:
    partition = PartitionView(
        label="orders-eu:1", state=state, produced=125, delivered=60, wrong=wrong
    )
    progress = Progress(
        scenario="pattern-pause",
        client="stock",
        step="paused; the other member leaves",
        partitions=(partition,) * 8,
    )
    shown = panels.View(
        number=5,
        total=8,
        scenario=scenario("pattern-pause"),
        seconds=3.0,
        progress={"stock": progress},
    )
    return printed(panels.live(shown, width), width)


def test_a_lost_pause_is_marked() -> None:
    """Partition, state, how far it was read, and what should not have come."""
    row = next(line for line in view(State.PAUSE_LOST, wrong=40) if "eu:1" in line)

    assert "orders-eu:1 ✗ unpaused   60/125   +40" in row

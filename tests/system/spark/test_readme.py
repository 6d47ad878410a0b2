"""Runs the pages' Spark examples unchanged."""

import pytest

from safeconsumer.errors import SparkSettingError
from tests.harness.brokers.ports import reserved_port
from tests.harness.docs.pages import (
    blocks,
    printed_after,
    spark_example,
    spark_examples,
)
from tests.harness.spark import sink
from tests.harness.spark.lake import until

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(400)]


PORT = "port=9092"
STREAM = [one for one in spark_examples() if one.page.name == "spark.md"]
ARCHIVE = spark_example("archive.md")
ASIDE = spark_example("failed-batches.md")


def test_spark_tutorial_prints_the_output_on_the_page(
    lake,
    controller,  # noqa: ARG001 - lifts all holds
    capsys,
):
    """The tutorial starts its own broker, and holds and resumes a stream."""
    code = "\n".join(lake.adapted(one) for one in STREAM)
    assert f"EmbeddedBroker({PORT})" in code
    port = reserved_port()
    code = code.replace(PORT, f"port={port}")
    code = code.replace(lake.broker.bootstrap, f"127.0.0.1:{port}")
    exec(compile(code, str(STREAM[0].page), "exec"), {})  # noqa: S102 - our own text
    assert capsys.readouterr().out == printed_after(blocks(STREAM[-1].page), STREAM[-1])


def test_archive_example_copies_the_records_that_its_group_does_not_hold(
    lake, operator
):
    """Each run copies new records with headers; after the lift a run copies held records."""
    code = compile(operator.obeying(lake.adapted(ARCHIVE)), "page", "exec")
    operator.hold(lake.orders)
    for _ in range(2):
        lake.produce_both(5)
        exec(code, {})  # noqa: S102 - our own text
        assert lake.rows() == lake.produced(lake.returns)
    operator.lift(lake.orders)
    exec(code, {})  # noqa: S102 - our own text
    assert lake.rows() == lake.produced()
    assert "headers" in lake.spark.read.parquet(str(lake.data)).columns
    rows = operator.judged(lake)
    assert not [row for row in rows if row.violations or row.unjudged]


def test_archive_example_refuses_a_second_checkpoint_for_its_folder(lake, operator):
    """Spark would skip a second checkpoint's batches if batches with their numbers exist."""
    code = operator.obeying(lake.adapted(ARCHIVE))
    another = code.replace(f"{lake.checkpoint}", f"{lake.checkpoint}-2")
    assert another.count(f"{lake.checkpoint}-2") == 2
    for _ in range(2):
        lake.produce(lake.orders, 5)
        exec(compile(code, "page", "exec"), {})  # noqa: S102 - our own text
        lake.produce(lake.orders, 5)
        with pytest.raises(SparkSettingError, match=r"batches up to number \d of a"):
            exec(compile(another, "page", "exec"), {})  # noqa: S102 - our own text
    exec(compile(code, "page", "exec"), {})  # noqa: S102 - our own text
    assert lake.rows() == lake.produced()


@pytest.mark.nightly
def test_failed_batches_example_holds_the_partition_and_the_query_keeps_running(
    lake, controller
):
    """
    The hold's reason is the error; the failed rows are stored in order elsewhere.

    Spark's error quotes the record, whose 500 multi-byte characters once made the
    reason too long.
    """
    for number in range(lake.partitions):
        lake.produce_values(lake.orders, number, *[b'{"amount": 1}'] * 5)
    lake.produce_values(lake.orders, 2, f'{{"amount": "{"好" * 500}"}}'.encode())
    names = {}
    exec(compile(lake.adapted(ASIDE), "page", "exec"), names)  # noqa: S102 - our own text
    query, bad = names["query"], f"{lake.orders}:2"
    until(lambda: controller.explain(bad) != (), query)
    (line,) = controller.explain(bad)
    assert "batch 0: " in line
    assert "\\u597d" in line
    for number in range(lake.partitions):
        lake.produce_values(lake.orders, number, *[b'{"amount": 1}'] * 5)
    until(lambda: controller.lag() == {(lake.orders, 2): 5}, query)
    good, aside = lake.data.parent / "good", lake.data.parent / "aside"
    assert [one.name for one in aside.iterdir()] == [f"{lake.orders}-2"]
    assert sink.count(aside) == 6
    until(lambda: sink.count(good) == 30, query)
    controller.resume(bad, owner="failed")
    until((good / f"{lake.orders}-2").exists, query)
    assert query.exception() is None
    query.stop()

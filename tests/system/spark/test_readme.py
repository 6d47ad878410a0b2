"""The pages' examples for Spark run as they stand."""

import pytest

from safeconsumer.errors import SparkSettingError
from safeconsumer.testing._ports import free_port
from tests.harness.docs.pages import blocks, printed_after, spark_examples
from tests.harness.spark import sink
from tests.harness.spark.lake import until
from tests.system.spark.test_checkpoint import judged_rows
from tests.system.spark.test_control import operator

__all__ = ["operator"]  # a fixture

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(400)]


def adapted(example, lake):
    """Return its code, with this run's address, topics and folders in place of the page's."""
    places = {
        "localhost:9092": lake.broker.bootstrap,
        '"orders"': f'"{lake.orders}"',
        '"orders,returns"': f'"{lake.orders},{lake.returns}"',
        "/lake/": f"{lake.data.parent}/",
        '"lake/': f'"{lake.data.parent}/',
    }
    code = example.code
    for old, new in places.items():
        code = code.replace(old, new)
    return code


def held_by(operator, code):
    """Return code that obeys an operator's holds in place of the page's."""
    topic = f'option("holds.topic", "{operator.topic}")'
    known = 'option("holds.control", "true")'
    code = code.replace(known, f"{known}.{topic}")
    return code.replace('"billing"', f'"{operator.group}"')


PORT = "port=9092"
STREAM = [one for one in spark_examples() if one.page.name == "spark.md"]
(ARCHIVE,) = [one for one in spark_examples() if one.page.name == "archive.md"]
(ASIDE,) = [one for one in spark_examples() if one.page.name == "failed-batches.md"]


def test_the_tutorial_shows_what_its_page_says(
    lake,
    controller,  # noqa: ARG001 - nothing is held
    capsys,
):
    """A stream is held, and goes on; the broker is the page's own."""
    code = "\n".join(adapted(one, lake) for one in STREAM)
    assert f"EmbeddedBroker({PORT})" in code
    port = free_port()
    code = code.replace(PORT, f"port={port}")
    code = code.replace(lake.broker.bootstrap, f"127.0.0.1:{port}")
    exec(compile(code, str(STREAM[0].page), "exec"), {})  # noqa: S102 - our own text
    assert capsys.readouterr().out == printed_after(blocks(STREAM[-1].page), STREAM[-1])


def test_the_archive_copies_what_its_group_does_not_hold(lake, operator):
    """Each run what is new, the headers too, and what was held once it is lifted."""
    code = compile(held_by(operator, adapted(ARCHIVE, lake)), "page", "exec")
    operator.hold(lake.orders)
    for _ in range(2):
        lake.produce_both(5)
        exec(code, {})  # noqa: S102 - our own text
        assert lake.rows() == lake.produced(lake.returns)
    operator.lift(lake.orders)
    exec(code, {})  # noqa: S102 - our own text
    assert lake.rows() == lake.produced()
    assert "headers" in lake.spark.read.parquet(str(lake.data)).columns
    rows = judged_rows(lake, operator)
    assert not [row for row in rows if row.violations or row.unjudged]


def test_the_archive_writes_a_folder_with_one_checkpoint(lake, operator):
    """Records of a second one would be lost: Spark passes over batches by their numbers."""
    code = held_by(operator, adapted(ARCHIVE, lake))
    another = code.replace(f"{lake.checkpoint}", f"{lake.checkpoint}-2")
    assert another.count(f"{lake.checkpoint}-2") == 2
    for _ in range(2):
        lake.produce(lake.orders, 5)
        exec(compile(code, "page", "exec"), {})  # noqa: S102 - our own text
        lake.produce(lake.orders, 5)
        with pytest.raises(
            SparkSettingError, match=r"batches up to number \d of anoth"
        ):
            exec(compile(another, "page", "exec"), {})  # noqa: S102 - our own text
    exec(compile(code, "page", "exec"), {})  # noqa: S102 - our own text
    assert lake.rows() == lake.produced()


@pytest.mark.nightly
def test_a_batch_that_fails_holds_its_partition_and_the_query_lives_on(
    lake, controller
):
    """With the error as the reason; what came is set aside, in order, and nothing is lost."""
    for number in range(lake.partitions):
        lake.produce_values(lake.orders, number, *[b'{"amount": 1}'] * 5)
    lake.produce_values(lake.orders, 2, b"no JSON")
    names = {}
    exec(compile(adapted(ASIDE, lake), "page", "exec"), names)  # noqa: S102 - our own text
    query, bad = names["query"], f"{lake.orders}:2"
    until(lambda: controller.explain(bad) != (), query)
    (line,) = controller.explain(bad)
    assert "batch 0: " in line
    assert "Unrecognized token 'no'" in line
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

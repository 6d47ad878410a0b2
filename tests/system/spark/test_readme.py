"""The pages' examples for Spark run as they stand."""

import pytest

from tests.harness.docs.pages import Block, spark_examples
from tests.harness.spark.lake import Lake
from tests.system.spark.test_control import Operator, operator

__all__ = ["operator"]  # a fixture

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(400)]


def adapted(example: Block, lake: Lake) -> str:
    """Return its code, with this run's address, topics and folders in place of the page's."""
    places = {
        "localhost:9092": lake.broker.bootstrap,
        '"orders"': f'"{lake.orders}"',
        '"orders,returns"': f'"{lake.orders},{lake.returns}"',
        "/lake/": f"{lake.data.parent}/",
    }
    code = example.code
    for old, new in places.items():
        code = code.replace(old, new)
    return code


def held_by(operator: Operator, code: str) -> str:
    """Return code that obeys an operator's holds in place of the page's."""
    topics = ",".join(operator.topics)
    code = code.replace('control", "true"', f'control", "{topics}"')
    return code.replace('"billing"', f'"{operator.group}"')


STREAM, ARCHIVE = sorted(spark_examples(), key=lambda one: one.page.name != "spark.md")


def test_the_stream_runs_and_is_short(lake: Lake) -> None:
    code = adapted(STREAM, lake)
    exec(compile(code, str(STREAM.page), "exec"), {})  # noqa: S102 - our own text
    assert len([line for line in code.splitlines() if line]) <= 10


def test_the_archive_copies_what_its_group_does_not_hold(
    lake: Lake, operator: Operator
) -> None:
    """Each run what is new, the headers too, and what was held once it is lifted."""
    code = compile(held_by(operator, adapted(ARCHIVE, lake)), "page", "exec")
    operator.hold(lake.orders)
    for _ in range(2):
        lake.produce(lake.orders, 5)
        lake.produce(lake.returns, 5)
        exec(code, {})  # noqa: S102 - our own text
        assert lake.rows() == lake.produced(lake.returns)
    operator.lift(lake.orders)
    exec(code, {})  # noqa: S102 - our own text
    assert lake.rows() == lake.produced()
    assert "headers" in lake.spark.read.parquet(str(lake.data)).columns


def test_the_archive_fails_where_nobody_can_say_what_is_held(lake: Lake) -> None:
    """S4: a nightly job must not end well with nothing copied."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415  if installed

    lake.produce(lake.orders, 5)
    code = adapted(ARCHIVE, lake).replace(
        'control", "true"', 'control", "no-ops,no-own"'
    )
    with pytest.raises(StreamingQueryException, match="no-ops"):
        exec(code, {})  # noqa: S102 - our own text
    assert not lake.rows()

"""The pages' examples for Spark run as they stand."""

import pytest

from tests.harness.docs.pages import Block, spark_examples
from tests.harness.spark.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(400)]


EXAMPLES = spark_examples()


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_runs(example: Block, lake: Lake) -> None:
    """With this run's address, topic and folders in the place of the page's."""
    code = example.code.replace("localhost:9092", lake.broker.bootstrap)
    code = code.replace('"orders"', f'"{lake.orders}"')
    code = code.replace("/lake/", f"{lake.data.parent}/")
    exec(compile(code, str(example.page), "exec"), {})  # noqa: S102 - our own text


def test_there_is_an_example_in_ten_lines() -> None:
    """Else the test above would run nothing."""
    (example,) = EXAMPLES
    assert len([line for line in example.code.splitlines() if line]) <= 10

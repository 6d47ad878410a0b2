"""
The README's example for Spark runs as it stands.
"""

import pytest

from tests.spark.lake import Lake
from tests.test_readme import README, SPARK_EXAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(400)]


@pytest.mark.parametrize("example", SPARK_EXAMPLES)
def test_an_example_runs(example: str, lake: Lake) -> None:
    """
    With this run's address, topic and folders in the place of the README's.
    """
    code = example.replace("localhost:9092", lake.broker.bootstrap)
    code = code.replace('"orders"', f'"{lake.orders}"')
    code = code.replace("/lake/", f"{lake.data.parent}/")
    exec(compile(code, str(README), "exec"), {})  # noqa: S102 - our own text


def test_there_is_an_example_in_ten_lines() -> None:
    """
    Else the test above would run nothing.
    """
    (example,) = SPARK_EXAMPLES
    assert len([line for line in example.splitlines() if line]) <= 10

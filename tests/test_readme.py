"""
The README's examples run as they stand, against a broker.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parent.parent / "README.md"
ALL = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
EXAMPLES = [one for one in ALL if "safekafka" not in one]
SPARK_EXAMPLES = [one for one in ALL if "safekafka" in one]
LIMIT = 30.0
ADDRESS = 'bootstrap_servers="localhost:9092"'


def test_there_are_examples() -> None:
    """
    Else the test below would run nothing.
    """
    assert len(EXAMPLES) >= 3
    assert all(ADDRESS in example for example in EXAMPLES)


@pytest.mark.any_broker
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(
    example: str,
    kafka_broker: Any,  # noqa: ANN401 - one of several kinds
    kafka_topic: Callable[..., str],
    make_producer: Callable[..., Any],
) -> None:
    """
    With the address and the topic of this run in the place of the README's.
    """
    topic = kafka_topic(partitions=4)
    if "Worker(" in example:  # it runs until a record tells it to end
        producer = make_producer()
        producer.send(topic, b"first").get(LIMIT)
        producer.send(topic, b"last").get(LIMIT)
    code = example.replace(ADDRESS, "**CONFIG").replace('"orders"', f'"{topic}"')
    code = code.replace('"orders:', f'"{topic}:').replace("serve(9100", "serve(0")
    code = code.replace('group_id="billing"', f'group_id="g-{topic}"')
    exec(  # noqa: S102 - our own text
        compile(code, str(README), "exec"), {"CONFIG": kafka_broker.client_config}
    )

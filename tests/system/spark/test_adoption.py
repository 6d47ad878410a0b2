"""S3: a stream is taken over from the official source, held, let go, and handed back."""

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(400)]


@pytest.mark.contract("S3")
def test_there_and_back_again(lake, controller):
    """One schema and one checkpoint, three sources: nothing lost, nothing twice."""
    for include in ("true", "false"):
        options = {"includeHeaders": include}
        assert lake.stream(options).schema == lake.stream(options, "kafka").schema
    for step, source in enumerate(["kafka", "safekafka", "safekafka", "kafka"]):
        lake.produce(lake.orders, 20)
        lake.produce(lake.returns, 20)
        if step == 1:
            controller.pause(lake.orders)
        before = lake.rows(lake.orders) if step == 1 else None
        lake.run(format_=source)
        if before is not None:
            assert lake.rows(lake.orders) == before
            controller.resume(lake.orders)
    assert lake.rows() == lake.produced()

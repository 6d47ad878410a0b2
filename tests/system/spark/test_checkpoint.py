"""A real stream's checkpoint says whether it obeyed the holds of its group."""

from contextlib import nullcontext

import pytest
from attrs import evolve

from safeconsumer.audit.checkpoint import checkpoint_of, judged
from safeconsumer.cli import checkpoints
from safeconsumer.cli.control_topics import read_control
from safeconsumer.errors import CheckpointError
from tests.system.spark.test_control import operator

__all__ = ["operator"]  # a fixture

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(400)]


def judged_rows(lake, operator, since=0.0):
    """Judge its checkpoint, as if each hold were older by so many seconds."""
    found = checkpoint_of("c", dict(checkpoints._here(lake.checkpoint)))
    control = read_control(lake.broker.client_config, operator.topic)
    older = tuple(evolve(one, start=one.start - since) for one in control.spans)
    assert older
    return judged(found, evolve(control, spans=older), operator.group)


@pytest.mark.contract("S5")
@pytest.mark.nightly
def test_a_stream_is_judged_by_its_checkpoint(lake, operator, monkeypatch):
    """What the official source reads of a held topic is found; its checkpoint is the same."""
    lake.produce_both(5)
    lake.run(**named(operator.options()))
    operator.hold(lake.orders)
    lake.produce_both(5)
    lake.run(**named(operator.options()))
    rows = judged_rows(lake, operator)
    assert len(rows) == 2 * lake.partitions
    assert not [row for row in rows if row.violations or row.unjudged]
    lake.run(format_="kafka")
    assert lake.rows() == lake.produced()
    doubted = [row.topic for row in judged_rows(lake, operator) if row.unjudged]
    assert doubted == [lake.orders] * lake.partitions
    guilty = [row for row in judged_rows(lake, operator, 1e6) if row.violations]
    assert [row.topic for row in guilty] == [lake.orders] * lake.partitions
    monkeypatch.setattr(checkpoints, "session", lambda *_: nullcontext(lake.spark))
    here = checkpoint_of("c", dict(checkpoints._here(lake.checkpoint)))
    by_spark = checkpoints._by_spark(lake.checkpoint.as_uri(), "local[1]")
    assert checkpoint_of("c", dict(by_spark)) == here
    with pytest.raises(
        CheckpointError, match=r"gone/offsets cannot be read: .*PATH_NOT"
    ):
        list(checkpoints._by_spark(f"{lake.checkpoint}/gone", "local[1]"))


def named(options):
    return {name.replace(".", "_"): value for name, value in options.items()}

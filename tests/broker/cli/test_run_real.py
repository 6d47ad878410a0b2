"""``safeconsumer run`` at a broker: a group that obeys, partitions that are added."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safeconsumer.cli.errors import Status
from tests.broker.cli.test_program import launched
from tests.broker.cli.test_run import SECONDS, Program, ended, stopped

pytestmark = pytest.mark.any_broker


def test_an_operators_hold_is_obeyed(
    tmp_path: Path,
    kafka_broker: Any,  # noqa: ANN401 - any kind
    kafka_topic: Callable[..., str],
    make_producer: Callable[..., Any],
) -> None:
    """``run --control`` takes part: ``wait quiet`` hears from it that it obeys."""
    program = Program(
        tmp_path, kafka_broker, kafka_topic(partitions=2), make_producer()
    )
    where = (
        f"--bootstrap={program.bootstrap}",
        f"--topic-prefix=p-{uuid.uuid4().hex[:8]}-",
    )

    def done(*arguments: str) -> None:
        ended(launched(tmp_path, *arguments, *where), Status.DONE)

    done("control", "init")
    program.connection = where
    program.produce(b"v")
    process = program.start("handlers:noting", "--control")
    program.wait_seen(1)
    group = f"--group=g-{program.topic}"
    done("pause", program.topic, "--reason=test", group)
    done("wait", "quiet", "--timeout=30s", group)
    stopped(process)


def test_what_an_added_partition_has_already_is_read(
    tmp_path: Path,
    kafka_broker: Any,  # noqa: ANN401 - any kind
    kafka_topic: Callable[..., str],
    make_producer: Callable[..., Any],
) -> None:
    """By a group that began at the end and gets ``earliest`` later: it reads nothing else."""
    program = Program(
        tmp_path, kafka_broker, kafka_topic(partitions=1), make_producer()
    )
    program.produce(b"old")
    for settings in (["--set=auto_offset_reset=latest"], []):
        process = program.start(
            "handlers:noting", "--set=metadata_max_age_ms=1000", *settings
        )
        assert process.stderr is not None
        start = f"partition='{program.topic}:0' offset=1"
        next(line for line in process.stderr if start in line)
        if not settings:
            kafka_broker.add_partitions(program.topic, 2)
            make_producer().send(program.topic, b"new", partition=1).get(SECONDS)
            program.wait_seen(1)
        stopped(process)
    assert program.seen() == ["1 0"]

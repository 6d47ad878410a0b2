"""``safeconsumer run --dead-letter``: the producer that letters are written with."""

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from safeconsumer._kafka import login
from safeconsumer._kafka.fixes.producers import PatientClient
from safeconsumer.cli import cluster
from safeconsumer.cli import run as command
from safeconsumer.cli.errors import Status


def test_letters_do_not_spin_while_their_broker_is_silent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is the client of ``sim/test_producers``, and waits for all replicas."""
    made: list[dict[str, Any]] = []

    def producer(**settings: Any) -> None:  # noqa: ANN401 - kafka-python's own
        made.append(settings)
        message = "nothing is sent here"
        raise ValueError(message)

    (tmp_path / "lettered.py").write_text("def note(record, context): pass")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr("kafka.KafkaProducer", producer)
    monkeypatch.setattr(login, "trouble", lambda *_: None)
    monkeypatch.setattr(command, "reach", lambda *_, **__: None)
    monkeypatch.setattr(cluster, "existing", lambda *_: None)
    typed = ["lettered:note", "t", "--group=g", "--bootstrap=127.0.0.1:1"]
    ended = CliRunner().invoke(command.run, [*typed, "--dead-letter=dead"])
    assert ended.exit_code == Status.USAGE
    assert "nothing is sent here" in ended.output
    (settings,) = made
    assert (settings["acks"], settings["kafka_client"]) == ("all", PatientClient)

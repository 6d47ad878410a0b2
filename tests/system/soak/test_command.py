"""The command line of the soak."""

import sys

import pytest

from tests.system.soak import __main__ as command
from tests.system.soak.settings import Settings


@pytest.mark.parametrize("said", ["kafka.KafkaConsumer", "kafka:KafkaConsumer"])
def test_a_class_is_named_with_a_dot_or_a_colon(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other commands of this project take a colon."""
    given: list[str] = []

    def soak(settings: Settings) -> dict[str, int]:
        given.append(settings.consumer)
        return {"status": 0}

    monkeypatch.setattr(command, "soak", soak)
    monkeypatch.setattr(sys, "argv", ["soak", "--consumer", said])
    assert command.main() == 0
    assert given == ["kafka.KafkaConsumer"]


@pytest.mark.parametrize("said", ["", "kafka", "kafka:Nope", "nope.KafkaConsumer"])
def test_a_class_that_is_not_there_is_refused_before_anything_starts(
    said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By one line, not by a traceback."""
    monkeypatch.setattr(sys, "argv", ["soak", "--consumer", said])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert "write MODULE.CLASS, such as kafka.KafkaConsumer" in capsys.readouterr().err

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.brokers import choice, markers
from tests.harness.brokers.choice import BOOTSTRAP_VARIABLE, REQUIRE_VARIABLE, Kind
from tests.harness.brokers.settings import VERSION_VARIABLE

MAVEN = """#!/bin/sh
for one in "$@"; do
    case $one in
        -Dkafka.version=3.9.1) asked=yes ;;
        -DoutputDirectory=*) folder=${one#*=} ;;
    esac
done
cd "$(dirname "$folder")"
[ -n "$asked" ] && grep -q kafka.version pom.xml && mkdir "$folder"
"""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Pretend a machine that has nothing at all."""
    for name in (BOOTSTRAP_VARIABLE, REQUIRE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    return monkeypatch


@pytest.mark.usefixtures("machine")
def test_a_bare_machine_gets_the_embedded_broker() -> None:
    """The reason names every better kind and why it is not to be had."""
    chosen = choice.choose("auto")
    assert chosen.kind is Kind.EMBEDDED
    assert chosen.reason == (f"auto: {BOOTSTRAP_VARIABLE} is not set; no java in PATH")


def test_the_mock_is_refused_where_a_real_broker_is_required(
    machine: pytest.MonkeyPatch,
) -> None:
    """CI says so, and then nobody falls back in silence."""
    machine.setenv(REQUIRE_VARIABLE, "real")
    with pytest.raises(pytest.UsageError, match="no java in PATH"):
        choice.choose("auto")
    assert choice.choose("embedded").kind is Kind.EMBEDDED  # asked for by name


def test_an_address_comes_first(machine: pytest.MonkeyPatch) -> None:
    """Who names a cluster means it."""
    machine.setenv(BOOTSTRAP_VARIABLE, "kafka:9092")
    assert choice.choose("auto").kind is Kind.BOOTSTRAP


@pytest.mark.usefixtures("machine")
def test_bootstrap_without_an_address_is_an_error() -> None:
    """The message names the variable."""
    with pytest.raises(pytest.UsageError, match=BOOTSTRAP_VARIABLE):
        choice.choose("bootstrap")


def test_java_is_chosen_with_java_and_its_jars_only(
    machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Jars are not fetched by surprise."""
    java = tmp_path / "java"
    java.touch()
    java.chmod(0o755)
    reason = choice.choose("auto").reason
    assert "jars are not fetched (python -m tests.harness.brokers.jars does" in reason
    machine.setattr(choice.jars, "are_fetched", lambda: True)
    assert choice.choose("auto").kind is Kind.JAVA


@pytest.mark.parametrize("kind", list(Kind))
def test_a_kind_can_be_had_by_name(machine: pytest.MonkeyPatch, kind: Kind) -> None:
    """The option wins over everything that was found."""
    machine.setenv(BOOTSTRAP_VARIABLE, "kafka:9092")
    assert choice.choose(str(kind)).kind is kind


@pytest.mark.parametrize("name", ["real_broker", "java_brokers"])
def test_a_skip_says_in_a_line_how_to_have_it_run(
    name: str, request: pytest.FixtureRequest
) -> None:
    """Every skipped test has such a line, so it must be short."""
    item = pytest.Function.from_parent(
        request.node.parent, name="some", callobj=lambda: None
    )
    item.add_marker(name)
    markers.apply([item], choice.Choice(choice.Kind.EMBEDDED, "x" * 200))
    (mark,) = item.iter_markers("skip")
    reason = mark.kwargs["reason"]
    assert len(reason) <= 130
    assert "python -m tests.harness.brokers.jars" in reason


def test_another_kafka_is_asked_for_by_a_variable(tmp_path: Path) -> None:
    """Maven is asked for that version, and its jars are kept apart from other versions'."""
    maven = tmp_path / "mvn"
    maven.write_text(MAVEN)
    maven.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    asked = {VERSION_VARIABLE: "3.9.1", "XDG_CACHE_HOME": str(tmp_path), "PATH": path}
    done = subprocess.run(
        [sys.executable, "-m", "tests.harness.brokers.jars"],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=True,
    )
    folder = tmp_path / "safeconsumer-tests" / "kafka-3.9.1"
    assert done.stdout == f"{folder}\n"
    assert folder.is_dir()

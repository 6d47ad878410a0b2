"""Programs accept the files of ``docs/examples``, and pages show the same."""

import re
import shlex
import shutil

import click
import pytest

from safeconsumer.cli.commands import safeconsumer
from tests.harness.brokers.settings import USUAL_VERSION
from tests.harness.docs.pages import ROOT
from tests.harness.metrics.scraping import needs_promtool, promtool

EXAMPLES = ROOT / "docs" / "examples"


def _text(name):
    return (EXAMPLES / name).read_text("utf-8")


def _commands():
    found = re.findall(r"(safeconsumer .*)$", _text("billing.service"), re.MULTILINE)
    for name in ("compose.yml", "prometheus.yml"):
        found += re.findall(r"# +(safeconsumer .*)$", _text(name), re.MULTILINE)
    (args,) = re.findall(r"args: \[(.*?)\]", _text("kubernetes.yml"), re.DOTALL)
    return [*found, " ".join(one.strip(' "\n') for one in args.split(","))]


@pytest.mark.parametrize("command", _commands())
def test_command_in_an_example_file_exists(command):
    name, *arguments = shlex.split(command.partition(" # ")[0])
    assert name == "safeconsumer"
    known = safeconsumer
    context = click.Context(safeconsumer)
    while isinstance(known, click.Group):
        name = arguments.pop(0)
        known = known.get_command(context, name)
    assert known is not None, f"there is no command {name}"
    known.make_context(name, arguments)


def test_manifest_is_the_block_of_its_page():
    """The page and the file have the same text."""
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text("utf-8")
    assert _text("kubernetes.yml").partition("\n")[2] in page


def test_example_uses_the_tested_version_of_kafka():
    assert f"image: apache/kafka:{USUAL_VERSION}\n" in _text("compose.yml")


@needs_promtool
def test_prometheus_accepts_its_example_file(tmp_path):
    (tmp_path / "safeconsumer").mkdir()
    shutil.copy(EXAMPLES / "prometheus.yml", tmp_path)
    rules = ROOT / "safeconsumer" / "metrics" / "files" / "alerts.yml"
    shutil.copy(rules, tmp_path / "safeconsumer")
    said = promtool("check", "config", str(tmp_path / "prometheus.yml"))
    assert "SUCCESS" in said

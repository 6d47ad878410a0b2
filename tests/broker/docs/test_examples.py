"""The files of ``docs/examples`` are what their programs take, and what pages show."""

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
def test_a_command_in_an_example_file_is_one(command):
    name, *arguments = shlex.split(command.partition(" # ")[0])
    assert name == "safeconsumer"
    known = safeconsumer
    context = click.Context(safeconsumer)
    while isinstance(known, click.Group):
        name = arguments.pop(0)
        known = known.get_command(context, name)
    assert known is not None, f"there is no command {name}"
    known.make_context(name, arguments)


def test_the_manifest_is_the_page_s():
    """A reader of the page and somebody who copies the file get the same."""
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text("utf-8")
    assert _text("kubernetes.yml").partition("\n")[2] in page


def test_the_kafka_is_the_one_that_is_tested():
    assert f"image: apache/kafka:{USUAL_VERSION}\n" in _text("compose.yml")


@needs_promtool
def test_prometheus_takes_its_file(tmp_path):
    (tmp_path / "safeconsumer").mkdir()
    shutil.copy(EXAMPLES / "prometheus.yml", tmp_path)
    rules = ROOT / "safeconsumer" / "metrics" / "files" / "alerts.yml"
    shutil.copy(rules, tmp_path / "safeconsumer")
    said = promtool("check", "config", str(tmp_path / "prometheus.yml"))
    assert "SUCCESS" in said

"""Tests the files in ``docs/examples`` and the shell recipes on a page."""

import json
import os
import re
import shlex
import shutil

import click
import pytest

from safeconsumer.cli.commands import safeconsumer
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.history import EntryStream
from safeconsumer.group.wire import ControlHold, ControlKey
from tests.harness.brokers.settings import USUAL_VERSION
from tests.harness.docs.pages import ROOT, blocks
from tests.harness.metrics.scraping import needs_promtool, promtool
from tests.harness.processes import ran

EXAMPLES = ROOT / "docs" / "examples"
PAGES = ROOT / "docs" / "how-to"


def text_of(name):
    return (EXAMPLES / name).read_text("utf-8")


def commands():
    """Return the command lines in the example files."""
    found = re.findall(r"(safeconsumer .*)$", text_of("billing.service"), re.MULTILINE)
    for name in ("compose.yml", "prometheus.yml"):
        found += re.findall(r"# +(safeconsumer .*)$", text_of(name), re.MULTILINE)
    (args,) = re.findall(r"args: \[(.*?)\]", text_of("kubernetes.yml"), re.DOTALL)
    return [*found, " ".join(one.strip(' "\n') for one in args.split(","))]


@pytest.mark.parametrize("command", commands())
def test_command_in_an_example_file_can_be_parsed(command):
    name, *arguments = shlex.split(command.partition(" # ")[0])
    assert name == "safeconsumer"
    known = safeconsumer
    context = click.Context(safeconsumer)
    while isinstance(known, click.Group):
        name = arguments.pop(0)
        known = known.get_command(context, name)
    assert known is not None, f"there is no command {name}"
    known.make_context(name, arguments)


def test_page_about_kubernetes_quotes_the_manifest_file():
    page = (PAGES / "kubernetes.md").read_text("utf-8")
    assert text_of("kubernetes.yml").partition("\n")[2] in page


def test_compose_file_uses_the_tested_version_of_kafka():
    assert f"image: apache/kafka:{USUAL_VERSION}\n" in text_of("compose.yml")


@needs_promtool
def test_prometheus_accepts_its_example_file(tmp_path):
    (tmp_path / "safeconsumer").mkdir()
    shutil.copy(EXAMPLES / "prometheus.yml", tmp_path)
    rules = ROOT / "safeconsumer" / "metrics" / "files" / "alerts.yml"
    shutil.copy(rules, tmp_path / "safeconsumer")
    output = promtool("check", "config", str(tmp_path / "prometheus.yml"))
    assert "SUCCESS" in output


# ---------------------------------------------------------------- recipes

SLACK, GRAFANA = (
    one.code
    for one in blocks(PAGES / "monitor.md")
    if one.run_by == "tests/broker/docs/test_examples.py"
)
# This substitute for curl writes its arguments to a file, one per line, and then "--".
CURL = """#!/bin/sh
printf '%s\\n' "$@" -- >> "$CALLS"
"""


def history():
    """Return the lines that ``history --follow -o json`` prints for a hold and its lift."""
    key, hold = ControlKey("billing", "alice", "orders"), ControlHold("1", 'a "b"\n$x')
    records = [
        HoldRecord(key=key, hold=one, at=number + 0.5, offset=number)
        for number, one in enumerate((hold, None))
    ]
    found = EntryStream(lambda _: 30.0).of(records)
    return "".join(json.dumps(one.document()) + "\n" for one in found)


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
@pytest.mark.parametrize(
    ("recipe", "address", "documents"),
    [
        (
            SLACK,
            "https://s",
            [
                {"text": 'held: orders of billing by alice, a "b"\n$x'},
                {"text": "lifted: orders of billing by alice, no reason"},
            ],
        ),
        (
            GRAFANA,
            "https://g/api/annotations",
            [
                {
                    "time": time,
                    "tags": ["safeconsumer", "billing"],
                    "text": f"{what}: orders by alice",
                }
                for what, time in (("held", 500), ("lifted", 1500))
            ],
        ),
    ],
    ids=["slack", "grafana"],
)
def test_recipe_sends_each_line_of_the_history(tmp_path, recipe, address, documents):
    (tmp_path / "lines").write_text(history())
    for name, text in (("curl", CURL), ("safeconsumer", '#!/bin/sh\ncat "$LINES"\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {
        **os.environ,
        "CALLS": str(tmp_path / "calls"),
        "LINES": str(tmp_path / "lines"),
        "SLACK_WEBHOOK": "https://s",
        "GRAFANA": "https://g",
        "GRAFANA_TOKEN": "t",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    shell = [shutil.which("bash"), "-ec", recipe]
    ran(*shell, env=environment, check=True, capture_output=False)
    texts = (tmp_path / "calls").read_text().split("--\n")[:-1]
    calls = [one.splitlines() for one in texts]
    assert [one[-1] for one in calls] == [address] * 2
    assert [json.loads(one[one.index("-d") + 1]) for one in calls] == documents

"""The recipes of the pages that hand holds on to Slack and Grafana."""

import json
import os
import shutil
import subprocess

import pytest

from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.history import News
from safeconsumer.group.wire import ControlHold, ControlKey
from tests.harness.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "monitor.md"
SLACK, GRAFANA = (
    one.code
    for one in blocks(PAGE)
    if one.run_by == "tests/broker/docs/test_recipes.py"
)
# The fake curl writes its arguments, one per line, and "--" behind the last one.
CURL = """#!/bin/sh
printf '%s\\n' "$@" -- >> "$CALLS"
"""


def lines():
    """Return the lines that ``history --follow -o json`` prints for a hold and its lift."""
    key, hold = ControlKey("billing", "alice", "orders"), ControlHold("1", 'a "b"\n$x')
    records = [
        HoldRecord(key=key, hold=one, at=number + 0.5, offset=number)
        for number, one in enumerate((hold, None))
    ]
    found = News(30.0).of(records)
    return "".join(json.dumps(one.document()) + "\n" for one in found)


def called(folder, recipe):
    """Run a recipe with the printed lines and without a network; return curl's calls."""
    (folder / "lines").write_text(lines())
    calls = folder / "calls"
    for name, text in (("curl", CURL), ("safeconsumer", '#!/bin/sh\ncat "$LINES"\n')):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    more = {"CALLS": calls, "LINES": folder / "lines", "SLACK_WEBHOOK": "https://s",
            "GRAFANA": "https://g", "GRAFANA_TOKEN": "t"}  # fmt: skip
    environment = {**os.environ, **{key: str(one) for key, one in more.items()}}
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    shell = shutil.which("bash")
    subprocess.run([shell, "-ec", recipe], env=environment, check=True, timeout=60)  # noqa: S603 - our own page
    return [call.splitlines() for call in calls.read_text().split("--\n")[:-1]]


@pytest.mark.skipif(shutil.which("jq") is None, reason="it needs jq")
@pytest.mark.parametrize(
    ("recipe", "address", "said"),
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
def test_a_recipe_sends_each_line(tmp_path, recipe, address, said):
    calls = called(tmp_path, recipe)
    assert [one[-1] for one in calls] == [address] * 2
    assert [json.loads(one[one.index("-d") + 1]) for one in calls] == said

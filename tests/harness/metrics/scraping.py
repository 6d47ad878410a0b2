"""Reads metrics in the form in which a scrape returns them."""

import shutil

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from safeconsumer.console.figures import Figures
from safeconsumer.metrics import Collector
from safeconsumer.metrics.table import CONSUMER_LABELS
from tests.harness.processes import ran

PROMTOOL = shutil.which("promtool")
PREFIX = "safeconsumer_"
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing")


def values(*sources):
    """Return one consumer's samples by name and labels, except the consumer's own labels."""
    registry = CollectorRegistry()
    registry.register(Collector(*sources))
    found = {}
    for family in registry.collect():
        for one in family.samples:
            own = sorted(one.labels.items() - _names(one.labels).items())
            labels = ",".join(f'{k}="{v}"' for k, v in own)
            name = one.name.removeprefix(PREFIX)
            found[f"{name}{{{labels}}}" if labels else name] = one.value
    return found


def _names(labels):
    return {name: labels[name] for name in CONSUMER_LABELS}


def text_of(*sources):
    """Return the text of a scrape of these sources."""
    registry = CollectorRegistry()
    registry.register(Collector(*sources))
    return generate_latest(registry).decode()


def promtool(*arguments, given=""):
    """Run promtool and return its output; fail if promtool reports a problem."""
    assert PROMTOOL is not None
    done = ran(PROMTOOL, *arguments, input=given)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    return output


def console_text(served):
    """Return the text of a scrape of the console."""
    registry = CollectorRegistry()
    registry.register(Figures(served.state))
    return generate_latest(registry).decode()


def console_values(output):
    """Return a console's samples by name and labels; the label ``group`` is left out."""
    found = {}
    for family in text_string_to_metric_families(output):
        for one in family.samples:
            labels = ",".join(v for k, v in sorted(one.labels.items()) if k != "group")
            found[f"{one.name.removeprefix(PREFIX)} {labels}".strip()] = one.value
    return found

"""Reads the package's dashboard, alert rules and runbook."""

import json
import re
from importlib.resources import files

from attrs import frozen

FILES = {
    one.name: one.read_text("utf-8")
    for one in files("safeconsumer.metrics").joinpath("files").iterdir()
}
# In the alert rules, values that need quotes are JSON strings, which are also valid
# YAML.
_VALUE = re.compile(r"^ +(?:- )?(\w+): (.+)$", re.MULTILINE)


@frozen
class Alert:
    """One alert rule, with the fields that tests read."""

    name: str
    expr: str
    severity: str
    summary: str
    description: str


def _alerts():
    for text in FILES["alerts.yml"].split("      - alert: ")[1:]:
        found = dict(_VALUE.findall(text))
        texts = (json.loads(found[name]) for name in ("expr", "summary", "description"))
        expr, summary, description = texts
        name, severity = text.splitlines()[0], found["severity"]
        yield Alert(name, expr, severity, summary, description)


ALERTS = tuple(_alerts())


def queries():
    """Yield each query of the dashboard together with the title of its panel."""
    for panel in json.loads(FILES["dashboard.json"])["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def filled(query, interval="10s"):
    """Return a dashboard query with its variables replaced, as in Grafana."""
    query = query.replace("$__rate_interval", interval)
    return re.sub(r"\$(console|group|instance)", ".*", query)

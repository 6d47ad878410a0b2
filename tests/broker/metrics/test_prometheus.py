"""Lets a real Prometheus scrape a worker, members and the console."""

import json
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from contextlib import ExitStack, contextmanager

import pytest
from kafka import TopicPartition
from prometheus_client import CollectorRegistry, start_http_server

from safeconsumer import Worker, metrics
from safeconsumer.console.figures import Figures
from tests.harness.brokers.java import tied_to_us
from tests.harness.brokers.ports import reserved_port
from tests.harness.console.harness import (
    console,
    until_complete,
    until_level,
    until_settled,
)
from tests.harness.group.team import Team, settled
from tests.harness.members import Polled
from tests.harness.metrics.monitoring import ALERTS, FILES, filled, queries
from tests.harness.processes import begun
from tests.harness.waiting import wait_for
from tests.harness.worker.lab import Running

PROMETHEUS = shutil.which("prometheus")
SECONDS = 60.0
HOUR_MS = 3_600_000


@contextmanager
def prometheus(folder, targets):
    """Run a Prometheus that scrapes all targets once a second, and yield its address."""
    assert PROMETHEUS is not None
    port, config = reserved_port(), folder / "prometheus.yml"
    jobs = [{"job_name": name, **one} for name, one in targets.items()]
    document = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "alerts.yml")],
        "scrape_configs": jobs,
    }
    config.write_text(json.dumps(document))
    asking = [
        PROMETHEUS,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    environment = {"PATH": os.environ["PATH"]}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with begun(tied_to_us(asking), env=environment, **quiet) as process:
        yield f"http://127.0.0.1:{port}"
        process.terminate()


def at(port):
    return {"static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}


def ask(address, path, **query):
    """Return the response of Prometheus, or None while it does not respond."""
    url = f"{address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - ours
            return json.load(answer)["data"]
    except OSError:
        return None


def has_data(address, query):
    found = ask(address, "query", query=query)
    return bool(found and found["result"])


def keep_for_an_hour(team):
    """Give the team another topic with a retention of one hour."""
    count = len(team.partitions)
    team.topic = f"kept-{team.topic}"
    team.broker.create_topic(team.topic, count, {"retention.ms": str(HOUR_MS)})
    team.partitions = [TopicPartition(team.topic, number) for number in range(count)]
    team.produce(5)


def served_by(closing, collector):
    """Serve a collector with prometheus-client; return the port."""
    registry = CollectorRegistry()
    registry.register(collector)
    server, _ = start_http_server(0, "127.0.0.1", registry)
    closing.callback(server.server_close)
    closing.callback(server.shutdown)
    return server.server_port


@contextmanager
def fleet(broker):
    """Run two members of a held group, a console, and a worker."""
    with ExitStack() as closing:
        team = closing.enter_context(Team(broker))
        keep_for_an_hour(team)
        served = closing.enter_context(console(team))
        until_complete(served)
        members = settled(team, "billing-1", "billing-2")
        for one in members:
            one.commit()
        closing.enter_context(Polled(*members))
        until_settled(served, team.group, members=2, reporting=2)
        form = {"group": team.group, "scopes": team.topic, "reason": "r", "for": "1h"}
        assert served.pause(**form).is_success
        until_level(served, team.group, "quiet")
        other = f"workers-{team.group}"
        consumer = team.subscribed("worker", group_id=other, control=None)
        running = Running(Worker(consumer, lambda *_: None))
        closing.callback(running.end)
        running.wait_done(1)
        collectors = {
            "console": Figures(served.state),
            "members": metrics.Collector(*members),
            "worker": metrics.Collector(running.worker),
        }
        yield {name: at(served_by(closing, one)) for name, one in collectors.items()}


@pytest.mark.embedded_broker
@pytest.mark.skipif(PROMETHEUS is None, reason="Prometheus is missing")
def test_every_query_of_the_dashboard_returns_data(kafka_broker, tmp_path):
    """Prometheus has also loaded the alert rules, of which only expected ones fire."""
    (tmp_path / "alerts.yml").write_text(FILES["alerts.yml"])
    with fleet(kafka_broker) as targets, prometheus(tmp_path, targets) as address:
        left = dict.fromkeys(filled(query) for _, query in queries())

        def is_all_there():
            for query in tuple(left):
                if has_data(address, query):
                    del left[query]
            return not left

        wait_for(is_all_there, "data for every query", SECONDS, seen=lambda: list(left))
        rules = ask(address, "rules")["groups"][0]["rules"]
        assert {one["name"] for one in rules} == {one.name for one in ALERTS}
        assert {one["health"] for one in rules} <= {"ok", "unknown"}
        alarmed = {
            one["labels"]["alertname"] for one in ask(address, "alerts")["alerts"]
        }
        # The topic keeps records for only one hour, so HeldDataAtRisk is correct.
        assert alarmed <= {"HeldDataAtRisk", "UnlimitedHoldOver24h"}

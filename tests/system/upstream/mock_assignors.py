"""librdkafka's mock: two members with different first assignors abort the process."""

import subprocess
import sys

_PROGRAM = """
from confluent_kafka import Consumer, Producer
mock = Producer({"test.mock.num.brokers": 1})
broker = next(iter(mock.list_topics(timeout=10).brokers.values()))
base = {"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "g"}
mock.produce("orders", b"x"); mock.flush(10)
members = [Consumer({**base, "partition.assignment.strategy": strategy})
           for strategy in ("range,roundrobin", "roundrobin,range")]
for member in members:
    member.subscribe(["orders"])
for _ in range(100):
    for member in members:
        member.poll(0.1)
"""


def shown() -> str | None:
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", _PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    if done.returncode >= 0:
        return None
    last = [line for line in done.stderr.splitlines() if "ssert" in line]
    why = last[-1].strip() if last else ""
    return f"the process is ended by signal {-done.returncode}: {why[-150:]}"

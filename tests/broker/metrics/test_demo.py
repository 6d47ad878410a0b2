"""``safeconsumer demo --metrics``: the leak of one client and the silence of the other."""

import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from safeconsumer.cli.errors import CommandError, Status
from safeconsumer.cli.watched import watching
from safeconsumer.testing._ports import free_port
from tests.broker.cli.test_program import command
from tests.harness.metrics.scraping import needs_promtool, promtool, scrape
from tests.harness.processes import begun
from tests.harness.waiting import wait_for

SECONDS = 60.0


@contextmanager
def demo(*options: str) -> Iterator[int]:
    """Play it in a process of its own."""
    port = free_port()
    asking = [*command(), "demo", f"--metrics={port}", *options]
    with begun(asking, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        yield port
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)


def asked(port: int) -> str:
    """Scrape it; nothing while it does not answer."""
    try:
        return scrape(port)
    except OSError:
        return ""


def told(port: int, is_it: Callable[[str], bool], what: str) -> str:
    """Scrape until one answer is what is awaited, and return that answer."""
    seen = [""]

    def is_told() -> bool:
        seen[0] = asked(port) or seen[0]
        return is_it(seen[0])

    wait_for(is_told, what, SECONDS, seen=lambda: seen[0])
    return seen[0]


def test_the_console_of_the_demo_is_there_too() -> None:
    """What it knows of groups, without its token."""

    def is_all_there(text: str) -> bool:
        return (
            value(text, "group_quiet", group="billing") == 1
            and value(text, "group_topic_held", group="shipping", topic="orders") == 1
            and value(text, "consumer_assigned_partitions", client_id="ledger-1") == 4
        )

    with demo("--console") as port:
        told(port, is_all_there, "its groups and members")


def value(text: str, name: str, **labels: str) -> float:
    """Return the sum of the samples with these labels; -1 if there is none."""
    wanted = [f'{label}="{one}"' for label, one in labels.items()]
    found = [
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith(f"safeconsumer_{name}{{")
        and all(one in line for one in wanted)
    ]
    return sum(found) if found else -1.0


@needs_promtool
@pytest.mark.embedded_broker
def test_the_leak_and_the_silence_can_be_watched() -> None:
    """The stock client delivers what is paused; ours has none, and says what holds."""

    def is_both(text: str) -> bool:
        leaked = value(text, "demo_wrong_records", client="stock") > 0
        return leaked and value(text, "consumer_quiet_partitions") > 0

    # If ours is done with the first before the other leaks, it holds in the second.
    with demo("--scenario=ticket-loop", "--scenario=moved-away") as port:
        text = told(port, is_both, "a leak of the stock client and a hold of ours")
    assert value(text, "demo_wrong_records", client="safe") == 0
    assert value(text, "demo_delivered_records", client="safe") > 0
    assert value(text, "demo_partitions", client="stock", state="pause_lost") >= 0
    assert not promtool("check", "metrics", given=text).strip()


def test_a_port_that_is_taken() -> None:
    """A sentence, and the status of wrong use."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = f"port {port}: .*choose one with --metrics"
        with pytest.raises(CommandError, match=said) as told, watching(port):
            pass
    assert told.value.status == Status.USAGE


def test_where_it_answers_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """With port 0 nobody could know."""
    with watching(0):
        found = re.search(
            r"metrics at http://127\.0\.0\.1:(\d+)/", capsys.readouterr().err
        )
        assert found is not None
        assert "demo_" in scrape(int(found[1]))

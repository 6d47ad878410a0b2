"""Runs the commands of the tutorial for operators; ``--write`` updates their output."""

import re
import shlex
import socket
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from attrs import define, field
from click.testing import CliRunner
from kafka import KafkaProducer

from safeconsumer import Control, SafeConsumer
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.testing import EmbeddedBroker
from tests.harness.members import Polled
from tests.harness.polling import poll_until
from tests.harness.producing import produce

PAGE = Path(__file__).parents[3] / "docs" / "tutorials" / "a-group.md"
_BEGIN = "$ export SAFECONSUMER_BOOTSTRAP="
_TOPICS = {"orders": 4, "orders-eu": 2}
_LIMIT = 20.0
# Patterns of texts that differ between runs, each with its placeholder.
_PASSING = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "TIME"),
    (r"after \d+\.\d s", "after SECONDS s"),
    (r" {2,}", "  "),
)


@define
class Tour:
    """A cluster with two topics; the group ``billing`` starts after ``control init``."""

    broker: Any
    _exported: dict[str, str] = field(factory=dict)
    _closing: ExitStack = field(factory=ExitStack)

    def begin(self):
        """Start two members, which read all records and keep polling in the background."""
        for topic, count in _TOPICS.items():
            self.broker.create_topic(topic, count)
        members = [self._member(name) for name in ("billing-1", "billing-2")]

        def is_shared():
            return [len(one.assignment()) for one in members] == [3, 3]

        with Polled(members[1]):
            poll_until(members[0], is_shared)
        self.produce()
        for one in members:
            got = {}
            poll_until(one, lambda: sum(map(len, got.values())) == 9, got=got)  # noqa: B023 - called in this iteration only
            one.commit()
            self._closing.enter_context(Polled(one))

    def _member(self, name):
        made = SafeConsumer(
            *_TOPICS,
            **self.broker.client_config,
            **self.broker.group_config,
            group_id="billing",
            client_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            control=Control(status_interval=0.3),
        )
        self._closing.callback(made.close, autocommit=False)
        return made

    def produce(self):
        """Write three records to each partition of both topics."""
        with ExitStack() as closing:
            producer = KafkaProducer(**self.broker.client_config)
            closing.callback(producer.close)
            for topic, count in _TOPICS.items():
                produce(producer, topic, *[3] * count, limit=_LIMIT)

    def run(self, command):
        """Run one command line of the tutorial; return the output."""
        name, *arguments = shlex.split(command)
        if name == "export":
            self._exported = dict(one.split("=", 1) for one in arguments)
            self._exported["SAFECONSUMER_BOOTSTRAP"] = self.broker.bootstrap
            return ""
        result = CliRunner().invoke(safeconsumer, arguments, env=self._exported)
        if "control init" in command:
            self.begin()
        if "--wait" in command:
            self.produce()
        return result.output.replace(socket.gethostname(), "vm")

    def close(self):
        self._closing.close()


def block(text):
    """Return the block with the tour from the text of the page."""
    return text[text.index(_BEGIN) :].partition("```")[0]


def renewed(shown, run):
    """Return the tour with current output; cut the output where the page shows ``...``."""
    found = []
    for part in re.split(r"^\$ ", shown, flags=re.MULTILINE)[1:]:
        command, _, before = part.partition("\n")
        lines = run(command).splitlines(keepends=True)
        if before.endswith("...\n"):
            lines = [*lines[: before.count("\n") - 1], "...\n"]
        found.append(f"$ {command}\n{''.join(lines)}")
    return "".join(found)


def lasting(text):
    """Return the tour with placeholders for texts that differ between runs."""
    for pattern, word in _PASSING:
        text = re.sub(pattern, word, text)
    return text


@contextmanager
def toured(broker):
    tour = Tour(broker)
    try:
        yield tour
    finally:
        tour.close()


def main():
    """Print the tour with current output; with ``--write`` also update the page."""
    text = PAGE.read_text("utf-8")
    with EmbeddedBroker() as broker, toured(broker) as tour:
        now = renewed(block(text), tour.run)
    sys.stdout.write(now)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text.replace(block(text), now), "utf-8")


if __name__ == "__main__":
    main()

"""Implements ``safeconsumer demo``: shows both clients in the same rebalances."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import click

from safeconsumer.cli.errors import EPILOG, Status, explained
from safeconsumer.demo.playing import play_all
from safeconsumer.demo.situations import SITUATIONS
from safeconsumer.demo.table import Verdict, sentence, table, verdict
from safeconsumer.testing.embedded import EmbeddedBroker


@click.command(epilog=EPILOG)
@click.option(
    "--situation",
    "names",
    multiple=True,
    type=click.Choice([one.name for one in SITUATIONS]),
    help="Play only this one; may be given several times.",
)
@click.pass_context
def demo(context: click.Context, names: tuple[str, ...]) -> None:
    """
    Show KafkaConsumer and SafeConsumer side by side, through real rebalances.

    Both play a situation on the same broker at the same time. In worker these are a
    thread pool behind KafkaConsumer and a Worker; group is played by SafeConsumer
    alone, since KafkaConsumer has no such call. The broker is one inside this process.
    """
    with explained(context), _quiet_kafka():
        context.exit(_play(names))


def _play(names: tuple[str, ...]) -> Status:
    picked = [one for one in SITUATIONS if not names or one.name in names]
    began = time.monotonic()
    with EmbeddedBroker() as broker:
        results = play_all(picked, broker, click.echo)
    seconds = time.monotonic() - began
    click.echo("\n" + "\n".join(table(results)))
    versions = [f"{name} {version(name)}" for name in ("safeconsumer", "kafka-python")]
    click.echo(f"{', '.join(versions)}, broker embedded, {seconds:.0f} s")
    click.echo(sentence(results))
    is_as_known = verdict(results) is Verdict.AS_KNOWN
    return Status.DONE if is_as_known else Status.FAILED


@contextmanager
def _quiet_kafka() -> Iterator[None]:
    # Both clients would log complaints about failures that the demo causes on purpose.
    log = logging.getLogger("kafka")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)

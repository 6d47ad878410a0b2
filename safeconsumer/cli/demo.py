"""Implements ``safeconsumer demo``: compares both clients in the same rebalances."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import click
from kafka.errors import KafkaTimeoutError

from safeconsumer.cli.connection import servers_of
from safeconsumer.cli.ending import interrupted_by_sigterm
from safeconsumer.cli.errors import CommandError, explained
from safeconsumer.cli.statuses import EPILOG, Status
from safeconsumer.demo.cluster import UsersCluster
from safeconsumer.demo.playing import play_all
from safeconsumer.demo.situations import SITUATIONS
from safeconsumer.demo.stage import RUN, Broker
from safeconsumer.demo.table import Verdict, sentence, table, verdict
from safeconsumer.testing.embedded import EmbeddedBroker


@click.command(epilog=EPILOG)
@click.option(
    "--bootstrap",
    metavar="HOST:PORT,...",
    help="Play on this cluster, which must require no login and no TLS. The demo's "
    "topics and groups have names of their own there and are removed afterwards.",
)
@click.option(
    "--situation",
    "names",
    multiple=True,
    type=click.Choice([one.name for one in SITUATIONS]),
    help="Play only this situation; may be given several times.",
)
@click.pass_context
def demo(context: click.Context, bootstrap: str | None, names: tuple[str, ...]) -> None:
    """
    Show KafkaConsumer and SafeConsumer side by side in real rebalances.

    Both clients play each situation on the same broker at the same time. The situation
    "worker" compares a thread pool behind KafkaConsumer with a Worker. Only
    SafeConsumer plays the situation "group", because KafkaConsumer has no such call.
    The broker runs inside this process, unless --bootstrap names a cluster.
    """
    with explained(context), _quiet_kafka():
        context.exit(_play(bootstrap, names))


def _play(bootstrap: str | None, names: tuple[str, ...]) -> Status:
    picked = [one for one in SITUATIONS if not names or one.name in names]
    began = time.monotonic()
    with _broker(bootstrap) as broker:
        results = play_all(picked, broker, click.echo)
    seconds = time.monotonic() - began
    click.echo("\n" + "\n".join(table(results)))
    versions = [f"{name} {version(name)}" for name in ("safeconsumer", "kafka-python")]
    click.echo(
        f"{', '.join(versions)}, broker {bootstrap or 'embedded'}, {seconds:.0f} s"
    )
    click.echo(sentence(results))
    is_as_known = verdict(results) is Verdict.AS_KNOWN
    return Status.DONE if is_as_known else Status.FAILED


@contextmanager
def _broker(bootstrap: str | None) -> Iterator[Broker]:
    if bootstrap is None:
        with EmbeddedBroker() as broker:
            yield broker
        return
    cluster = UsersCluster(",".join(servers_of(bootstrap)))
    try:
        cluster.check()
        click.echo(
            f"topics and groups named {RUN}-* are created, and removed at the end"
        )
        with interrupted_by_sigterm():
            try:
                yield cluster
            finally:
                click.echo(cluster.tidy())
    except KafkaTimeoutError as error:
        message = f"no Kafka broker answers at {bootstrap}"
        raise CommandError(message, Status.UNREACHABLE) from error


@contextmanager
def _quiet_kafka() -> Iterator[None]:
    # Otherwise both clients would log complaints about failures that the demo causes on
    # purpose.
    log = logging.getLogger("kafka")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)

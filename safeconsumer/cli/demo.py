"""Implements ``safeconsumer demo``: shows both clients in the same rebalances."""

import json
import logging
import re
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Any

import click
from attrs import evolve, frozen
from rich.console import Console

from safeconsumer.cli.brokers import BrokerNotReachableError, open_broker
from safeconsumer.cli.errors import (
    CommandError,
    Status,
    epilog,
    explained,
    give_up,
)
from safeconsumer.cli.panels import WIDEST
from safeconsumer.cli.screens import LiveScreen, PlainScreen, Screen
from safeconsumer.demo import (
    SAFE,
    SCENARIOS,
    STOCK,
    Result,
    Scenario,
    Setting,
    play_side_by_side,
    verdict,
)
from safeconsumer.demo import table as render
from safeconsumer.errors import MissingExtraError

_EPILOG = epilog(
    Status.DONE,
    Status.FAILED,
    Status.USAGE,
    Status.UNREACHABLE,
    Status.NOT_SHOWN,
    Status.NOT_PLAYED,
)

_HOST_PORT = re.compile(r"[^\s:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")

_VERSIONED = ("safeconsumer", "kafka-python")


@frozen
class _Shown:
    results: tuple[Result, ...]
    seconds: float


def _address(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> str | None:
    for one in (value or "").split(","):
        if value is not None and not _HOST_PORT.fullmatch(one):
            message = f"{one!r} is not HOST:PORT"
            raise click.BadParameter(message)
    return value


@click.command(epilog=_EPILOG)
@click.option(
    "--bootstrap",
    metavar="HOST:PORT",
    callback=_address,
    help="Use this cluster, not an embedded broker. Topics and groups named "
    "safeconsumer-demo-* are made and deleted again.",
)
@click.option(
    "--scenario",
    "names",
    multiple=True,
    type=click.Choice([scenario.name for scenario in SCENARIOS]),
    metavar="NAME",
    help="Play only this scenario; may be given several times.",
)
@click.option("--list", "is_listing", is_flag=True, help="List the scenarios.")
@click.option("--json", "is_json", is_flag=True, help="Print the results as JSON.")
@click.option(
    "--console",
    "is_console",
    is_flag=True,
    help="Run a small fleet on the embedded broker and its console instead, to click "
    "on in a browser. Needs the extra console.",
)
@click.option(
    "--metrics",
    "port",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help="Answer Prometheus at 127.0.0.1:PORT/metrics while it plays; 0 for any port.",
)
@click.pass_context
def demo(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    bootstrap: str | None,
    names: tuple[str, ...],
    *,
    is_listing: bool,
    is_json: bool,
    is_console: bool,
    port: int | None,
) -> None:
    """
    Show KafkaConsumer and SafeConsumer side by side, through real rebalances.

    Both play the same scenarios on the same broker at the same time. A broker inside
    this process is used unless --bootstrap names another one.
    """
    if is_console:
        _show_console(context, bootstrap, port)
        return
    picked = tuple(one for one in SCENARIOS if not names or one.name in names)
    if is_listing:
        click.echo("\n".join(render.listing(picked)))
        return
    console = Console(stderr=is_json, highlight=False)
    try:
        with _sigterm_as_ctrl_c(), _quiet_kafka():
            shown = _show(picked, bootstrap, console, port)
    except BrokerNotReachableError as error:
        give_up(context, str(error), Status.UNREACHABLE)
    except (CommandError, MissingExtraError) as error:
        give_up(context, str(error), Status.USAGE)
    except KeyboardInterrupt:
        give_up(context, "interrupted", Status.INTERRUPTED)
    else:
        _conclude(picked, shown, bootstrap, console if not is_json else None)
        context.exit(verdict.status(picked, shown.results))


def _show_console(
    context: click.Context, bootstrap: str | None, port: int | None
) -> None:
    with explained(context), _quiet_kafka():
        if bootstrap is not None:
            message = "for your own cluster: safeconsumer console --bootstrap HOST:PORT"
            raise CommandError(message)
        with _watching(port) as watched:
            show = import_module("safeconsumer.demo.fleet").show
            if watched is None:
                show()
            else:
                show(watched.watch, watched.show)


def _show(
    scenarios: Sequence[Scenario],
    bootstrap: str | None,
    console: Console,
    port: int | None,
) -> _Shown:
    began = time.monotonic()
    screen: Screen = (LiveScreen if console.is_terminal else PlainScreen)(console)
    with _watching(port) as watched, open_broker(bootstrap) as broker, screen:
        setting = Setting(broker=broker, report=screen.report)
        if watched is not None:
            also = watched.also(screen.report)
            setting = evolve(setting, report=also, watch=watched.watch)
        results = tuple(_play(scenarios, setting, screen))
    return _Shown(results, time.monotonic() - began)


def _play(
    scenarios: Sequence[Scenario], setting: Setting, screen: Screen
) -> Iterator[Result]:
    for number, scenario in enumerate(scenarios, start=1):
        screen.begin(number, len(scenarios), scenario)
        results = play_side_by_side(scenario, (STOCK, SAFE), setting)
        screen.end(number, len(scenarios), results)
        yield from results


def _conclude(
    scenarios: Sequence[Scenario],
    shown: _Shown,
    bootstrap: str | None,
    console: Console | None,
) -> None:
    broker = bootstrap or "embedded"
    versions = {name: version(name) for name in _VERSIONED}
    if console is None:
        document = render.document(
            scenarios,
            shown.results,
            broker=broker,
            versions=versions,
            seconds=shown.seconds,
        )
        click.echo(json.dumps(document, indent=2))
        return
    width = max(80, min(console.width, WIDEST))
    console.print(render.table(scenarios, shown.results), width=width)
    for line in render.troubles(shown.results):
        console.print(line, style="yellow", markup=False)
    about = ", ".join(f"{name} {number}" for name, number in versions.items())
    console.print(f"{about}, broker {broker}, {shown.seconds:.0f} s", style="dim")
    said = verdict.sentence(scenarios, shown.results)
    console.print(said, markup=False, soft_wrap=not console.is_terminal)


@contextmanager
def _watching(port: int | None) -> Iterator[Any]:
    if port is None:
        yield None
        return
    with import_module("safeconsumer.cli.watched").watching(port) as watched:
        yield watched


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    # It would leave the demo's topics and groups in somebody's cluster.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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

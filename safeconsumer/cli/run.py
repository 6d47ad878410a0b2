"""Implements ``safeconsumer run``: runs a program's worker as a process."""

import contextlib
import json
import logging
import signal
from collections.abc import Container, Mapping
from typing import Any

import click
from click.core import ParameterSource
from kafka.errors import KafkaError

from safeconsumer.cli import cluster, probes
from safeconsumer.cli.addresses import METAVAR, listening
from safeconsumer.cli.connection import connection_options
from safeconsumer.cli.errors import EPILOG, CommandError, Status, explained
from safeconsumer.cli.main import Abandoned
from safeconsumer.cli.saying import Command
from safeconsumer.cli.target import TargetError, load, takes_consumer, worker_of
from safeconsumer.errors import SafeConsumerError, WorkerSettingError
from safeconsumer.events.log import prepare
from safeconsumer.group.troubles import is_refused
from safeconsumer.holds.explain import counted
from safeconsumer.holds.hold import Lifetime
from safeconsumer.worker import Report, Worker
from safeconsumer.worker.tracebacks import shown

# Settings that --set refuses, since an option or the worker sets them.
_OWN_OPTIONS = {
    "bootstrap_servers": "--bootstrap",
    "control": "--control",
    "enable_auto_commit": "the worker commits what is done",
    "group_id": "--group",
}
# By the class of a setting's default: what its value must be.
_KINDS: Mapping[type, tuple[str, tuple[type, ...]]] = {
    bool: ("true or false", (bool,)),
    float: ("a number", (int, float)),
    int: ("a number", (int, float)),
    str: ("a text", (str,)),
}
_LIFETIMES = {
    one.value: one for one in (Lifetime.UNTIL_RESUMED, Lifetime.WHILE_ASSIGNED)
}
# kafka-python uses assert, and raises whatever its arithmetic does.
_WRONG_SETTING = (AssertionError, AttributeError, LookupError, TypeError, ValueError)
_REACH_MS = 5_000
# What concerns the process, whoever makes the consumer.
_OF_THE_PROCESS = {"target", "probes_at"}


@click.command(cls=Command, epilog=EPILOG)
@click.argument("target", metavar="MODULE:NAME")
@click.argument("topics", metavar="[TOPIC...]", nargs=-1)
@connection_options
@click.option("--group", help="The consumer group.")
@click.option(
    "--control",
    "is_controlled",
    is_flag=True,
    help="Obey operator and group holds (safeconsumer pause --group).",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of KafkaConsumer, its value as JSON or as text; repeatable.",
)
@click.option(
    "--probes",
    "probes_at",
    metavar=METAVAR,
    callback=listening,
    help="Answer /live, /healthy and /metrics by HTTP: 8080 on this machine, "
    "0.0.0.0:8080 for others; 0 takes a free port.",
)
@click.pass_context
def run(
    context: click.Context,
    /,
    target: str,
    **options: Any,  # noqa: ANN401 - the options above
) -> None:
    """
    Run a Worker of your program, as a process.

    MODULE:NAME is a function that is called with a consumer and returns a
    safeconsumer.Worker: the consumer is made here, of the topics and options. Or it is
    a Worker, or a function without arguments that returns one; that Worker has its own
    consumer, and only the probes may be given.

    After SIGTERM or SIGINT running handlers finish and their records are committed; a
    second signal stops at once.
    """
    with explained(context), contextlib.ExitStack() as stack:
        if not options["is_controlled"] and _typed(context, {"topic_prefix"}):
            message = "--topic-prefix would change nothing without --control"
            raise CommandError(message)
        found = load(target)
        if takes_consumer(target, found):
            consumer = _consumer(target, options)
            stack.callback(consumer.close, autocommit=False, timeout_ms=2000)
            worker = worker_of(target, found, consumer)
        else:
            _refuse_typed(target, context)
            worker = worker_of(target, found)
        _log()
        _probe(stack, worker, options["probes_at"])
        report = _ran(worker)
    click.echo(_sentence(report), err=True)
    if report.given_up:
        raise Abandoned(Status.FAILED)
    context.exit(Status.DONE if report.committed else Status.FAILED)


def _refuse_typed(target: str, context: click.Context) -> None:
    names = {str(one.name) for one in context.command.params} - _OF_THE_PROCESS
    typed = _typed(context, names)
    if typed:
        message = (
            f"{target} has its own consumer, for which {', '.join(typed)} would change "
            f"nothing: leave that out, or name a function that takes the consumer"
        )
        raise TargetError(message)


def _typed(context: click.Context, names: Container[str]) -> list[str]:
    return [
        one.opts[0] if isinstance(one, click.Option) else "TOPIC"
        for one in context.command.params
        if one.name in names
        and context.get_parameter_source(str(one.name)) is ParameterSource.COMMANDLINE
    ]


def _consumer(target: str, options: dict[str, Any]) -> Any:  # noqa: ANN401 - untyped
    from safeconsumer import SafeConsumer  # noqa: PLC0415  0.2 s, when needed

    lacks = [] if options["topics"] else ["topics"]
    lacks += ["a --group"] if options["group"] is None else []
    if lacks:
        message = f"{target} takes a consumer: give {' and '.join(lacks)}"
        raise TargetError(message)
    usual = SafeConsumer.DEFAULT_CONFIG
    given = dict(_setting(one, usual) for one in options["settings"])
    base, control = options["connect"]()
    # The client that looks for the topics needs these, too, for the same cluster.
    shared = {
        name: value
        for name, value in given.items()
        if name == "api_version" or name.startswith(("security_", "sasl_", "ssl_"))
    }
    config = {"enable_auto_commit": False, **base, **given}
    there = {**base, **shared, "bootstrap_timeout_ms": _REACH_MS}
    cluster.existing(there, options["topics"])
    if options["is_controlled"]:
        config["control"] = control
        mend = "safeconsumer control init"
        cluster.existing(there, control.all_topics, mend, Status.REFUSED)
    try:
        return SafeConsumer(*options["topics"], group_id=options["group"], **config)
    except _WRONG_SETTING as error:
        message = f"a setting is not acceptable: {error or type(error).__name__}"
        raise CommandError(message) from error


def _setting(text: str, usual: Mapping[str, Any]) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        message = f"--set: {text!r} is not KEY=VALUE"
        raise CommandError(message)
    if name in _OWN_OPTIONS:
        message = f"--set {name} is refused: {_OWN_OPTIONS[name]}"
        raise CommandError(message)
    try:
        read = json.loads(value)
    except ValueError:
        read = value
    if name == "default_lifetime" and value in _LIFETIMES:
        return name, _LIFETIMES[value]
    # kafka-python compares and adds these values: a text instead of a number would be a
    # traceback from somewhere inside it.
    what, kinds = _KINDS.get(type(usual.get(name)), ("", ()))
    if kinds and read is not None and type(read) not in kinds:
        message = f"--set {name}: must be {what}, not {read!r}"
        raise CommandError(message)
    # kafka-python takes tuples where JSON has lists: api_version=[2, 3]
    return name, tuple(read) if isinstance(read, list) else read


def _log() -> None:
    if not logging.getLogger("safeconsumer").hasHandlers():  # the program has none
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
        logging.getLogger("safeconsumer").setLevel(logging.INFO)
        prepare()


def _probe(
    stack: contextlib.ExitStack, worker: Worker, address: tuple[str, int] | None
) -> None:
    try:
        port = stack.enter_context(probes.serving(address, worker))
    except OSError as error:
        message = f"a probe cannot be set up: {error}"
        raise CommandError(message) from error
    if address is not None and address[1] != port:
        click.echo(f"safeconsumer: probes at http://{address[0]}:{port}", err=True)


def _ran(worker: Worker) -> Report:
    try:
        return worker.run(signals=(signal.SIGTERM, signal.SIGINT))
    except (SafeConsumerError, KafkaError, OSError) as error:
        status = Status.REFUSED if is_refused(error) else Status.FAILED
        if isinstance(error, WorkerSettingError):  # of the topics that there are
            status = Status.USAGE
        raise CommandError(str(error) or type(error).__name__, status) from error
    except SystemExit as error:  # its status could be mistaken for one of ours
        message = f"a handler ended the worker: {shown(error)}"
        raise CommandError(message, Status.FAILED) from error


def _sentence(report: Report) -> str:
    handled = report.done - report.dead_letters - report.skipped
    letters = counted(report.dead_letters, "dead letter")
    gone = f", {counted(report.gone, 'offset')} deleted unread" if report.gone else ""
    given_up = f", {report.given_up} given up unfinished" if report.given_up else ""
    return (
        f"safeconsumer: {handled} handled, {letters}, "
        f"{report.skipped} skipped, {report.dropped} dropped{given_up}{gone}; "
        f"{'committed' if report.committed else 'NOT committed'}, "
        f"stopped in {report.seconds:.1f} s"
    )

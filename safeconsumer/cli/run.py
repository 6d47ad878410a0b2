"""Implements ``safeconsumer run``: runs a worker process from the shell."""

import contextlib
import json
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from attrs import evolve
from kafka.errors import KafkaConfigurationError, KafkaError

from safeconsumer._kafka.fixes import producers
from safeconsumer.cli import cluster, probes, watch
from safeconsumer.cli.brokers import BrokerNotReachableError, reach
from safeconsumer.cli.connection import connection_options
from safeconsumer.cli.errors import (
    CommandError,
    Status,
    epilog,
    give_up,
    status_of,
)
from safeconsumer.cli.worker_options import (
    function,
    imported,
    option,
    setting_option,
    throttle_options,
)
from safeconsumer.errors import (
    ClientPropertyError,
    ControlSettingError,
    DecoderSettingError,
    HookTypeError,
    MissingExtraError,
    SafeConsumerError,
    WorkerSettingError,
)
from safeconsumer.events import (
    Event,
    NothingConsumed,
    PartitionStarted,
    TopicsNotConsumed,
)
from safeconsumer.events.dispatch import Dispatcher
from safeconsumer.group.troubles import is_refused, said
from safeconsumer.holds.explain import counted
from safeconsumer.worker import (
    Breaker,
    Commit,
    DeadLetter,
    Drain,
    Limits,
    Report,
    Retry,
    Worker,
)
from safeconsumer.worker.calls import is_async
from safeconsumer.worker.lanes import record_key
from safeconsumer.worker.routes import Routes, chosen
from safeconsumer.worker.settings import check_callable
from safeconsumer.worker.tracebacks import shown

_USAGE = (
    ClientPropertyError,
    ControlSettingError,
    DecoderSettingError,
    HookTypeError,
    KafkaConfigurationError,
    MissingExtraError,
    WorkerSettingError,
)
# Settings that --set refuses, since an option or the worker sets them.
_OWN_OPTIONS = {
    "bootstrap_servers": "--bootstrap",
    "control": "--control",
    "enable_auto_commit": "set by the worker, which commits what is done",
    "group_id": "--group",
}

_EPILOG = epilog(
    Status.DONE,
    Status.FAILED,
    Status.USAGE,
    Status.UNREACHABLE,
    Status.REFUSED,
    Status.UNCOMMITTED,
    Status.GIVEN_UP,
    Status.MISSING,
)


def _setting(values: tuple[str, ...]) -> dict[str, Any]:
    settings = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            message = f"{value!r} is not KEY=VALUE"
            raise ValueError(message)
        try:
            read = json.loads(text)
        except ValueError:
            read = text
        # kafka-python takes tuples where JSON has lists: api_version=[2, 3]
        settings[name] = tuple(read) if isinstance(read, list) else read
    return settings


def _shared(config: dict[str, Any]) -> dict[str, Any]:
    # Settings that the asking client and the producer need, too, for the same cluster.
    return {
        name: value
        for name, value in config.items()
        if name == "api_version" or name.startswith(("security_", "sasl_", "ssl_"))
    }


@click.command(epilog=_EPILOG)
@click.argument("handler", metavar="MODULE:HANDLER")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@connection_options
@click.option(
    "--control",
    "is_controlled",
    is_flag=True,
    help="Obey operator and group holds (safeconsumer pause --group).",
)
@click.option("--group", required=True, help="The consumer group.")
@click.option(
    "--order",
    type=click.Choice(["partition", "key", "unordered"]),
    default="partition",
    show_default=True,
    help="Which records are handled one after the other.",
)
@option(
    "--key",
    read=function,
    metavar="MODULE:FUNCTION",
    help="Returns a record's key for --order key; by default its own.",
)
@click.option(
    "--executor",
    type=click.Choice(["thread", "process", "asyncio"]),
    help="Where the handler runs; asyncio for a coroutine function, else thread.",
)
@click.option(
    "--concurrency",
    type=int,
    default=8,
    show_default=True,
    help="How many handlers run at a time.",
)
@click.option("--batch", type=int, help="The most records of one call.")
@throttle_options
@option(
    "--lifespan",
    read=function,
    metavar="MODULE:FUNCTION",
    help="Makes a context manager that is entered before the first record, where "
    "handlers run; its value is context.state.",
)
@click.option(
    "--dead-letter", metavar="TOPIC", help="For records that failed for good."
)
@click.option(
    "--on-exhausted",
    type=click.Choice(["stop", "skip", "block"]),
    default="stop",
    show_default=True,
    help="What to do with such a record without --dead-letter.",
)
@setting_option("--retry", Retry, None, "How often a record is tried, and when.")
@click.option("--attempts", type=int, help="The same as --retry attempts=.")
@setting_option(
    "--breaker",
    Breaker,
    None,
    "Hold a topic while its handlers fail with the errors of on=MODULE:CLASS+...",
)
@setting_option("--commit", Commit, None, "When to commit finished records.")
@click.option("--limit-records", type=int, help="The most records held.")
@click.option("--limit-bytes", type=int, help="The most bytes held.")
@setting_option(
    "--drain",
    Drain,
    "shutdown",
    "How long handlers are waited for; a number: shutdown.",
)
@click.option(
    "--trace",
    is_flag=True,
    help="Make an OpenTelemetry span of each attempt; opentelemetry-instrument "
    "before safeconsumer run sets where spans go.",
)
@option(
    "--hook",
    "hooks",
    read=lambda names: [function(name) for name in names],
    multiple=True,
    metavar="MODULE:FUNCTION",
    help="Called with every event of the worker and its consumer; repeatable.",
)
@click.option("--watch", "is_watched", is_flag=True, help="Show its numbers live.")
@click.option(
    "--probe-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Touch this file every second while the loop turns.",
)
@click.option(
    "--probe-port",
    type=click.IntRange(0, 65_535),
    help="Answer /live, /healthy and /metrics by HTTP.",
)
@click.option(
    "--probe-host",
    default="127.0.0.1",
    show_default=True,
    help="The address on which the probes answer.",
)
@option(
    "--set",
    "settings",
    read=_setting,
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of KafkaConsumer, its value as JSON or as text.",
)
@click.pass_context
def run(
    context: click.Context,
    /,
    handler: str,
    topics: tuple[str, ...],
    **options: Any,  # noqa: ANN401 - the options above
) -> None:
    """
    Run a handler on every record of the topics, in this process.

    HANDLER is called with a record and a context (safeconsumer.Worker); or it is a dict
    of handlers by topic: {"orders": f, "re:audit.*": g}. After SIGTERM or SIGINT
    running handlers finish and their records are committed; a second signal stops at
    once. Settings are those of safeconsumer.Retry, Commit, Drain and Breaker, such as
    --retry attempts=3,first=0.5s,never=shop.errors:Invalid; seconds may be written as
    0.5 or as 2m.
    """
    try:
        handle = _handlers(handler, topics, options)
        options["hooks"] = options["hooks"] or []
        options["settings"] = options["settings"] or {}
        _check_circle(options["dead_letter"], topics)
        _check_settings(options["settings"])
        base, control = options["connect"]()
        base = {**base, **_shared(options["settings"])}
        reach(",".join(base["bootstrap_servers"]), **_without_servers(base))
        letters = options["dead_letter"]
        _check_topics(base, topics if letters is None else (*topics, letters))
        options["control"] = control if options["is_controlled"] else None
        report = _work(handle, topics, base, options)
    except CommandError as error:
        give_up(context, str(error), error.status)
    except BrokerNotReachableError as error:
        give_up(context, str(error), Status.UNREACHABLE)
    except click.BadParameter as error:
        give_up(context, error.message, Status.USAGE)
    except _USAGE as error:
        give_up(context, str(error), Status.USAGE)
    except (SafeConsumerError, KafkaError, OSError) as error:
        status = Status.REFUSED if is_refused(error) else Status.FAILED
        give_up(context, str(error) or type(error).__name__, status)
    except KeyboardInterrupt:
        give_up(context, "interrupted", Status.INTERRUPTED)
    else:
        click.echo(_sentence(report), err=True)
        context.exit(_status(report))


def _check_topics(base: dict[str, Any], topics: tuple[str, ...]) -> None:
    # The broker answered a moment ago. If it is silent since, the status is that of a
    # broker that is away, and not that of a worker that failed.
    try:
        cluster.existing(base, topics)
    except (KafkaError, OSError) as error:
        raise CommandError(said(error), status_of(error)) from error


def _handlers(
    name: str, topics: tuple[str, ...], options: dict[str, Any]
) -> dict[str, Any]:
    # Arguments for a worker. Errors in them are reported before a broker is asked.
    found = imported(name, "MODULE:HANDLER")
    is_dict = isinstance(found, Mapping)
    every = list(found.values()) if is_dict else [check_callable(found, name)]
    if options["executor"] is None:
        options["executor"] = "asyncio" if any(map(is_async, every)) else "thread"
    given = {"handlers" if is_dict else "handle": found}
    called = chosen(given.get("handle"), given.get("handlers"), options["executor"])
    if isinstance(called, Routes):
        called.refuse_uncovered(topics)
    return given


def _check_circle(dead_letter: str | None, topics: tuple[str, ...]) -> None:
    if dead_letter in topics:
        message = (
            f"{dead_letter} is consumed here: its letters would come back, fail and be "
            f"written again; give --dead-letter another topic"
        )
        raise click.BadParameter(message)


def _check_settings(settings: dict[str, Any]) -> None:
    # kafka-python compares and adds these values: a text instead of a number would be a
    # traceback from somewhere inside it.
    from safeconsumer import SafeConsumer  # noqa: PLC0415  0.2 s, when needed

    for name, value in settings.items():
        if name in _OWN_OPTIONS:
            message = f"--set {name} is refused: {_OWN_OPTIONS[name]}"
            raise click.BadParameter(message)
        usual = SafeConsumer.DEFAULT_CONFIG.get(name)
        if isinstance(usual, bool):
            is_right, kind = isinstance(value, bool), "true or false"
        elif isinstance(usual, int | float):
            is_right = isinstance(value, int | float) and not isinstance(value, bool)
            kind = "a number"
        elif isinstance(usual, str):
            is_right, kind = isinstance(value, str), "a text"
        else:
            continue
        if not is_right and value is not None:
            message = f"--set {name}: must be {kind}, not {value!r}"
            raise click.BadParameter(message)


def _without_servers(base: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in base.items() if name != "bootstrap_servers"}


@contextlib.contextmanager
def _constructing() -> Iterator[None]:
    # kafka-python uses assert, and raises whatever its arithmetic does.
    try:
        yield
    except (AssertionError, AttributeError, LookupError, TypeError) as error:
        message = f"a setting is not acceptable: {type(error).__name__}: {error}"
        raise click.BadParameter(message) from error
    except ValueError as error:
        if isinstance(error, SafeConsumerError):
            raise
        message = f"a setting is not acceptable: {error}"
        raise click.BadParameter(message) from error


def _work(
    handle: dict[str, Any],
    topics: tuple[str, ...],
    base: dict[str, Any],
    options: dict[str, Any],
) -> Report:
    from kafka import KafkaProducer  # noqa: PLC0415  0.2 s, when needed

    from safeconsumer import SafeConsumer  # noqa: PLC0415  0.2 s, when needed

    settings = {**handle, **_settings(options)}
    with contextlib.ExitStack() as stack:
        if options["dead_letter"] is not None:
            with _constructing():
                producer = KafkaProducer(
                    **{**base, "acks": "all", "kafka_client": producers.PatientClient}
                )
            stack.callback(_close, producer)
            settings["dead_letter"] = DeadLetter(producer, options["dead_letter"])
        config = {"enable_auto_commit": False, **base, **options["settings"]}
        with _constructing():
            consumer = SafeConsumer(
                *topics,
                group_id=options["group"],
                control=options["control"],
                hooks=options["hooks"],
                **config,
            )
            stack.callback(consumer.close, autocommit=False, timeout_ms=2000)
            told = _start_lines(consumer.config["auto_offset_reset"])
            hooks = Dispatcher([told, *options["hooks"]])
            worker = Worker(consumer, on_event=hooks.dispatch, **settings)
        host, wanted = options["probe_host"], options["probe_port"]
        try:
            stack.enter_context(probes.touching(options["probe_file"], worker))
            port = stack.enter_context(probes.serving(host, wanted, worker))
        except OSError as error:
            message = f"a probe cannot be set up: {error}"
            raise CommandError(message, Status.USAGE) from error
        if wanted == 0:
            click.echo(f"safeconsumer: probes at http://{host}:{port}", err=True)
        stack.enter_context(
            watch.watching(worker, consumer, is_on=options["is_watched"])
        )
        try:
            return worker.run(signals=(signal.SIGTERM, signal.SIGINT))
        except SystemExit as error:  # its status could be mistaken for one of ours
            message = f"a handler ended the worker: {shown(error)}"
            raise CommandError(message, Status.FAILED) from error


def _close(producer: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
    # The worker has waited for letters as long as it may; a letter without an answer by
    # now does not count: its record comes again.
    producers.end(producer, 0.0)


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    limits = Limits()
    if options["limit_records"] is not None:
        limits = evolve(limits, records=options["limit_records"])
    if options["limit_bytes"] is not None:
        limits = evolve(limits, bytes=options["limit_bytes"])
    return {
        **{name: options[name] for name in _AS_GIVEN},
        "key": options["key"] or record_key,
        "batch_within": options["batch_within"] or 0.0,
        "limits": limits,
        "retry": _retry(options["retry"] or {}, options["attempts"]),
        "drain": Drain(**options["drain"] or {}),
        "commit": Commit(**options["commit"] or {}),
        "breaker": options["breaker"] and Breaker(**options["breaker"]),
    }


# Options that are settings of a worker under the same name.
_AS_GIVEN = (
    "order",
    "executor",
    "concurrency",
    "batch",
    "rate",
    "topic_concurrency",
    "handler_timeout",
    "lifespan",
    "on_exhausted",
    "trace",
)


def _retry(fields: dict[str, Any], attempts: int | None) -> Retry:
    if attempts is not None and "attempts" in fields:
        message = "--attempts and --retry attempts= are the same setting: give one"
        raise click.BadParameter(message)
    return Retry(**fields if attempts is None else {**fields, "attempts": attempts})


# A new group: this one commits where it starts, and goes on from there.
_READ_ALL = (
    "a new group with --set auto_offset_reset=earliest reads what is there already"
)

# It passes over nothing that is left; beyond the end the policy decides.
_DELETED = ", or records up to here were deleted"


def _start_lines(reset: str) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        match event:
            case PartitionStarted(partition=partition, offset=offset):
                why = "the group has no committed offset"
                if event.is_reset:
                    why = "the committed offset is out of range"
                said = f"{why}, auto_offset_reset={reset}"
                if reset == "latest" and event.is_reset:
                    said += _DELETED
                elif reset == "latest" and offset:
                    said += f"; {_READ_ALL}"
                said = "committed" if event.is_committed else said
                line = f"{partition} starts at {offset}: {said}"
            case NothingConsumed(reason=reason):
                line = f"nothing to consume: {reason}"
            case TopicsNotConsumed(setting=setting, topics=topics):
                line = f"{setting} names topics not consumed here: {', '.join(topics)}"
            case _:
                return
        click.echo(f"safeconsumer: {line}", err=True)

    return tell


def _sentence(report: Report) -> str:
    handled = report.done - report.dead_letters - report.skipped
    letters = counted(report.dead_letters, "dead letter")
    gone = f", {counted(report.gone, 'offset')} deleted unread" if report.gone else ""
    return (
        f"safeconsumer: {handled} handled, {letters}, "
        f"{report.skipped} skipped, {report.dropped} dropped{gone}; "
        f"{'committed' if report.committed else 'NOT committed'}, "
        f"stopped in {report.seconds:.1f} s"
    )


def _status(report: Report) -> Status:
    if not report.committed:
        return Status.UNCOMMITTED
    return Status.GIVEN_UP if report.given_up else Status.DONE

"""Implements ``safeconsumer run``: runs a program's worker as a separate process."""

import contextlib
import logging
import math
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import click
from kafka.errors import KafkaError

from safeconsumer.cli import probes
from safeconsumer.cli.cluster import existing
from safeconsumer.cli.ending import ended_by_signals
from safeconsumer.cli.errors import CommandError, complain, explained, give_up
from safeconsumer.cli.main import Abandoned
from safeconsumer.cli.options import ADDRESS, listening
from safeconsumer.cli.statuses import EPILOG, Status
from safeconsumer.cli.target import load, worker_of
from safeconsumer.errors.base import SafeConsumerError, WorkerSettingError
from safeconsumer.group import clients
from safeconsumer.group.troubles import is_refused
from safeconsumer.holds.explain import counted
from safeconsumer.worker import Report, Worker
from safeconsumer.worker.signals import taking
from safeconsumer.worker.tracebacks import shown

_MINUTE = 60.0
# Seconds before a broker that did not answer is asked again about missing topics.
_RETRY_SECONDS = 5.0
# The maximum number of different lines to remember, so that memory does not grow in a
# process that runs for weeks.
_MOST_LINES = 100


@click.command(epilog=EPILOG)
@click.argument("target", metavar="MODULE:NAME")
@click.option(
    "--probes",
    "probes_at",
    metavar=ADDRESS,
    callback=listening,
    help="Answer /live, /healthy and /metrics by HTTP: 8080 on this machine, "
    "0.0.0.0:8080 for others; 0 takes a free port.",
)
@click.pass_context
def run(
    context: click.Context,
    /,
    target: str,
    *,
    probes_at: tuple[str, int] | None,
) -> None:
    """
    Run your program's Worker as a process.

    MODULE:NAME is a safeconsumer.Worker, or a function without arguments that returns a
    Worker. Your program creates the consumer with its own settings.

    After SIGTERM or SIGINT, running handlers finish and their records are committed. A
    second signal abandons the handlers, and ends the process within five seconds. A
    SIGTERM before the worker runs, for example while no broker answers, ends the
    process immediately.

    Status 0: the worker was stopped, and every handled record is committed. Status 1: a
    handled record is not committed, or the worker ended with an error; the last line
    gives the reason. If topics are missing, the worker names them and waits for them.
    While control topics are missing, every partition is held, and the log says so.
    """
    with explained(context), contextlib.ExitStack() as stack:
        with _ended_by_sigterm(context):
            worker = worker_of(target, load(target))
            _set_up_logging()
            _serve_probes(stack, worker, probes_at)
        threading.Thread(
            target=_name_missing,
            args=(worker.consumer,),
            name="safeconsumer-run-topics",
            daemon=True,
        ).start()
        report = _run_worker(worker)
    status = _print_report(report)
    if report.given_up:
        raise Abandoned(status)
    context.exit(status)


@contextlib.contextmanager
def _ended_by_sigterm(context: click.Context) -> Iterator[None]:
    # As soon as a worker runs, it handles signals itself.
    is_asked = False

    def end(_: int) -> None:
        nonlocal is_asked
        is_asked = True
        raise KeyboardInterrupt

    try:
        with taking((signal.SIGTERM,), end):
            yield
    except (KeyboardInterrupt, CommandError):
        if not is_asked:
            raise
        give_up(context, "stopped before the worker ran", Status.DONE)


def _print_report(report: Report) -> Status:
    click.echo(_sentence(report), err=True)
    is_well = report.committed and not report.given_up
    return Status.DONE if is_well else Status.FAILED


def _set_up_logging() -> None:
    if not logging.getLogger("safeconsumer").hasHandlers():  # no own logging
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
        logging.getLogger("safeconsumer").setLevel(logging.INFO)
        logging.getLogger("kafka.cluster").addFilter(_OnceAMinute())


class _OnceAMinute(logging.Filter):
    """
    Lets each log line pass only once a minute.

    kafka-python 3.0.12 logs ten times a second that a topic is missing. If that is a
    control topic, the one line with advice would be lost among the others.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write the line."""
        text = record.getMessage()
        if record.created - self._passed.get(text, -math.inf) < _MINUTE:
            return False
        if len(self._passed) >= _MOST_LINES:
            self._passed.clear()
        self._passed[text] = record.created
        return True


def _serve_probes(
    stack: contextlib.ExitStack, worker: Worker, address: tuple[str, int] | None
) -> None:
    try:
        port = stack.enter_context(probes.serving(address, worker))
    except OSError as error:
        message = f"a probe cannot be set up: {error}"
        raise CommandError(message) from error
    if address is not None and address[1] != port:
        complain(f"probes at http://{address[0]}:{port}")


def _name_missing(consumer: Any) -> None:  # noqa: ANN401 - as the worker has it
    # This runs on its own thread, so that the worker can start before a broker has
    # answered.
    base = clients.connection(consumer.config, {}, "run")
    while True:
        try:
            existing(base, consumer.subscription() or ())
        except CommandError as error:
            complain(f"{error} (the worker waits)")
        except (KafkaError, OSError):  # the worker logs this error, too
            time.sleep(_RETRY_SECONDS)
            continue
        return


def _run_worker(worker: Worker) -> Report:
    try:
        with ended_by_signals(worker, _print_report):
            return worker.run()
    except (SafeConsumerError, KafkaError, OSError) as error:
        status = Status.REFUSED if is_refused(error) else Status.FAILED
        # it is about a setting or an existing topic
        if isinstance(error, WorkerSettingError):
            status = Status.USAGE
        raise CommandError(str(error) or type(error).__name__, status) from error
    except SystemExit as error:  # its status may have another meaning
        message = f"a handler ended the worker: {shown(error)}"
        raise CommandError(message, Status.FAILED) from error


def _sentence(report: Report) -> str:
    handled = report.done - report.dead_letters - report.skipped
    letters = counted(report.dead_letters, "dead letter")
    gone = f", {counted(report.gone, 'offset')} deleted unread" if report.gone else ""
    hook = report.hanging
    hanging = "" if hook is None else f"; a hook does not return: {hook}"
    given_up = f", {report.given_up} given up unfinished" if report.given_up else ""
    return (
        f"safeconsumer: {handled} handled, {letters}, "
        f"{report.skipped} skipped, {report.dropped} dropped{given_up}{gone}; "
        f"{'committed' if report.committed else 'NOT committed'}, "
        f"stopped in {report.seconds:.1f} s{hanging}"
    )

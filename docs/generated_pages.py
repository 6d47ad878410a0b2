"""Writes the reference pages that are generated from tables in the code."""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import click
import reference_tables

from safeconsumer import errors, events, holds, metrics, spark, testing, worker
from safeconsumer.cli import commands
from safeconsumer.cli.statuses import MEANINGS
from tests.unit.contract import matrix

_RUNBOOK = Path(metrics.__file__).parent / "files" / "runbook.md"
_EVENTS = """# Events

Hooks receive these events: `SafeConsumer(hooks=[...])`, `Worker(on_event=...)`. Every class is in `safeconsumer.events`; an event never changes. *Name* is the name of the event's log line, and *level* is the level of that line; when the application places or lifts its own holds, and for a worker's holds, the level is `debug`. A class in *parents* matches all of its children.

| name | class | parents | level | meaning |
|---|---|---|---|---|
"""  # noqa: E501 - one sentence, one line
_STATUSES = """# Exit statuses

Every command has the same statuses, which its `--help` also lists.

| status | meaning |
|---|---|
"""


def write(folder: Path) -> None:
    """Write the pages that have changed, and delete all other files."""
    folder.mkdir(exist_ok=True)
    pages = {
        **_api(),
        **_commands(),
        "compatibility.md": reference_tables.compatibility_page(),
        "contract-tests.md": matrix.page(),
        "events.md": _EVENTS + "\n".join((*_events(), *_event_classes())) + "\n",
        "exit-statuses.md": _STATUSES + "\n".join(_statuses()) + "\n",
        "metrics.md": reference_tables.metrics_page(),
        "rest.md": reference_tables.rest_page(),
        "runbook.md": _RUNBOOK.read_text("utf-8"),
        "settings.md": reference_tables.settings_page(),
        "spark.md": reference_tables.spark_page() + "\n".join(_spark()) + "\n",
        "wire-formats.md": reference_tables.formats_page(),
    }
    found = {folder / name: text.encode() for name, text in pages.items()}
    found |= {folder / name: data for name, data in _design().items()}
    for file in folder.rglob("*.*"):
        if file not in found:
            file.unlink()
    for file, data in found.items():
        file.parent.mkdir(exist_ok=True, parents=True)
        if not file.exists() or file.read_bytes() != data:
            file.write_bytes(data)


_ROOT = Path(__file__).parents[1]
_RECORDS = """
```{toctree}
:hidden:
:glob:

*
../contract-tests
```
"""


def _design() -> dict[str, bytes]:
    # The pages link to each other, so they are also in one folder here.
    files = [one for one in (_ROOT / "design").iterdir() if one.is_file()]
    files.append(_ROOT / "CHANGELOG.md")
    found = {str(one.relative_to(_ROOT)): one.read_bytes() for one in files}
    found["design/README.md"] += _RECORDS.encode()
    return found


# The pages of the API: their titles, and the names that they document by module.
_ROOMS = {
    "consumer": ("The consumer", {"safeconsumer": ["SafeConsumer"]}),
    "holds": (
        "Holds and scopes",
        {"safeconsumer": ["Hold", "Lifetime"], "safeconsumer.holds": holds.__all__},
    ),
    "group": ("Groups", {"safeconsumer": ["Control", "Operator"]}),
    "confluent": (
        "On confluent-kafka",
        {"safeconsumer.clients.confluent": ["Consumer"]},
    ),
    "aiokafka": (
        "On aiokafka",
        {"safeconsumer.clients.aiokafka": ["AIOKafkaConsumer"]},
    ),
    "worker": ("Workers", {"safeconsumer.worker": worker.__all__}),
    "errors": ("Errors", {"safeconsumer.errors": errors.__all__}),
    "prometheus": (
        "Prometheus",
        {"safeconsumer.metrics": [one for one in metrics.__all__ if one != "METRICS"]},
    ),
    "opentelemetry": ("OpenTelemetry", {"safeconsumer.metrics.otel": ["observe"]}),
    "journals": ("Journals", {"safeconsumer.journal.writer": ["JournalWriter"]}),
    "testing": ("Testing", {"safeconsumer.testing": testing.__all__}),
}
_DAILY = """# Python API

Most programs need these calls; each call links to its promise.

| you want to | call |
|---|---|
| stop a partition, and continue it later | {meth}`~safeconsumer.SafeConsumer.pause`,
{meth}`~safeconsumer.SafeConsumer.resume` |
| stop everything, whatever is assigned | {meth}`~safeconsumer.SafeConsumer.pause_all`, {meth}`~safeconsumer.SafeConsumer.resume_all` |
| stop for the duration of a block | {meth}`~safeconsumer.SafeConsumer.held` |
| know what you have paused | {meth}`~safeconsumer.SafeConsumer.paused` |
| know what is quiet, and why | {meth}`~safeconsumer.SafeConsumer.quiet`, {meth}`~safeconsumer.SafeConsumer.holds`, {meth}`~safeconsumer.SafeConsumer.explain` |
| stop a whole group | {meth}`~safeconsumer.Operator.pause`, {meth}`~safeconsumer.Operator.resume` |
| end a `poll` that waits | {meth}`~safeconsumer.SafeConsumer.wakeup` |
| handle records with slow handlers | {class}`~safeconsumer.Worker` |

The package `safeconsumer` itself has the names for everyday use: the consumer (`KafkaConsumer` is `SafeConsumer`), holds, and most of the worker. All other names are in the modules that the pages show.

```{toctree}
:maxdepth: 1

"""  # noqa: E501 - one sentence, one line


def _api() -> dict[str, str]:
    pages = {
        room: "\n".join(
            [
                f"# {head}\n",
                *(
                    line
                    for module, names in rooms.items()
                    for line in _documented(module, list(names))
                ),
            ]
        )
        for room, (head, rooms) in _ROOMS.items()
    }
    index = _DAILY + "\n".join(pages) + "\n```\n"
    return {
        "api/index.md": index,
        **{f"api/{name}.md": text + "\n" for name, text in pages.items()},
    }


def _commands() -> dict[str, str]:
    context = click.Context(commands.safeconsumer)
    index = [
        "# Command line\n",
        "Sorted by use; `--help` of a command shows the same.\n",
    ]
    pages = {}
    for use, names in commands.safeconsumer.uses(context).items():
        index += [f"```{{toctree}}\n:caption: {use}\n:maxdepth: 1\n", *names, "```\n"]
        for name in names:
            module, _, found = commands.WHERE[name].rpartition(".")
            pages[f"commands/{name}.md"] = (
                f"# {name}\n\n```{{eval-rst}}\n"
                f".. click:: safeconsumer.cli.{module}:{found}\n"
                f"   :prog: safeconsumer {name}\n   :nested: full\n```\n"
            )
    return {"commands/index.md": "\n".join(index), **pages}


# By class, the members for programs; the others are for this package's own code.
_MEMBERS = {"Operator": "close, pause, resume"}


def _documented(module: str, names: list[str]) -> Iterator[str]:
    for name in names:
        found = getattr(importlib.import_module(module), name)
        kind = "class" if inspect.isclass(found) else "function"
        if isinstance(found, type) and issubclass(found, BaseException):
            kind = "exception"
        elif kind == "function" and not callable(found):
            kind = "data"
        yield "```{eval-rst}"
        yield f".. auto{kind}:: {module}.{name}"
        if kind == "class":
            yield f"   :members: {_MEMBERS.get(name, '')}".rstrip()
        if module.startswith("safeconsumer.clients."):
            # Include members of our base class, but not of the library's class.
            yield f"   :inherited-members: {name}"
        if kind == "exception":
            yield "   :show-inheritance:"
        yield "```\n"


def _events() -> Iterator[str]:
    every = [getattr(events, name) for name in events.__all__]
    classes = [
        one for one in every if isinstance(one, type) and issubclass(one, events.Event)
    ]
    parents = {parent for one in classes for parent in one.__mro__[1:]}
    for one in sorted(classes, key=lambda one: one.name):
        if one in parents:
            continue
        above = [
            f"`{parent.__name__}`"
            for parent in one.__mro__[1:]
            if issubclass(parent, events.Event) and parent is not events.Event
        ]
        docstring = inspect.getdoc(one) or ""
        first = docstring.partition("\n\n")[0].replace("\n", " ").replace("``", "`")
        cells = f"`{one.name}`", f"`{one.__name__}`", ", ".join(above), one.level, first
        yield f"| {' | '.join(cells)} |"


def _event_classes() -> Iterator[str]:
    names = [name for name in events.__all__ if inspect.isclass(getattr(events, name))]
    yield "\n## Classes\n"
    yield from _documented("safeconsumer.events", names)


def _spark() -> Iterator[str]:
    yield from _documented("safeconsumer.spark", spark.__all__)


def _statuses() -> Iterator[str]:
    for status, meaning in MEANINGS.items():
        yield f"| {status:d} | {meaning} |"

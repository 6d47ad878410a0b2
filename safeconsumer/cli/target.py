"""Finds the worker that ``safeconsumer run`` names as ``module:name``."""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka.errors import IllegalStateError, KafkaError

from safeconsumer.cli.errors import CommandError, status_of
from safeconsumer.cli.statuses import Status
from safeconsumer.errors.base import SafeConsumerError
from safeconsumer.worker import Worker
from safeconsumer.worker.handlers import is_async
from safeconsumer.worker.tracebacks import message, shown


class TargetError(CommandError):
    """``module:name`` is not a worker, or the program failed to create the worker."""


def load(name: str) -> Any:  # noqa: ANN401 - of any type
    """
    Import the object ``package.module:name``, as ``python -m`` would find it.

    Raises:
        TargetError: the module or the name does not exist, or the import failed.
    """
    module, _, path = name.partition(":")
    if not module or not path:
        problem = f"{name!r} is not MODULE:NAME"
        raise TargetError(problem)
    if module.endswith(".py") or "/" in module:
        dotted = module.removeprefix("./").removesuffix(".py").replace("/", ".")
        problem = f"{name!r} names a file: write it as {dotted}:{path}"
        raise TargetError(problem)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found = _call_program(name, lambda: _import_module(module))
    for part in path.split("."):
        if not hasattr(found, part):
            problem = f"{module} has no {path}"
            raise TargetError(problem)
        found = getattr(found, part)
    return found


def worker_of(name: str, found: object) -> Worker:
    """
    Return the imported object if it is a worker, or else the worker that it returns.

    Args:
        name: ``module:name``.
        found: the imported object.

    Raises:
        TargetError: ``found`` is neither a worker nor a function that returns one, or the
            function raised.
    """
    if isinstance(found, Worker):
        return found
    made = _call_program(name, _function(name, found))
    if not isinstance(made, Worker):
        problem = f"{name} returned {shown(made)}, which is not a Worker"
        raise TargetError(problem)
    return made


def _function(name: str, found: object) -> Callable[[], object]:
    what = ""
    if isinstance(found, type) or is_async(found):
        what = "a class" if isinstance(found, type) else "a coroutine function"
    if what or not callable(found):
        problem = (
            f"{name} is {what or shown(found)}, not a Worker or a function that "
            "returns one"
        )
        raise TargetError(problem)
    signature = inspect.signature(found)
    try:
        signature.bind()
    except TypeError as error:
        problem = (
            f"{name}{signature} cannot be called without arguments; a handler goes into a "
            f"Worker: def worker(): return Worker(consumer, handle)"
        )
        raise TargetError(problem) from error
    return found


def _import_module(module: str) -> Any:  # noqa: ANN401 - a module
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # an existing module imports it
        problem = (
            f"there is no module {error.name}, neither installed nor in {Path.cwd()}"
        )
        raise TargetError(problem) from error


def _call_program(name: str, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - the program's
    try:
        return ask()
    except TargetError:
        raise
    except (Exception, SystemExit) as error:  # a program may raise anything
        traceback.print_exception(error)  # the program's author must find the line
        problem = f"{name} raised {type(error).__name__}: {message(error)}"
        raise TargetError(problem, _status(error)) from error


def _status(error: BaseException) -> Status:
    # Trying again helps if a broker is unreachable, but not if a setting is wrong.
    is_of_use = isinstance(error, IllegalStateError | SafeConsumerError)
    if isinstance(error, KafkaError) and not is_of_use:
        return status_of(error)
    return Status.USAGE

"""Finds the worker that ``safeconsumer run`` is to run, by ``module:name``."""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka.errors import IllegalStateError, KafkaError

from safeconsumer.cli.errors import CommandError, Status, status_of
from safeconsumer.errors import SafeConsumerError
from safeconsumer.worker import Worker
from safeconsumer.worker.calls import is_async
from safeconsumer.worker.tracebacks import message, shown


class TargetError(CommandError):
    """There is no worker at ``module:name``, or making it failed."""


def load(name: str) -> Any:  # noqa: ANN401 - whatever stands there
    """
    Import what stands at ``package.module:name``, as ``python -m`` would find it.

    Raises:
        TargetError: there is no such module or name, or importing it failed.
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
    found = _tried(name, lambda: _imported(module))
    for part in path.split("."):
        if not hasattr(found, part):
            problem = f"{module} has no {path}"
            raise TargetError(problem)
        found = getattr(found, part)
    return found


def takes_consumer(name: str, found: object) -> bool:
    """
    Tell whether it is a function to call with a consumer; else the worker has its own.

    Raises:
        TargetError: it is neither a worker, nor a function that can return one.
    """
    if isinstance(found, Worker):
        return False
    if not callable(found):
        problem = (
            f"{name} is {shown(found)}, not a Worker or a function that returns one"
        )
        raise TargetError(problem)
    if isinstance(found, type) or is_async(found):
        what = "a class" if isinstance(found, type) else "a coroutine function"
        problem = f"{name} is {what}, not a Worker or a function that returns one"
        raise TargetError(problem)
    signature = inspect.signature(found)
    for given in ((), (None,)):  # what it can do without is its own
        try:
            signature.bind(*given)
        except TypeError:
            continue
        return bool(given)
    problem = (
        f"{name}{signature} cannot be called with a consumer alone, nor with nothing; a "
        f"handler goes into a Worker: def worker(consumer): "
        f"return Worker(consumer, handle)"
    )
    raise TargetError(problem)


def worker_of(name: str, found: object, *given: object) -> Worker:
    """
    Return the worker itself, or the one that the function returns.

    Args:
        name: ``module:name``.
        found: what stands there.
        given: the consumer, if it is a function that takes one.

    Raises:
        TargetError: the function raised, or returned something else, or a worker with
            another consumer.
    """
    made = _tried(name, lambda: found(*given)) if callable(found) else found
    if not isinstance(made, Worker):
        problem = f"{name} returned {shown(made)}, which is not a Worker"
        raise TargetError(problem)
    if given and made.consumer is not given[0]:
        problem = (
            f"{name} was given a consumer and returned a Worker with another one: use "
            f"the one that it gets, or take no argument"
        )
        raise TargetError(problem)
    return made


def _imported(module: str) -> Any:  # noqa: ANN401 - a module
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # one that the module imports
        problem = (
            f"there is no module {error.name}, neither installed nor in {Path.cwd()}"
        )
        raise TargetError(problem) from error


def _tried(name: str, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - the program's
    try:
        return ask()
    except TargetError:
        raise
    except (Exception, SystemExit) as error:  # the program may raise anything
        traceback.print_exception(error)  # its own, and its author must find the line
        problem = f"{name} raised {type(error).__name__}: {message(error)}"
        raise TargetError(problem, _status(error)) from error


def _status(error: BaseException) -> Status:
    # A broker that is away is worth another try; a wrong setting is not.
    is_of_use = isinstance(error, IllegalStateError | SafeConsumerError)
    if isinstance(error, KafkaError) and not is_of_use:
        return status_of(error)
    return Status.USAGE

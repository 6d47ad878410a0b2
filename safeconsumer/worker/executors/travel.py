"""Sends handlers to another process, and their exceptions back from there."""

import contextlib
import pickle
from typing import Any

from attrs import define

from safeconsumer.errors.base import WorkerSettingError
from safeconsumer.worker.handlers import BatchFailure, Pause, is_for_error
from safeconsumer.worker.tracebacks import chain, shown


def check_picklable(what: str, thing: object) -> None:
    """
    Refuse what cannot be sent to another process.

    Raises:
        WorkerSettingError: it cannot be sent.
    """
    try:
        pickle.dumps(thing)
    except Exception as error:
        message = (
            f"executor='process' sends {what} by name, and it cannot be imported "
            f"({shown(error)}): define it at the top of a module"
        )
        raise WorkerSettingError(message) from error


def packed(error: BaseException) -> "Parcel":
    """
    Return what can be sent of an error, whatever it is.

    It arrives as it is if it can be pickled; otherwise its class or the nearest parent
    that can be imported there, so that ``Retry.never`` and ``except`` mean the same. An
    attribute that cannot be pickled is lost.
    """
    with contextlib.suppress(Exception):  # whatever its class does
        error.add_note(chain(error))  # a traceback does not travel by itself
    if isinstance(error, Pause):
        error._is_for_error = is_for_error(error)  # noqa: SLF001 - nor does its cause
    return Parcel(error)


@define
class Parcel:
    """An error on its way: unpickling it gives the error."""

    error: BaseException

    def __reduce__(self) -> Any:  # noqa: ANN401 - what pickle asks for
        # What can be imported is known only there: what is tried first comes first.
        error, text = _each_apart(self.error), shown(self.error)
        state = {name: one for name, one in error.__dict__.items() if _dumped(one)}
        args = error.args
        if isinstance(error, BaseExceptionGroup):
            args = (error.message, [packed(one) for one in error.exceptions])
        tries: list[object] = [error, (type(error), args, state)]
        for kind in type(error).__mro__:
            tries += [(kind, (text,), state), (kind, (text,), {})]
        return _arrived, ([_dumped(one) for one in tries], text)


def _each_apart(error: BaseException) -> BaseException:
    # Each error of a batch travels alone: one that cannot be sent loses no other.
    if not isinstance(error, BatchFailure) or not isinstance(error.errors, dict):
        return error
    return BatchFailure(
        {
            at: packed(one) if isinstance(one, BaseException) else one  # type: ignore[misc]  # it may be anything
            for at, one in error.errors.items()
        }
    )


def _dumped(thing: object) -> bytes | None:
    try:
        return pickle.dumps(thing)
    except BaseException:  # noqa: BLE001 - whatever its class does
        return None


def _arrived(tries: list[bytes | None], text: str) -> BaseException:
    for one in tries:
        with contextlib.suppress(BaseException):  # whatever its class does
            found = pickle.loads(one or b"")  # noqa: S301 - ours
            error = _remade(*found) if isinstance(found, tuple) else found
            if isinstance(error, BaseException):
                return error
    return RuntimeError(text)


def _remade(
    kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]
) -> BaseException:
    # Its constructor may need any arguments, so it is not called.
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error

"""
What a handler raises to say more than "it failed", and what a worker raises itself.
"""

from collections.abc import Mapping

from safeconsumer._checks import is_number
from safeconsumer.errors import SafeConsumerError, WorkerSettingError


class WorkerControl(Exception):  # noqa: N818 - control, not errors
    """
    Parent of what a handler may raise to steer its worker.
    """


class RetryLater(WorkerControl):
    """
    Not now: try the record again after some seconds; it uses up no attempt.

    Args:
        after: seconds, at least.
    """

    def __init__(self, after: float) -> None:
        if not is_number(after) or after < 0:
            message = f"after must be seconds, 0 or more, not {after!r}"
            raise WorkerSettingError(message)
        super().__init__(after)
        self.after = float(after)


class Reject(WorkerControl):
    """
    Never: the record has failed for good, without another attempt.

    Args:
        reason: for people; it goes into the dead letter.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DeserializationError(Reject):
    """
    A key or value cannot be deserialized: as rejected, since no attempt would help.

    Its cause is what the deserializer raised. One that raises anything that is not
    about the data, such as a ``ConnectionError``, is tried again as a handler is.
    """


class StopWorker(WorkerControl):
    """
    Stop the worker; this record is not complete and comes again after a restart.
    """


class BatchFailure(WorkerControl):
    """
    Some records of a batch failed; the others are done.

    Args:
        errors: by index in the batch, what is wrong with the record; the values may
            be :class:`RetryLater`, :class:`Reject` and :class:`StopWorker` too.
    """

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        super().__init__(dict(errors))
        self.errors = dict(errors)


class RecordFailedError(SafeConsumerError):
    """
    A record failed for good and the worker stopped: nothing was committed past it.

    Raised by ``run()``; its cause is what the handler raised.
    """


class DeadLetterLimitError(SafeConsumerError):
    """
    Too many records failed for good: ``max_ratio`` or ``max_consecutive`` is exceeded.

    Nothing was committed past the record that exceeded it.
    """


class HandlersFailError(SafeConsumerError):
    """
    Handlers cannot be run, whatever the record: the worker stops, and blames none.

    A process does not start, an executor of yours broke, cancels, or takes nothing
    more, or a coroutine came back that nobody awaits. Raised by ``run()``.
    """


class ProcessDiedError(SafeConsumerError):
    """
    A process of the process executor ended while it worked on this record.
    """

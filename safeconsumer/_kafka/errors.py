"""
Errors that are also children of kafka-python's, so that existing handlers fit.
"""

from kafka.errors import IllegalStateError

from safeconsumer.errors import SafeConsumerError, ScopeSyntaxError


class NotConsumedError(SafeConsumerError, IllegalStateError):
    """
    A target cannot belong to this consumer: not subscribed, not assigned, unknown.

    The message names it; nothing was applied.
    """


class IllegalTargetError(NotConsumedError, ScopeSyntaxError):
    """
    A topic name or partition number is not legal in Kafka, so no consumer can have it.

    The message names it; nothing was applied.
    """


class ConcurrentPollError(SafeConsumerError, IllegalStateError):
    """
    A second ``poll`` or step of an iteration began in the middle of another.

    By another thread, or by a hook or signal handler that runs inside of it. The first
    call goes on undisturbed.
    """


class ForkedConsumerError(SafeConsumerError, IllegalStateError):
    """
    The process was forked after the consumer was made; its threads did not come along.

    Make the consumer in the process that uses it.
    """


class BlockingCallInListenerError(SafeConsumerError, RuntimeError):
    """
    A rebalance listener made a call that waits for the thread it runs on.

    A child of ``RuntimeError``, which kafka-python raises there.
    """

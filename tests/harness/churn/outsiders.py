"""Programs outside a group, each with a list of calls, such as an operator who holds it."""

from collections import deque
from functools import partial

from kafka.errors import KafkaError

from safeconsumer.errors import SafeConsumerError

_IDLE = 0.5  # seconds until a program checks its calls again


class Outsider:
    """
    A program that makes the given calls, and ends when ``is_over`` is set.

    Args:
        host: its world, which starts it and knows how to wait.
        name: the name of its process or thread.
    """

    def __init__(self, host, name):
        self.host = host
        self.todo = deque()
        self.is_over = False
        self.thread = host.start_program(name, self._live)

    def call(self, method, *given):
        self.todo.append(partial(getattr(self, method), *given))

    def _live(self):
        while not self.is_over:
            while self.todo:
                self.todo.popleft()()
            self.host.idle(_IDLE)
        self.end()

    def end(self):
        """Close its clients."""


class Operator(Outsider):
    """
    Places holds on the group, and lifts them.

    Args:
        host: its world.
        write: writes a scope's hold, or its end: ``write(scope, is_held)``.
        placed: called with the scope of a hold that brokers have acknowledged.
        lifted: called with a scope before its end is written.
    """

    def __init__(self, host, write, *, placed=len, lifted=len):
        self._write, self._placed, self._lifted = write, placed, lifted
        self._open = set()  # scopes whose hold may have been written
        super().__init__(host, "operator")

    def hold(self, scope):
        self._open.add(scope)
        if self._is_written(scope, is_held=True):
            self._placed(scope)

    def lift_all(self):
        """Lift all scopes that are held or may be held; return whether none is left."""
        for scope in sorted(self._open):
            self._lifted(scope)
            if self._is_written(scope, is_held=False):
                self._open.discard(scope)
        return not self._open

    def _is_written(self, scope, *, is_held):
        try:
            self._write(scope, is_held=is_held)
        except (SafeConsumerError, KafkaError):
            return False
        return True

"""Defines programs that are not members of the group, such as its operator."""

from collections import deque
from functools import partial

from kafka.errors import KafkaError

from safeconsumer.errors import SafeConsumerError

_IDLE = 0.5  # seconds between two checks for new calls


class Outsider:
    """
    A program that makes the calls in ``todo``, and exits when ``is_over`` is set.

    Args:
        host: the program's world, which starts the program and whose ``idle`` waits.
        name: the name of the program's process or thread.
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
        """Close the program's clients."""


class Operator(Outsider):
    """
    A program that places and lifts holds on the group.

    Args:
        host: the program's world.
        write: a function that writes a hold or a lift: ``write(scope, is_held)``.
        placed: a function that is called with the scope after a hold is acknowledged.
        lifted: a function that is called with the scope before a lift is written.
    """

    def __init__(self, host, write, *, placed=len, lifted=len):
        self._write, self._placed, self._lifted = write, placed, lifted
        self._open = set()  # scopes for which a hold may have been written
        super().__init__(host, "operator")

    def hold(self, scope):
        self._open.add(scope)
        if self._is_written(scope, is_held=True):
            self._placed(scope)

    def lift_all(self):
        """Lift the holds on all scopes that may be held; return whether all were written."""
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

"""A clock that moves when a test says so, and the calls that are due by it."""

from collections.abc import Callable


class Clock:
    """Scheduled calls that are made when the test says that time has passed."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._calls: list[Call] = []

    def schedule(self, seconds: float, function: Callable[[], None]) -> "Call":
        call = Call(self.now + seconds, function)
        self._calls.append(call)
        return call

    def pass_(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [c for c in self._calls if not c.is_done and c.at <= end]:
            call = min(due, key=lambda c: c.at)
            self.now, call.is_done = call.at, True
            call.function()
        self.now = end


class Call:
    def __init__(self, at: float, function: Callable[[], None]) -> None:
        self.at = at
        self.function = function
        self.is_done = False

    def cancel(self) -> None:
        self.is_done = True

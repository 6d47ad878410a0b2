"""A clock that moves when a test says so, and the calls that are due by it."""


class Clock:
    """Scheduled calls that are made when the test says that time has passed."""

    def __init__(self, now=0.0):
        self.now = now
        self._calls = []

    def schedule(self, seconds, function):
        call = Call(self.now + seconds, function)
        self._calls.append(call)
        return call

    def pass_(self, seconds):
        end = self.now + seconds
        while due := [c for c in self._calls if not c.is_done and c.at <= end]:
            call = min(due, key=lambda c: c.at)
            self.now, call.is_done = call.at, True
            call.function()
        self.now = end


class Call:
    def __init__(self, at, function):
        self.at = at
        self.function = function
        self.is_done = False

    def cancel(self):
        self.is_done = True

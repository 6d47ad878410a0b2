"""The members: who there are, who may be hurt now, and who comes next."""

from safeconsumer import SafeConsumer
from tests.system.soak.processes import Crowd, Program
from tests.system.soak.settings import MEMBER, MEMBERS, client

_FEWEST, _MOST = 4, 8


class Fleet:
    """
    Member processes of one group. A context manager: it ends them all.

    Thread rules: one thread.
    """

    def __init__(self, settings, bootstrap, kind):
        self._settings = settings
        self._bootstrap = bootstrap
        self._is_ours = issubclass(kind, SafeConsumer)
        self.crowd = Crowd()
        self._number = 0
        self._starts = 0
        self._is_draining = False

    def __enter__(self):
        for _ in range(MEMBERS):
            self.join()
        return self

    def __exit__(self, *_):
        self.crowd.kill_all()

    def names(self):
        return sorted(self.crowd.there)

    def join(self, name=None):
        """Start a member, a new one or one that was there before."""
        if name is None:
            self._number += 1
            name = f"m{self._number}"
        self._starts += 1
        number, workers = int(name[1:]), self._settings.workers
        options = {
            "name": name,
            "seed": f"{self._settings.seed} {name} {self._starts}",
            "consumer": self._settings.consumer,
            "is_worker": self._is_ours and workers > 0 and number % workers == 0,
            "assignor": self._settings.assignor,
            "client": {**MEMBER, **client(self._bootstrap, name)},
            "control": {"clock_skew": 0.5, "status_topic": None, "start_timeout": 2.0},
            "journals": str(self._settings.journals),
        }
        made = Program("tests.system.soak.member", name, options, self._settings.logs)
        self.crowd.there[name] = made
        if self._is_draining:
            made.tell("drain")
        return name

    def has_room(self):
        """Tell whether one more may join."""
        return len(self.crowd.there) < _MOST

    def can_lose_one(self):
        """Tell whether one fewer are still enough."""
        return len(self.crowd.there) > _FEWEST

    def tend(self):
        """Start again who ended without being told to, and end who does not leave."""
        self.crowd.tend(self.join)

    def drain(self):
        """Have everybody lift their holds and place no more."""
        self._is_draining = True
        for one in self.crowd.there.values():
            one.tell("drain")

    def end(self):
        self.crowd.end(self.join)

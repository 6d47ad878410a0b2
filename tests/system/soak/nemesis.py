"""Carries out the events of a soak on processes and brokers."""

import heapq
import json
import random
import threading
import time
from collections import deque
from itertools import count

from safeconsumer.group import operator
from safeconsumer.group.publisher import changes, new_hold
from safeconsumer.group.settings import Control
from safeconsumer.journal.writer import JournalWriter
from tests.harness.churn.nemesis import Nemesis
from tests.harness.churn.outsiders import Operator
from tests.harness.processes import Process, module
from tests.system.soak.settings import GROUP, PARTITIONS, TOPICS

_LEAVING = 40.0
"""The seconds for leaving; on a busy machine a worker waits up to 25 for handlers."""

_LIFTING = 120.0  # seconds to lift group holds; a broker restart takes up to 60
_TURN = 0.1
_REPORT_EVERY = 10.0
_WIDE_SCOPES = {
    **dict.fromkeys(TOPICS, 2.0),
    **dict.fromkeys(("re:soak-.*", "re:soak-(orders|returns)", "re:.*-audit"), 1.3),
    "@all": 2.0,
}
_SHARE_OF_PARTITIONS = 0.4  # the share of random scopes that are single partitions


class MemberProcess:
    """
    The nemesis's handle for a process that runs ``tests/system/soak/member.py``.

    Attributes:
        holds: the owners and scopes of the holds that the member should have in force.
    """

    is_calm = False

    def __init__(self, name, process, *, is_worker):
        self.name, self.process, self.is_worker = name, process, is_worker
        self.holds = []

    def call(self, method, *given):
        """Let the program make a call between two polls; do nothing if it runs a Worker."""
        if not self.is_worker:
            self._tell("call", method, *given)

    def call_beside(self, method, *given):
        self._tell("call_beside", method, *given)

    def _tell(self, how, method, *given):
        self.process.tell(json.dumps([how, method, *given]))
        if method == "pause" and given[:2] not in self.holds:
            self.holds.append(given[:2])
        if method == "resume":
            self.holds.remove(given)


class SoakNemesis(Nemesis):
    """
    Disturbs a group of real processes; leaving the context manager kills them.

    Only one thread may use the object.

    Attributes:
        crashed: the names of members that exited without being stopped.
        stuck: the names of members that were killed because they did not leave in time.
    """

    every = 0.3
    at_first, fewest, most = 6, 4, 8
    owners = ("app", "maintenance", "alice")
    limits = (None, None, None, None, 1.5)
    blocks = (0.5, 2.0, 6.0)
    naps = (1.0, 5.0, 32.0)  # 32 s exceeds max.poll.interval.ms
    freezes = (1.0, 2.5, 5.0, 10.0, 15.0)
    failures = ("kill", "freeze")
    failing = (0.5, 1.5, 3.0, 8.0)
    group_scopes = ("soak-orders", "soak-returns", "re:soak-.*", "soak-audit:3")
    idle = staticmethod(time.sleep)

    def __init__(self, settings, cluster, producer):
        super().__init__(random.Random(f"churn {settings.seed}"))  # noqa: S311 - draws have to be repeatable
        self.crashed, self.stuck = [], []
        self._settings, self._cluster, self._producer = settings, cluster, producer
        self._journal = JournalWriter(settings.journals, member="nemesis")
        self._open = {}  # the targets of faults that have not ended, by number
        self._timers, self._serial = [], count()
        self._starts, self._free_names = 0, deque()
        self._names = (f"m{number}" for number in count(1))
        self._failed_broker = None
        self._is_draining = False
        self._began = self._reported = self.now
        if settings.is_ours:
            base = {"bootstrap_servers": cluster.bootstrap.split(",")}
            self._group = operator.Operator(base, Control(status_topic=None))
            self.operator = Operator(self, self._write_hold)
        else:
            self.limits = (None,)

    def _write_hold(self, scope, *, is_held):
        hold = new_hold("soak", None) if is_held else None
        self._group.write(changes(GROUP, "soaker", [scope], hold))

    def start_program(self, name, main):
        thread = threading.Thread(target=main, name=name, daemon=True)
        thread.start()
        return thread

    def weights(self):
        """
        Return the calls and faults that may be drawn, each with its weight.

        Broker faults are rare, because a broker starts slowly. Faults that cause a
        rebalance are common.
        """
        weights = {
            self.pause: 8,
            self.resume: 16,
            self.nap: 0.3,
            self.join: 1.0,
            self.leave: 0.6,
            self.kill: 0.4,
            self.freeze: 0.6,
            self.broker_fails: 0.3,
        }
        if self.operator is not None:
            weights |= {self.held: 1, self.group_hold: 1, self.group_lift: 1.5}
        return weights

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in (*self.members, *self.leaving):
            one.process.kill()

    # Time

    @property
    def now(self):
        return time.monotonic()

    def sleep(self, seconds):
        """Wait; meanwhile heal faults that are due, and kill members that are overdue."""
        end = self.now + seconds
        while True:
            self._tend()
            left = end - self.now
            if left <= 0:
                return
            time.sleep(min(_TURN, left))

    def _later(self, seconds, call):
        heapq.heappush(self._timers, (self.now + seconds, next(self._serial), call))

    def _tend(self):
        while self._timers and self._timers[0][0] <= self.now:
            heapq.heappop(self._timers)[2]()
        for one in list(self.leaving):
            if one.process.is_over or self.now > one.leaves_until:
                self.leaving.remove(one)
                self._free_names.append(one.name)
                if not one.process.end(0.0):
                    self.stuck.append(one.name)
        if self.now >= self._reported + _REPORT_EVERY:
            self._reported = self.now
            self._report()

    def _report(self):
        names = " ".join(one.name for one in self.members)
        print(  # noqa: T201 - shows progress
            f"soak: {(self.now - self._began) / 60:5.1f} min"
            f"  {self._producer.acknowledged:8,} records  {self.faults:4} faults"
            f"  members {names}  now {' '.join(self._open.values()) or '-'}",
            flush=True,
        )

    # Members

    def started(self):
        """Start a new member; reuse the name of a member that has left, if there is one."""
        name = self._free_names.popleft() if self._free_names else next(self._names)
        if self._starts >= self.at_first:
            self._fault("join", name)
        return self._begun(name)

    def _begun(self, name):
        self._starts += 1
        settings = self._settings
        number, workers = int(name[1:]), settings.workers
        options = {
            "name": name,
            "seed": f"{settings.seed} {name} {self._starts}",
            "consumer": settings.consumer,
            "is_worker": settings.is_ours and workers > 0 and number % workers == 0,
            "assignor": settings.assignor,
            "bootstrap": self._cluster.bootstrap,
            "journals": str(settings.journals),
        }
        command = module("tests.system.soak.member", json.dumps(options))
        process = Process(command, log=settings.logs / f"{name}.log")
        one = MemberProcess(name, process, is_worker=options["is_worker"])
        if self._is_draining:
            self.calm(one)
        return one

    def forget_ended(self):
        """Restart members that have crashed."""
        self.members = [
            self._restarted(one) if one.process.is_over else one for one in self.members
        ]

    def _restarted(self, one):
        self.crashed.append(one.name)
        one.process.kill()
        return self._begun(one.name)

    def stop(self, one):
        """Tell a member to leave; it is killed later if it does not leave in time."""
        self._fault("leave", one.name)
        self._let_leave(one)

    def _let_leave(self, one):
        one.process.begin_to_end()
        one.leaves_until = self.now + _LEAVING

    def end_at_once(self, one):
        self._fault("kill", one.name)
        one.process.kill()
        self._free_names.append(one.name)

    def freeze_for(self, one, seconds):
        if not one.process.is_over:
            one.process.freeze()
            self._fault("freeze", one.name, seconds, one.process.thaw)

    def calm(self, one):
        """Let a member lift its holds and place no more holds."""
        self._is_draining = one.is_calm = True
        one.call_beside("calm_down")

    def scope(self):
        if self.rng.random() < _SHARE_OF_PARTITIONS:
            return f"{self.rng.choice(TOPICS)}:{self.rng.randrange(PARTITIONS)}"
        (scope,) = self.rng.choices(list(_WIDE_SCOPES), list(_WIDE_SCOPES.values()))
        return scope

    # Brokers

    def are_brokers_well(self):
        """Return whether no broker is failing and all replicas are in sync."""
        return self._failed_broker is None and self._cluster.are_in_sync()

    def fail_broker(self, number, how, seconds):
        self._failed_broker = node = self._cluster.nodes[number - 1]
        if how == "kill":
            node.kill()
            heal = self._restart_broker
        else:
            node.freeze()
            heal = self._thaw_broker
        self._fault(f"broker_{how}", node.name, seconds, heal)

    def _thaw_broker(self):
        self._failed_broker.unfreeze()
        self._failed_broker = None

    def _restart_broker(self):
        started = self._cluster.later(self._failed_broker.restart)

        def look():
            if started.done():
                started.result()
                self._failed_broker = None
            else:
                self._later(_TURN, look)

        look()

    # Faults

    def _fault(self, kind, target, seconds=0.0, heal=None):
        """Write a fault to the journal, and schedule its end after ``seconds``."""
        self.faults += 1
        number = self.faults
        fields = {"kind": kind, "targets": [target], "seconds": seconds}
        self._journal.write("fault", {"id": number, **fields})
        if heal is None:
            return
        self._open[number] = target

        def healed():
            del self._open[number]
            heal()
            self._journal.write("heal", {"id": number})

        self._later(seconds, healed)

    def heal(self):
        """End all faults; return once every fault has ended."""
        while self._timers:
            heapq.heappop(self._timers)[2]()
            time.sleep(_TURN / 2)

    # The end

    def lift_group_holds(self):
        """Stop the operator, and wait until all its holds are lifted."""
        end = self.now + _LIFTING
        self.operator.is_over = True
        self.operator.thread.join(_LIFTING)
        while not self.operator.lift_all():
            if self.now > end:
                message = f"a group hold could not be lifted within {_LIFTING:g} s"
                raise TimeoutError(message)
            time.sleep(_TURN)
        self._group.close()

    def finish(self):
        """Tell all members to leave, and wait until they have left."""
        self.forget_ended()
        for one in self.members:
            self._let_leave(one)
        self.leaving += self.members
        self.members = []
        while self.leaving:
            self.sleep(_TURN)

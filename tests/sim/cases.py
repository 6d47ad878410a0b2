"""
A lab that runs the reusable cases in a world, with simulated processes.

The cases are the same as on a real broker. They call the same adapter, on the thread of
a simulated process that can be frozen and killed.
"""

import queue
from functools import partial
from pathlib import Path

import kafka
from kafka import KafkaConsumer

import safeconsumer
from safeconsumer import Lifetime, SafeConsumer
from safeconsumer.testing.cases import adapter
from safeconsumer.testing.cases import lab as cases
from safeconsumer.testing.cases.member import answer, found
from safeconsumer.testing.cases.process import Launch, result_of
from tests.sim.world import World

# The adapters have no setting for the simulated network.
Ours = partial(SafeConsumer, proxy_url="sim://")
Strict = partial(Ours, default_lifetime=Lifetime.UNTIL_RESUMED)
Stock = partial(KafkaConsumer, proxy_url="sim://")

_SECONDS_OF_A_TURN = (
    1e-3  # simulated CPU seconds; the machine's CPU time would prove nothing
)


_CLIENTS = tuple(str(Path(one.__file__).parent) for one in (safeconsumer, kafka))


class Simulated(adapter.Adapter):
    """An adapter whose threads, clocks and waits are simulated."""

    def poll_limited(self, timeout, limit):
        """Read once while a signal handler raises on this thread, in the client's code."""
        world = World.current
        assert world is not None
        self._polling = world.task
        return super().poll_limited(timeout, limit)

    def _may_hit(self, frame):
        # Tasks of other threads run between two points of this thread, and the code
        # that simulates threads is not part of the client.
        world = World.current
        is_mine = world is not None and world.task is self._polling
        return is_mine and frame.f_code.co_filename.startswith(_CLIENTS)


class Deaf(Simulated):
    """A client whose pauses do nothing, so that every case about pausing must fail."""

    def pause(self, *_, **__):
        """Do nothing."""

    pause_the_rest = pause_topic = pause_pattern = pause_all = pause
    pause_by_another = pause_topic_by_another = pause


class Process:
    """A simulated process with one adapter, and with the methods of a real process."""

    def __init__(self, lab, launch):
        self._lab = lab
        self._adapter = found(launch.adapter)(*launch.arguments)
        self._requests = queue.SimpleQueue()
        self._answers = queue.SimpleQueue()
        self._awaited = 0
        self._process, _ = lab.start("case", self._serve)

    def _serve(self):
        while True:
            request = self._requests.get()
            if request["call"] == "cpu":
                turns = self._lab.world.turns
                self._answers.put({"result": turns * _SECONDS_OF_A_TURN})
            else:
                self._answers.put(answer(self._adapter, request))

    @property
    def is_alive(self):
        return not self._process.is_dead

    @property
    def is_at_rest(self):
        """Return whether the test has awaited every call that it started."""
        return not self._awaited

    def call(self, name, *args):
        self.begin(name, *args)
        return self.answer(name)

    def begin(self, name, *args):
        self._awaited += 1
        self._requests.put({"call": name, "with": args})

    def answer(self, _):
        """Wait for the call that was started, and return its result."""
        given = self._answers.get()
        self._awaited -= 1
        return result_of(given)

    def has_answered(self):
        """Return whether the call that was started has ended."""
        return not self._answers.empty()

    def freeze(self):
        self._lab.freeze(self._process)

    def thaw(self):
        self._lab.thaw(self._process)

    def kill(self):
        """Kill the process, which sends no LeaveGroup."""
        self._lab.kill(self._process)


class Broker:
    """The simulated cluster, with the methods that the cases call on a broker."""

    def __init__(self, lab):
        self.is_real = False
        self.group_config = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
        self.client_config = lab.connection
        (self.bootstrap,) = lab.connection["bootstrap_servers"]
        self.create_topic = lab.cluster.create_topic
        self.delete_topic = lab.cluster.delete_topic
        self.add_partitions = lab.cluster.add_partitions
        self.truncate = lab.cluster.truncate


class CasesLab(cases.Lab):
    """
    Runs the cases in a simulated world.

    Args:
        lab: the world's lab.
        protocol: an assignor's name.
        consumer: ``Ours``, ``Strict`` or ``Stock``.
        adapter: the ``module:Class`` that carries out the calls of the cases.
    """

    def __init__(self, lab, protocol, consumer="Ours", adapter=f"{__name__}:Simulated"):
        self._lab = lab
        arguments = (f"{__name__}:{consumer}",)
        launch = Launch(adapter=adapter, arguments=arguments)
        super().__init__(Broker(lab), launch, protocol, Path())

    def _process(self):
        return self._idle.pop() if self._idle else Process(self._lab, self._launch)

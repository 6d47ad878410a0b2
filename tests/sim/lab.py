"""
Gives a simulated test a world with a cluster and with programs that poll.

Import this module after ``threads.install()``, which ``tests/conftest.py`` calls first.
"""

import threading

from kafka import TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer.testing._cluster import Cluster
from tests.sim.network import PORT, Network, register
from tests.sim.world import EPOCH, Process, World

register()

GROUP = "g"
_is_warm = []


def play(scenario, seed=0, *, nodes=1, preempt=0.0, **given):
    """
    Run ``scenario(lab, **given)`` in its own world, and return its result.

    Args:
        scenario: the main task of the world.
        seed: the seed of all random choices.
        nodes: the number of brokers.
        preempt: the probability that a task loses its turn when it acquires a lock.
        given: further arguments of the scenario.
    """
    __tracebackhide__ = True
    if not _is_warm:
        # Late imports during the first poll would read the clock.
        _is_warm.append(True)
        play(_warm_up)
    world = World(seed, preempt=preempt)
    return world.run(lambda: scenario(Lab(world, nodes), **given))


def _warm_up(lab):
    lab.topic("warm", 1, records=1)
    member = lab.member(SafeConsumer, "warm")
    lab.until(lambda: member.records)
    member.stop()


class Lab:
    """
    A world, its cluster, and the programs that use it.

    Attributes:
        world: the clock, the tasks and the processes.
        cluster: the brokers, with their topics, offsets, groups and faults.
        network: the connections to the brokers, and their faults.
        rng: makes the random choices of tests, by the seed.
        sleep: waits for some virtual seconds.
        until: waits for a condition, for a limited number of virtual seconds.
    """

    def __init__(self, world, nodes=1):
        self.world = world
        self.network = Network(world)
        self.rng = world.rng
        self.sleep, self.until = world.sleep, world.until
        self.hosts = [f"broker-{number}" for number in range(1, nodes + 1)]
        self.cluster = Cluster(
            [(host, PORT) for host in self.hosts],
            call_later=world.call_later,
            wall=lambda: EPOCH + world.now + world.outside.skew,
            random=world.rng,
            clock=lambda: world.now,
        )
        for number, host in enumerate(self.hosts, 1):
            self._listen(number, host)

    def _listen(self, number, host):
        def accept(link):
            connection = self.cluster.connect(
                number, send=link.send, close=link.close, origin=link.process.name
            )
            link.on_data, link.on_end = connection.receive, connection.lost

        self.network.listen(host, accept)

    @property
    def now(self):
        """Return the virtual seconds since the world started."""
        return self.world.now

    def history(self):
        """Return all requests so far, each with its time, kind, client and broker."""
        return tuple(
            (round(one.at, 6), one.api, one.origin, one.broker_id)
            for one in self.cluster.requests
        )

    def kinds(self, since=0):
        """Return the kinds of requests after the first ``since`` requests."""
        return [one.api for one in self.cluster.requests][since:]

    def fetched_partitions(self, since=0):
        """Return the partitions of the Fetch requests after the first ``since`` requests."""
        some = list(self.cluster.requests)[since:]
        return {tp for one in some if one.api == "Fetch" for tp in one.partitions}

    def members(self, group=GROUP):
        return len(self.cluster.groups.find(group).members)

    def generation(self, group=GROUP):
        return self.cluster.groups.find(group).generation

    def coordinator(self, group=GROUP):
        """Return the number of the broker that coordinates a group."""
        return self.cluster.nodes.coordinator_of(0, group)

    def committed(self, tp, group=GROUP):
        found = self.cluster.committed(group).get((tp.topic, tp.partition))
        return None if found is None else found.offset

    def running(self):
        """Return the unfinished threads of living processes."""
        return [f"{one.process}/{one.name}" for one in self.world.running()]

    # Topics and clients

    def topic(self, name, partitions=1, records=0):
        """Create a topic with ``records`` in each partition: ``b"0"``, ``b"1"``..."""
        self.cluster.create_topic(name, partitions)
        found = [TopicPartition(name, number) for number in range(partitions)]
        for one in found if records else ():
            self.append(one, records)
        return found

    def partitions(self, name):
        topic = self.cluster.topics.get(name)
        assert topic is not None, f"there is no topic {name}"
        return [TopicPartition(name, number) for number in range(len(topic.logs))]

    def append(self, tp, count=1, first=0):
        """Append records to a partition; their values count from ``first``."""
        values = [b"%d" % number for number in range(first, first + count)]
        self.cluster.append(tp.topic, tp.partition, values)

    @property
    def connection(self):
        """The settings with which any client finds the cluster."""
        servers = [f"{host}:{PORT}" for host in self.hosts]
        return {"bootstrap_servers": servers, "proxy_url": "sim://"}

    def settings(self, **more):
        """Return settings for a consumer that reads from the start and does not commit."""
        base = {
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "metrics_enabled": False,  # metrics take a tenth of a world's CPU time
        }
        return {**self.connection, **base, **more}

    def member(self, kind, *topics, name="a", **settings):
        """Start a program that polls; see ``Member``."""
        return Member(self, kind, topics, name, settings)

    # Processes

    def start(self, name, main):
        process = Process(name)
        thread = threading.Thread(target=main, name=name)
        self.world.spawn(thread.start, f"{name}'s start", process)
        self.until(lambda: thread.ident is not None)
        return process, thread

    def freeze(self, process):
        """Freeze a process (SIGSTOP); its threads stop, and its sockets fill."""
        process.is_frozen = True

    def thaw(self, process):
        process.is_frozen = False

    def kill(self, process):
        """Kill a process (SIGKILL); its connections are closed, as the kernel would do."""
        process.is_dead = True
        self.network.reset(process)

    def lose(self, process):
        """Switch off the machine of a process; its connections stay open and silent."""
        self.network.isolate(process)
        process.is_dead = True

    def step_clock(self, process, seconds):
        """Move the wall clock of a process forward or back."""
        process.skew += seconds


class Member:
    """
    A program that polls until a test stops it, in its own process.

    Attributes:
        consumer: the program's consumer; a test may make the calls that any thread may make.
        process: the program's simulated process, which a test may freeze, kill or cut off.
        records: all records that the program's polls returned.
        nap: virtual seconds for which the program is busy before its next poll.
    """

    def __init__(self, lab, kind, topics, name, settings):
        self.lab = lab
        self.name = name
        self.records = []
        self.nap = 0.0
        self.consumer = None
        self._poll_ms = settings.pop("poll_ms", 500)
        if "assignor" in settings:
            settings["partition_assignment_strategy"] = [settings.pop("assignor")]
        self._calls = []
        self._is_over = False
        base = {"group_id": GROUP, "client_id": name, "max_poll_records": 10}
        self._make = lambda: kind(*topics, **lab.settings(**{**base, **settings}))
        self.process, self._thread = lab.start(name, self._live)
        lab.until(lambda: self.consumer is not None, what=f"{name} is there")

    def _live(self):
        self.consumer = self._make()
        while not self._is_over:
            nap, self.nap = self.nap, 0.0
            if nap:
                self.lab.sleep(nap)
            calls, self._calls = self._calls, []
            for call in calls:
                call()
            self._poll(self._poll_ms)
        self.consumer.close(autocommit=False)

    def _poll(self, milliseconds):
        for batch in self.consumer.poll(milliseconds).values():
            self.records += batch

    def call(self, function):
        """Call ``function(consumer)`` between two polls, in the thread that polls."""
        results = []
        self._calls.append(lambda: results.append(function(self.consumer)))
        self.lab.until(lambda: results, what=f"{self.name} has called")
        return results[0]

    def owns(self, count):
        """Wait until the member owns ``count`` partitions."""
        what = f"{self.name} owns {count}"
        self.lab.until(lambda: len(self.consumer.assignment()) == count, what=what)

    def values(self, tp):
        found = [one for one in self.records if (one.topic, one.partition) == tp]
        return [int(one.value) for one in found]

    def leave(self):
        """Let the member close its consumer after its next poll."""
        self._is_over = True

    def stop(self):
        """Let the member close its consumer, and wait until its thread has ended."""
        self.leave()
        self._thread.join()

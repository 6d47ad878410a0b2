"""
Reads from an embedded broker, in real time, while a signal handler raises exceptions.

The program exits with status 0 if every record was delivered exactly once and in order,
and each interrupted call raised the handler's exception. If a call never returns, the
program prints the stacks of all threads and exits with status 1.
"""

import argparse
import faulthandler
import itertools
import random
import signal
import threading
import time
from functools import partial
from pathlib import Path

import kafka
from kafka import KafkaProducer, TopicPartition

import safeconsumer
from safeconsumer import SafeConsumer
from safeconsumer.testing import EmbeddedBroker
from tests.harness.signals import Interrupts, TimeLimitError

OURS = str(Path(safeconsumer.__file__).parent)
THEIRS = str(Path(kafka.__file__).parent)
PARTITIONS = 2
FEWEST = 20
"""The minimum number of interruption points in a call that waits."""
LIMIT = 20
"""The seconds after which a call is considered to hang."""


class Reading:
    """A consumer of two partitions, and the offsets that it received from each partition."""

    def __init__(self, broker, settings):
        broker.create_topic("t", PARTITIONS)
        self._producer = KafkaProducer(**broker.client_config)
        self.consumer = SafeConsumer(
            "t",
            group_id="g",
            auto_offset_reset="earliest",
            max_poll_records=3,
            session_timeout_ms=60_000,  # long enough for a busy machine
            **broker.client_config,
            **settings,
        )
        tps = [TopicPartition("t", number) for number in range(PARTITIONS)]
        self.got = {tp: [] for tp in tps}
        self.written = 0

    def write(self):
        """Write one record to each partition."""
        for tp in self.got:
            self._producer.send(tp.topic, b"x", partition=tp.partition)
        self._producer.flush()
        self.written += 1

    def poll(self):
        """Poll once."""
        for tp, records in self.consumer.poll(20).items():
            self.got[tp] += [one.offset for one in records]

    def iterate(self):
        """Consume one record by iterating over the consumer."""
        for one in self.consumer:
            self.got[TopicPartition(one.topic, one.partition)].append(one.offset)
            break

    def read_all(self, place):
        """Read the remaining records; check that all arrived exactly once and in order."""
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        while any(len(got) < self.written for got in self.got.values()):
            self.poll()
        faulthandler.cancel_dump_traceback_later()
        for tp, got in self.got.items():
            assert got == [*range(self.written)], (place, tp, got)

    def close(self):
        self.consumer.close()
        self._producer.close()


def everywhere(reading, call, every):
    """Repeat a call and raise at a different point each time, even in Python's own waits."""
    main = threading.main_thread()
    interrupts = Interrupts(
        (OURS, THEIRS, threading.__file__), lambda: threading.current_thread() is main
    )
    for at in itertools.count(step=every):
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        has_come = interrupts.at(at, call)  # the call waits: all records have been read
        reading.write()
        reading.read_all(interrupts.place)
        if not has_come:
            break
    assert at > FEWEST


def at_random(reading, seconds):
    """Poll repeatedly, and raise at a random time in about half of the polls."""
    end = time.monotonic() + seconds
    polls = raised = 0
    while time.monotonic() < end:
        if random.random() < 0.2:  # noqa: S311 - no secret
            reading.write()
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        polls += 1
        try:
            poll_with_limit(reading)
        except TimeLimitError:
            raised += 1
        if random.random() < 0.2:  # noqa: S311
            for tp in reading.consumer.assignment():
                got = reading.got[tp]
                position = reading.consumer.position(tp, timeout_ms=5000)
                assert position == len(got), (tp, position, got[-3:])
    reading.read_all("at the end")
    assert raised > 1, f"{raised} of {polls} polls were interrupted"


def poll_with_limit(reading):
    try:
        if random.random() < 0.5:  # noqa: S311
            within = random.choice((0.001, 0.005, 0.025))  # noqa: S311
            signal.setitimer(signal.ITIMER_REAL, within * random.random() or within)  # noqa: S311
        reading.poll()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def limit(_number, frame):
    """Raise only inside a poll; an exception right after the poll would lose its records."""
    while frame is not None:
        if frame.f_code is SafeConsumer.poll.__code__:
            raise TimeLimitError
        frame = frame.f_back


CALLS = {
    "poll": Reading.poll,
    "iterate": Reading.iterate,
    "commit": lambda one: one.consumer.commit(),
    "position": lambda one: one.consumer.position(TopicPartition("t", 0)),
    "end_offsets": lambda one: one.consumer.end_offsets([*one.got]),
}


def main():
    """Parse the arguments, and run the chosen test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="try only each Nth place")
    parser.add_argument("--decoder", default="auto")
    parser.add_argument("--seconds", type=float, help="raise at random, this long")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    random.seed(given.seed)
    signal.signal(signal.SIGALRM, limit)
    settings = {"decoder": given.decoder, "consumer_timeout_ms": 20}
    with EmbeddedBroker() as broker:
        reading = Reading(broker, settings)
        if given.seconds is not None:
            at_random(reading, given.seconds)
        else:
            for call in CALLS.values():
                everywhere(reading, partial(call, reading), given.every)
        reading.close()


if __name__ == "__main__":
    main()

"""Runs a pod for ``test_fleets``: a member of each named fleet, until stdin is closed."""

import json
import sys
import threading
from contextlib import suppress

from kafka import TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import KafkaError

from safeconsumer import Commit, Control, SafeConsumer, Worker

# seconds between two seeks by the member that runs a worker
_SEEKS = 3.0
_SLOWLY = {"max_poll_records": 2, "max_partition_fetch_bytes": 1000}
FLEETS = {
    "dynamic": {},
    "cooperative": {"partition_assignment_strategy": [CooperativeStickyAssignor]},
    "automatic": {"enable_auto_commit": True, "auto_commit_interval_ms": 500},
    "static": {},
    "manual": {},
    "held": {},
    "deleted": _SLOWLY,
    "compacted": {"isolation_level": "read_committed"},
    "working": {"max_poll_records": 20},
}


class Pod:
    """
    Runs a member of each fleet, each member on its own thread.

    Args:
        plan: a mapping with the pod's ``number``, a ``folder`` for journals, ``topics``
            and ``groups`` by fleet, the ``prefix`` of the control topics, and
            ``client`` settings.
    """

    def __init__(self, plan):
        self._plan = plan
        self._over = threading.Event()
        self.troubles = []

    def run(self):
        """Run until stdin is closed."""
        threads = [
            threading.Thread(target=self._guarded, args=(one,))
            for one in self._plan["groups"]
        ]
        for one in threads:
            one.start()
        sys.stdout.write("runs\n")
        sys.stdout.flush()
        sys.stdin.read()
        self._over.set()
        for one in threads:
            one.join()

    def _guarded(self, fleet):
        try:
            self._live(fleet)
        except Exception as error:
            self.troubles.append(f"{fleet}: {error!r}")
            raise

    def _live(self, fleet):
        consumer = SafeConsumer(**self._settings(fleet))
        topic = self._plan["topics"][fleet]
        if fleet == "manual":
            consumer.assign([TopicPartition(topic, self._plan["number"])])
        else:
            consumer.subscribe([topic])
        if fleet == "working":
            self._work(consumer)
            return
        while not self._over.is_set():
            with suppress(KafkaError):  # the group goes on even if this commit fails
                for _ in range(5):
                    consumer.poll(200)
                if fleet != "automatic":
                    consumer.commit()
            if fleet == "deleted":
                self._over.wait(1.0)
        with suppress(KafkaError):
            consumer.commit()
        consumer.close()

    def _settings(self, fleet):
        number, more = self._plan["number"], dict(FLEETS[fleet])
        if fleet == "static":
            more["group_instance_id"] = f"pod-{number}"
        if fleet == "held":
            more["control"] = Control.prefixed(self._plan["prefix"], clock_skew=0.5)
        return {
            "group_id": self._plan["groups"][fleet],
            "client_id": f"{fleet}-{number}",
            "journal": f"{self._plan['folder']}/{fleet}",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 1000,
            **self._plan["client"],
            **more,
        }

    def _work(self, consumer):
        worker = Worker(
            consumer,
            lambda _record, _context: None,
            order="key",
            commit=Commit(every=0.5),
        )
        ends = threading.Thread(target=self._seek, args=(consumer, worker))
        ends.start()
        worker.run()
        ends.join()

    def _seek(self, consumer, worker):
        # Seeks back and forward alternately while handlers run.
        back = 10
        while not self._over.wait(_SEEKS):
            for tp in consumer.assignment():
                with suppress(KafkaError, ValueError):
                    at = consumer.position(tp, timeout_ms=1000) or 0
                    consumer.seek(
                        tp, max(0, min(at - back, consumer.highwater(tp) or 0))
                    )
            back = -back
        worker.stop()


if __name__ == "__main__":
    pod = Pod(json.loads(sys.argv[1]))
    pod.run()
    sys.exit("\n".join(pod.troubles) or 0)

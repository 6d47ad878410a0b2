"""Programs beside the group: an operator who holds it, a producer of transactions."""

from collections import deque

from kafka import KafkaProducer
from kafka.errors import KafkaError

from safeconsumer.errors import ControlWriteError
from safeconsumer.group import clients
from safeconsumer.group.publisher import changes, new_hold, publish
from tests.sim.lab import GROUP

_LONGEST = 10.0  # seconds that an operator's command takes
_IDLE = 0.5  # seconds until a program looks again whether there is something to do


class Outsider:
    """A program in a process of its own that does one thing after the other."""

    def __init__(self, lab, name):
        self.lab = lab
        self.todo = deque()
        self.is_over = False
        self.process, self.thread = lab.start(name, self._live)

    def _live(self):
        while not self.is_over:
            while self.todo:
                self.todo.popleft()()
            self.lab.sleep(_IDLE)
        self.end()

    def end(self):
        """Close what it has opened."""


class Operator(Outsider):
    """Places holds on the group, and lifts them."""

    def __init__(self, lab, judge):
        self.judge = judge
        self.unsure = set()  # scopes that may be held, or may not be
        super().__init__(lab, "operator")

    def hold(self, scope):
        self.unsure.add(scope)
        if self._publish(scope, new_hold("churn", None)):
            self.unsure.discard(scope)
            self.judge.group_holds.setdefault(scope, self.lab.now)
            self.judge.seen["group holds"] += 1

    def lift(self, scope):
        self.judge.group_holds.pop(scope, None)
        self.unsure.add(scope)
        if self._publish(scope, None):
            self.unsure.discard(scope)

    def lift_all(self):
        """Lift whatever is held or may be held."""
        for scope in sorted({*self.judge.group_holds, *self.unsure}):
            self.lift(scope)

    def _publish(self, scope, hold):
        writer = clients.producer(self.lab.settings(), _LONGEST)
        change = changes(GROUP, "alice", [scope], hold)
        try:
            publish(lambda: writer, "ops", change, _LONGEST)
        except (ControlWriteError, KafkaError):
            return False
        finally:
            writer.close()
        return True


class Transactional(Outsider):
    """Writes transactions that commit or abort."""

    def __init__(self, lab):
        self._producer = None
        super().__init__(lab, "transactional")

    def write(self, records, *, is_kept):
        """Write one record to each of these partitions, in one transaction."""
        try:
            if self._producer is None:
                self._producer = KafkaProducer(
                    **self.lab.connection, transactional_id="churn", retries=20
                )
                self._producer.init_transactions()
            self._producer.begin_transaction()
            for topic, number in records:
                self._producer.send(topic, b"in a transaction", partition=number)
            self._producer.flush()
            if is_kept:
                self._producer.commit_transaction()
            else:
                self._producer.abort_transaction()
        except KafkaError:
            self.end()

    def end(self):
        """Close the producer; who is next aborts what it has left open."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=5)

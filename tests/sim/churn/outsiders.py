"""Programs beside the group: an operator who holds it, a producer of transactions."""

from collections import deque

from kafka import KafkaProducer
from kafka.errors import KafkaError

from safeconsumer.errors import ControlWriteError
from tests.sim.group import operating

_IDLE = 0.5  # seconds until a program looks at its todo list again


class Outsider:
    """A program in a process of its own that carries out its todo list."""

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
        """Close its clients."""


class Operator(Outsider):
    """Places holds on the group, and lifts them."""

    def __init__(self, lab, judge):
        self.judge = judge
        self._operator = operating.Operator(lab)
        self._unsure = set()  # scopes whose hold may have been written or not
        super().__init__(lab, "operator")

    def hold(self, scope):
        if self._is_done(self._operator.hold, scope):
            self.judge.group_holds.setdefault(scope, self.lab.now)
            self.judge.seen["group holds"] += 1

    def lift_all(self):
        """Lift all scopes that are held or may be held."""
        for scope in sorted({*self.judge.group_holds, *self._unsure}):
            self.judge.group_holds.pop(scope, None)
            self._is_done(self._operator.lift, scope)

    def _is_done(self, call, scope):
        self._unsure.add(scope)
        try:
            call(scope)
        except (ControlWriteError, KafkaError):
            return False
        self._unsure.discard(scope)
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
        """Close the producer; the next one aborts an open transaction."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=5)

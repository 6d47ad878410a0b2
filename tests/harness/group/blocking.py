"""Gives kafka-python's methods to members on other clients; needs the extra ``ci``."""

from kafka import TopicPartition

from safeconsumer import Control
from safeconsumer.testing.cases import adapter
from safeconsumer.testing.cases.outcomes import ONE_CONSUMER, AbsentError
from tests.harness.members import Polled


class Blocking:
    """
    A member with kafka-python's methods; there is a subclass for each client.

    Attributes:
        consumer: the client's own consumer, with ``hold`` and ``lift``.
    """

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def owned(self):
        """Return the assignment that the member has applied; any thread may call this."""
        owned = self.consumer._member.ledger.owned()
        return frozenset(TopicPartition(*tp) for tp in owned)


class Running(Polled):
    """
    A member that is polled on a thread of its own.

    Attributes:
        came: the partition and offset of each record that the member received.
        consumer: the client's own consumer.
    """

    def __init__(self, member, topic):
        super().__init__(member)
        self._member, self._topic = member, topic
        self.consumer, self.came = member.consumer, []

    def __enter__(self):
        self._member.subscribe([self._topic])
        return super().__enter__()

    def __exit__(self, *raised):
        super().__exit__(*raised)
        self._member.close()

    @property
    def assignment(self):
        return self._member.owned

    def keep(self, polled):
        for records in polled.values():
            self.came.extend((one.partition, one.offset) for one in records)


class Holding:
    """A member that places a hold where a public case pauses a partition."""

    def __init__(self, member):
        self._member, self._consumer = member, member.consumer

    def __getattr__(self, name):
        return getattr(self._member, name)

    def pause(self, *targets, owner="app"):
        self._consumer.hold(*targets, owner=owner)

    def resume(self, *targets, owner="app"):
        self._consumer.lift(*targets, owner=owner)

    def pause_all(self):
        self._consumer.hold("@all")

    def resume_all(self):
        self._consumer.lift("@all")


class CasesAdapter(adapter.Adapter):
    """
    The adapter through which the public cases drive a member.

    Args:
        prefix: the prefix of the control topics, for ``Control.prefixed``.
    """

    def __init__(self, prefix):
        self._control = Control.prefixed(prefix)

    def open(self, settings):
        if settings["carries"]:
            raise AbsentError(ONE_CONSUMER)
        self._listener = adapter._Listener(self, settings)
        control = self._control if settings["group"] else None
        self.consumer = Holding(self.member(settings, control))

    def poll_limited(self, timeout, limit):  # noqa: ARG002 - the cases' signature
        message = (
            "neither a poll in C nor a coroutine is interrupted by a signal handler"
        )
        raise AbsentError(message)

"""Runs a controller with one stream, without Spark or Kafka, and sends it requests."""

from urllib.parse import parse_qsl, urlencode

from safeconsumer.errors import HoldsUnreadableError, NotQuietError
from safeconsumer.holds.view import Holds
from safeconsumer.spark import offsets
from safeconsumer.spark.bridge import PROTOCOL
from safeconsumer.spark.control import ControlFollower
from safeconsumer.spark.controller import Controller, ledger
from safeconsumer.spark.options import SourceOptions
from safeconsumer.spark.queries import SparkQueries
from safeconsumer.spark.retention import Retention
from safeconsumer.spark.skipping import Skipping, SkipRequests
from safeconsumer.spark.stream import Stream
from tests.harness.holds.lab import Clock

START = {("orders", 0): 5, ("returns", 0): 5}
LATEST = {("orders", 0): 9, ("returns", 0): 8}


class Elsewhere(ControlFollower):
    """Control topics that a test can make unreachable."""

    def __init__(self):
        self.trouble = None
        self.is_late = False
        self.before_read = None

    def known_holds(self):
        if self.trouble is not None:
            raise HoldsUnreadableError(self.trouble)
        return Holds()

    def current_holds(self):
        if self.before_read is not None:
            self.before_read()
        if self.is_late:
            message = "not in time"
            raise HoldsUnreadableError(message)
        return self.known_holds()


class Refused(Exception):  # noqa: N818 - no error
    """The controller answered with a refusal."""


class Undecided(Exception):  # noqa: N818 - no error
    """The controller answered without a decision."""


def asked(bridge, question, **facts):
    """Send the controller a request as the shim does; raise if it does not consent."""
    about = {"protocol": PROTOCOL, "decider": bridge.decider, "number": "7"}
    text = bridge.apply(question, urlencode({**about, **facts}))
    assert text.startswith(f"{urlencode(about)}&verdict=")
    answer = dict(parse_qsl(text, keep_blank_values=True))
    if answer["verdict"] == "go":
        return answer
    raise (Refused if answer["verdict"] == "refuse" else Undecided)(answer["why"])


class Spark(SparkQueries):
    def __init__(self):
        self.running = []

    def active(self):
        return self.running

    def ends(self, query):
        return query == "nightly's"


class Files:
    """The files in which a checkpoint stores its skips, in memory instead of on disk."""

    def __init__(self):
        self.texts = {}

    def load(self, batch):
        return self.texts.get(batch, "")

    def store(self, batch, text):
        self.texts[batch] = text


class Topics:
    """A cluster that reports topic ids and the first offsets of partitions."""

    errors = (OSError,)

    def __init__(self):
        self.first = {}
        self.ids = {}
        self.asked = 0

    def firsts(self, partitions, _until):
        self.asked += 1
        return {tp: self.first.get(tp, 0) for tp in partitions}

    def fail(self, _partitions, _until):
        """Raise as if the cluster did not answer; a test puts this in place of ``firsts``."""
        self.asked += 1
        raise OSError

    def topic_ids(self, names, _until):
        return {name: self.ids.get(name, "a") for name in names}

    def close(self):
        pass


class DeciderLab:
    """A controller with one stream, to which a test sends requests as the shim does."""

    def __init__(self, *, fails_on_loss=True):
        self.events = []
        own = ledger((self.events.append,))
        self.elsewhere = Elsewhere()
        made = SourceOptions(fails_on_loss=fails_on_loss)
        self.opened = []
        self.spark = Spark()
        self.skip_requests, self.files = SkipRequests(), Files()
        self.cluster, self.clock = Topics(), Clock()
        self.controller = Controller(
            lambda name, _options, _folder: (
                self.opened.append(name)
                or Stream(
                    name,
                    made,
                    ledgers=(own,),
                    follower=self.elsewhere,
                    skipping=Skipping(self.skip_requests, self.files),
                    retention=Retention(self.cluster, self.clock),
                )
            ),
            own,
            self.spark,
            skip_requests=self.skip_requests,
        )
        self.ask("open", options="")

    def ask(self, question, **facts):
        about = {"stream": "a stream", "ends": "no", "query": "q"}
        return asked(self.controller.bridge, question, **{**about, **facts})

    def plan(self, limit="maximum", question="plan", **more):
        """Request one plan for a batch from ``START`` to ``LATEST``."""
        latest = offsets.render(LATEST)
        facts = {"start": offsets.render(START), "end": latest, "latest": latest}
        return self.ask(question, limit=limit, **{**facts, **more})

    def batch(self, start, latest, between=None, end=None, number=7):
        """
        Plan a batch; ``end`` is the end that the source's own limit has set.

        If ``between`` is given, Spark's limit has a minimum; ``between`` is called
        between the two requests that such a batch needs.
        """
        limit = "none" if end is None else "maximum"
        planned = {
            "end": offsets.render(latest if end is None else end),
            "latest": offsets.render(latest),
            "batch": f"nightly\nid = 1\nrunId = 2\nbatch = {number}",
        }
        limit = limit if between is None else "other"
        answer = self.ask("plan", start=offsets.render(start), limit=limit, **planned)
        if "from" in answer:
            assert "end" not in answer
            (between or tuple)()
            answer = self.ask("freeze", **planned)
        return answer

    def not_quiet(self):
        """Return why the stream is not quiet, or an empty string if it is quiet."""
        try:
            self.controller.wait_quiet(timeout=0.0)
        except NotQuietError as error:
            return str(error)
        return ""

    def named(self, name):
        return [event for event in self.events if event.name == name]

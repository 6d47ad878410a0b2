"""
Defines the verdicts on partitions, members and groups, with their words.

Each verdict has a level, two or three words, and a sentence with placeholders for
names. Commands, pages, REST and metrics print these texts, and have no words of their
own.
"""

from collections.abc import Mapping
from enum import StrEnum

from attrs import evolve, frozen

from safeconsumer.group.durations import duration_text
from safeconsumer.group.report_wire import STREAM, Report
from safeconsumer.holds.explain import counted

CONTROL = "SafeConsumer(control=Control())"
"""The setting that makes a client obey holds."""


class Level(StrEnum):
    """The importance of a verdict; the first level is the worst."""

    ALARM = "alarm"
    UNKNOWN = "unknown"
    WAITING = "waiting"
    QUIET = "quiet"
    FLOWS = "flows"
    GOOD = "good"


LEVELS = tuple(Level)


@frozen
class Verdict:
    """
    The verdict on a partition, a member or a group.

    Attributes:
        level: its importance for an operator.
        words: a text of two or three words, the same for each verdict of this kind.
        sentence: the reason; empty if the words say everything.
        do: the advice; empty if trying again is enough.
    """

    level: Level
    words: str
    sentence: str = ""
    do: str = ""

    @property
    def reason(self) -> str:
        """The sentence, without the words if it begins with them."""
        return self.sentence.removeprefix(f"{self.words}: ")

    @property
    def rank(self) -> int:
        """The position of its level among all levels; 0 is the worst."""
        return LEVELS.index(self.level)

    def filled(self, **names: object) -> "Verdict":
        """Return the verdict with these names in its sentence."""
        return evolve(self, sentence=self.sentence.format(**names))

    def aged(self, age: float) -> "Verdict":
        """Return the verdict that counts after this many seconds without an update."""
        # An alarm may still be true; anything else is now unknown.
        known = self if self.level is Level.ALARM else UNKNOWN
        sentence = self.sentence or self.words
        return evolve(known, sentence=f"{duration_text(age)} ago: {sentence}")


UNKNOWN = Verdict(Level.UNKNOWN, "unknown", "{why}")
NOT_QUIET_YET = Verdict(Level.WAITING, "not quiet yet", "{why}")
HELD_BUT_FLOWING = Verdict(Level.ALARM, "held but flowing", "{why}")
HOLD_ENDED = Verdict(
    Level.WAITING,
    "hold ended",
    "members lift it until {by}, late by the clock skew that they allow for",
)

MAY_HAVE_ENDED = Verdict(
    Level.UNKNOWN,
    "may have ended",
    "its end, {by}, is past by this machine's clock; no record proves that, so it "
    "counts as in force",
)

# ---------------------------------------------------------------- partitions

QUIET = Verdict(Level.QUIET, "quiet", "held by {owner} {until}{reason}{more}")
NO_OWNER = Verdict(Level.UNKNOWN, "no owner", "no member of the group owns it")
HELD_WITHOUT_OWNER = Verdict(
    Level.QUIET,
    "no owner",
    "no member of the group owns it; a new owner reads the holds first",
)
STARTING = Verdict(
    Level.WAITING,
    "waits",
    "{member} just received it or paused it with pause(), and still reads the holds",
)
PAUSED = Verdict(
    Level.QUIET,
    "paused by its member",
    "{member} paused it with pause(); no hold of the group covers it",
)
KEPT_BY_MEMBER = Verdict(
    Level.WAITING,
    "kept by its member",
    "{member} keeps holds that its control topic lost, until resume lifts them: {kept}",
)
ALL_READ = Verdict(Level.FLOWS, "nothing to read", "every record is read and committed")
FLOWS = Verdict(Level.FLOWS, "flows", "not held; {why}")

# ---------------------------------------------------------------- members

# These sentences follow the member's name.
OBEYS = Verdict(Level.GOOD, "obeys")
BEHIND = Verdict(Level.WAITING, "behind", "is {records} behind")
UNAVAILABLE = Verdict(
    Level.UNKNOWN,
    "unavailable",
    "cannot read the control topics, and keeps its last state",
    do="search its log for control_unavailable",
)
SILENT = Verdict(
    Level.UNKNOWN,
    "does not report",
    "does not report: a plain client, which obeys no hold, one whose settings turn "
    "reports off, or one whose last report is over a minute old",
    do=f"give it {CONTROL}; or it may not write the status topic",
)
LOST = Verdict(
    Level.UNKNOWN,
    "does not report",
    "has not reported{for_}: it died, hangs, or cannot write its reports",
    do="check that its process runs, and read its log",
)
STOPPED = Verdict(
    Level.UNKNOWN,
    "unknown",
    "has stopped, and Kafka lists it until its session ends",
)
AT_WORK = Verdict(
    Level.UNKNOWN,
    "unknown",
    "has stopped, and was still working on records of {topics}",
)
REPORTS_UNREAD = Verdict(
    Level.UNKNOWN, "unknown", "cannot be judged: reports cannot be read"
)
UNMEASURED = Verdict(
    Level.UNKNOWN,
    "unknown",
    "cannot be judged: how far it should have read is unknown",
)
OUT_OF_DATE = Verdict(
    Level.UNKNOWN,
    "unknown",
    "has reported for generation {generation}, and not yet for this one",
)
LEFT = Verdict(Level.UNKNOWN, "left the group", "is not in the group any more")
DISOBEYS = Verdict(Level.ALARM, "does not obey", "delivers what is held")

STREAM_STATES = {
    "deciding": "has not decided on its next batch",
    "starting": "has not planned a batch yet; an earlier batch may run again",
    "unavailable": "cannot read the holds, and plans no batch",
}
"""
The sentences about a Spark stream that is not ready, by the state that it reports.
"""


def of_report(report: Report, ends: Mapping[str, int] | None) -> Verdict:
    """Return the verdict on whether a member obeys all records below these offsets."""
    if report.state != "ready":
        row = UNAVAILABLE
        if report.kind == STREAM:
            return evolve(row, sentence=STREAM_STATES.get(report.state, row.sentence))
        return row
    if ends is None:
        return UNMEASURED
    behind = sum(
        max(0, end - report.applied.get(topic, -1)) for topic, end in ends.items()
    )
    if not behind:
        return OBEYS
    return BEHIND.filled(records=counted(behind, "record"))


def of_lost(report: Report, now: float | None) -> Verdict:
    """Return the verdict on a member that has stopped reporting."""
    if report.state == "stopped":
        topics = ", ".join(sorted(report.busy))
        return AT_WORK.filled(topics=topics) if topics else STOPPED
    for_ = ""
    if now is not None:
        for_ = f" for {max(0.0, now - report.at_ms / 1000 - report.clock_offset):.0f} s"
    return LOST.filled(for_=for_)


def lost_stream_text(report: Report) -> str:
    """Describe a stream that no longer reports, or that was stopped during a batch."""
    if report.state == "stopped":
        read = ", ".join(sorted(report.busy))
        return (
            f"{report.client_id} on {report.host} was stopped in the middle of a "
            f"batch of {read}, which is run again in full, held "
            "or not, when its query is started again"
        )
    return (
        f"{report.client_id} on {report.host} no longer reports, and is not "
        "counted: it was killed, or its driver cannot report"
    )


# ---------------------------------------------------------------- groups

GROUP_QUIET = Verdict(Level.QUIET, "quiet", "{why}")
NO_MEMBERS = Verdict(Level.QUIET, "no members", "{why}")
COVERS_NOTHING = Verdict(Level.WAITING, "covers nothing", "{why}")
NOTHING_HELD = Verdict(Level.FLOWS, "nothing held")
KEPT_BY_MEMBERS = Verdict(
    Level.WAITING,
    "kept by members",
    "the control topic was lost; place each hold again, or resume it, by scope and "
    "owner: {kept}",
)
HOLDS_UNKNOWN = Verdict(
    Level.UNKNOWN,
    "unknown",
    "the control topics cannot be read, so the holds are unknown",
)

# ---------------------------------------------------------------- checks


@frozen
class Finding:
    """
    The result of a check.

    Attributes:
        id: the check's name, which stays the same when its text changes; one check may
            have several findings.
        rank: ``ok``, ``note`` or ``PROBLEM``.
        what: the finding, as a sentence.
        do: the advice; empty if none is needed.
    """

    id: str
    rank: str
    what: str
    do: str = ""


BAD, NOTE, GOOD = "PROBLEM", "note", "ok"

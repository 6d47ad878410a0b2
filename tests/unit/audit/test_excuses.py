"""
The judge believes nothing that the library under judgement says of itself.

An entry of the library excuses a member only if what came from outside agrees: the
program's calls, the broker's answers, and the holds that operators wrote.
"""

import pytest

from safeconsumer.audit.results import Settings
from tests.harness.audit.bad import Maker
from tests.unit.audit.test_checker import judged


def verdict(*processes):
    """Return the checks that a fleet fails, and those that could not be judged."""
    fleet = Maker("fleet", "", [f"  {one}" for one in processes])()
    results = judged(fleet, Settings())
    failed = {found.check for one in results for found in one.findings}
    return failed, {check for one in results for check in one.unjudged}


PLAIN = "pause orders:0 lifetime=plain"
WHOLE = 'e hold scope=orders owner="app\\u0020(all)"'
WHOLE_ENDED = 'e lift scope=orders owner="app\\u0020(all)"'


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            f"own; {PLAIN}; lift orders:0 app why=ended; poll 0 2",
            id="a plain pause ends while its partition is owned",
        ),
        pytest.param(
            f"own; {PLAIN}; gone; lift orders:0 app why=ended; own g2; poll 0 2",
            id="a plain pause ends in an eager rebalance that gives it back",
        ),
        pytest.param(
            f"own g0; {PLAIN}; gone g0; lift orders:0 app why=ended; own g0; poll 0 2",
            id="a plain pause ends in a rebalance to the same generation",
        ),
        pytest.param(
            f"own; {PLAIN}; gone; own g2; lift orders:0 app why=ended; poll 0 2",
            id="a plain pause ends just after such a rebalance",
        ),
        pytest.param(
            f"own; {PLAIN}; gone; own g3; {PLAIN}; polls; gone g3; "
            "lift orders:0 app why=ended since=1000.4; own g4; deliver 0 2",
            id="a second plain pause ends with the late entry about the first",
        ),
        pytest.param(
            f"own; {PLAIN}; lost g-1; own g5; lift orders:0 app why=expired; poll 0 2",
            id="a plain pause expires, though no call named a time",
        ),
        pytest.param(
            f"own; {PLAIN}; gone; pause returns:1; own g2; "
            "lift orders:0 app why=resume; poll 0 2",
            id="a plain pause ends with another pause while its partition is away",
        ),
        pytest.param(
            f"own; {PLAIN}; resume orders:1; gone; own g2; "
            "lift orders:0 app why=resume; poll 0 2",
            id="a plain pause ends with a resume of before its partition went",
        ),
        pytest.param(
            f"own; {PLAIN}; resume orders:1; lift orders:0 app why=resume; poll 0 2",
            id="a plain pause ends with the resume of another partition",
        ),
        pytest.param(
            f"own; {WHOLE}; gone; own g2; {WHOLE_ENDED} why=ended; poll 0 2",
            id="a whole pause ends with its ownership",
        ),
        pytest.param(
            f"own; {WHOLE}; {WHOLE_ENDED} why=resume; poll 0 2",
            id="a whole pause ends with a resume that nobody called",
        ),
        pytest.param(
            f"own; {WHOLE}; resume orders by=alice; {WHOLE_ENDED} why=resume; poll 0 2",
            id="a whole pause ends with another owner's resume",
        ),
        pytest.param(
            f"own; {WHOLE}; resume ok=false; {WHOLE_ENDED} why=resume; poll 0 2",
            id="a whole pause ends with a resume that raised",
        ),
        pytest.param(
            f"own; {PLAIN} until=1100; {WHOLE} until=1100; {WHOLE_ENDED} why=expired; "
            "poll 0 2",
            id="a whole pause expires before its time",
        ),
        pytest.param(
            f"own returns:0; pause returns:0 lifetime=plain; {WHOLE} until=1000.5; "
            f"own g2; @1001; {WHOLE_ENDED} why=expired; poll 0 2",
            id="a whole pause expires though no call named a time",
        ),
        pytest.param(
            f"own; {PLAIN} until=1100; {WHOLE} until=1000.5; resume orders:0; @1001; "
            f"{WHOLE} until=1000.5; {WHOLE_ENDED} why=expired; poll 0 2",
            id="a whole pause expires before the time that a call named",
        ),
        pytest.param(
            f"own; pause orders:0 until=1000.4; resume orders:0; {WHOLE} until=1090; "
            f"@1091; {WHOLE_ENDED} why=expired; poll 0 2",
            id="a whole pause expires long after the time that a call named",
        ),
        pytest.param(
            "own orders:0 orders:1; pause orders:1 until=1000.5; @1000.4; "
            f"pause orders:1 until=1100; {WHOLE} until=1000.5; @1001; "
            f"{WHOLE_ENDED} why=expired; poll 0 2",
            id="a whole pause expires at a time that is over when the last call comes",
        ),
        pytest.param(
            f"own; pause returns:0 until=1000.5; {WHOLE} until=1000.5; @1001; "
            f"{WHOLE_ENDED} why=expired; poll 0 2",
            id="a whole pause expires with a pause of another topic",
        ),
        pytest.param(
            f"own; pause orders:0 by=w until=1000.5; {WHOLE} until=1000.5; @1001; "
            f"{WHOLE_ENDED} why=expired; poll 0 2",
            id="a whole pause expires with the pause of another owner",
        ),
        pytest.param(
            "own; hold orders:0 app until=1000.5; @1001; "
            "lift orders:0 app why=expired; poll 0 2",
            id="a pause that was handed over expires",
        ),
        pytest.param(
            "own orders:0 orders:1; pause orders by=w lifetime=while_assigned until=1100; "
            "gone orders:1; lift orders w why=expired; poll 0 2",
            id="a pause expires before its time, as one of its partitions goes",
        ),
        pytest.param(
            "own; hold orders:0 app; lift orders:0 app why=ended; poll 0 2",
            id="a pause that was handed over ends while its partition is owned",
        ),
        pytest.param(
            "own; pause orders:0 lifetime=until_resumed; gone; "
            "lift orders:0 app why=ended; own g2; poll 0 2",
            id="a strict pause goes along with its partition, without hand-over",
        ),
    ],
)
def test_a_lift_without_a_cause_does_not_excuse_a_delivery(steps):
    assert verdict(f"a: {steps}")[0] == {"A1"}


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            f"own; {PLAIN}; gone; lift orders:0 app why=ended; own g3; poll 0 2",
            id="a join left its partition out",
        ),
        pytest.param(
            f'e assigned partitions=["orders:0"]; {PLAIN}; gone; own g2; '
            "lift orders:0 app why=ended; poll 0 2",
            id="nobody knows which generation its partition left",
        ),
        pytest.param(
            f"own; {PLAIN}; gone; own g3; lift orders:0 app why=ended; poll 0 2",
            id="a join left its partition out, and the entry is late",
        ),
        pytest.param(
            f"own; {PLAIN}; gone; resume; own g2; lift orders:0 app why=resume; poll 0 2",
            id="a resume while its partition was away, and the entry is late",
        ),
        pytest.param(
            'own; e call op=pause id=9 scopes=["orders:0"] owner=app lifetime=plain; '
            'gone; own g3; e return op=pause id=9 scopes=["orders:0"] owner=app '
            "lifetime=plain; lift orders:0 app why=ended; poll 0 2",
            id="a join left its partition out before pause() returned",
        ),
        pytest.param(
            f"own; {WHOLE}; resume returns:1; {WHOLE_ENDED} why=resume; poll 0 2",
            id="any resume of the application ends a whole pause",
        ),
        pytest.param(
            f"own; resume returns:1; {WHOLE} since=1000.3; {WHOLE_ENDED} why=resume; "
            "poll 0 2",
            id="a whole pause begins in the millisecond of a resume",
        ),
        pytest.param(
            f"own; {WHOLE}; e call op=assign id=9; gone; own g-1; "
            f"{WHOLE_ENDED} why=ended; e return op=assign id=9; poll 0 2",
            id="an assign ends a whole pause",
        ),
        pytest.param(
            f"own; {PLAIN} until=1000.3; {WHOLE} until=1000.301; "
            f"{WHOLE_ENDED} why=expired; poll 0 2",
            id="a whole pause expires in time",
        ),
        pytest.param(
            'own; e call op=pause id=9 scopes=["orders:0"] owner=app lifetime=plain '
            f"until=1030; @1020; {WHOLE} since=1010 until=1040; "
            'e return op=pause id=9 scopes=["orders:0"] owner=app lifetime=plain '
            f"until=1030; @1040; {WHOLE_ENDED} why=expired; poll 0 2",
            id="a whole pause expires, whose call waited for another thread",
        ),
        pytest.param(
            "own; pause orders:0 lifetime=until_resumed moves=true; gone; "
            "lift orders:0 app why=ended; own g2; poll 0 2",
            id="a strict pause is handed over with its partition",
        ),
    ],
)
def test_a_lift_with_its_cause_excuses_what_follows(steps):
    assert verdict(f"a: {steps}") == (set(), set())


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param("lift orders:0 app why=ended; own g5", id="written at once"),
        pytest.param("own g5; lift orders:0 app why=ended", id="written late"),
    ],
)
def test_a_pause_that_a_lost_membership_ended_is_not_judged(steps):
    """The next join may have left the partition out, and a journal shows no empty join."""
    steps = f"own; {PLAIN}; lost g-1; {steps}; poll 0 2"
    assert verdict(f"a: {steps}") == (set(), {"A1"})


@pytest.mark.parametrize("why", ["dead-letter", "skipped"])
def test_a_record_is_not_complete_because_the_worker_says_so(why):
    """A record is dead-lettered or skipped after a call of its handler has failed."""
    steps = f"works; own; poll 0 3; handle 0 1; complete 2 {why}; commit 3"
    assert verdict(f"a: {steps}")[0] == {"W4"}


@pytest.mark.parametrize(
    ("steps", "failed"),
    [
        pytest.param(
            "a: own; poll 0 5; commit 5; gone|b@2000: own g2; begins 8; poll 8 9",
            "A4",
            id="it begins behind what the group has committed",
        ),
        pytest.param(
            "a: own; poll 0 5; commit 5; gone; own; begins 8; poll 8 9",
            "A4",
            id="it gives a partition up and takes it again behind some records",
        ),
    ],
)
def test_a_begin_that_no_commit_explains_is_a_finding(steps, failed):
    assert failed in verdict(*steps.split("|"))[0]


def test_a_reset_that_no_log_explains_is_not_judged():
    """Only the topic says where its log began."""
    assert verdict("a: own; poll 0 5; begins 8; poll 8 9") == (set(), {"A2"})
    back = "a: own; begins 0; poll 0 5; begins 2; poll 2 5"
    assert verdict(back) == (set(), {"A4"})


def test_an_expiry_of_an_own_hold_before_its_time_is_no_excuse():
    steps = "own; pause orders until=1100; lift orders app why=expired; poll 0 2"
    assert verdict(f"a: {steps}")[0] == {"A1"}


def test_a_lift_of_an_operators_hold_is_checked_against_the_holds_topic():
    """Without the holds topic the member's word is not enough for a clean verdict."""
    steps = "a: own; hold orders operator:alice; lift orders operator:alice; poll 0 2"
    assert verdict(steps) == (set(), {"G2"})


@pytest.mark.parametrize(
    ("held", "unjudged"),
    [
        pytest.param("held 1500.1 1600.1 orders bob", {"G2"}, id="another owner's"),
        pytest.param("held 1500.1 1600.1 returns", {"G2"}, id="another topic's"),
        pytest.param("held 1500.1 1600.1", {"G2"}, id="a later one"),
        pytest.param("held 900.1 999.1", {"G2"}, id="an earlier one"),
        pytest.param("held 1000.1 1600.1", set(), id="placed then"),
        pytest.param("held 900.1 1600.1", set(), id="placed before and renewed then"),
    ],
)
def test_a_history_that_lacks_what_a_member_read_proves_nothing(held, unjudged):
    """The history may be of other holds topics, or of another cluster."""
    hold = "hold orders operator:alice written=1000.1 offset=7"
    member = f"a: own; {hold}; lift orders operator:alice since=1000.4"
    assert verdict(f"operator: {held}", member) == (set(), unjudged)


def test_a_history_that_lacks_a_hold_of_another_topic_is_believed():
    member = "a: own; hold returns operator:alice written=1000.1"
    assert verdict("operator: held 1500.1 1600.1", member) == (set(), set())

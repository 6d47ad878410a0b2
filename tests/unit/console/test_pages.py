"""What pages show of a cluster that is not there, without a broker."""

import asyncio
import json
import re
import threading
import time
from html import unescape
from threading import BoundedSemaphore
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from attrs import evolve
from kafka import TopicPartition
from starlette.responses import Response

from safeconsumer.console import asking, changing, lending, pages
from safeconsumer.console.app import create
from safeconsumer.console.problems import Problem
from safeconsumer.group import follower
from safeconsumer.group.documents import group_document, status_document
from safeconsumer.group.facts import UNKNOWN, GroupFacts
from safeconsumer.group.follower import Trouble
from safeconsumer.group.report_wire import KeptHold
from safeconsumer.group.view import Times
from safeconsumer.group.wire import ControlHold, Reset
from tests.harness.console.harness import (
    FREE,
    HELD,
    LOUD,
    TOKEN,
    carried,
    console_of,
    groups,
    held_by,
    writing,
)
from tests.harness.console.synthetic import alone, hold_of, past, viewed
from tests.harness.waiting import wait_for


def page(served, path, **query):
    with served.client() as client:
        answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.text


# ---------------------------------------------------------------- what was previewed


def test_a_form_that_was_edited_after_its_preview():
    """What is held is what was previewed: the changed form is previewed first."""
    wish = {"group": FREE, "scopes": "topic-004:1", "reason": "db", "for": "1h"}
    served, writer = writing(groups())
    with served.client() as client:
        form = carried(client.get("/place", params=wish))
        edited = client.post("/place", data={**form, "for": "9h"})
        assert (edited.status_code, writer.written) == (409, [])
        assert "This is not what was previewed." in edited.text
        assert "would last 9h" in edited.text
        assert client.post("/place", data=carried(edited)).status_code == 303
        (made,) = writer.written
        assert made.hold is not None
        assert made.hold.ttl_ms == 9 * 3_600_000


def test_an_edit_does_not_take_a_consent_along():
    """A preview that needs consent, edited to one that needs none, is shown again."""
    wish = {"group": FREE, "scopes": "@all", "reason": "db"}
    served, writer = writing(groups())
    with served.client() as client:
        form = carried(client.get("/place", params=wish))
        for given in ({**form, "scopes": "topic-004"}, {**form, "agreed": ""}):
            refused = client.post("/place", data=given)
            assert (refused.status_code, writer.written) == (409, [])


@pytest.mark.parametrize(
    "change",
    [{"offset": 7}, {"hold": ControlHold("another", "x", 3_600_000)}],
    ids=["extended", "replaced"],
)
def test_a_hold_that_changed_since_the_preview_is_not_replaced(change):
    """The agreement was to replace the hold that the preview showed."""
    still = held_by("alice")
    console, writer = writing(still)
    wish = {"group": HELD, "scopes": "topic-005:0", "reason": "db", "for": "9h"}
    agreed = console.plan(**wish)["agreement"]
    (hold,) = still.known.views[HELD].holds
    still.stand(HELD, evolve(hold, **change))
    refused = console.post("/place", **wish, agreed=agreed)
    assert (refused.status_code, writer.written) == (409, [])
    again = refused.json()["preview"]["agreement"]
    assert console.post("/place", **wish, agreed=again).status_code == 200


# ---------------------------------------------------------------- extending


def extending(served, **wish):
    """Return the preview of letting alice's hold of the group last longer."""
    offset = str(served.state.snapshot().views[HELD].holds[0].offset)
    given = {"group": HELD, "scopes": "@all", "reason": "x", "extends": offset}
    return page(served, "/place", **{**given, **wish})


def test_a_hold_is_extended():
    still = groups()
    (held,) = still.known.views[HELD].holds
    served, writer = writing(still)
    with served.client() as client:
        link = "extends=9"
        assert link in page(served, "/group", group=HELD)
        given = {"group": HELD, "scopes": "@all", "reason": "x", "extends": "9"}
        assert "Hold all" not in page(served, "/place", **given)
        form = carried(client.get("/place", params={**given, "for": "9h"}))
        assert client.post("/place", data=form).status_code == 303
    (made,) = writer.written
    assert held.hold is not None
    assert held.at is not None
    since = int(held.at * 1000)
    assert made.hold == evolve(held.hold, ttl_ms=9 * 3_600_000, since_ms=since)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"for": "1m"}, "which is later"),
        ({"for": "2h", "extends": "8"}, "the hold has changed"),
        ({"for": "2h", "scopes": "@all x"}, "the hold has changed"),
    ],
)
def test_an_extension_that_is_none(wish, said):
    told = extending(writing(groups())[0], **wish)
    assert said in told
    assert "What this would do" not in told


def test_only_ones_own_hold_with_an_end_is_extended():
    bobs, endless = hold_of(HELD, "b:1"), hold_of(HELD, "b:2")
    assert endless.hold is not None
    bobs = evolve(bobs, key=evolve(bobs.key, owner="bob"))
    endless = evolve(endless, hold=evolve(endless.hold, ttl_ms=None))
    held = evolve(viewed(5, is_held=True), holds=(bobs, endless))
    served, _ = writing(alone(held))
    assert "Extend" not in page(served, "/group", group=HELD)
    assert "is held until it is resumed" in extending(
        served, scopes="b:2", **{"for": "2h"}
    )


# ---------------------------------------------------------------- several at once


def test_several_holds_are_lifted_at_once():
    served, writer = writing(held_by("alice", "bob", "carol"))
    shown = page(served, "/group", group=HELD)
    boxes = chosen(shown)
    assert len(boxes) == 3
    with served.client() as client:
        asked = client.get("/lift", params={"group": HELD, "hold": boxes})
        assert "are held by bob, carol, not by you: type topic-005:1" in asked.text
        form = carried(asked)
        for typed in ("", "topic-005:1", "topic-005:2 topic-005:1"):
            refused = client.post("/lift", data={**form, "typed": typed})
            assert (refused.status_code, writer.written) == (409, [])
        typed = "topic-005:1 topic-005:2"
        done = client.post("/lift", data={**form, "typed": typed})
    assert done.status_code == 303
    assert [one.key.scope for one in writer.written] == [
        f"topic-005:{number}" for number in range(3)
    ]


def test_one_of_several_that_is_gone_is_named():
    """It ended, or somebody lifted it: the others are shown again, and lifted then."""
    still = held_by("alice", "alice")
    served, writer = writing(still)
    with served.client() as client:
        boxes = chosen(page(served, "/group", group=HELD))
        form = carried(client.get("/lift", params={"group": HELD, "hold": boxes}))
        still.stand(HELD, still.known.views[HELD].holds[0])
        asked = client.get("/lift", params={"group": HELD, "hold": boxes})
        assert "not held: topic-005:1 of alice" in asked.text
        refused = client.post("/lift", data=form)
        assert (refused.status_code, writer.written) == (409, [])
        assert (
            "Nothing was lifted; not held: topic-005:1 of alice: it was lifted"
            in refused.text
        )
        assert client.post("/lift", data=carried(refused)).status_code == 303
        assert [one.key.scope for one in writer.written] == ["topic-005:0"]


def test_lifting_none_is_told_where_they_are_chosen():
    served, _ = writing(held_by("alice", "alice"))
    with served.client() as client:
        nothing = client.get("/lift", params={"group": HELD})
        assert nothing.status_code == 400
        assert "tick at least one hold" in nothing.text
        assert len(chosen(nothing.text)) == 2


def chosen(text):
    return [unescape(one) for one in re.findall(r'name="hold" value="([^"]*)"', text)]


# ---------------------------------------------------------------- lists


def test_the_list_is_of_those_to_look_at():
    """Held ones, and those in trouble; with what state each group is in."""
    served, _ = writing(groups())
    every, few = page(served, "/"), page(served, "/", held="1")
    assert [one in every for one in (FREE, HELD, LOUD)] == [True] * 3
    assert [one in few for one in (FREE, HELD, LOUD)] == [False, True, True]
    assert ">Stable</td>" in every
    assert every.index("Hold something") < every.index("<table")
    assert every.index(LOUD) < every.index(HELD) < every.index(FREE)


def with_lag(view, each):
    return evolve(view, lags=dict.fromkeys(view.facts.committed, each))


def test_every_group_has_its_lag_the_most_first():
    """Only groups that were held had one, so it was no page to keep open."""
    served, _ = writing(
        alone(
            with_lag(viewed(4, is_held=False), 2),
            with_lag(viewed(6, is_held=False), 2_000),
            with_lag(viewed(5, is_held=True), 40),
        )
    )
    usual, by_lag = page(served, "/"), page(served, "/", sort="lag")
    assert ">50,000</td>" in usual
    assert usual.count("of it held") == 1
    assert usual.index(HELD) < usual.index("group-006") < usual.index("group-004")
    assert by_lag.index("group-006") < by_lag.index(HELD) < by_lag.index("group-004")


def test_a_group_with_nothing_held_says_nothing_of_holds():
    """It said none, none, 0 of 0, none, none."""
    served, _ = writing(alone(evolve(viewed(4, is_held=False), reports=())))
    (row,) = re.findall(r'<tr id="g-.*?</tr>', page(served, "/"), re.DOTALL)
    cells = [re.sub(r"<.*?>", "", one) for one in re.findall(r"<td.*?</td>", row)]
    assert cells == ["", "Stable", "", "", "", "", "75"]


def test_partitions_stand_under_their_topics():
    known = viewed(5, is_held=True)
    others = {TopicPartition("audit", number): 7 for number in range(2)}
    facts = evolve(known.facts, committed={**known.facts.committed, **others})
    served, _ = writing(alone(evolve(known, facts=facts)))
    shown = page(served, "/group", group=HELD)
    heads = re.findall(r'<th scope="rowgroup" colspan="5">(.*?)</th>', shown)
    assert sorted(heads) == ["audit", "topic-005"]
    assert shown.index(">audit<") < shown.index(">audit:0<")


def test_groups_and_topics_come_from_a_list():
    """They had to be typed by heart."""
    served, _ = writing(groups())
    anywhere = page(served, "/place")
    assert f'<option value="{FREE}">' in anywhere
    assert '<option value="topic-050">' in anywhere
    named = page(served, "/place", group=FREE)
    assert '<option value="topic-004">' in named
    assert '<option value="topic-050">' not in named


def test_a_thousand_holds_are_not_a_page_of_them():
    """A page had 800 kB."""
    known = viewed(5, is_held=True)
    holds = [evolve(hold_of(HELD, f"topic-005:{n}"), offset=n) for n in range(1_000)]
    served, _ = writing(alone(evolve(known, holds=tuple(holds))))
    shown = page(served, "/group", group=HELD)
    assert len(chosen(shown)) == 100
    assert "This shows 100 of 1,000 holds" in shown


@pytest.mark.parametrize("count", [1, 10_000])
def test_a_history_that_is_cut_says_so(count):
    (record,) = past(hold_of(HELD))
    known = alone(viewed(5, is_held=True))
    known.known = evolve(known.known, records=(record,) * count)
    served, _ = writing(known)
    shown = page(served, "/history")
    assert ("newest 10,000 records" in shown) == (count == 10_000)
    assert ("every record for 30 days" in shown) == (count == 1)


def test_a_page_of_the_history_derives_no_others(monkeypatch):
    """All entries were derived, ten thousand, to show a hundred."""
    derived, known = [], alone(viewed(5, is_held=True))
    record, entries = past(hold_of(HELD))[0], pages.entries
    monkeypatch.setattr(
        pages, "entries", lambda *some: derived.append(entries(*some)) or derived[-1]
    )
    known.known = evolve(known.known, records=(record,) * 950)
    served, _ = writing(known)
    for number, shown in (
        ("1", "1 to 100\n"),
        ("3", "201 to 300\n"),
        ("10", "901 to 950\n"),
    ):
        assert shown in page(served, "/history", page=number)
    assert [len(one) for one in derived] == [101, 301, 950]


# ---------------------------------------------------------------- once, or too late


def lifting(**more):
    return {"group": HELD, "scope": "topic-005:0", **more}


def test_what_is_sent_twice_is_done_once():
    """A double click, the back button, an answer that was lost."""
    wish = {"group": FREE, "scopes": "topic-004", "reason": "x", "for": "1h"}
    still = groups()
    served, writer = writing(still)
    with served.client() as client:
        form = carried(client.get("/place", params=wish))
        assert client.post("/place", data=form).status_code == 303
        (made,) = writer.written
        at = still.known.views[FREE].times.now
        still.stand(FREE, evolve(hold_of(FREE, "topic-004"), hold=made.hold, at=at))
        assert client.post("/place", data=form).status_code == 303
        assert len(writer.written) == 1


def test_a_lift_that_is_sent_twice_is_done_once():
    """By what was shown; whoever names no record is told that there is none."""
    still = held_by("alice")
    served, writer = writing(still)
    with served.client() as client:
        named = "scope=topic-005:0&owner=alice"
        asked = client.get("/lift", params={"group": HELD, "hold": named})
        form = carried(asked)
        assert client.post("/lift", data=form).status_code == 303
        still.stand(HELD)
        assert client.post("/lift", data=form).status_code == 303
        assert client.post("/lift", data={**form, "hold": named}).status_code == 404
    again = served.post("/lift", **lifting(offset="0"))
    assert (again.status_code, again.json()["is_done_already"]) == (200, True)
    assert served.post("/lift", **lifting()).status_code == 404
    assert served.post("/lift", **lifting(id="", offset="")).status_code == 404
    assert served.post("/lift", **lifting(offset="x")).status_code == 400
    assert len(writer.written) == 1


def test_a_hold_of_a_later_version_is_lifted_after_an_upgrade():
    """The group's page shows it, and its button answered that it is not held."""
    still = held_by("alice")
    (hold,) = still.known.views[HELD].holds
    still.stand(HELD, evolve(hold, key=evolve(hold.key, version=2)))
    served, writer = writing(still)
    for more in ({}, {"offset": "0"}):
        answer = served.post("/lift", **lifting(**more))
        assert answer.status_code == 409
        assert "a later version holds topic-005:0" in answer.text
        assert "upgrade first" in answer.text
    assert writer.written == []


def test_nothing_is_written_for_a_client_that_has_gone():
    """A lift that was given up would lift a hold that was placed since."""
    console, writer = writing(held_by("alice"))
    has_answered = threading.Event()
    writer.before = lambda: has_answered.wait(30)
    sends = iter([{"type": "http.request", "body": json.dumps(lifting()).encode()}])
    answers = []

    async def receive():
        return next(sends, {"type": "http.disconnect"})

    async def send(message):
        answers.append(message)

    headers = {
        "host": f"127.0.0.1:{console.port}",
        "authorization": f"Bearer {TOKEN}",
        "content-type": "application/json",
    }
    scope = {"type": "http", "method": "POST", "path": "/lift"}
    scope |= {"query_string": b"", "client": ("127.0.0.1", 1)}
    scope["headers"] = [(k.encode(), v.encode()) for k, v in headers.items()]
    asyncio.run(create(console.state)(scope, receive, send))
    has_answered.set()
    assert all(console.state.askers.acquire(timeout=30) for _ in range(8))
    assert (answers[0]["status"], writer.written) == (503, [])


def test_questions_hold_no_command_up(monkeypatch):
    """What a preview asks takes its time; who needs the connection to write is told."""
    monkeypatch.setattr(lending, "_BUSY", 0.0)
    monkeypatch.setattr(lending, "_CLOSING", 0.0)
    served, writer = writing(held_by("alice"))
    with served.state.questions.lend():
        assert served.post("/lift", **lifting()).status_code == 200
    with served.state.commands.lend():
        assert served.post("/lift", **lifting()).status_code == 503
        served.state.close()  # which waits for nobody
    with pytest.raises(Problem), served.state.commands.lend():
        pass
    assert len(writer.written) == 1


def test_anothers_hold_is_lifted_by_typing_its_scope():
    """By REST it is named too: by accident nobody lifts what somebody else holds."""
    served, writer = writing(held_by("bob"))
    wanted, typed = lifting(owner="bob"), {"typed": "topic-005:0"}
    for shown in ({"id": "another"}, {"offset": "1"}):
        refused = served.post("/lift", **wanted, **typed, **shown)
        assert "has changed" in refused.json()["title"]
    asked = served.get("/lift", **wanted, offset="0")
    assert asked["to_agree"] == "type topic-005:0 to lift it"
    assert served.post("/lift", **wanted, offset="0").status_code == 409
    assert served.post("/lift", **wanted, **typed).status_code == 409
    assert writer.written == []
    assert served.post("/lift", **wanted, **typed, offset="0").status_code == 200
    assert served.post("/lift", **lifting(owner="carol")).status_code == 404


def test_a_hold_that_only_members_keep_is_lifted():
    """The page answered that it is not held, where resume lifts it."""
    known = viewed(5, is_held=False)
    lost = KeptHold(
        owner="operator:alice", scope="topic-005", line="topic-005 of alice"
    )
    first, *others = known.reports
    reports = (evolve(first, kept=(lost,)), *others)
    served, writer = writing(alone(evolve(known, reports=reports)))
    with served.client() as client:
        (link,) = re.findall(r'"(/lift[^"]*)"', page(served, "/group", group=HELD))
        asked = client.get(unescape(link))
        assert "Lift <code>topic-005</code>?" in asked.text
        assert client.post("/lift", data=carried(asked)).status_code == 303
    assert served.post("/lift", group=HELD, scope="topic-005").status_code == 200
    assert [one.hold for one in writer.written] == [None, None]


def test_a_group_that_is_mistyped_has_near_names():
    """Commands said so, the page did not."""
    served = console_of(groups())
    for accept in ("text/html", "application/json"):
        with served.client(accept=accept) as client:
            answer = client.get("/group", params={"group": "group-0055"})
            assert answer.status_code == 404
            said = unescape(answer.text)
            assert (
                "no group 'group-0055' here, and no hold for it; did you mean" in said
            )
            assert HELD in said


# ---------------------------------------------------------------- moving offsets


BACK = {"group": HELD, "scopes": "topic-005:0-1", "to": "-100"}


def resetting(*owners, resets=()):
    """Make a held group; all but its first member carry out resets as this says."""
    still = held_by(*owners)
    view = still.known.views[HELD]
    first, *others = view.reports
    reports = (
        evolve(first, resets=resets),
        *(evolve(one, resets=()) for one in others),
    )
    still.known = evolve(still.known, views={HELD: evolve(view, reports=reports)})
    return still


def test_offsets_are_moved_by_a_form():
    """What is shown partition by partition is done, once."""
    still = resetting("alice", "alice")
    served, writer = writing(still)
    with served.client() as client:
        assert "What this would do" not in client.get("/reset").text
        asked = client.get("/reset", params=BACK)
        cells = re.findall(r'<td class="n" data-name="([^"]*)">([^<]+)<', asked.text)
        row = [("From", "1,000"), ("To", "900"), ("Records again", "100")]
        assert cells == [*row, *row]
        form = carried(asked)
        edited = client.post("/reset", data={**form, "to": "-200"})
        assert (edited.status_code, writer.written) == (409, [])
        assert "previewed. Look at what it would do now." in edited.text
        assert "Agree first" not in edited.text
        assert client.post("/reset", data=form).status_code == 303
        moved = {one.key.scope: one.hold.reset.to for one in writer.written}
        assert moved == {
            f"topic-005:{one}": (("topic-005", one, 900),) for one in (0, 1)
        }
        holds = zip(still.known.views[HELD].holds, writer.written, strict=True)
        still.stand(HELD, *(evolve(one, hold=made.hold) for one, made in holds))
        view = still.known.views[HELD]
        moved = evolve(view.facts, committed=dict.fromkeys(view.facts.committed, 900))
        newer(still, views={HELD: evolve(view, facts=moved)})
        assert client.post("/reset", data=form).status_code == 303
        assert len(writer.written) == 2
        assert "; moved to 900" in page(served, "/group", group=HELD)


def test_offsets_are_moved_by_a_program_that_agrees_to_them():
    """They were looked up for its preview: without that nobody has seen them."""
    served, writer = writing(resetting("alice", "alice"))
    told = served.get("/reset", **BACK)
    assert [one["to"] for one in told["moves"]] == [900, 900]
    refused = served.post("/reset", **BACK)
    assert (refused.status_code, writer.written) == (409, [])
    assert refused.json()["preview"]["agreement"] == told["agreement"]
    done = served.post("/reset", **BACK, agreed=told["agreement"])
    assert (done.status_code, done.json()["is_done_already"]) == (200, False)
    assert len(writer.written) == 2


def test_offsets_are_counted_from_what_brokers_say_and_not_from_the_last_look():
    """A group that goes on had committed more by then, and moved further back."""
    served, writer = writing(resetting("alice", "alice"))
    writer.committed = 1500
    told = served.get("/reset", **BACK)
    assert [(one["from"], one["to"]) for one in told["moves"]] == [(1500, 1400)] * 2
    writer.committed = 1600  # the preview is what is agreed to
    done = served.post("/reset", **BACK, agreed=told["agreement"])
    assert done.status_code == 200
    assert [one.hold.reset.to[0][2] for one in writer.written] == [1400, 1400]


@pytest.mark.parametrize(
    "previews",
    [("-200", "-100", "-300"), ("-100", "-200", "-100", "-300")],
    ids=["newer", "shown again"],
)
def test_another_preview_ends_only_the_oldest(monkeypatch, previews):
    """The 65th ended all of them, also the one that was being agreed to."""
    monkeypatch.setattr(changing, "_MOST_WISHES", 2)
    still = resetting("alice", "alice")
    served, writer = writing(still)
    seen = {to: served.get("/reset", **{**BACK, "to": to}) for to in previews}
    view = still.known.views[HELD]
    moved = evolve(view.facts, committed=dict.fromkeys(view.facts.committed, 1500))
    newer(still, views={HELD: evolve(view, facts=moved)})
    for to, status in (("-100", 200), ("-200", 409)):
        wish = {**BACK, "to": to, "agreed": seen[to]["agreement"]}
        assert served.post("/reset", **wish).status_code == status
    assert [one.hold.reset.to[0][2] for one in writer.written] == [900, 900]


def test_a_hold_under_which_offsets_are_not_moved_yet_is_not_lifted():
    """The page offered it, and said nothing of that before it was clicked."""
    still = resetting("alice")
    (hold,) = still.known.views[HELD].holds
    reset = Reset((("topic-005", 0, 900),), (), "-100")
    still.stand(HELD, evolve(hold, hold=evolve(hold.hold, reset=reset, ttl_ms=None)))
    served, writer = writing(still)
    with served.client() as client:
        (box,) = re.findall(
            r"/lift\?group=group-005&amp;hold=([^\"]*)",
            page(served, "/group", group=HELD),
        )
        asked = client.get("/lift", params={"group": HELD, "hold": unquote(box)})
        assert "topic-005:0 is not moved yet: " in asked.text
        sent = client.post("/lift", data=carried(asked))
        assert (sent.status_code, writer.written) == (409, [])


def test_a_member_that_would_not_move_is_agreed_to():
    served, writer = writing(resetting("alice", "alice", resets=None))
    with served.client() as client:
        asked = client.get("/reset", params=BACK)
        said = "topic-005:0-1 would not be moved: group-005-0 moves nothing"
        assert f'<li class="waiting">{said}' in asked.text
        assert 'type="checkbox"' in asked.text
        assert client.post("/reset", data=carried(asked)).status_code == 303
    assert len(writer.written) == 2


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"scopes": "topic-005:0-1"}, 409, "topic-005:1 is not held by alice"),
        ({"scopes": "topic-005:0", "to": "-1001"}, 409, "0 to 2,000: not -1"),
        ({"scopes": "topic-005:0", "to": "2001"}, 409, "0 to 2,000: not 2,001"),
        ({"to": "soon"}, 400, "to: not &#39;soon&#39;: write earliest"),
        ({"scopes": ""}, 400, "give a scope to move"),
        ({"group": "group-05"}, 409, "did you mean group-005"),
        (
            {"scopes": "topic-05"},
            409,
            "topic-05 covers nothing that group-005 consumes",
        ),
        ({"scopes": "topic-005:99"}, 409, "topic-005:99 covers nothing that"),
    ],
)
def test_offsets_that_cannot_be_moved(change, status, said):
    served, writer = writing(resetting("alice", "bob"))
    with served.client() as client:
        form = {**BACK, **change}
        sent = client.post("/reset", data={"form": form_token(served), **form})
        assert (sent.status_code, writer.written) == (status, [])
        assert said in sent.text
        assert "What this would do" not in sent.text


def form_token(served):
    return served.state.auth.form_token("alice")


# ---------------------------------------------------------------- programs


def test_a_program_gets_the_documents_of_the_commands():
    """The same builders: what a page shows, and ``-o json`` prints, is in JSON too."""
    still = groups()
    (hold,) = still.known.views[HELD].holds
    still.known = evolve(still.known, records=past(hold))
    served, _ = writing(still)
    every = served.get("/")["groups"]
    assert every == [group_document(still.known.views[one["group"]]) for one in every]
    assert [one["group"] for one in every] == [LOUD, HELD, FREE]
    few = served.get("/", q="5", held="1")["groups"]
    assert [one["group"] for one in few] == [LOUD, HELD]
    told = served.get("/group", group=HELD)
    assert told.pop("known")["is_complete"]
    assert told == json.loads(json.dumps(status_document(still.known.views[HELD])))
    story = served.get("/history", group=HELD)
    assert (story["is_cut"], [one["what"] for one in story["records"]]) == (
        False,
        ["held"],
    )
    lifted = served.get("/lift", **lifting(scope="@all", id=hold.hold.hold_id))
    assert [one["offset"] for one in lifted["holds"]] == [hold.offset]
    assert lifted["points"]
    with served.client() as client:
        assert client.get("/ready").text == "ready"


# ---------------------------------------------------------------- ages


def test_an_alarm_stays_one():
    still = groups()
    old = evolve(still.known, as_of=time.monotonic() - follower.OLD_AFTER)
    rows = console_of(still).state.rows(old)
    assert {one.verdict.level for one in rows} == {"alarm", "unknown"}


@pytest.mark.contract("G8")
def test_what_is_held_is_unknown_where_the_topics_cannot_be_read():
    """The page of a group said beside it that nothing is held, the list "none"."""
    blind = evolve(viewed(0, is_held=False), ends=None)
    console = console_of(alone(blind))
    one = page(console, "/group", group=blind.group)
    every = page(console, "/")
    assert "Nothing is held" not in one + every
    assert ">none<" not in every
    assert "What is held is unknown." in one


@pytest.mark.contract("G8")
def test_a_group_of_which_nothing_is_known_is_not_shown_as_empty():
    """Without the right to describe it its page said that it owns and committed nothing."""
    facts = GroupFacts(state=UNKNOWN, members=(), committed={}, has_committed=False)
    lost = evolve(viewed(5, is_held=True), facts=facts, reports=(), lags={})
    console = console_of(alone(lost))
    one = page(console, "/group", group=lost.group)
    assert one.count('<span class="count">unknown</span>') == 2
    assert "What the group owns or has committed is unknown." in one
    (row,) = re.findall(r'data-name="Held quiet">(.*?)</td>', page(console, "/"))
    assert "unknown" in row


def newer(still, **changed):
    """Let the follower publish another version."""
    version = still.known.version + 1
    still.known = evolve(still.known, version=version, **changed)


def test_a_page_that_did_not_change_is_not_sent_again():
    """Each survey made a version, and every open page was sent anew each second."""
    still = groups()
    with console_of(still).client() as client:
        first = client.get("/group", params={"group": HELD})
        again = {"if-none-match": first.headers["etag"]}
        still.age = 3.0
        newer(still, times=evolve(still.known.times, now=still.known.times.now + 3))
        unchanged = client.get(f"/group?group={HELD}", headers=again)
        assert (unchanged.status_code, unchanged.text) == (304, "")
        assert float(unchanged.headers["x-known-age"]) >= 3
        assert float(unchanged.headers["x-known-now"]) == pytest.approx(
            still.known.times.now, abs=0.1
        )
        still.stand(HELD)
        assert client.get(f"/group?group={HELD}", headers=again).status_code == 200


def test_a_page_that_got_old_is_sent_again():
    still = groups()
    with console_of(still).client() as client:
        again = {"if-none-match": client.get("/").headers["etag"]}
        still.age = follower.OLD_AFTER
        assert client.get("/", headers=again).status_code == 200


@pytest.mark.parametrize("path", ["/", f"/group?group={HELD}", "/history"])
def test_viewers_of_one_version_share_a_page(monkeypatch, path):
    """Rendering is most of what a page costs; each viewer had it done anew."""
    still, rendered = groups(), []
    template = pages.templates().get_template
    monkeypatch.setattr(
        pages,
        "templates",
        lambda: SimpleNamespace(
            get_template=lambda name: rendered.append(name) or template(name)
        ),
    )
    served = console_of(still)
    with served.client() as one, served.client() as other:
        assert one.get(path).status_code == other.get(path).status_code == 200
        assert len(rendered) == 1
        newer(still)
        one.get(path)
        assert len(rendered) == 2


def test_a_shared_page_has_the_times_of_when_it_is_sent():
    still = groups()
    served, _ = writing(still)
    (hold,) = still.known.views[HELD].holds

    def shown():
        text = page(served, "/group", group=HELD)
        (until,) = re.findall(r'data-at="[^"]*">(in [^<]*)<', text)
        return until, re.findall(r'<span class="age">([^<]*)<', text)[0]

    for passed, until in ((0, "in 1h"), (1800, "in 30m"), (3595, "in 5s")):
        still.known = evolve(still.known, times=Times(hold.at + passed))
        still.age = passed and 5.0
        assert shown() == (until, "5s ago" if passed else "just now")


@pytest.mark.contract("G8")
def test_the_time_until_an_end_goes_on_in_an_outage():
    """It began again every five seconds, as the tag of a page that is old changes."""
    still = groups()
    served, _ = writing(still)
    (hold,) = still.known.views[HELD].holds
    times = Times(hold.at, taken_at=time.monotonic() - 7200)
    outage = Trouble("The broker does not answer.", "x")
    still.known = evolve(still.known, times=times, trouble=outage)
    still.age = 7200.0
    text = page(served, "/group", group=HELD)
    assert re.findall(r'data-at="[^"]*">([^<]*)<', text) == ["2h ago", "1h ago"]
    (now,) = re.findall('data-now="([^"]*)"', text)
    assert float(now) == pytest.approx(hold.at + 7200, abs=5)


# ---------------------------------------------------------------- text


HOSTILE = (
    "</td><script>alert(1)</script><img src=x onerror=alert(2)>'\"&{{7919*7907}} \u202e"
)


PRINTABLE = HOSTILE.replace("\u202e", "")  # what a record can have


@pytest.mark.parametrize(
    ("group", "paths"),
    [
        (HOSTILE, ("/", "/history", "/group", "/place")),
        (PRINTABLE, ("/", "/history", "/group", "/place", "/lift")),
    ],
    ids=["any", "printable"],
)
def test_names_full_of_markup_are_text(group, paths):
    """Owners and reasons come from whoever may write; so do group names."""
    one = hold_of(group, "a:1")
    assert one.hold is not None
    hostile = evolve(one, hold=evolve(one.hold, reason=HOSTILE))
    known = alone(evolve(viewed(5, is_held=True), group=group, holds=(hostile,)))
    there = evolve(hold_of(FREE, "a:1"), hold=evolve(one.hold, reason=PRINTABLE))
    known.known = evolve(known.known, records=past(there))
    query = {"group": group, "scopes": "a:1", "reason": HOSTILE}
    named = "scope=a%3A1&owner=alice"
    served, _ = writing(known)
    assert "&lt;script&gt;alert(1)" in page(served, "/history")
    for path in paths:
        text = page(served, path, **query, hold=named)
        assert "&lt;script&gt;alert(1)" in text, path
        for bad in ("<script>alert", "<img src=x", "62615533", "\u202e"):
            assert bad not in text, path


def linked(url):
    return f'<a href="{url}" rel="noreferrer">{url}</a>'


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("DB-4211", "DB-4211"),
        (
            "see https://jira.example.com/browse/DB-1?a=b&c=d, please",
            f"see {linked('https://jira.example.com/browse/DB-1?a=b&amp;c=d')}, please",
        ),
        (
            "(http://x/1) <b>",
            f"({linked('http://x/1')}) &lt;b&gt;",
        ),
        (
            'http://x/"onclick="f()',
            f"{linked('http://x/')}&#34;onclick=&#34;f()",
        ),
        ("javascript:alert(1)//", "javascript:alert(1)//"),
        (
            "http://x/\u202ecod.exe",
            f"{linked('http://x/')}\\u202ecod.exe",
        ),
    ],
    ids=["none", "ticket", "in brackets", "quotes", "script", "turned around"],
)
def test_an_address_in_a_reason_is_a_link(reason, shown):
    """A ticket is what the person on call wants to open."""
    one = hold_of(HELD)
    one = evolve(one, hold=evolve(one.hold, reason=reason))
    served, _ = writing(alone(evolve(viewed(5, is_held=True), holds=(one,))))
    told = page(served, "/group", group=HELD)
    assert f'<td class="long" data-name="Why">{shown}</td>' in told


def test_a_table_says_since_when_and_not_when_it_was_extended():
    """What has piled up since is what the column is read for."""
    one = hold_of(HELD)
    assert one.hold is not None
    one = evolve(one, hold=evolve(one.hold, since_ms=1_600_000_000_000))
    it, _ = writing(alone(evolve(viewed(5, is_held=True), holds=(one,))))
    assert 'datetime="2020-09-13' in page(it, "/group", group=HELD)


def test_history_says_where_offsets_were_moved_to():
    one, known = hold_of(HELD), groups()
    hold = ControlHold("1", "x", None)
    moved = evolve(hold, reset=Reset((("orders", 1, 0),), (), "earliest"))
    several = (evolve(one, hold=hold), evolve(one, hold=moved, offset=one.offset + 1))
    known.known = evolve(known.known, records=past(*several))
    served, _ = writing(known)
    row = '<span class="tag held">reset</span> orders:1 to earliest</td>'
    assert row in page(served, "/history")


def test_history_says_until_when_and_what_expired():
    """By what a record proves, and by this machine's clock, though nobody reports."""
    one, known = hold_of(HELD), groups()
    several = [
        evolve(
            one,
            at=at,
            offset=number,
            key=evolve(one.key, owner=f"{number}"),
            hold=ControlHold(str(number), "x", 60_000),
        )
        for number, at in enumerate((1_000_000_000, 1_100_000_000, 1_200_000_000))
    ]
    times = Times(None, 1_000_000_100.0, 1_100_000_100.0)
    known.known = evolve(known.known, records=past(*several), times=times)
    served, _ = writing(known)
    text = page(served, "/history")
    ends = re.findall(r', ([a-z ]+) <time datetime="([^"]*)"', text)
    assert ends == [
        ("until", "2008-01-10 21:21:00Z"),
        ("may have ended", "2004-11-09 11:34:20Z"),
        ("expired", "2001-09-09 01:47:40Z"),
    ]


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (None, "the control topics are being read"),
        (Trouble("It cannot be read.", "do this"), "It cannot be read. do this"),
    ],
)
def test_nothing_is_said_of_what_was_not_read(trouble, said):
    """``[]`` would say that there is none; programs are told what to do, too."""
    unread = groups()
    unread.known = evolve(unread.known, is_complete=False, trouble=trouble)
    served, _ = writing(unread)
    with served.client() as client:
        for path in ("/", "/history", f"/group?group={HELD}", "/ready"):
            answer = client.get(path, headers={"accept": "application/json"})
            assert (answer.status_code, answer.json()["detail"]) == (503, said)
        told = client.get("/history").text
    assert "What was held is unknown" in told
    assert "no record of any hold" not in told


@pytest.mark.contract("G8")
@pytest.mark.parametrize("accept", ["application/json", "text/html"])
def test_a_group_of_a_broker_that_is_away_is_not_called_unknown(accept):
    """Its page said to check the spelling."""
    still = groups()
    why = "the groups of broker 2 are not known: it does not answer"
    still.known = evolve(still.known, unread=(why,))
    with console_of(still).client(accept=accept) as client:
        answer = client.get("/group", params={"group": "billing"})
    assert answer.status_code == 503
    assert why in answer.text
    assert "spelling" not in answer.text


def test_a_group_s_name_may_end_with_a_blank():
    wish = {"group": f"{FREE} ", "scopes": "@all", "reason": "x"}
    served, _ = writing(groups())
    assert f'value="{FREE} "' in page(served, "/place", **wish)


@pytest.mark.parametrize(("method", "is_unknown"), [("GET", False), ("POST", True)])
def test_an_abandoned_write_is_not_said_to_be_undone(method, *, is_unknown):
    """The console closes meanwhile, and the broker may answer later."""

    def ask(is_wanted):
        wait_for(lambda: not is_wanted(), "nobody to wait any more")
        return Response()

    console = SimpleNamespace(is_closing=True, askers=BoundedSemaphore(1))
    state = SimpleNamespace(console=console)
    request = SimpleNamespace(method=method, app=SimpleNamespace(state=state))
    with pytest.raises(Problem) as raised:
        asyncio.run(asking.answer(request, ask))
    assert ("unknown" in raised.value.detail) is is_unknown

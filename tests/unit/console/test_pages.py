"""Tests the console's pages and calls on a simulated cluster, without a broker."""

import asyncio
import json
import re
import threading
from html import unescape
from threading import BoundedSemaphore
from types import SimpleNamespace

import pytest
from attrs import evolve
from kafka import TopicPartition
from starlette.responses import Response

from safeconsumer.console import background, changes, connection, pages
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
    ALARMED,
    FREE,
    HELD,
    TOKEN,
    boxes_of,
    console_of,
    fields_of,
    groups,
    held_by,
    writing,
)
from tests.harness.console.synthetic import alone, hold_of, past, viewed
from tests.harness.listing import short
from tests.harness.waiting import wait_for

HOUR = 3_600_000  # milliseconds


# ---------------------------------------------------------------- previews


def test_form_edited_after_its_preview_is_previewed_again():
    fields = {"group": FREE, "scopes": "topic-004:1", "reason": "db", "for": "1h"}
    served, writer = writing(groups())
    edited = served.submit("/place", served.form("/place", **fields) | {"for": "9h"})
    assert (edited.status_code, writer.written) == (409, [])
    assert "This is not what was previewed." in edited.text
    assert "would last 9h" in edited.text
    assert served.submit("/place", fields_of(edited)).status_code == 303
    (made,) = writer.written
    assert made.hold.ttl_ms == 9 * HOUR


@pytest.mark.parametrize(
    "edit", [{"scopes": "topic-004"}, {"agreed": ""}], ids=["scope", "consent"]
)
def test_consent_to_a_preview_does_not_cover_an_edit(edit):
    served, writer = writing(groups())
    form = served.form("/place", group=FREE, scopes="@all", reason="db")
    refused = served.submit("/place", form | edit)
    assert (refused.status_code, writer.written) == (409, [])
    assert "data-live" not in refused.text  # an automatic refresh would hide the reason


@pytest.mark.parametrize(
    "change",
    [{"offset": 7}, {"hold": ControlHold("another", "x", HOUR)}],
    ids=["extended", "replaced"],
)
def test_hold_that_changed_since_the_preview_is_not_replaced(change):
    still = held_by("alice")
    console, writer = writing(still)
    fields = {"group": HELD, "scopes": "topic-005:0", "reason": "db", "for": "9h"}
    agreed = console.plan(**fields)["agreement"]
    (hold,) = still.known.views[HELD].holds
    still.set_holds(HELD, evolve(hold, **change))
    refused = console.post("/place", **fields, agreed=agreed)
    assert (refused.status_code, writer.written) == (409, [])
    again = refused.json()["preview"]["agreement"]
    assert console.post("/place", **fields, agreed=again).status_code == 200


def test_group_list_does_not_show_the_end_of_an_expired_hold():
    """The members lift an expired hold within the allowed clock skew."""
    known = viewed(5, is_held=True)
    (hold,) = known.holds
    ended = evolve(known, holds=(evolve(hold, at=known.times.proven - 3601),))
    served, _ = writing(alone(ended))
    assert '<td data-name="Next expiry"></td>' in served.page("/")


def test_form_places_a_shorter_hold_only_after_consent():
    """A hold with the same reason is never shortened without the user's consent."""
    still = groups()
    (held,) = still.known.views[HELD].holds
    served, writer = writing(still)
    fields = {"group": HELD, "scopes": "@all", "reason": held.hold.reason, "for": "1m"}
    assert "Replace what you hold already: @all" in served.plan(**fields)["to_agree"]
    form = served.form("/place", **fields)
    assert served.submit("/place", form | {"agreed": ""}).status_code == 409
    assert served.submit("/place", form).status_code == 303
    assert [one.hold.ttl_ms for one in writer.written] == [60_000]


# ---------------------------------------------------------------- extending

EXTEND = {"group": HELD, "scopes": "@all", "reason": "x", "extends": "9"}


def test_form_extends_the_users_own_hold():
    still = groups()
    (held,) = still.known.views[HELD].holds
    served, writer = writing(still)
    assert "extends=9" in served.page("/group", group=HELD)
    assert "Hold all" not in served.page("/place", **EXTEND)
    form = served.form("/place", **EXTEND, **{"for": "9h"})
    assert served.submit("/place", form).status_code == 303
    (made,) = writer.written
    since = int(held.at * 1000)
    assert made.hold == evolve(held.hold, ttl_ms=9 * HOUR, since_ms=since)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"for": "1m"}, "which is later"),
        ({"for": "2h", "extends": "8"}, "the hold has changed"),
        ({"for": "2h", "scopes": "@all x"}, "the hold has changed"),
    ],
    ids=["earlier end", "another record", "another scope"],
)
def test_extension_that_is_refused_has_no_preview(fields, reason):
    page = writing(groups())[0].page("/place", **EXTEND | fields)
    assert reason in page
    assert ">Effect<" not in page


def test_hold_of_another_owner_or_without_an_end_cannot_be_extended():
    bobs, endless = hold_of(HELD, "b:1"), hold_of(HELD, "b:2")
    bobs = evolve(bobs, key=evolve(bobs.key, owner="bob"))
    endless = evolve(endless, hold=evolve(endless.hold, ttl_ms=None))
    held = evolve(viewed(5, is_held=True), holds=(bobs, endless))
    served, _ = writing(alone(held))
    assert "Extend" not in served.page("/group", group=HELD)
    page = served.page("/place", **EXTEND | {"scopes": "b:2", "for": "2h"})
    assert "is held until it is resumed" in page


# ---------------------------------------------------------------- lifting several


def test_holds_of_other_owners_are_lifted_together_once_their_scopes_are_typed():
    served, writer = writing(held_by("alice", "bob", "carol"))
    boxes = boxes_of(served.page("/group", group=HELD))
    assert len(boxes) == 3
    asked = served.client().get("/lift", params={"group": HELD, "hold": boxes})
    assert "are held by bob, carol, not by you: type topic-005:1" in asked.text
    form = fields_of(asked)
    for typed in ("", "topic-005:1", "topic-005:2 topic-005:1"):
        refused = served.submit("/lift", form | {"typed": typed})
        assert (refused.status_code, writer.written) == (409, [])
    done = served.submit("/lift", form | {"typed": "topic-005:1 topic-005:2"})
    assert done.status_code == 303
    scopes = [one.key.scope for one in writer.written]
    assert scopes == [f"topic-005:{number}" for number in range(3)]


def test_missing_hold_is_named_and_the_other_holds_are_previewed_again():
    still = held_by("alice", "alice")
    served, writer = writing(still)
    boxes = boxes_of(served.page("/group", group=HELD))
    form = served.form("/lift", group=HELD, hold=boxes)
    still.set_holds(HELD, still.known.views[HELD].holds[0])
    gone = "not held: topic-005:1 of alice"
    assert gone in served.page("/lift", group=HELD, hold=boxes)
    refused = served.submit("/lift", form)
    assert (refused.status_code, writer.written) == (409, [])
    assert f"Nothing was lifted; {gone}: it was lifted" in refused.text
    assert served.submit("/lift", fields_of(refused)).status_code == 303
    assert [one.key.scope for one in writer.written] == ["topic-005:0"]


def test_lift_without_a_ticked_hold_shows_the_checkboxes_again():
    served, _ = writing(held_by("alice", "alice"))
    answer = served.client().get("/lift", params={"group": HELD})
    assert answer.status_code == 400
    assert "tick at least one hold" in answer.text
    assert len(boxes_of(answer.text)) == 2


# ---------------------------------------------------------------- lists


def test_group_list_starts_with_the_worst_groups_and_can_omit_groups_without_holds():
    served, _ = writing(groups())
    every, few = served.page("/"), served.page("/", held="1")
    assert [one in few for one in (FREE, HELD, ALARMED)] == [False, True, True]
    assert ">Stable</td>" in every
    assert every.index("Place a hold") < every.index("<table")
    assert every.index(ALARMED) < every.index(HELD) < every.index(FREE)


def test_group_list_can_be_sorted_by_lag():
    def with_lag(view, each):
        return evolve(view, lags=dict.fromkeys(view.facts.committed, each))

    served, _ = writing(
        alone(
            with_lag(viewed(4, is_held=False), 2),
            with_lag(viewed(6, is_held=False), 2_000),
            with_lag(viewed(5, is_held=True), 40),
        )
    )
    usual, by_lag = served.page("/"), served.page("/", sort="lag")
    assert ">50,000</td>" in usual
    assert usual.count("of it held") == 1
    assert usual.index(HELD) < usual.index("group-006") < usual.index("group-004")
    assert by_lag.index("group-006") < by_lag.index(HELD) < by_lag.index("group-004")


def test_row_of_a_group_without_holds_has_empty_cells():
    served, _ = writing(alone(evolve(viewed(4, is_held=False), reports=())))
    (row,) = re.findall(r'<tr id="g-.*?</tr>', served.page("/"), re.DOTALL)
    cells = [re.sub(r"<.*?>", "", one) for one in re.findall(r"<td.*?</td>", row)]
    assert cells == ["", "Stable", "", "", "", "", "75"]


def test_partitions_are_listed_under_their_topics():
    known = viewed(5, is_held=True)
    others = {TopicPartition("audit", number): 7 for number in range(2)}
    facts = evolve(known.facts, committed={**known.facts.committed, **others})
    served, _ = writing(alone(evolve(known, facts=facts)))
    page = served.page("/group", group=HELD)
    heads = re.findall(r'<th scope="rowgroup" colspan="5">(.*?)</th>', page)
    assert sorted(heads) == ["audit", "topic-005"]
    assert page.index(">audit<") < page.index(">audit:0<")


def test_form_suggests_groups_and_the_topics_of_the_group():
    served, _ = writing(groups())
    anywhere, named = served.page("/place"), served.page("/place", group=FREE)
    assert f'<option value="{FREE}">' in anywhere
    assert '<option value="topic-050">' in anywhere
    assert '<option value="topic-004">' in named
    assert '<option value="topic-050">' not in named


def test_group_page_shows_100_of_1000_holds():
    known = viewed(5, is_held=True)
    holds = [evolve(hold_of(HELD, f"topic-005:{n}"), offset=n) for n in range(1_000)]
    served, _ = writing(alone(evolve(known, holds=tuple(holds))))
    page = served.page("/group", group=HELD)
    assert len(boxes_of(page)) == 100
    assert "This shows 100 of 1,000 holds" in page


def test_history_page_computes_only_the_entries_up_to_that_page(monkeypatch):
    derived, entries = [], pages.entries
    monkeypatch.setattr(
        pages, "entries", lambda *some: derived.append(entries(*some)) or derived[-1]
    )
    known = alone(viewed(5, is_held=True))
    known.publish(records=past(hold_of(HELD)) * 950)
    served, _ = writing(known)
    for number, shown in ((1, "1 to 100"), (3, "201 to 300"), (10, "901 to 950")):
        page = served.page("/history", page=str(number))
        assert f"{shown}\n" in page
        assert "every record for 30 days" in page
    assert [len(one) for one in derived] == [101, 301, 950]
    known.publish(records=past(hold_of(HELD)) * 10_000)
    assert "newest 10,000 records" in served.page("/history")


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    ("skew", "whats"), [(30.0, ["held"]), (300.0, ["held", "lifted"])], ids=short
)
def test_history_page_applies_the_members_clock_skew_to_hold_ends(skew, whats):
    hold = hold_of(HELD)
    minute = evolve(hold, hold=evolve(hold.hold, ttl_ms=60_000))
    lift = evolve(hold, hold=None, at=hold.at + 200, offset=10)
    known = alone(evolve(viewed(5, is_held=False), skew=skew))
    known.publish(records=past(minute, lift))
    served, _ = writing(known)
    found = served.get("/history")["records"]
    assert [one["what"] for one in found] == whats


# ---------------------------------------------------------------- repeated and late calls

LIFT = {"group": HELD, "scope": "topic-005:0"}


def test_form_submitted_twice_places_one_hold():
    fields = {"group": FREE, "scopes": "topic-004", "reason": "x", "for": "1h"}
    still = groups()
    served, writer = writing(still)
    form = served.form("/place", **fields)
    assert served.submit("/place", form).status_code == 303
    (made,) = writer.written
    at = still.known.views[FREE].times.now
    placed = evolve(hold_of(FREE, "topic-004"), hold=made.hold, at=at)
    still.set_holds(FREE, placed)
    assert served.submit("/place", form).status_code == 303
    assert len(writer.written) == 1


def test_lift_submitted_twice_is_written_once():
    """The offset of the shown hold distinguishes a repeated lift from an unknown hold."""
    still = held_by("alice")
    served, writer = writing(still)
    named = "scope=topic-005:0&owner=alice"
    form = served.form("/lift", group=HELD, hold=named)
    assert served.submit("/lift", form).status_code == 303
    still.set_holds(HELD)
    assert served.submit("/lift", form).status_code == 303
    assert served.submit("/lift", form | {"hold": named}).status_code == 404
    again = served.post("/lift", **LIFT, offset="0")
    assert (again.status_code, again.json()["is_done_already"]) == (200, True)
    assert served.post("/lift", **LIFT).status_code == 404
    assert served.post("/lift", **LIFT, id="", offset="").status_code == 404
    assert served.post("/lift", **LIFT, offset="x").status_code == 400
    assert len(writer.written) == 1


@pytest.mark.parametrize("more", [{}, {"offset": "0"}], ids=["named", "shown"])
def test_hold_of_a_later_version_is_not_lifted(more):
    still = held_by("alice")
    (hold,) = still.known.views[HELD].holds
    still.set_holds(HELD, evolve(hold, key=evolve(hold.key, version=2)))
    served, writer = writing(still)
    answer = served.post("/lift", **LIFT, **more)
    assert (answer.status_code, writer.written) == (409, [])
    assert "a later version holds topic-005:0" in answer.text
    assert "upgrade first" in answer.text


def test_no_change_is_written_for_a_disconnected_client():
    """A late lift could remove a hold that was placed after the client disconnected."""
    console, writer = writing(held_by("alice"))
    has_answered = threading.Event()
    writer.before = has_answered.wait
    sends = iter([{"type": "http.request", "body": json.dumps(LIFT).encode()}])
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
    for _ in range(8):
        wait_for(
            lambda: console.state.slots.acquire(blocking=False),
            "the end of the command",
        )
    assert (answers[0]["status"], writer.written) == (503, [])


def test_previews_and_commands_use_separate_connections(monkeypatch):
    """A slow preview does not delay a command; a second command is refused, not queued."""
    monkeypatch.setattr(connection, "_CLOSE_SECONDS", 0.0)
    served, writer = writing(held_by("alice"))
    with served.state.questions.lend():
        assert served.post("/lift", **LIFT).status_code == 200
    with served.state.commands.lend():
        assert served.post("/lift", **LIFT).status_code == 503
        served.state.close()
    with pytest.raises(Problem), served.state.commands.lend():
        pass
    assert len(writer.written) == 1


@pytest.mark.parametrize("owner", ["bob", "operator:bob"])
def test_program_lifts_a_hold_of_another_owner_by_its_record_and_scope(owner):
    """A program may give the owner's name with or without the prefix ``operator:``."""
    served, writer = writing(held_by("bob"))
    bobs, typed = LIFT | {"owner": owner}, {"typed": "topic-005:0"}
    for shown in ({"id": "another"}, {"offset": "1"}):
        refused = served.post("/lift", **bobs, **typed, **shown)
        assert "has changed" in refused.json()["title"]
    plan = served.get("/lift", **bobs, offset="0")
    assert plan["to_agree"] == "type topic-005:0 to lift it"
    assert served.post("/lift", **bobs, offset="0").status_code == 409
    assert served.post("/lift", **bobs, **typed).status_code == 409
    assert writer.written == []
    assert served.post("/lift", **bobs, **typed, offset="0").status_code == 200
    assert served.post("/lift", **LIFT, owner="carol").status_code == 404


def test_hold_that_only_members_still_obey_can_be_lifted():
    known = viewed(5, is_held=False)
    lost = KeptHold(
        owner="operator:alice", scope="topic-005", line="topic-005 of alice"
    )
    first, *others = known.reports
    reports = (evolve(first, kept=(lost,)), *others)
    served, writer = writing(alone(evolve(known, reports=reports)))
    (link,) = re.findall(r'"(/lift[^"]*)"', served.page("/group", group=HELD))
    asked = served.client().get(unescape(link))
    assert "Lift <code>topic-005</code>?" in asked.text
    assert served.submit("/lift", fields_of(asked)).status_code == 303
    assert served.post("/lift", group=HELD, scope="topic-005").status_code == 200
    assert [one.hold for one in writer.written] == [None, None]


# ---------------------------------------------------------------- moving offsets

BACK = {"group": HELD, "scopes": "topic-005:0-1", "to": "-100"}


def resetting(*owners, resets=()):
    """Return a held group in which the first member reports these resets."""
    still = held_by(*owners)
    view = still.known.views[HELD]
    first, *others = view.reports
    reports = (
        evolve(first, resets=resets),
        *(evolve(one, resets=()) for one in others),
    )
    still.publish(views={HELD: evolve(view, reports=reports)})
    return still


def commit(still, offset):
    """Publish a view in which the group has committed this offset in every partition."""
    view = still.known.views[HELD]
    facts = evolve(view.facts, committed=dict.fromkeys(view.facts.committed, offset))
    still.publish(views={HELD: evolve(view, facts=facts)})


def targets(writer):
    """Return the scope of each written hold, and the offsets to which it resets."""
    return {one.key.scope: one.hold.reset.to for one in writer.written}


def test_form_moves_offsets_once_and_exactly_as_previewed():
    still = resetting("alice", "alice")
    served, writer = writing(still)
    assert ">Effect<" not in served.page("/reset")
    asked = served.client().get("/reset", params=BACK)
    cells = re.findall(r'<td class="n" data-name="([^"]*)">([^<]+)<', asked.text)
    row = [("From", "1,000"), ("To", "900"), ("Records repeated", "100")]
    assert cells == [*row, *row]
    form = fields_of(asked)
    edited = served.submit("/reset", form | {"to": "-200"})
    assert (edited.status_code, writer.written) == (409, [])
    assert "previewed. Look at its effect now." in edited.text
    assert "Agree first" not in edited.text
    assert served.submit("/reset", form).status_code == 303
    assert targets(writer) == {
        f"topic-005:{one}": (("topic-005", one, 900),) for one in (0, 1)
    }
    holds = zip(still.known.views[HELD].holds, writer.written, strict=True)
    still.set_holds(HELD, *(evolve(one, hold=made.hold) for one, made in holds))
    commit(still, 900)
    assert served.submit("/reset", form).status_code == 303
    assert len(writer.written) == 2
    assert "; moved to 900" in served.page("/group", group=HELD)


def test_program_can_reset_offsets_only_with_the_agreement_token_of_a_preview():
    served, writer = writing(resetting("alice", "alice"))
    plan = served.get("/reset", **BACK)
    assert [one["to"] for one in plan["moves"]] == [900, 900]
    refused = served.post("/reset", **BACK)
    assert (refused.status_code, writer.written) == (409, [])
    assert refused.json()["preview"]["agreement"] == plan["agreement"]
    done = served.post("/reset", **BACK, agreed=plan["agreement"])
    assert (done.status_code, done.json()["is_done_already"]) == (200, False)
    assert len(writer.written) == 2


def test_relative_reset_counts_from_the_brokers_offsets_and_not_from_the_snapshot():
    served, writer = writing(resetting("alice", "alice"))
    writer.committed = 1500
    plan = served.get("/reset", **BACK)
    assert [(one["from"], one["to"]) for one in plan["moves"]] == [(1500, 1400)] * 2
    writer.committed = 1600  # the user agrees to the preview
    done = served.post("/reset", **BACK, agreed=plan["agreement"])
    assert done.status_code == 200
    assert [to for ((_, _, to),) in targets(writer).values()] == [1400, 1400]


@pytest.mark.parametrize(
    "previews",
    [("-200", "-100", "-300"), ("-100", "-200", "-100", "-300")],
    ids=["newer", "shown again"],
)
def test_new_preview_invalidates_only_the_oldest_preview(monkeypatch, previews):
    monkeypatch.setattr(changes, "_MAX_PREVIEWS", 2)
    still = resetting("alice", "alice")
    served, writer = writing(still)
    seen = {to: served.get("/reset", **BACK | {"to": to}) for to in previews}
    commit(still, 1500)
    for to, status in (("-100", 200), ("-200", 409)):
        fields = BACK | {"to": to, "agreed": seen[to]["agreement"]}
        assert served.post("/reset", **fields).status_code == status
    assert [to for ((_, _, to),) in targets(writer).values()] == [900, 900]


def test_lift_is_refused_until_the_offsets_of_the_hold_are_moved():
    still = resetting("alice")
    (hold,) = still.known.views[HELD].holds
    reset = Reset((("topic-005", 0, 900),), (), "-100")
    still.set_holds(
        HELD, evolve(hold, hold=evolve(hold.hold, reset=reset, ttl_ms=None))
    )
    served, writer = writing(still)
    (link,) = re.findall(
        r'"(/lift\?[^"]*hold=[^"]*)"', served.page("/group", group=HELD)
    )
    asked = served.client().get(unescape(link))
    assert "topic-005:0 is not moved yet: " in asked.text
    sent = served.submit("/lift", fields_of(asked))
    assert (sent.status_code, writer.written) == (409, [])


def test_reset_that_a_member_would_not_carry_out_requires_consent():
    served, writer = writing(resetting("alice", "alice", resets=None))
    asked = served.client().get("/reset", params=BACK)
    message = "topic-005:0-1 would not be moved: group-005-0 moves nothing"
    assert f'<li class="waiting">{message}' in asked.text
    assert 'type="checkbox"' in asked.text
    assert served.submit("/reset", fields_of(asked)).status_code == 303
    assert len(writer.written) == 2


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        ({"scopes": "topic-005:0-1"}, 409, "topic-005:1 is not held by alice"),
        (
            {"scopes": "topic-005:0", "to": "-1001"},
            409,
            "0 to 2,000, so it cannot move to -1",
        ),
        ({"to": "soon"}, 400, "to: not &#39;soon&#39;: write earliest"),
        ({"scopes": ""}, 400, "give a scope to move"),
        ({"group": "group-05"}, 409, "did you mean group-005"),
        ({"scopes": "topic-005:99"}, 409, "topic-005:99 covers nothing that"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_offsets_that_cannot_be_moved_are_refused_with_the_reason(
    change, status, reason
):
    served, writer = writing(resetting("alice", "bob"))
    token = served.state.auth.form_token("alice")
    sent = served.submit("/reset", {"form": token} | BACK | change)
    assert (sent.status_code, writer.written) == (status, [])
    assert reason in sent.text
    assert ">Effect<" not in sent.text


# ---------------------------------------------------------------- programs


def test_program_gets_the_same_documents_that_the_commands_print():
    still = groups()
    (hold,) = still.known.views[HELD].holds
    still.publish(records=past(hold))
    served, _ = writing(still)
    every = served.get("/")["groups"]
    assert every == [group_document(still.known.views[one["group"]]) for one in every]
    assert [one["group"] for one in every] == [ALARMED, HELD, FREE]
    few = served.get("/", q="5", held="1")["groups"]
    assert [one["group"] for one in few] == [ALARMED, HELD]
    one = served.get("/group", group=HELD)
    assert one.pop("known")["is_complete"]
    assert one == json.loads(json.dumps(status_document(still.known.views[HELD])))
    story = served.get("/history", group=HELD)
    assert [one["what"] for one in story["records"]] == ["held"]
    assert not story["is_cut"]
    plan = served.get("/lift", group=HELD, scope="@all", id=hold.hold.hold_id)
    assert [one["offset"] for one in plan["holds"]] == [hold.offset]
    assert plan["points"]
    assert served.page("/ready") == "ready"


# ---------------------------------------------------------------- ages


def test_old_snapshot_keeps_alarms_and_makes_other_verdicts_unknown(still_clock):
    still = groups()
    old = evolve(still.known, as_of=still_clock.monotonic() - follower.OLD_AFTER)
    state = console_of(still).state
    rows = state.rows(old)
    assert {one.verdict.level for one in rows} == {"alarm", "unknown"}
    views = [state.view(old, one.group) for one in rows]
    assert [one.verdict for one in views] == [one.verdict for one in rows]


@pytest.mark.contract("G8")
def test_holds_are_unknown_if_the_topics_cannot_be_read():
    blind = evolve(viewed(0, is_held=False), ends=None)
    console = console_of(alone(blind))
    one, every = console.page("/group", group=blind.group), console.page("/")
    assert "The group has no holds" not in one
    assert "Nothing is held" not in every
    assert ">none<" not in every
    assert "The holds are unknown." in one


@pytest.mark.contract("G8")
def test_group_that_cannot_be_described_is_not_shown_as_empty():
    facts = GroupFacts(state=UNKNOWN, members=(), committed={}, has_committed=False)
    lost = evolve(viewed(5, is_held=True), facts=facts, reports=(), lags={})
    console = console_of(alone(lost))
    one = console.page("/group", group=lost.group)
    assert one.count('<span class="count">unknown</span>') == 2
    assert "The partitions and offsets of the group are unknown." in one
    (row,) = re.findall(r'data-name="Held quiet">(.*?)</td>', console.page("/"))
    assert "unknown" in row


def test_unchanged_page_is_not_sent_again():
    still = groups()
    path = f"/group?group={HELD}"
    client = console_of(still).client()
    again = {"if-none-match": client.get(path).headers["etag"]}
    still.age = 3.0
    still.publish(times=evolve(still.known.times, now=still.known.times.now + 3))
    unchanged = client.get(path, headers=again)
    assert (unchanged.status_code, unchanged.text) == (304, "")
    assert float(unchanged.headers["x-known-age"]) >= 3
    known_now = float(unchanged.headers["x-known-now"])
    assert known_now == pytest.approx(still.known.times.now, abs=0.1)
    still.set_holds(HELD)
    assert client.get(path, headers=again).status_code == 200


def test_page_is_sent_again_once_its_snapshot_is_old():
    still = groups()
    client = console_of(still).client()
    again = {"if-none-match": client.get("/").headers["etag"]}
    still.age = follower.OLD_AFTER
    assert client.get("/", headers=again).status_code == 200


@pytest.mark.parametrize("path", ["/", f"/group?group={HELD}", "/history"])
def test_viewers_of_one_version_share_a_rendered_page(monkeypatch, path):
    still, rendered = groups(), []
    template = pages.templates().get_template
    counting = SimpleNamespace(
        get_template=lambda name: rendered.append(name) or template(name)
    )
    monkeypatch.setattr(pages, "templates", lambda: counting)
    served = console_of(still)
    served.page(path)
    served.page(path)
    assert len(rendered) == 1
    still.publish()
    served.page(path)
    assert len(rendered) == 2


def test_shared_page_shows_times_relative_to_the_time_of_the_request():
    still = groups()
    served, _ = writing(still)
    (hold,) = still.known.views[HELD].holds
    for passed, until in ((0, "in 1h"), (1800, "in 30m"), (3595, "in 5s")):
        still.known = evolve(still.known, times=Times(hold.at + passed))
        still.age = passed and 5.0
        page = served.page("/group", group=HELD)
        assert re.findall(r'data-at="[^"]*">(in [^<]*)<', page) == [until]
        age = re.findall(r'<span class="age">([^<]*)<', page)[0]
        assert age == ("5s ago" if passed else "just now")


@pytest.mark.contract("G8")
def test_countdown_to_the_end_of_a_hold_continues_during_an_outage(still_clock):
    still = groups()
    served, _ = writing(still)
    (hold,) = still.known.views[HELD].holds
    times = Times(hold.at, taken_at=still_clock.monotonic() - 7200)
    outage = Trouble("The broker does not answer.", "x")
    still.known = evolve(still.known, times=times, trouble=outage)
    still.age = 7200.0
    page = served.page("/group", group=HELD)
    assert re.findall(r'data-at="[^"]*">([^<]*)<', page) == ["2h ago", "1h ago"]
    (now,) = re.findall('data-now="([^"]*)"', page)
    assert float(now) == pytest.approx(hold.at + 7200, abs=0.1)


# ---------------------------------------------------------------- text

HOSTILE = (
    "</td><script>alert(1)</script><img src=x onerror=alert(2)>'\"&{{7919*7907}} \u202e"
)
PRINTABLE = HOSTILE.replace("\u202e", "")  # a hold's record may contain this text


@pytest.mark.parametrize(
    ("group", "paths"),
    [
        (HOSTILE, ("/", "/history", "/group", "/place")),
        (PRINTABLE, ("/", "/history", "/group", "/place", "/lift")),
    ],
    ids=["any", "printable"],
)
def test_names_and_reasons_with_markup_are_shown_as_text(group, paths):
    one = hold_of(group, "a:1")
    hostile = evolve(one, hold=evolve(one.hold, reason=HOSTILE))
    known = alone(evolve(viewed(5, is_held=True), group=group, holds=(hostile,)))
    there = evolve(hold_of(FREE, "a:1"), hold=evolve(one.hold, reason=PRINTABLE))
    known.publish(records=past(there))
    query = {"group": group, "scopes": "a:1", "reason": HOSTILE}
    served, _ = writing(known)
    assert "&lt;script&gt;alert(1)" in served.page("/history")
    for path in paths:
        page = served.page(path, **query, hold="scope=a%3A1&owner=alice")
        assert "&lt;script&gt;alert(1)" in page, path
        for bad in ("<script>alert", "<img src=x", "62615533", "\u202e"):
            assert bad not in page, path


def linked(url):
    return f'<a href="{url}" rel="noreferrer">{url}</a>'


JIRA = "https://jira.example.com/browse/DB-1?a=b"


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("DB-4211", "DB-4211"),
        (f"see {JIRA}&c=d, please", f"see {linked(f'{JIRA}&amp;c=d')}, please"),
        ("(http://x/1) <b>", f"({linked('http://x/1')}) &lt;b&gt;"),
        ('http://x/"onclick="f()', f"{linked('http://x/')}&#34;onclick=&#34;f()"),
        ("javascript:alert(1)//", "javascript:alert(1)//"),
        ("http://x/\u202ecod.exe", f"{linked('http://x/')}\\u202ecod.exe"),
    ],
    ids=["none", "ticket", "in brackets", "quotes", "script", "reversed"],
)
def test_url_in_a_reason_is_shown_as_a_link(reason, shown):
    one = hold_of(HELD)
    one = evolve(one, hold=evolve(one.hold, reason=reason))
    served, _ = writing(alone(evolve(viewed(5, is_held=True), holds=(one,))))
    page = served.page("/group", group=HELD)
    assert f'<td class="long" data-name="Reason">{shown}</td>' in page


def test_hold_table_shows_when_a_hold_was_placed_and_not_when_it_was_extended():
    one = hold_of(HELD)
    one = evolve(one, hold=evolve(one.hold, since_ms=1_600_000_000_000))
    served, _ = writing(alone(evolve(viewed(5, is_held=True), holds=(one,))))
    assert 'datetime="2020-09-13' in served.page("/group", group=HELD)


def test_history_shows_when_holds_end_and_the_targets_of_resets():
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
    hold = ControlHold("3", "x", None)
    reset = evolve(hold, reset=Reset((("orders", 1, 0),), (), "earliest"))
    several += [evolve(one, hold=hold, offset=3), evolve(one, hold=reset, offset=4)]
    times = Times(None, 1_000_000_100.0, 1_100_000_100.0)
    known.publish(records=past(*several), times=times)
    page = writing(known)[0].page("/history")
    assert '<span class="tag held">reset</span> orders:1 to earliest' in page
    assert re.findall(r', ([a-z ]+) <time datetime="([^"]*)"', page) == [
        ("until", "2008-01-10 21:21:00Z"),
        ("may have ended", "2004-11-09 11:34:20Z"),
        ("expired", "2001-09-09 01:47:40Z"),
    ]


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (None, "the control topics are being read"),
        (Trouble("It cannot be read.", "do this"), "It cannot be read. do this"),
    ],
    ids=["reading", "trouble"],
)
def test_request_for_an_incomplete_snapshot_is_answered_with_503(trouble, message):
    """An empty list would mean that no hold exists."""
    unread = groups()
    unread.publish(is_complete=False, trouble=trouble)
    served, _ = writing(unread)
    for path in ("/", "/history", f"/group?group={HELD}", "/ready"):
        answer = served.client(accept="application/json").get(path)
        assert (answer.status_code, answer.json()["detail"]) == (503, message)
    page = served.page("/history")
    assert "The earlier holds are unknown" in page
    assert "no record of any hold" not in page


@pytest.mark.contract("G8")
@pytest.mark.parametrize("accept", ["application/json", "text/html"])
def test_missing_group_is_not_called_misspelt_while_a_broker_is_unreachable(accept):
    still = groups()
    why = "the groups of broker 2 are not known: it does not answer"
    still.publish(unread=(why,))
    client = console_of(still).client(accept=accept)
    answer = client.get("/group", params={"group": "billing"})
    assert answer.status_code == 503
    assert why in answer.text
    assert "spelling" not in answer.text


def test_trailing_space_in_a_group_name_is_kept():
    served, _ = writing(groups())
    page = served.page("/place", group=f"{FREE} ", scopes="@all", reason="x")
    assert f'value="{FREE} "' in page


@pytest.mark.parametrize(("method", "is_unknown"), [("GET", False), ("POST", True)])
def test_outcome_of_an_abandoned_write_is_reported_as_unknown(method, is_unknown):
    """The console closes during the write, and the broker may answer later."""

    def ask(is_wanted):
        wait_for(lambda: not is_wanted(), "the request to be abandoned")
        return Response()

    console = SimpleNamespace(is_closing=True, slots=BoundedSemaphore(1))
    state = SimpleNamespace(console=console)
    request = SimpleNamespace(method=method, app=SimpleNamespace(state=state))
    with pytest.raises(Problem) as raised:
        asyncio.run(background.answer(request, ask))
    assert ("unknown" in raised.value.detail) is is_unknown

"""What a consumer that keeps a journal writes unasked."""

from pathlib import Path

from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import Hold, Lifetime
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.journal.recorder import Recorder
from safeconsumer.journal.writer import JournalWriter
from tests.harness.audit.telling import read


def test_holds_from_elsewhere_are_written_down(tmp_path: Path) -> None:
    """Those of operators, with their records; the application's own are in its calls."""
    journal = JournalWriter(tmp_path)
    ledger = PauseLedger((Recorder(journal, "a", "").hook,))
    scope = scopes.parse("orders")
    hold = Hold(scope=scope, owner="operator:eve", record=(1000.5, 7))
    ledger.follow([hold], ())
    ledger.place([scope], owner="app")
    ledger.follow((), [hold.key])
    ledger.deliver()
    entries = read(journal.path).lines
    assert [(one.event, one["owner"]) for one in entries] == [
        ("hold", "operator:eve"),
        ("lift", "operator:eve"),
    ]
    assert (entries[0]["written"], entries[0]["offset"]) == (1000.5, 7)


def test_who_resumes_has_lifted(tmp_path: Path) -> None:
    """A plain pause that ends with a resume has not ended by itself."""
    journal = JournalWriter(tmp_path)
    ledger = PauseLedger((Recorder(journal, "a", "").hook,))
    scope = scopes.parse("orders:0")
    ledger.place([scope], owner="app", lifetime=Lifetime.PLAIN)
    ledger.remove([(scope, "app")], by_application=True)
    ledger.place([scope], owner="app", lifetime=Lifetime.PLAIN)
    ledger.remove_owner("app")
    entries = read(journal.path).lines
    assert [(one.event, one["why"]) for one in entries] == [("lift", "resume")] * 2

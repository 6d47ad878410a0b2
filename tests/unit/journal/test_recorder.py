"""What a consumer that keeps a journal writes unasked."""

from pathlib import Path

from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import Hold
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

"""Journals what brokers have acknowledged, as runs of offsets."""

from safeconsumer.journal.writer import JournalWriter


class Acknowledged:
    """The runs that are not in the journal yet. Thread rules: one thread."""

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._runs: dict[str, tuple[int, int]] = {}
        self.count = 0  # how many records were acknowledged

    def note(self, topic: str, partition: int, offset: int) -> None:
        """Take note of a record; a run that it does not continue is journaled."""
        self.count += 1
        name = f"{topic}:{partition}"
        first, last = self._runs.get(name, (offset, offset - 1))
        if offset != last + 1:
            self._write(name, first, last)
            first = offset
        self._runs[name] = first, offset

    def tell(self) -> None:
        """Journal every run, as far as it goes now."""
        for name, (first, last) in self._runs.items():
            self._write(name, first, last)
        self._runs.clear()

    def _write(self, name: str, first: int, last: int) -> None:
        self._journal.write("acked", {"tp": name, "first": first, "last": last})

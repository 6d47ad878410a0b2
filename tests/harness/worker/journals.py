"""Judges and reads the journals of workers."""

from safeconsumer.audit.results import Settings
from tests.harness.audit.journals import check, findings_of, read


def broken(folder):
    """Return the checks with findings in the journals of a folder."""
    journals = [read(path) for path in folder.glob("*.journal")]
    found = findings_of(check(journals, Settings(is_drained=True, patience=60)))
    return {one.check for one in found}


def entries(folder, *kinds):
    """Return the entries of these events in the only journal of a folder."""
    (path,) = folder.glob("*.journal")
    return [one for one in read(path).lines if one.event in kinds]

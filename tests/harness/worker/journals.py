"""Judges and reads the journals that workers have written."""

from safeconsumer.audit.results import Settings
from tests.harness.audit.journals import check, findings_of, read


def broken(folder):
    """Return the checks that the journals in a folder fail."""
    journals = [read(path) for path in folder.glob("*.journal")]
    found = findings_of(check(journals, Settings(is_drained=True, patience=60)))
    return {one.check for one in found}


def entries(folder, *kinds):
    """Return the entries of these kinds in the only journal of a folder."""
    (path,) = folder.glob("*.journal")
    return [one for one in read(path).lines if one.event in kinds]

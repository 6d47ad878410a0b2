"""Measures the memory of this process."""

import re
import resource
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_mb():
    """
    Return the peak resident memory of this process, in MB.

    Linux's ``ru_maxrss`` starts with the parent's value, so it would be the same for
    all small children of a big process. The kernel's ``VmHWM`` does not inherit that
    value.
    """
    return _marked("VmHWM")


def resident_mb():
    """Return the current resident memory in MB; if /proc is missing, return the peak."""
    return _marked("VmRSS")


def _marked(name):
    status = _STATUS.read_text() if _STATUS.exists() else ""
    mark = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    used = mark[1] if mark else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(used) / 1024

"""Measures the memory of this process."""

import re
import resource
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_mb():
    """
    Return its peak resident memory, in MB.

    Linux's ``ru_maxrss`` begins with the value of the
    parent process, so small programs of a big parent all look the same; the kernel's own
    high-water mark does not.
    """
    return _marked("VmHWM")


def resident_mb():
    """Return the resident memory now, in MB; the peak if /proc is missing."""
    return _marked("VmRSS")


def _marked(name):
    status = _STATUS.read_text() if _STATUS.exists() else ""
    mark = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    used = mark[1] if mark else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(used) / 1024

"""How much memory this process needs."""

import re
import resource
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_mb():
    """
    Return the most it ever had resident, in MB.

    Linux' ``ru_maxrss`` begins with that of the process that started this one, so that
    small programs of a big parent all look the same; the kernel's own mark does not.
    """
    return _marked("VmHWM")


def resident_mb():
    """Return how much this process has resident now, in MB; its peak where no /proc is."""
    return _marked("VmRSS")


def _marked(name):
    status = _STATUS.read_text() if _STATUS.exists() else ""
    mark = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    used = mark[1] if mark else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(used) / 1024

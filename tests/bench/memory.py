"""How much memory this process has needed."""

import re
import resource
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_mb() -> float:
    """
    Return the most it ever had resident, in MB.

    Linux' ``ru_maxrss`` begins with that of the process that started this one, so that
    small programs of a big parent all look the same; the kernel's own mark does not.
    """
    if _STATUS.exists():
        mark = re.search(r"^VmHWM:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
        if mark is not None:
            return int(mark[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resident_mb() -> float:
    """Return how much this process has resident now, in MB; its peak where no /proc is."""
    if _STATUS.exists():
        mark = re.search(r"^VmRSS:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
        if mark is not None:
            return int(mark[1]) / 1024
    return peak_mb()

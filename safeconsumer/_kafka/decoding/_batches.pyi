from collections.abc import Callable
from typing import Any

from typing_extensions import Buffer

from safeconsumer._kafka.pausing import steps

SOURCE: str

class Reader:
    batch: int
    behind: int
    bytes_read: int
    is_skipping: bool
    is_transactional: bool
    leader_epoch: int
    next_fetch_offset: int
    records_read: int

    def __init__(
        self,
        data: Buffer,
        kind: type,
        topic: str,
        partition: int,
        least: int,
        is_summed: int,
        is_aborted: Callable[[int, int, int, int], bool] | None,
        uncompress: Callable[[Any, int, int, int], Buffer | None],
        keys: object,
        values: object,
        again: Callable[[Any, str, Any, TypeError], Any],
        header_bytes: Callable[[list[Any]], int],
        /,
    ) -> None: ...
    def take(self, taken: list[Any], most: int, /) -> bool: ...
    def close(self) -> None: ...

class Steps(steps.Steps): ...

def crc32c(data: Buffer, at: int, by_tables: int = 0, /) -> int: ...

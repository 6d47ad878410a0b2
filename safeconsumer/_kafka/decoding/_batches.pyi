from typing import Any

from typing_extensions import Buffer

from safeconsumer._kafka.pausing import steps

SOURCE: str

class Steps(steps.Steps): ...

def check(data: Buffer, at: int, count: int, /) -> None: ...
def crc32c(data: Buffer, at: int, by_tables: int = 0, /) -> int: ...
def pass_over(
    data: Buffer, at: int, count: int, delta: int, /
) -> tuple[int, int, int, int]: ...
def read(
    data: Buffer,
    at: int,
    count: int,
    kind: type,
    topic: str,
    partition: int,
    leader_epoch: int,
    offset: int,
    timestamp: int,
    append_time: int | None,
    /,
) -> tuple[list[Any], int, int]: ...

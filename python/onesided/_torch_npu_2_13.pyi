"""The allocator decorator for one minor version of torch and torch_npu."""

from onesided import Engine

def install() -> bool: ...
def uninstall() -> None: ...
def installed() -> bool: ...
def declare_next_pool(
    alignment: int,
    *,
    no_split: bool = False,
    max_bytes: int = 0,
    preallocate_bytes: int = 0,
    gc_threshold: float = 0.0,
    segment_bytes: int = 33554432,
    segment_bytes_max: int = 1073741824,
    guard_bytes: int | None = None,
) -> None: ...
def undeclare_next_pool() -> None: ...
def set_default_pool(id: tuple[int, int] | None) -> None: ...
def pool_ids() -> list[tuple[int, int]]: ...
def pool_device(arg: tuple[int, int], /) -> int: ...
def pool_alignment(arg: tuple[int, int], /) -> int: ...
def pool_stats(arg: tuple[int, int], /) -> dict: ...
def pool_trim(arg: tuple[int, int], /) -> int: ...
def pool_segments(arg: tuple[int, int], /) -> list: ...
def pool_of(arg: int, /) -> tuple[int, int] | None: ...
def base_allocation(arg: int, /) -> tuple[int, int]: ...
def subscribe(id: tuple[int, int], on_segment_added: object | None, on_segment_dropped: object | None) -> int: ...
def unsubscribe(arg0: tuple[int, int], arg1: int, /) -> None: ...

class PoolRegistration:
    """A pool's segments, registered with one engine."""

    def __init__(self, id: tuple[int, int], register: object, deregister: object) -> None: ...
    def close(self) -> None:
        """Deregisters everything and stops listening."""

    @property
    def segments(self) -> int:
        """Segments registered now."""

    @property
    def registrations(self) -> int:
        """Registrations made since the beginning."""

    @property
    def failures(self) -> list[str]:
        """Texts about segments that could not be registered or deregistered."""

class NativeRegistration:
    """Native segments, registered with one engine."""

    def __init__(self, engine: Engine) -> None: ...
    def add(self, address: int) -> tuple[int, int]:
        """Registers the segment of the block that starts there: its base and length."""

    def close(self) -> None:
        """Deregisters everything and stops listening."""

    @property
    def segments(self) -> int:
        """Segments registered now."""

    @property
    def registrations(self) -> int:
        """Registrations made since the beginning."""

    @property
    def failures(self) -> list[str]:
        """Texts about segments that could not be deregistered before they were freed."""

def describe_pools(arg: int, /) -> str: ...

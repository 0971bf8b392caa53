"""All settings of the transport, read once per process. An invalid value is an error that names it."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from onesided.engine import EngineError


def _at_least_zero(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError("must not be negative")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e7:
        raise ValueError("must be a positive number of seconds")
    return value


def _switch(text: str) -> bool:
    try:
        return {"1": True, "on": True, "true": True, "0": False, "off": False, "false": False}[text.strip().lower()]
    except KeyError:
        raise ValueError("must be 1 or 0") from None


@dataclass(frozen=True)
class Options:
    """Settings of this process's transport; docs/ray.md has the table. A value."""

    remote_engines: int = 1000
    """Connections kept for later fetches; 0 connects and disconnects for each."""
    connect_timeout_s: float = 4.0
    transfer_timeout_s: float | None = None
    """None: Ray's own limit, RAY_rdt_fetch_fail_timeout_milliseconds."""
    host: str | None = None
    """Address that the engine listens on; None: the node's address in Ray."""
    transports: str | None = None
    """Order of preference, as for the engine; None: the engine's default."""
    keep_registrations: bool = True
    """Memory stays registered after its last object, until it is freed."""
    receive_pool: bool = True
    """Receive buffers come from a pool; off: from torch, with page faults and one registration each."""
    receive_pool_bytes: int = 0
    """Limit of the host receive buffers, in bytes; 0: no limit."""

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> Options:
        """Raises ValueError with the variable, its value and the allowed values; also for an unknown variable with the
        transport's prefix."""
        known = [variable for variable, _ in _VARIABLES.values()]
        for variable in environment:
            if variable.startswith(_PREFIX) and variable not in known:
                closest = difflib.get_close_matches(variable, known, 1)
                raise ValueError(f"{variable}: no such setting" + (f"; did you mean {closest[0]}?" if closest else ""))
        values: dict[str, Any] = {}
        for field, (variable, convert) in _VARIABLES.items():
            text = environment.get(variable)
            if not text:
                continue
            try:
                values[field] = convert(text)
            except ValueError as error:
                raise ValueError(f"{variable}={text!r}: {error}") from None
        return Options(**values)


@contextlib.contextmanager
def naming_the_variable(options: Options) -> Iterator[None]:
    """Converts the engine's refusal of an option into a ValueError that names the variable."""
    try:
        yield
    except EngineError as error:
        for field in ("transports", "host"):
            value = getattr(options, field)
            if value is not None and value in str(error):
                raise ValueError(f"{_VARIABLES[field][0]}={value!r}: {error}") from error
        raise


_PREFIX = "ONESIDED_RAY_"
_VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "remote_engines": ("ONESIDED_REMOTE_ENGINE_CACHE_MAXSIZE", _at_least_zero),
    "connect_timeout_s": ("ONESIDED_RAY_CONNECT_TIMEOUT_S", _seconds),
    "transfer_timeout_s": ("ONESIDED_RAY_TRANSFER_TIMEOUT_S", _seconds),
    "host": ("ONESIDED_RAY_HOST", str),
    "transports": ("ONESIDED_RAY_TRANSPORTS", str),
    "keep_registrations": ("ONESIDED_RAY_KEEP_REGISTRATIONS", _switch),
    "receive_pool": ("ONESIDED_RAY_RECEIVE_POOL", _switch),
    "receive_pool_bytes": ("ONESIDED_RAY_RECEIVE_POOL_BYTES", _at_least_zero),
}
assert set(_VARIABLES) == {field.name for field in fields(Options)}

"""The connector's options: `kv_connector_extra_config` of vLLM's KVTransferConfig."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


class UnsupportedError(ValueError):
    """A setting, a layout or a peer that this connector cannot serve; the text says which and what to do."""


@dataclass(frozen=True)
class ConnectorOptions:
    """Checked options. A value."""

    local_address: str = ""  # the address the worker's engine listens on; empty: vLLM's own get_ip()
    transports: str = ""  # the engine's option of the same name
    auth_secret_file: str = ""  # the engine's option of the same name
    load: str = "async"  # "async": between steps; "layerwise": within the step, a layer ahead of the computation
    lease_s: float = 480.0  # how long a finished prefill waits for its reader before its blocks are freed
    connect_timeout_ms: int = 2000
    transfer_timeout_ms: int = 60000  # of one layer of one request
    load_threads: int = 8  # requests that load at the same time
    slots: int = 16384  # finished prefills that may wait for a reader at the same time

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> ConnectorOptions:
        """Checks names, types and limits. UnsupportedError names the first option that cannot be honoured."""
        known: dict[str, Any] = {field.name: field.default for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                raise UnsupportedError(
                    f"kv_connector_extra_config has the option {name!r}, which onesided.vllm does not know; "
                    f"it knows {', '.join(sorted(known))}."
                )
            kind: Any = type(known[name])
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if (kind is str and not isinstance(value, str)) or (kind is not str and not number):
                raise UnsupportedError(f"kv_connector_extra_config: {name} is {value!r}; it takes a {kind.__name__}.")
            values[name] = value if kind is str else kind(value)
        options = cls(**values)
        if options.load not in ("async", "layerwise"):
            raise UnsupportedError(f"kv_connector_extra_config: load is {options.load!r}; it takes async or layerwise.")
        for name in ("lease_s", "connect_timeout_ms", "transfer_timeout_ms", "load_threads", "slots"):
            if getattr(options, name) <= 0:
                raise UnsupportedError(
                    f"kv_connector_extra_config: {name} is {getattr(options, name)}; it must be > 0."
                )
        return options

    def engine_options(self) -> dict[str, str]:
        """What of these the engine is given."""
        named = {"transports": self.transports, "auth_secret_file": self.auth_secret_file}
        return {name: value for name, value in named.items() if value}

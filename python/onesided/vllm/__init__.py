"""onesided inside vLLM: a KV connector and a weight transfer engine, for vllm 0.18 and 0.34.

The connector is chosen by name, without a patch: `--kv-transfer-config '{"kv_connector": "OnesidedConnector",
"kv_connector_module_path": "onesided.vllm", "kv_role": "kv_both"}'`. docs/vllm.md has the options.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onesided.vllm.connector import OnesidedConnector

__all__ = ["OnesidedConnector"]


def __getattr__(name: str) -> Any:
    # Loaded when vLLM asks for the class: the plugin's entry point must not import vLLM's connectors.
    if name != "OnesidedConnector":
        raise AttributeError(f"module 'onesided.vllm' has no attribute {name!r}")
    return importlib.import_module("onesided.vllm.connector").OnesidedConnector

"""onesided inside verl 0.9: the checkpoint engine `onesided`, registered by importing this module.

In verl's configuration: `checkpoint_engine.backend: onesided` and `checkpoint_engine.custom_backend_module: onesided.verl`.
"""

from __future__ import annotations

from onesided.verl.engine import OnesidedCheckpointEngine

__all__ = ["OnesidedCheckpointEngine"]

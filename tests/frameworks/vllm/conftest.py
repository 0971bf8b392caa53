"""Instances of vLLM for the tests of this folder, which run in an environment that holds vLLM (./do test --frameworks)."""

from __future__ import annotations

import sys
from pathlib import Path

import onesided.compat

sys.path.insert(0, str(Path(__file__).parent))
onesided.compat.install("nixl", "mooncake")  # vLLM's own connectors import these; before anything imports vLLM

"""The demo's results, with the names of its JSON file, and the checks that decide its exit code."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

GB = 1e9  # a gigabyte is 1e9 bytes everywhere in this project
SPEED_UP_WANTED = 5


@dataclass
class Figures:
    """The figures of one run. Confined to the demo's thread. The names are the keys of the JSON file."""

    misaligned_plain: int = 0
    misaligned_pool: int = -1
    error_plain: str = ""
    reserved_pool_bytes: int = 0
    charged_pool_bytes: int = 0
    reserved_workaround_bytes: int = 0
    tensors: int = 0
    bytes: int = 0
    checksum_ok: bool = False
    hixl_gbps_first: float = 0.0
    hixl_gbps_best: float = 0.0
    object_store_gbps_best: float = 0.0
    registrations_after_first: int = -1
    device: str = ""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    def failed_checks(self) -> list[str]:
        """The failed checks of this run, as texts."""
        checks = {
            f"plain tensors should be misaligned, but {self.misaligned_plain} are": self.misaligned_plain > 0,
            f"{self.misaligned_pool} tensors of the aligned pool are misaligned": self.misaligned_pool == 0,
            f"the refusal should name 503900: {self.error_plain!r}": "503900" in self.error_plain,
            "the receiver's bytes differ from the source's": self.checksum_ok,
            f"updates 2 to 10 registered memory {self.registrations_after_first} times": (
                self.registrations_after_first == 0
            ),
            f"one-sided reads at {self.hixl_gbps_best:.2f} GB/s are not {SPEED_UP_WANTED} x the object store's "
            f"{self.object_store_gbps_best:.2f}": self.hixl_gbps_best
            >= SPEED_UP_WANTED * self.object_store_gbps_best
            > 0,
        }
        return [words for words, holds in checks.items() if not holds]

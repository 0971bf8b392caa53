"""What a rank publishes, as bytes that travel through a store, a file or an actor's reply: where its boxes are and how
to reach them."""

from __future__ import annotations

import base64
import json
from array import array
from dataclasses import dataclass

from onesided.weights.errors import WeightsError

_FORMAT = "onesided weights 1"


@dataclass(frozen=True)
class Manifest:
    """One rank's part of a publication. `parameters`: (name, dtype, global shape); `table`: its boxes for the planner,
    their parameters counted in `parameters`. `description`: its memory: range 0 is its stamp,
    and range 1, where `marks` is not 0, has that many words in which readers say that they read."""

    group: str
    rank: int
    world: int
    engine_id: str
    description: bytes
    parameters: tuple[tuple[str, str, tuple[int, ...]], ...]
    table: array[int]
    marks: int = 0

    def encode(self) -> bytes:
        return json.dumps(
            {
                "format": _FORMAT,
                "group": self.group,
                "rank": self.rank,
                "world": self.world,
                "engine_id": self.engine_id,
                "description": base64.b64encode(self.description).decode(),
                "parameters": self.parameters,
                "table": base64.b64encode(self.table.tobytes()).decode(),
                "marks": self.marks,
            }
        ).encode()

    @staticmethod
    def decode(data: bytes) -> Manifest:
        """WeightsError: not a manifest."""
        try:
            fields = json.loads(data)
            if fields["format"] != _FORMAT:
                raise ValueError(f"format {fields['format']!r}, expected {_FORMAT!r}")
            table: array[int] = array("Q")
            table.frombytes(base64.b64decode(fields["table"]))
            return Manifest(
                str(fields["group"]),
                int(fields["rank"]),
                int(fields["world"]),
                str(fields["engine_id"]),
                base64.b64decode(fields["description"]),
                tuple((str(name), str(dtype), tuple(map(int, shape))) for name, dtype, shape in fields["parameters"]),
                table,
                int(fields["marks"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise WeightsError(
                f"not a handle of published weights ({error}); pass what Publication.handle gave"
            ) from error

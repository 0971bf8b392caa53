"""Many processes that open an engine at the same moment.

Started as `python engine_crowd.py COUNT TRANSPORTS`. Prints one JSON line for each engine: its id, and an address where 4096
bytes hold its number. All end when the input ends.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np

import onesided

NBYTES = 4096


def member(number: int, transports: str, start: int) -> None:
    os.read(start, 1)  # all start at the same time: the other end is closed for all of them
    engine = onesided.Engine("127.0.0.1:0", {"transports": transports})
    data = np.full(NBYTES, number, np.uint8)
    engine.register_mem(data.ctypes.data, NBYTES)
    os.write(1, (json.dumps({"id": engine.id, "address": data.ctypes.data, "number": number}) + "\n").encode())
    os.read(0, 1)
    engine.close()


def main() -> None:
    count, transports = int(sys.argv[1]), sys.argv[2]
    start, go = os.pipe()
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            os.close(go)
            member(number, transports, start)
            os._exit(0)
        children.append(child)
    os.close(go)
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    sys.exit(len(failed))


if __name__ == "__main__":
    main()

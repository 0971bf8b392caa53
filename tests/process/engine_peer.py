"""A process with one engine and one registered buffer, driven by JSON lines: the other end of the process tests.

Started as `python engine_peer.py '{"transports": "shm", "nbytes": 1024, "fill": 1}'`; the first line it prints says who it
is, then one line answers each command.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np

import onesided


def answer(**values: object) -> None:
    print(json.dumps(values), flush=True)


def main() -> None:
    wanted = json.loads(sys.argv[1])
    if "uid" in wanted:
        os.setuid(wanted["uid"])
    options = {"transports": wanted["transports"], **wanted.get("options", {})}
    engine = onesided.Engine(wanted.get("local_engine", "127.0.0.1:0"), options)
    nbytes = wanted["nbytes"]
    if "shm" in wanted["transports"]:
        memory = onesided.host_pool(nbytes)
        data = memory.numpy()
    else:
        data = np.zeros(nbytes, np.uint8)  # not there until it is touched
    if "fill" in wanted:
        data[:] = wanted["fill"]
    address = data.ctypes.data
    handle = engine.register_mem(address, nbytes)
    if "connect" in wanted:
        engine.connect(wanted["connect"])
    answer(id=engine.id, address=address, nbytes=nbytes)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        if command == "describe":
            answer(blob=engine.describe([(address, nbytes)]).hex())
        elif command == "deregister":
            engine.deregister_mem(handle)
            answer(done=True)
        elif command == "register":
            handle = engine.register_mem(address, nbytes)
            answer(done=True)
        elif command == "poke":
            offset, value, count = arguments
            data[offset : offset + count] = value
            answer(done=True)
        elif command == "peek":
            offset, count = arguments
            answer(data=data[offset : offset + count].tolist())
        elif command == "inbound_peers":
            answer(inbound_peers=engine.stats()["connected_to_us"])
        elif command == "read":
            remote, remote_address, count = arguments
            engine.transfer_sync(remote, "READ", [(address, remote_address, count)], timeout_ms=10_000)
            answer(data=data[:count].tolist(), used=engine.stats()["peers"][remote]["bytes"])
        elif command == "notifies":
            answer(notifies=[[name, message.hex()] for name, message in engine.get_notifies()])
        elif command == "exit":
            engine.close()
            answer(done=True)
            return
        else:
            answer(error=f"unknown command {command}")


if __name__ == "__main__":
    main()

"""`python -m bench.weights [--json FILE] [--mib N] [--rounds N]`."""

from __future__ import annotations

import argparse
import os
import sys

# The processes use host tensors: without a device runtime torch_npu would not load.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

from .run import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="./do bench weights", description=main.__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--mib", type=int, default=256, help="size of the model (default 256)")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of each case (default 5)")
    arguments = parser.parse_args()
    sys.exit(main(arguments.json, mib=arguments.mib, rounds=arguments.rounds))

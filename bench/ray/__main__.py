"""`python -m bench.ray [--json FILE] [--max-mib N] [--rounds N]`."""

from __future__ import annotations

import argparse
import os
import sys

# The actors use host tensors: without a device runtime torch_npu would not load.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

from .run import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="./do bench ray", description=main.__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the rows there, and a picture beside it")
    parser.add_argument("--max-mib", type=int, default=1024, help="largest object (default 1024)")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of each shape (default 5)")
    arguments = parser.parse_args()
    sys.exit(main(arguments.json, max_mib=arguments.max_mib, rounds=arguments.rounds))

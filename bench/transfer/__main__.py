"""`python -m bench.transfer [--json FILE] [--buffer-mib N]`."""

from __future__ import annotations

import argparse
import sys

from .run import GIB, MIB, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="./do bench transfer", description=main.__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the rows there, and a picture beside it")
    parser.add_argument(
        "--buffer-mib", type=int, default=GIB // MIB, help="registered memory on each side (default 1024)"
    )
    arguments = parser.parse_args()
    sys.exit(main(arguments.json, arguments.buffer_mib * MIB))

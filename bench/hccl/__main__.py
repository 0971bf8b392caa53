"""`python -m bench.hccl [--json FILE] [--rounds N]`."""

from __future__ import annotations

import argparse
import sys

from .run import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="./do bench hccl", description=main.__doc__)
    parser.add_argument("--json", metavar="FILE", nargs="?", const="-", help="write the rows there, or to the output")
    parser.add_argument("--rounds", type=int, default=15, help="measured rounds of each shape (default 15)")
    arguments = parser.parse_args()
    sys.exit(main(arguments.json, rounds=arguments.rounds))

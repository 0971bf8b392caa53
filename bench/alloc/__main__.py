"""`python -m bench.alloc [--json FILE]`."""

from __future__ import annotations

import argparse
import sys

from .run import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="./do bench alloc", description=main.__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the rows there, and a picture beside it")
    sys.exit(main(parser.parse_args().json))

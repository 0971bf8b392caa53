"""Imported at the start of Python when the variable ONESIDED_AS is set: by the .pth file, or by sitecustomize.

An error here must not be lost: Python would print it and go on with the real package. So a value that cannot be
honoured ends the process.
"""

import os
import sys

from onesided import compat

try:
    compat.activate(compat.parse_names(os.environ.get(compat.VARIABLE, "")))
except (RuntimeError, ValueError) as error:
    print(f"onesided: {compat.VARIABLE}={os.environ.get(compat.VARIABLE)}: {error}", file=sys.stderr, flush=True)
    os._exit(2)

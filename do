#!/usr/bin/env bash
# The one entry point. Finds (or installs) a Python that fits and hands over to tools/commands, which sets up
# what the command needs and runs it.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"

say() { printf 'do: %s\n' "$*" >&2; }

# Python 3.10 to 3.13 that can make a virtual environment. 3.11 is what CI runs.
fits() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

find_python() {
  local name
  for name in ${ONESIDED_PYTHON:-python3.11 python3.12 python3.13 python3.10 python3}; do
    if command -v "$name" >/dev/null && fits "$name"; then
      command -v "$name"
      return 0
    fi
  done
  return 1
}

install_python() {
  command -v apt-get >/dev/null || return 1
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || return 1
    as_root=(sudo)
  fi
  say "no Python 3.10 to 3.13 with venv here yet: installing Debian's python3 and python3-venv"
  "${as_root[@]}" apt-get update -qq >&2 && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq python3 python3-venv python3-dev >&2
}

if ! python=$(find_python); then
  if [ -n "${ONESIDED_PYTHON:-}" ]; then
    say "ONESIDED_PYTHON=$ONESIDED_PYTHON is not a Python 3.10 to 3.13 with the venv module; name one that is, or unset it."
    exit 1
  fi
  if ! install_python || ! python=$(find_python); then
    say "no Python 3.10 to 3.13 with the venv module was found and none could be installed; install python3.11 and" \
      "python3.11-venv, or set ONESIDED_PYTHON to such an interpreter."
    exit 1
  fi
fi

export PYTHONPATH=tools PYTHONDONTWRITEBYTECODE=1
exec "$python" -m commands "$@"

"""The virtual functions of torch_npu's allocator as its own header declares them: the order in which they stand in the
table. The decorator carries the list it was compiled with; the wheel that is installed must declare the same.

Also a program, for the build: ``python interface.py HEADER VERSION`` prints the list as the decorator's source has it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HEADER = Path("include", "torch_npu", "csrc", "core", "npu", "NPUCachingAllocator.h")

_CLASS = re.compile(r"class NPUAllocator\s*:\s*public\s+([\w:]+)\s*\{")
_VALUES = re.compile(
    r"struct (Stat|DeviceStats|BlockInfo|SegmentInfo|TraceEntry|SnapshotInfo|CheckpointDelta|ShareableHandle)\s*\{"
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FUNCTION = re.compile(r"virtual\s+([^;{}]*?\([^;{]*?\))\s*(?:const)?\s*(?:=\s*0\s*;|\{|;)|([^;{}]*?\))\s*override\b")
_DEFAULT = re.compile(r"\s*=\s*(?:\{[^}]*\}|[\w:]+)(?=\s*[,)])")


def _body(text: str, start: int) -> str:
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return text[start:]


def virtual_functions(header: str) -> list[str]:
    """The base class, then each function with its types, in order. Empty: the text declares no NPUAllocator."""
    plain = _COMMENT.sub(" ", header)
    found = _CLASS.search(plain)
    if not found:
        return []
    functions = [found[1]]
    for match in _FUNCTION.finditer(_DEFAULT.sub("", _body(plain, found.end()))):
        words = " ".join((match[1] or match[2]).split())
        functions.append(re.sub(r"\s*([(),&*])\s*", r"\1", words))
    return functions


def passed_values(header: str) -> list[str]:
    """The structures that these functions pass, each with its members, in order: their layout matters as much."""
    plain = _COMMENT.sub(" ", header)
    return [f"{match[1]}: {''.join(_body(plain, match.end()).split())}" for match in _VALUES.finditer(plain)]


def declared(header: str) -> list[str]:
    """All that a build of the decorator depends on. Empty: the text declares no NPUAllocator."""
    functions = virtual_functions(header)
    return functions + passed_values(header) if functions else []


def installed(package: Path) -> list[str]:
    """`declared` of an installed torch_npu; empty: it ships no such header."""
    try:
        return declared((package / HEADER).read_text(errors="replace"))
    except OSError:
        return []


def difference(expected: list[str], found: list[str]) -> str | None:
    """The first difference in words; None: there is none."""
    if not found:
        return "it ships no header that declares its allocator"
    for place, (ours, theirs) in enumerate(zip(expected, found, strict=False)):
        if ours != theirs:
            return f"line {place} of its allocator's interface is `{theirs}`, this build expects `{ours}`"
    if len(expected) != len(found):
        return f"its allocator's interface has {len(found)} lines, this build expects {len(expected)}"
    return None


def _as_source(lines: list[str], version: str) -> str:
    text = " \\\n".join(f'  "{line}\\n"' for line in lines)
    return f'#define ONESIDED_BUILT_FOR "{version}"\n#define ONESIDED_INTERFACE \\\n{text}\n'


if __name__ == "__main__":
    found = declared(Path(sys.argv[1]).read_text(errors="replace"))
    if not found:
        sys.exit(f"{sys.argv[1]} declares no NPUAllocator")
    print(_as_source(found, sys.argv[2]), end="")

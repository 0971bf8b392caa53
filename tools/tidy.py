#!/usr/bin/env python3
"""Checks the rules of the project that a machine can check: layers, sizes, names, purposes, words, strays."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FILE_STOP, FILE_TALK = 600, 400
FUNCTION_STOP, FUNCTION_TALK = 100, 70

# A module may include only itself and what stands here (ARCHITECTURE.md). Bindings and ascend_sim stand on node.
_BASE = {"base"}
_DEVICE = _BASE | {"device"}
MODULES = {
    "base": _BASE,
    "device": _DEVICE,
    "memory": _DEVICE | {"memory"},
    "wire": _BASE | {"wire"},
    "transport": _DEVICE | {"wire", "transport"},
    "engine": _DEVICE | {"wire", "transport", "engine"},
    "node": _DEVICE | {"wire", "transport", "engine", "memory", "node"},
}
# Modules whose sub-folders are siblings: they show each other nothing, and only factory.h to node.
SIBLINGS = {"device", "transport"}

FORBIDDEN_WORDS = {"util", "utils", "common", "helper", "helpers", "manager", "misc", "impl2"}
# Private words of earlier texts, with the words to use instead. Checked in comments, docstrings and documents as whole
# words, apart from inline code; names in the code are not checked.
WORDS_OUT = {
    "house": "project",
    "room": "module, or capacity",
    "rooms": "modules",
    "verb": "operation, or command",
    "verbs": "operations, or commands",
    "mend": "fix",
    "farewell": "disconnect",
    "crowd": "many peers",
    "guest": "inbound peer",
    "guests": "inbound peers",
    "nobody": "no peer, no thread, ...",
    "somebody": "another thread, a peer, ...",
    "anybody": "any thread, any process, ...",
    "everybody": "all peers, all threads, ...",
    "copies along": "takes part in the copying",
    "lets go of": "releases",
}
WORD_OUT = re.compile(rf"\b({'|'.join(WORDS_OUT)})\b", re.IGNORECASE)
LABEL_WHY = re.compile(r"^\W*Why: ")
INLINE_CODE = re.compile(r"`[^`]*`")
STRAY_WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.-])/(?:work|root|home/(?!<)\w+)/")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')
BACKEND_IF = re.compile(r"^\s*#\s*(?:el)?if.*\bONESIDED_(?:WITH|HAVE)_")
SNAKE = re.compile(r"^_{0,2}[a-z0-9]+(?:_[a-z0-9]+)*_{0,2}$")
TYPE_NAME = re.compile(r"^\s*(?:class|struct|enum class|enum)\s+(?:\[\[\w+\]\]\s+)?([A-Za-z_]\w*)")
NOT_A_FUNCTION = re.compile(r"(namespace|class|struct|enum|union|extern|if|for|while|switch|else|do)\b")
# The only folders whose code may include PyTorch.
TORCH_FOLDERS = (("bindings", "torch_npu"), ("ascend_sim", "route_torch"))
CODE_FOLDERS = ("src", "bindings", "ascend_sim", "tests", "bench", "python", "tools")


@dataclass(frozen=True)
class Finding:
    """One broken rule. A value."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


def _is_test(path: Path) -> bool:
    return path.parts[0] in ("tests", "bench") or path.stem.endswith("_test") or path.stem.endswith("_fuzz")


def _module_of(path: Path) -> str | None:
    """The module of a file: a folder of src/onesided, "bindings" or "ascend_sim"; None where no layer rule applies."""
    if path.parts[:2] == ("src", "onesided") and len(path.parts) > 3:
        return path.parts[2]
    return path.parts[0] if path.parts[0] in ("bindings", "ascend_sim") else None


def check_layers(path: Path, lines: list[str]) -> Iterator[Finding]:
    """Includes obey the plan: modules, siblings and their factories, no vendor header."""
    module = _module_of(path)
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match[1]
        if re.match(r"(acl|hccl|hixl|adxl|ge|graph)/", target):
            yield Finding(str(path), number, "layers", f"{target} is a vendor header; declare what is needed ourselves")
        if target.startswith(("torch/", "torch_npu/", "c10/", "ATen/")) and path.parts[:2] not in TORCH_FOLDERS:
            yield Finding(
                str(path),
                number,
                "layers",
                f"{target}: only {' and '.join(map('/'.join, TORCH_FOLDERS))} may know torch",
            )
        if path.parts[0] == "src" and target.startswith(("ascend_sim/", "bindings/")):
            yield Finding(str(path), number, "layers", f"{target} stands above src/onesided")
        parts = target.split("/")
        if module is None or parts[0] != "onesided" or len(parts) < 3:
            continue
        if module in MODULES and parts[1] in MODULES and parts[1] not in MODULES[module]:
            allowed = ", ".join(sorted(MODULES[module]))
            yield Finding(str(path), number, "layers", f"{module} may not include {target} (it may use: {allowed})")
        yield from _sibling_findings(path, number, target)


def _sibling_findings(path: Path, number: int, target: str) -> Iterator[Finding]:
    parts = target.split("/")
    if parts[1] not in SIBLINGS or len(parts) < 4 or _is_test(path):
        return
    backend = f"{parts[1]}/{parts[2]}"
    if path.parts[:4] == ("src", "onesided", parts[1], parts[2]):
        return
    if path.parts[:3] == ("src", "onesided", parts[1]) and len(path.parts) > 4:
        yield Finding(str(path), number, "layers", f"{path.parts[3]} includes its sibling {backend}")
    elif parts[3] != "factory.h":
        yield Finding(str(path), number, "layers", f"{backend} shows only its factory.h, not {parts[3]}")
    elif _module_of(path) in MODULES and _module_of(path) != "node":
        yield Finding(str(path), number, "layers", f"only node may name {backend}")


def check_size(path: Path, lines: list[str]) -> Iterator[Finding]:
    if len(lines) > FILE_STOP:
        yield Finding(str(path), len(lines), "size", f"{len(lines)} lines; the limit is {FILE_STOP}")


def cpp_functions(lines: list[str]) -> Iterator[tuple[int, int]]:
    """(first line, length) of what clang-format lays out as a function at the margin or one level in."""
    for indent in ("", "  "):
        opened: int | None = None
        for number, line in enumerate(lines, 1):
            if opened is None:
                body = line[len(indent) :] if line.startswith(indent) else ""
                starts = body[:1].isalpha() or (body[:1] in "~_" and body)
                if starts and not NOT_A_FUNCTION.match(body) and line.rstrip().endswith("{"):
                    opened = number
            elif line.startswith(indent + "}"):
                yield opened, number - opened + 1
                opened = None


def python_functions(tree: ast.Module) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


def check_functions(path: Path, functions: Iterable[tuple[int, int]]) -> Iterator[Finding]:
    for line, length in functions:
        if length > FUNCTION_STOP:
            yield Finding(str(path), line, "size", f"a function of {length} lines; about {FUNCTION_TALK} is the limit")


def check_file_name(path: Path) -> Iterator[Finding]:
    if not SNAKE.match(path.stem.split(".")[0]):
        yield Finding(str(path), 1, "names", "file names are snake_case")
    words = set(path.stem.lower().split("_")) & FORBIDDEN_WORDS
    for word in sorted(words):
        yield Finding(str(path), 1, "names", f"{word!r} says nothing; name the file after its main noun")


def check_type_names(path: Path, lines: list[str]) -> Iterator[Finding]:
    if path.parts[:2] == ("ascend_sim", "vendor"):
        return  # the vendor's names, which programs link against
    for number, line in enumerate(lines, 1):
        match = TYPE_NAME.match(line)
        if not match:
            continue
        words = {word.lower() for word in re.findall(r"[A-Z][a-z0-9]*", match[1])} & FORBIDDEN_WORDS
        for word in sorted(words):
            yield Finding(str(path), number, "names", f"{match[1]}: {word!r} says nothing; name what it is")


def check_purpose(path: Path, lines: list[str], present: set[str]) -> Iterator[Finding]:
    """The top of a file says why it exists: headers, and sources that have none beside them (nor a factory.h)."""
    beside = {str(path.with_suffix(".h")), str(path.with_name("factory.h"))}
    if path.suffix == ".cc" and (beside & present or _is_test(path)):
        return
    first = next((line for line in lines if line.strip()), "")
    if not first.startswith("// "):
        yield Finding(str(path), 1, "purpose", "starts without a comment that says what the file is for")


def check_strays(path: Path, lines: list[str]) -> Iterator[Finding]:
    for number, line in enumerate(lines, 1):
        if STRAY_WORDS.search(line):
            yield Finding(str(path), number, "strays", "an unfinished thought; finish it or file an issue")
        if MACHINE_PATHS.search(line):
            yield Finding(str(path), number, "strays", "a path of one machine")
        if BACKEND_IF.match(line) and path != Path("src/onesided/node/backends.cc"):
            yield Finding(str(path), number, "layers", "an optional backend's #if outside node/backends.cc")


def texts_of(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """(line number, prose of that line): comments of C++ and CMake, comments and docstrings of Python, documents."""
    lines = text.splitlines()
    if path.suffix in (".cc", ".h"):
        yield from ((number, line.split("//", 1)[1]) for number, line in enumerate(lines, 1) if "//" in line)
    elif path.suffix == ".md":
        fenced = False
        for number, line in enumerate(lines, 1):
            fenced ^= line.lstrip().startswith("```")
            if not fenced and not line.startswith("    "):
                yield number, line
    elif path.suffix == ".cmake" or path.name == "CMakeLists.txt":
        yield from ((number, line.split("#", 1)[1]) for number, line in enumerate(lines, 1) if "#" in line)
    elif path.suffix in (".py", ".pyi"):
        yield from _python_texts(text)


def _python_texts(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
            yield from enumerate(token.string.splitlines(), token.start[0])


def check_words(path: Path, text: str) -> Iterator[Finding]:
    for number, prose in texts_of(path, text):
        for word in WORD_OUT.findall(INLINE_CODE.sub("", prose)):
            yield Finding(str(path), number, "words", f"{word!r}: write {WORDS_OUT[word.lower()]!r}")
        if LABEL_WHY.match(prose):
            yield Finding(str(path), number, "words", "the label 'Why:': begin with what the file is for")


def check_file(root: Path, path: Path, present: set[str]) -> Iterator[Finding]:
    """Every rule on one file; `path` is relative to `root`."""
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    lines = text.splitlines()
    if path != Path("tools/tidy.py") and path.name != "test_tidy.py":
        yield from check_strays(path, lines)
        if path.name != "CHANGELOG.md":  # it names what was renamed
            yield from check_words(path, text)
    if path.suffix not in (".cc", ".h", ".py", ".pyi") or path.parts[0] not in CODE_FOLDERS:
        return
    yield from check_size(path, lines)
    yield from check_file_name(path)
    yield from check_type_names(path, lines)
    if path.suffix in (".cc", ".h"):
        yield from check_layers(path, lines)
        yield from check_functions(path, cpp_functions(lines))
        yield from check_purpose(path, lines, present)
    elif path.suffix == ".py" and lines:
        tree = ast.parse(text, filename=str(path))
        yield from check_functions(path, python_functions(tree))
        if not ast.get_docstring(tree):
            yield Finding(str(path), 1, "purpose", "has no docstring that says why the file exists")


def files_of(root: Path) -> list[Path]:
    """Text files under version control or about to be; every text file where there is no git."""
    suffixes = {".cc", ".h", ".py", ".pyi", ".md", ".txt", ".cmake", ".toml", ".json", ".map", ".yaml", ".yml", ""}
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=False)
    if listed.returncode == 0:
        names = [Path(name.decode()) for name in listed.stdout.split(b"\0") if name]
    else:
        below = (path.relative_to(root) for path in root.rglob("*"))
        names = [path for path in below if path.parts[0] not in ("build", ".venv")]
    return sorted(name for name in names if name.suffix in suffixes and (root / name).is_file())


def main(root: Path) -> int:
    files = files_of(root)
    present = {str(path) for path in files}
    findings = [finding for path in files for finding in check_file(root, path, present)]
    for finding in findings:
        print(finding)
    for path in files:
        if path.suffix in (".cc", ".h", ".py") and path.parts[0] in CODE_FOLDERS:
            length = len((root / path).read_text(encoding="utf-8", errors="replace").splitlines())
            if FILE_TALK < length <= FILE_STOP:
                print(f"{path}: {length} lines: talk about it")
    print(f"tidy: {len(files)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[1]))

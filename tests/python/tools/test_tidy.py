"""Tests of tools/tidy.py: for each rule one file that it must refuse and one that it must accept."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidy

HEAD = "// an example.\n"


def findings(tmp_path: Path, name: str, text: str, *present: str) -> list[str]:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    found = tidy.check_file(tmp_path, Path(name), {name, *present})
    return [f"{finding.rule}: {finding.text}" for finding in found]


@pytest.mark.parametrize(
    ("name", "include", "words"),
    [
        ("src/onesided/memory/pool.h", "onesided/transport/link.h", "memory may not include"),
        ("src/onesided/transport/link.h", "onesided/memory/pool.h", "transport may not include"),
        ("src/onesided/base/fd.h", "onesided/device/device.h", "base may not include"),
        ("src/onesided/engine/engine.h", "onesided/device/acl/factory.h", "only node may name device/acl"),
        ("src/onesided/transport/shm/link.h", "onesided/transport/tcp/factory.h", "includes its sibling transport/tcp"),
        ("src/onesided/node/backends.h", "onesided/transport/tcp/link.h", "shows only its factory.h"),
        ("src/onesided/engine/engine.h", "ascend_sim/acl/device.h", "stands above"),
        ("ascend_sim/acl/runtime.h", "acl/acl.h", "vendor header"),
        ("src/onesided/memory/pool.h", "torch/extension.h", "may know torch"),
    ],
)
def test_a_forbidden_include_is_found(tmp_path: Path, name: str, include: str, words: str) -> None:
    assert any(words in found for found in findings(tmp_path, name, f'{HEAD}#include "{include}"\n'))


@pytest.mark.parametrize(
    ("name", "include"),
    [
        ("src/onesided/memory/pool.h", "onesided/device/device.h"),
        ("src/onesided/engine/engine.h", "onesided/wire/region.h"),
        ("src/onesided/node/backends.h", "onesided/transport/tcp/factory.h"),
        ("src/onesided/transport/shm/link.h", "onesided/transport/shm/map.h"),
        ("src/onesided/transport/shm/link_test.cc", "onesided/transport/tcp/link.h"),
        ("bindings/torch_npu/allocator.h", "torch_npu/csrc/core/npu/NPUCachingAllocator.h"),
    ],
)
def test_an_allowed_include_passes(tmp_path: Path, name: str, include: str) -> None:
    assert findings(tmp_path, name, f'{HEAD}#include "{include}"\n') == []


def test_long_files_and_functions_are_found(tmp_path: Path) -> None:
    assert findings(tmp_path, "src/onesided/base/long.h", HEAD + "int a;\n" * 600) == [
        "size: 601 lines; the limit is 600"
    ]
    body = "int long_one() {\n" + "  step();\n" * 100 + "}\n"
    assert any("function of 102 lines" in found for found in findings(tmp_path, "src/onesided/base/one.h", HEAD + body))
    method = "class One {\n  int run() {\n" + "    step();\n" * 100 + "  }\n};\n"
    assert any(
        "function of 102 lines" in found for found in findings(tmp_path, "src/onesided/base/two.h", HEAD + method)
    )
    python = '"""An example."""\ndef run():\n' + "    step()\n" * 101
    assert any("function of 102 lines" in found for found in findings(tmp_path, "python/onesided/run.py", python))


def test_a_class_is_not_a_function(tmp_path: Path) -> None:
    text = HEAD + "namespace onesided {\nclass Wide {\n" + "  int a();\n" * 200 + "};\n}\n"
    assert findings(tmp_path, "src/onesided/base/wide.h", text) == []


@pytest.mark.parametrize("name", ["src/onesided/base/string_utils.h", "python/onesided/common.py", "tools/Tidy.py"])
def test_names_that_say_nothing_are_found(tmp_path: Path, name: str) -> None:
    text = HEAD if name.endswith(".h") else '"""An example."""\n'
    assert any(found.startswith("names") for found in findings(tmp_path, name, text))


def test_type_names_that_say_nothing_are_found(tmp_path: Path) -> None:
    assert any(
        "PoolManager" in f for f in findings(tmp_path, "src/onesided/base/a.h", HEAD + "class PoolManager {\n};\n")
    )
    derived = '"""An example."""\nclass Transport(TensorTransportManager):\n    pass\n'
    assert findings(tmp_path, "python/onesided/a.py", derived) == []


def test_a_file_says_why_it_exists(tmp_path: Path) -> None:
    assert any(f.startswith("purpose") for f in findings(tmp_path, "src/onesided/base/a.h", "#pragma once\n"))
    assert any(f.startswith("purpose") for f in findings(tmp_path, "src/onesided/base/a.cc", "int a;\n"))
    assert findings(tmp_path, "src/onesided/base/a.cc", "int a;\n", "src/onesided/base/a.h") == []
    assert any(f.startswith("purpose") for f in findings(tmp_path, "python/onesided/a.py", "import os\n"))


def test_strays_are_found(tmp_path: Path) -> None:
    assert any("unfinished" in f for f in findings(tmp_path, "README.md", "TODO: write\n"))
    assert any("path of one machine" in f for f in findings(tmp_path, "README.md", "see /root/x\n"))
    assert findings(tmp_path, "README.md", "see https://example.org/work/x and network/work/x\n") == []
    backend = HEAD + "#if ONESIDED_WITH_UCX\n#endif\n"
    assert any("backends.cc" in f for f in findings(tmp_path, "src/onesided/engine/a.h", backend))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/onesided/base/a.h", HEAD + "int a;  // the guests of an engine\n"),
        ("src/onesided/base/a.h", "// Why: two things.\n"),
        ("python/onesided/a.py", '"""An example that nobody reads."""\n'),
        ("python/onesided/a.py", '"""An example."""\n\n# It lets go of the lock.\n'),
        ("docs/a.md", "Each verb of the engine.\n"),
        ("src/CMakeLists.txt", "# The plan of the house.\n"),
    ],
)
def test_words_that_are_out_are_found(tmp_path: Path, name: str, text: str) -> None:
    assert any(found.startswith("words") for found in findings(tmp_path, name, text))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/onesided/base/a.h", HEAD + 'const char* guests = "guests";  // inbound peers\n'),
        ("python/onesided/a.py", '"""An example."""\n\nROOM = "room"  # the mushroom, a proverb\n'),
        ("docs/a.md", "The field `guests`.\n\n```\nverb\n```\n"),
    ],
)
def test_names_code_and_longer_words_are_not_checked(tmp_path: Path, name: str, text: str) -> None:
    assert not any(found.startswith("words") for found in findings(tmp_path, name, text))


def test_the_project_is_tidy() -> None:
    assert tidy.main(Path(tidy.__file__).resolve().parents[1]) == 0

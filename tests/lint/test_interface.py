# SPDX-License-Identifier: LGPL-2.1-or-later
"""libwayback exports what its installed header declares, and the reference and the binding agree with it."""
import ast
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("WAYBACK_BUILD") or ROOT / "build").resolve()
HEADER = ROOT / "include/wayback/wayback.h"
LIBRARY = BUILD / "src/libwayback.so.0"

shared = pytest.mark.skipif(not LIBRARY.exists(), reason="only a static library was built")


def code(path):
    """A header without comments, preprocessor lines and bodies of structures."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
    text = re.sub(r"^\s*#(?:.*\\\n)*.*$", "", text, flags=re.M).replace('extern "C" {', "")
    while re.search(r"\{[^{}]*\}", text):
        text = re.sub(r"\{[^{}]*\}", "", text)
    return text


def functions(path):
    return re.findall(r"\b(wb_\w+)\s*\(", code(path))


def exported():
    """{symbol: its version node} of the library."""
    lines = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", LIBRARY], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    return {name: node for name, node in (line.split()[-1].split("@@") for line in lines if "@@" in line)}


def installed():
    """Headers that are installed, by the list of the build."""
    text = (ROOT / "include/wayback/meson.build").read_text(encoding="utf-8")
    return re.findall(r"'([\w.]+\.h)'", text)


@shared
def test_the_public_node_is_the_installed_header_and_nothing_else():
    assert installed() == ["wayback.h"]
    names = exported()
    assert {node for node in names.values()} == {"WAYBACK_0.1", "WAYBACK_PRIVATE"}
    public = sorted(name for name, node in names.items() if node == "WAYBACK_0.1")
    assert public == sorted(functions(HEADER)) and len(public) > 20


@shared
def test_the_private_node_is_declared_for_the_tools():
    private = {name for name, node in exported().items() if node == "WAYBACK_PRIVATE"}
    headers = [path for path in (ROOT / "include/wayback").glob("*.h") if path != HEADER]
    declared = {name for path in [*headers, *(ROOT / "src/client").rglob("*.h")] for name in functions(path)}
    assert private - declared == set()


@pytest.mark.parametrize("compiler", [["cc", "-x", "c", "-std=c99"], ["cc", "-x", "c", "-std=c17"],
                                      ["c++", "-x", "c++", "-std=c++11"]], ids=["c99", "c17", "cxx11"])
def test_the_header_compiles_alone(compiler):
    if not shutil.which(compiler[0]):
        pytest.skip(f"no {compiler[0]}")
    result = subprocess.run([*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", HEADER],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_the_reference_is_current():
    subprocess.run([ROOT / "scripts/reference", "--check"], check=True)
    page = (ROOT / "docs/man/libwayback.3").read_text(encoding="utf-8").replace("\\-", "-")
    assert [name for name in functions(HEADER) if not re.search(rf"^\.B .*\b{name}\(", page, re.M)] == []
    if shutil.which("groff"):
        result = subprocess.run(["groff", "-man", "-Tutf8", "-z", "-wmac", "-wsyntax", ROOT / "docs/man/libwayback.3"],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert (result.returncode, result.stdout) == (0, "")


def binding():
    return ast.parse((ROOT / "bindings/python/wayback.py").read_text(encoding="utf-8"))


def test_the_binding_has_every_function():
    table = next(node.value for node in ast.walk(binding()) if isinstance(node, ast.Assign)
                 and getattr(node.targets[0], "id", "") == "_PROTOTYPES")
    named = {key.value: len(value.elts) - 1 for key, value in zip(table.keys, table.values)}
    declared = {name: 0 if arguments.strip() == "void" else arguments.count(",") + 1
                for name, arguments in re.findall(r"\b(wb_\w+)\s*\(([^)]*)\)", code(HEADER))}
    assert named == declared


def test_the_binding_has_the_fields_of_every_structure():
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.S)
    for node in ast.walk(binding()):
        if not isinstance(node, ast.ClassDef) or "Structure" not in [getattr(base, "id", "") for base in node.bases]:
            continue
        fields = [element.elts[0].value for element in node.body[0].value.elts]
        name = "wb" + re.sub(r"([A-Z])", lambda match: "_" + match[1].lower(), node.name[1:])
        body = re.search(rf"struct {name} \{{(.*?)\}};", text, re.S)[1]
        body = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", body)
        declared = [re.sub(r".*[\s*]", "", part.strip()) for line in body.split(";") for part in line.split(",")
                    if part.strip()]
        assert fields == declared, name


def test_the_actions_have_the_numbers_of_the_header():
    text = HEADER.read_text(encoding="utf-8")
    numbers = dict(re.findall(r"WB_RESTORE_(\w+) = (\d+)", text))
    actions = next(node for node in ast.walk(binding()) if isinstance(node, ast.ClassDef) and node.name == "Action")
    assert {item.targets[0].id: str(item.value.value) for item in actions.body if isinstance(item, ast.Assign)} == numbers

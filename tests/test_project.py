"""What the project says about itself is true: folders, commands, versions, pins."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from packaging.requirements import Requirement
from packaging.version import Version

import ramet
from ramet.cli.app import build_app

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ("scripts/demo", "scripts/test", "scripts/lint", ".ci/run")

# Written in two halves, so that this file does not hold what it looks for.
MACHINE_PATHS = re.compile(r"(?<![\w./~$}])/(?:" + "|".join(["wor" + "k", "roo" + "t", "hom" + "e", "op" + "t", "User" + "s"]) + ")/")
REGISTRIES = re.compile("|".join(["pypi" + r"\.org", "python" + "hosted", "download" + r"\.pytorch", "index" + "-url", "find" + "-links"]))


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def project_files() -> list[Path]:
    """The files that belong to the project: those that git has, or would take."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout, so what belongs to the project is not known")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def test_no_file_speaks_of_one_machine_or_one_registry() -> None:
    found: list[str] = []
    files = project_files()
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture or weights
        found += [f"{path.name}: {match.group()}" for pattern in (MACHINE_PATHS, REGISTRIES) for match in pattern.finditer(text)]
    assert found == []
    assert ROOT / "pyproject.toml" in files


@pytest.mark.parametrize("text", ["see /hom" + "e/me/x", "cd /wor" + "k/main", "--extra-index" + "-url x", "https://pypi" + ".org/simple"])
def test_such_a_mention_would_be_found(text: str) -> None:
    assert MACHINE_PATHS.search(text) or REGISTRIES.search(text)


def test_the_structure_page_names_every_folder_and_no_other() -> None:
    text = (ROOT / "docs" / "structure.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(ramet/(?:[a-z_]+/)+)`", text))
    folders = {path.parent.relative_to(ROOT).as_posix() + "/" for path in (ROOT / "ramet").rglob("*.py")} - {"ramet/"}
    assert named == folders


@pytest.mark.parametrize("page", ["docs/structure.md", "README.md", "CONTRIBUTING.md"])
def test_files_named_in_the_pages_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:ramet|tests|docs|scripts|examples|bench)/[\w./-]+\w)`", text))
    named |= {name for name in re.findall(r"\]\(((?!https?:)[^)#]+)", text) if page == "README.md"}
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
    assert named


def test_the_commands_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line.split("#")[0].split() for block in code_blocks(text, "bash") for line in block.splitlines()]
    words = [line for line in lines if line]
    assert ["scripts/demo"] in words
    assert ["scripts/test"] in words
    commands = set(typer.main.get_group(build_app()).commands)
    for line in words:
        if line[0].startswith("scripts/"):
            assert os.access(ROOT / line[0], os.X_OK), line
        elif line[0] == "ramet":
            assert line[1] in commands, line
        else:
            assert line[0] in ("git", "cd", "pip"), f"what is {line}?"


def test_there_is_one_version() -> None:
    version = project()["project"]["version"]
    assert version == ramet.__version__
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_dependency_is_pinned_within_its_range() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {name.lower().replace("_", "-"): Version(pin) for name, _, pin in (line.partition("==") for line in lines if "==" in line)}
    assert all(pin.local is None for pin in pins.values())
    tables = project()["project"]
    extras = tables["optional-dependencies"]
    for text in [*tables["dependencies"], *extras["test"], *extras["masks"], *extras["bench"]]:
        need = Requirement(text)
        if need.name == "ramet":  # an extra that takes in another one
            continue
        assert pins[need.name.lower().replace("_", "-")] in need.specifier, text


def test_every_module_says_what_it_is_for() -> None:
    paths = sorted((ROOT / "ramet").rglob("*.py"))
    assert paths
    assert [path.name for path in paths if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))] == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_can_be_run_and_stop_at_the_first_error(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert os.access(ROOT / name, os.X_OK)
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    subprocess.run(["bash", "-n", str(ROOT / name)], check=True)

"""How large modules are, and that what tests need is in no wheel."""

import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LINES_MAX: Final = 300
CODE: Final = ("libs/*/src", "services/*/src")


def test_a_module_has_one_topic_so_no_more_than_300_lines() -> None:
    modules = [path for folder in CODE for root in ROOT.glob(folder) for path in root.rglob("*.py")]
    long = {
        str(path.relative_to(ROOT)): lines
        for path in modules
        if (lines := len(path.read_text().splitlines())) > LINES_MAX
    }

    assert len(modules) > 200
    assert long == {}


def test_what_tests_need_is_in_no_wheel() -> None:
    found: dict[str, list[str]] = {}
    for folder in CODE:
        for package in (package for root in ROOT.glob(folder) for package in root.iterdir()):
            names = [path.name for path in package.iterdir() if path.name in {"testing", "testing.py"}]
            if names:
                project = tomllib.loads((package.parents[1] / "pyproject.toml").read_text())
                wheels = project["tool"]["hatch"]["build"]["targets"]["wheel"]
                found[package.name] = [name for name in names if name not in wheels.get("exclude", ())]

    assert len(found) >= 8
    assert all(not names for names in found.values()), found

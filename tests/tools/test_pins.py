"""Every package that a checkout installs has one version, which pyproject.toml names."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def spelled(name: str) -> str:
    """The one spelling of a package's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_package_that_is_installed_is_pinned() -> None:
    """What is not pinned changes by itself: new type hints once failed every check of that day."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    pinned = {spelled(pin.partition("==")[0]) for pin in project["tool"]["uv"]["constraint-dependencies"]}
    installed = {spelled(package["name"]) for package in lock["package"]}
    assert {name for name in installed if not name.startswith("sunk")} == pinned

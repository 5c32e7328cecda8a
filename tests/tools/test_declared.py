"""What tools/declared.py finds."""

import runpy
from pathlib import Path
from typing import Any, Final

import pytest

DECLARED: Final[dict[str, Any]] = runpy.run_path(str(Path(__file__).parents[2] / "tools/declared.py"))
PROVIDERS: Final = {"anyio": {"anyio"}, "yaml": {"pyyaml"}, "google": {"protobuf", "google-api"}}


@pytest.mark.parametrize(
    ("names", "source", "found"),
    [
        ('"anyio>=4", "PyYAML[fast]"', "import os\nimport anyio\nfrom yaml import x", []),
        ("", "def f():\n    import anyio.abc", ["sunk-a imports anyio and does not declare it"]),
        ('"anyio"', "", ["sunk-a declares anyio and does not import it"]),
        ('"protobuf"', "import google.protobuf", []),
        ("", "import sunk_a\nfrom . import b", []),
        ("", "from sunk_b.c import d", ["sunk-a imports sunk_b and does not declare it"]),
        ('"sunk-b"', "from sunk_b.c import d", []),
        ("", "import unheard_of", ["sunk-a imports unheard_of and does not declare it"]),
    ],
)
def test_what_is_imported_is_declared_and_what_is_declared_is_imported(
    tmp_path: Path, names: str, source: str, found: list[str]
) -> None:
    package(tmp_path, names, source)

    assert DECLARED["problems"](tmp_path, PROVIDERS) == found


def test_what_no_wheel_has_may_import_what_it_likes(tmp_path: Path) -> None:
    module = package(tmp_path, "", "")
    (module.parent / "testing").mkdir()
    (module.parent / "testing" / "b.py").write_text("import anyio")

    assert DECLARED["problems"](tmp_path, PROVIDERS) == []


def package(folder: Path, names: str, source: str) -> Path:
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "sunk-a"\ndependencies = [{names}]\n'
        '[tool.hatch.build.targets.wheel]\nexclude = ["testing"]\n'
    )
    module = folder / "src" / "sunk_a" / "main.py"
    module.parent.mkdir(parents=True)
    module.write_text(source)
    return module

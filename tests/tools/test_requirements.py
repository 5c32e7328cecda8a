"""What the services' images are made of: wheels by their hashes, and nothing from elsewhere."""

import re
import runpy
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from sunk_lab.service_images import SERVICES

ROOT: Final = Path(__file__).parents[2]
REQUIREMENTS: Final = ROOT / "images/requirements"
HASH: Final = "sha256:" + "0" * 64


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return runpy.run_path(str(ROOT / "tools/gen_requirements.py"))
    finally:
        sys.path.remove(str(ROOT / "tools"))


@pytest.mark.parametrize("name", ["build", *SERVICES])
def test_every_wheel_has_a_version_and_a_hash_and_no_address(name: str) -> None:
    text = (REQUIREMENTS / f"{name}.txt").read_text()
    wheels = [one for one in text.replace("\\\n", " ").splitlines() if not one.startswith("#")]

    assert "://" not in text
    assert "--index" not in text
    for wheel in wheels:
        assert re.fullmatch(
            r"[a-z0-9-]+==[0-9a-z.]+( ; [A-Za-z_0-9 <>='.!]+)?( +--hash=sha256:[0-9a-f]{64})+", wheel
        )


def test_images_are_made_of_these_wheels_and_run_nothing_of_them_before() -> None:
    recipe = (ROOT / "images/services.Dockerfile").read_text()
    installs = [line for line in recipe.splitlines() if re.search(r"\bpip install\b", line)]

    foreign = [line for line in installs if ".local.txt" not in line]
    assert len(foreign) == 2
    assert all("--require-hashes --only-binary :all:" in line for line in foreign)
    assert "uv sync" not in recipe


@pytest.mark.parametrize(
    ("wheel", "expected"),
    [
        ("a-1-py3-none-any.whl", True),
        ("a-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("a-1-cp37-abi3-manylinux_2_17_aarch64.whl", True),
        ("a-1-cp310-cp310-manylinux_2_17_x86_64.whl", False),
        ("a-1-cp314-cp314t-manylinux_2_17_x86_64.whl", False),
        ("a-1-cp311-cp311-musllinux_1_2_x86_64.whl", False),
        ("a-1-cp311-cp311-win_amd64.whl", False),
        ("a-1-cp311-cp311-macosx_11_0_arm64.whl", False),
    ],
)
def test_a_wheel_counts_if_an_image_could_have_it(
    tool: dict[str, Any], wheel: str, *, expected: bool
) -> None:
    assert tool["is_usable"](f"https://index.example/a/{wheel}") == expected


@pytest.mark.parametrize(
    ("there", "wanted", "expected"),
    [
        (f"a==1 \\\n    --hash={HASH}\n", f"a==1 \\\n    --hash={HASH}\n", []),
        # A wheel that was added to the index since then.
        (f"a==1 \\\n    --hash={HASH}\n", f"a==1 \\\n    --hash={HASH} \\\n    --hash={HASH[:-1]}1\n", []),
        (
            f"a==1 \\\n    --hash={HASH}\n",
            f"a==1 \\\n    --hash={HASH[:-1]}1\n",
            [f"x.txt: the package index has no wheel with {HASH}"],
        ),
        (
            f"a==1\nb==1 \\\n    --hash={HASH}\n",
            f"a==1 \\\n    --hash={HASH}\nb==1 \\\n    --hash={HASH}\n",
            ["x.txt: a==1 has no hash"],
        ),
        ("# N\n./libs/a\n", "# N\n./libs/a\n", []),
        ("a==1\n", "a==2\n", ["x.txt: has other packages or versions than the pins"]),
        ("", "a==2\n", ["x.txt: has other packages or versions than the pins"]),
    ],
)
def test_what_the_index_does_not_have_is_said(
    tool: dict[str, Any], there: str, wanted: str, expected: list[str]
) -> None:
    assert tool["differences"](Path("x.txt"), there, wanted) == expected


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        ({}, "a==1: there is no wheel for Linux"),
        ({"wheels": []}, "a==1: there is no wheel for Linux"),
        ({"wheels": [{"hash": HASH}]}, "a==1: there is no wheel for Linux"),
        (
            {"wheels": [{"url": "https://index.example/a-1-py3-none-any.whl"}]},
            "a==1: the package index names no",
        ),
    ],
)
def test_a_package_that_cannot_be_pinned_is_named(
    tool: dict[str, Any], package: dict[str, Any], expected: str
) -> None:
    with pytest.raises(SystemExit, match=expected):
        tool["hashed"](["a==1"], {"package": [{"name": "a", "version": "1", **package}]})


def test_a_wheel_counts_wherever_its_address_comes_from(tool: dict[str, Any]) -> None:
    for where in (
        {"path": "a-1-py3-none-any.whl"},
        {"url": "https://index.example/a-1-py3-none-any.whl?x=1#y"},
    ):
        lock = {"package": [{"name": "a", "version": "1", "wheels": [{**where, "hash": HASH}]}]}
        assert f"--hash={HASH}" in tool["hashed"](["a==1"], lock)

"""Images of the services, made without an engine from the code as it is."""

import json
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pytest

from sunk_lab import service_images
from sunk_lab.config import from_environment
from sunk_lab.service_images import SERVICES

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="making a Debian root needs root"),
    pytest.mark.timeout(600),  # The first run makes the layer that all have in common.
]
SERVICE: Final = "nodeset-controller"
LIBRARIES: Final = ("sunk_events", "sunk_kube", "sunk_runtime", "sunk_slurm")


@pytest.fixture(scope="module")
def archive() -> Path:
    return service_images.archive_of([SERVICE], from_environment().cache, lambda _line: None)


def config(archive: Path) -> dict[str, Any]:
    with tarfile.open(archive) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json") or pytest.fail("no manifest"))
        return json.load(tar.extractfile(manifest["Config"]) or pytest.fail("no configuration"))


def names(archive: Path, layer: int) -> set[str]:
    """Return what is in one layer of the only image."""
    with tarfile.open(archive) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json") or pytest.fail("no manifest"))
        with tarfile.open(fileobj=tar.extractfile(manifest["Layers"][layer])) as content:
            return set(content.getnames())


def test_an_image_runs_its_service_as_nobody_in_particular(archive: Path) -> None:
    said = config(archive)["config"]

    assert (said["User"], said["Entrypoint"]) == ("65532:65532", ["python3", "/opt/sunk"])
    with tarfile.open(archive) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json") or pytest.fail("no manifest"))
    assert manifest["RepoTags"] == [service_images.tag(SERVICE)]
    label = "org.opencontainers.image"
    assert said["Labels"] == {
        f"{label}.title": f"sunk-{SERVICE}",
        f"{label}.licenses": "Apache-2.0",
        f"{label}.version": service_images.version(),
    }


def test_an_image_takes_less_than_100_mb_of_a_registry(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json") or pytest.fail("no manifest"))
        layers = [(tar.extractfile(name) or pytest.fail("no layer")).read() for name in manifest["Layers"]]

    assert sum(len(zlib.compress(layer, level=1)) for layer in layers) < 100_000_000


def test_an_image_holds_what_its_service_declares_and_no_other_service(archive: Path) -> None:
    packages = {name.split("/")[2] for name in names(archive, 1) if name.count("/") > 1}

    ours = {name for name in packages if name.startswith("sunk_") and not name.endswith(".dist-info")}
    assert ours == {"sunk_nodeset_controller", *LIBRARIES}
    assert {"helm_python", "pytest", "pip"} & packages == set()


def files(archive: Path) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Yield every file of all images, with what is in it; those of a layer that several have, once."""
    with tarfile.open(archive) as tar:
        images = json.load(tar.extractfile("manifest.json") or pytest.fail("no manifest"))
        assert [image["RepoTags"] for image in images] == [[service_images.tag(one)] for one in SERVICES]
        for layer in dict.fromkeys(layer for image in images for layer in image["Layers"]):
            with tarfile.open(fileobj=tar.extractfile(layer)) as content:
                for entry in filter(tarfile.TarInfo.isfile, content):
                    yield entry, (content.extractfile(entry) or pytest.fail("no file")).read()


def test_no_image_has_a_program_that_runs_as_another_user_or_a_secret() -> None:
    privileged, writable, secret = set[str](), set[str](), set[str]()
    for entry, content in files(service_images.archive_of(SERVICES, from_environment().cache, print)):
        if entry.mode & 0o6000:
            privileged.add(entry.name)
        if entry.mode & 0o002:
            writable.add(entry.name)
        is_key = b"PRIVATE KEY-----\n" in content and entry.name.endswith((".pem", ".key", "_key"))
        if is_key or re.fullmatch(
            r"(.*/)?(\.netrc|\.pypirc|pip\.conf|uv\.toml|auth\.conf|.*\.jwks)", entry.name
        ):
            secret.add(entry.name)

    assert (privileged, writable, secret) == (set(), set(), set())


def test_an_image_tells_what_it_is_made_of(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json") or pytest.fail("no manifest"))
        with tarfile.open(fileobj=tar.extractfile(manifest["Layers"][1])) as content:
            file = f"{service_images.PLACE}/{service_images.BILL_OF_MATERIALS}"
            told = json.load(content.extractfile(file) or pytest.fail("no bill of materials"))

    names = {component["name"] for component in told["components"]}
    assert {"kubernetes-asyncio", "nats-py", "sunk-events"} <= names
    assert {"pytest", "helm-python-sdk", "sunk-syncer", "sunk-lab"} & names == set()
    assert told.keys() & {"serialNumber"} == told["metadata"].keys() & {"timestamp"} == set()


FOR_TESTS: Final = {"testing", "testing.py"}
"""What no image has, of all packages."""


def test_an_image_holds_the_code_as_it_is_now(archive: Path) -> None:
    root = Path(__file__).parents[2]
    now = {
        str(file.relative_to(source)): file.read_bytes()
        for source in (
            *(root / "libs" / library / "src" for library in LIBRARIES),
            root / "services" / SERVICE / "src",
        )
        for file in source.rglob("*.py")
        if not FOR_TESTS & set(file.parts)
    }

    with tarfile.open(archive) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json") or pytest.fail("no manifest"))
        with tarfile.open(fileobj=tar.extractfile(manifest["Layers"][1])) as content:
            held = {
                entry.name.removeprefix("opt/sunk/"): (
                    content.extractfile(entry) or pytest.fail("no file")
                ).read()
                for entry in content
                if entry.name.startswith("opt/sunk/sunk_") and entry.name.endswith(".py")
            }
    assert {name for name in now if held.get(name) != now[name]} == set()
    assert [name for name in held if FOR_TESTS & {*Path(name).parts}] == []


@pytest.mark.parametrize("layer", [0, 1], ids=["Debian's", "ours"])
def test_no_process_compiles_again_what_its_image_has_compiled(archive: Path, layer: int) -> None:
    compiled: dict[str, bytes] = {}
    written: dict[str, int] = {}
    with tarfile.open(archive) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json") or pytest.fail("no manifest"))
        with tarfile.open(fileobj=tar.extractfile(manifest["Layers"][layer])) as content:
            for entry in content:
                path = PurePosixPath(entry.name)
                if path.suffix == ".py":
                    written[entry.name] = int(entry.mtime)
                elif path.suffix == ".pyc" and entry.isreg():
                    source = path.parent.parent / f"{path.name.split('.')[0]}.py"
                    compiled[str(source)] = (content.extractfile(entry) or pytest.fail("no file")).read(12)

    assert len(compiled) > 100
    stale = [
        source
        for source, head in compiled.items()
        if source in written and not _is_unchecked(head) and _time(head) != written[source]
    ]
    assert stale == []


def _is_unchecked(head: bytes) -> bool:
    """Whether a compiled file that begins with *head* is taken without a look at its source."""
    return int.from_bytes(head[4:8], "little") == 1


def _time(head: bytes) -> int:
    """Return the time of the source that *head*, of a compiled file, names."""
    return int.from_bytes(head[8:12], "little")


def test_an_image_has_no_compiler_and_nothing_of_the_machine_that_made_it(archive: Path) -> None:
    system = names(archive, 0)

    assert {"usr/bin/python3"} <= system
    assert not [
        name for name in system if name.startswith(("usr/bin/gcc", "usr/bin/cc", "etc/apt/sources.list"))
    ]

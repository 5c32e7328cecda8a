"""The servers of a run end with the tests that use them: idle, a Kubernetes takes a tenth of a core."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPTIONS = "-c /dev/null --rootdir . --import-mode=importlib -p no:cacheprovider"
DEALT = "--dist loadscope --no-loadscope-reorder --numprocesses"
SERVERS = """
import pathlib
import pytest

def note(word):
    with pathlib.Path("seen").open("a") as file:
        print(word, file=file)

@pytest.fixture(scope="session")
def stack():
    note("stack up")
    yield
    note("stack down")

@pytest.fixture(scope="session")
def kube_lab():
    note("kube up")
    yield
    note("kube down")

@pytest.fixture(scope="session")
def kubeconfig(kube_lab):
    note("config up")
    yield
    note("config down")

@pytest.fixture
def did(request):
    note(request.node.name)
"""
TESTS = {
    "tests/e2e/test_a.py": ("stack", ("e1", "e2")),
    "services/nodeset-controller/tests/real/test_b.py": ("kubeconfig", ("n1",)),
    "libs/sunk_kube/tests/test_c.py": ("kubeconfig", ("k1", "k2")),
    "libs/sunk_kube/tests/test_d.py": ("", ("k3",)),
    "services/syncer/tests/test_e.py": ("", ("s1",)),
}


@pytest.mark.parametrize("processes", ["0", "1"])
def test_servers_end_with_their_group_and_start_again_for_another(tmp_path: Path, processes: str) -> None:
    shutil.copy(ROOT / "conftest.py", tmp_path)
    for folder in ("tests", "services", "libs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "conftest.py").write_text(SERVERS)
    for path, (fixture, tests) in TESTS.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        needs = f"did, {fixture}" if fixture else "did"
        file.write_text("\n".join(f"def test_{name}({needs}):\n    pass\n" for name in tests))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS.split(), *DEALT.split(), processes],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert (tmp_path / "seen").read_text().splitlines() == [
        *("kube up", "config up", "test_n1", "config down", "kube down"),
        *("kube up", "config up", "test_k1", "test_k2", "test_k3", "config down", "kube down"),
        *("stack up", "test_e1", "test_e2", "stack down"),
        "test_s1",
    ]

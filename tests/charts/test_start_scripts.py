"""How compute and login Pods start, by their own scripts with folders of a test in place of the machine's."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from sunk_lab.processes import wait_for

SCRIPTS: Final = Path(__file__).parents[2] / "helm/slurm/files/scripts"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder that stands for the root of a Pod."""
    for folder in ("etc/sunk/users", "etc/sunk/services"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("passwd", "group"):
        (tmp_path / "etc" / file).write_text("root:x:0:0::/root:/bin/bash\n")
        (tmp_path / "etc/sunk/users" / file).write_text("\n")
    (tmp_path / "lib.sh").write_text((SCRIPTS / "lib.sh").read_text().replace("/etc/", f"{tmp_path}/etc/"))
    return tmp_path


@contextmanager
def calling(machine: Path, call: str) -> Generator[None]:
    """Have *call* of the library run meanwhile."""
    script = f"set -euo pipefail\nsource {machine}/lib.sh\n{call}\nwait"
    with subprocess.Popen(["bash", "-c", script], process_group=0) as process:
        try:
            yield
        finally:
            subprocess.run(["kill", "--", f"-{process.pid}"], check=True)


def test_a_user_who_came_later_is_known_on_a_node_that_runs(machine: Path) -> None:
    passwd = machine / "etc/passwd"
    with calling(machine, "add_users; follow_users 0.05 &"):
        (machine / "etc/sunk/users/passwd").write_text(
            "ada:x:2000:2000::/home/ada:/bin/bash\nroot:x:1:1:::\n"
        )
        wait_for("ada", lambda: "ada" in passwd.read_text(), 60, 0.05)

    assert passwd.read_text().splitlines() == [
        "root:x:0:0::/root:/bin/bash",
        "ada:x:2000:2000::/home/ada:/bin/bash",
    ]

"""Labs that tests hold for themselves."""

from pathlib import Path

import pytest

from sunk_lab.processes import Processes
from sunk_lab.reserved import reserved

pytestmark = pytest.mark.lab


def test_services_that_a_killed_run_left_are_ended_before_their_number_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUNK_LAB_CACHE", str(tmp_path))
    left = tmp_path / "labs" / "1"
    (left / "stack").mkdir(parents=True)
    (left / "for-tests").touch()
    services = Processes(left / "stack")
    services.spawn("syncer", ["sleep", "600"])

    with reserved() as config:
        assert config.folder == left
        assert services.pid_of("syncer") is None
        assert [path.name for path in left.iterdir()] == ["for-tests"]

    assert not left.exists()

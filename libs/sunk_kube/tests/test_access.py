"""As a Pod in a cluster: address from the environment, token and certificate from where they are mounted."""

import subprocess
import sys
from pathlib import Path

import certifi
import pytest

from sunk_kube import access
from sunk_kube.access import as_pod
from sunk_kube.errors import KubeUnavailableError
from sunk_runtime.errors import ConfigError

pytestmark = pytest.mark.anyio


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return what is mounted into a Pod."""
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").symlink_to(certifi.where())
    monkeypatch.setattr(access, "MOUNTED", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "host"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_the_address_is_the_one_that_kubernetes_names(
    mounted: Path, monkeypatch: pytest.MonkeyPatch, name: str, host: str
) -> None:
    del mounted
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", name)
    assert as_pod().host == host


async def test_a_token_that_rotates_is_followed_and_one_that_is_gone_is_for_later(mounted: Path) -> None:
    found = as_pod()
    assert await found.authorization() == "Bearer first"
    fresh = mounted / "fresh"
    fresh.write_text("second, and longer")  # As the kubelet does: another file in its place.
    fresh.rename(mounted / "token")
    assert await found.authorization() == "Bearer second, and longer"
    (mounted / "token").unlink()
    with pytest.raises(KubeUnavailableError, match="token"):
        await found.authorization()


@pytest.mark.parametrize("name", ["token", "ca.crt"])
@pytest.mark.parametrize("text", [None, ""], ids=["missing", "empty"])
def test_what_a_pod_lacks_is_said(mounted: Path, name: str, text: str | None) -> None:
    (mounted / name).unlink()
    if text is not None:
        (mounted / name).write_text(text)
    with pytest.raises(ConfigError, match="settings of a Pod in a cluster"):
        as_pod()


def test_outside_a_cluster_that_is_said(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del mounted
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST"):
        as_pod()


@pytest.mark.parametrize(
    "service", ["sunk_nodeset_controller", "sunk_pod_scheduler", "sunk_hook_gateway"], ids=lambda name: name
)
def test_a_service_in_a_pod_carries_no_models_of_a_client_library(service: str) -> None:
    look = f"import sys, {service}.main; sys.exit('kubernetes_asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0

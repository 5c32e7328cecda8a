"""As a Pod in a cluster: by the token and the certificate that Kubernetes mounts, at the address it names."""

from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
import yaml

from sunk_kube import access
from sunk_kube.client import connect
from sunk_kube.errors import KubeUnavailableError
from sunk_lab.kube.lab import KubeLab

pytestmark = [pytest.mark.lab, pytest.mark.anyio]


@pytest.fixture
def mounted(
    namespace: str,
    kubeconfig: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Path:
    """Return the token file of a Pod whose API server is the lab's."""
    lab: KubeLab = request.getfixturevalue("kube_lab")
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    token = mounted / "token"
    token.write_text(lab.kubectl("create", "token", "default", "-n", namespace).strip())
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    address = urlsplit(str(cluster["server"]))
    (mounted / "ca.crt").symlink_to(cluster["certificate-authority"])
    monkeypatch.setattr(access, "MOUNTED", mounted)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", address.hostname or "")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(address.port))
    return token


async def test_a_pod_is_who_its_token_says(mounted: Path) -> None:
    async with connect("test") as client:
        assert b"APIGroupList" in await client.get_raw("/apis")
        await anyio.Path(mounted).write_text("nobody's")
        with pytest.raises(KubeUnavailableError, match="401"):
            await client.get_raw("/apis")

"""As a Pod in a cluster: by the token and the certificate that Kubernetes mounts, at the address it names."""

from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
import yaml
from kubernetes_asyncio.config import incluster_config

from sunk_kube import api
from sunk_kube.client import connect
from sunk_kube.errors import KubeUnavailableError
from sunk_lab.kube.lab import KubeLab
from sunk_runtime.errors import ConfigError
from sunk_runtime.testing import until

pytestmark = [pytest.mark.lab, pytest.mark.anyio]


@pytest.fixture
def mounted(
    namespace: str,
    kubeconfig: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kube_lab: KubeLab,
) -> Path:
    """Return the token file of a Pod whose API server is the lab's."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    token = mounted / "token"
    token.write_text(kube_lab.kubectl("create", "token", "default", "-n", namespace).strip())
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    address = urlsplit(str(cluster["server"]))
    (mounted / "ca.crt").symlink_to(cluster["certificate-authority"])
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(mounted / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", address.hostname or "")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(address.port))
    return token


async def test_a_pod_is_who_its_token_says_and_follows_it(
    mounted: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("RENEW_S", "PAUSE_S"):
        monkeypatch.setattr(api, name, 0.01)
    token = anyio.Path(mounted)
    text = await token.read_text()
    async with connect("test") as client:

        async def is_somebody() -> bool:
            try:
                return b"APIGroupList" in await client.get_raw("/apis")
            except KubeUnavailableError as error:
                return "401" not in str(error)

        async def is_nobody() -> bool:
            return not await is_somebody()

        assert await is_somebody()
        await token.write_text("nobody's")
        await until(is_nobody)
        await token.write_text(text)
        await until(is_somebody)
        await token.unlink()  # The last one is good for longer.
        await until(lambda: "credentials of the API server not read" in caplog.messages)
        assert await is_somebody()


@pytest.mark.parametrize("name", ["token", "ca.crt"])
@pytest.mark.parametrize("text", [None, ""], ids=["missing", "empty"])
async def test_what_a_pod_lacks_is_said(mounted: Path, name: str, text: str | None) -> None:
    one = anyio.Path(mounted.parent / name)
    await one.unlink()
    if text is not None:
        await one.write_text(text)
    with pytest.raises(ConfigError, match="settings of a Pod in a cluster"):
        async with connect("test"):
            pass


async def test_outside_a_cluster_that_is_said(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del mounted
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(ConfigError, match="Service host/port is not set"):
        async with connect("test"):
            pass


@pytest.mark.parametrize(("name", "is_it"), [("kubernetes", True), ("api.example.com", False)])
async def test_a_kubeconfig_may_name_whose_certificate_the_server_has(
    kubeconfig: Path, tmp_path: Path, name: str, *, is_it: bool
) -> None:
    config = yaml.safe_load(await anyio.Path(kubeconfig).read_text())
    config["clusters"][0]["cluster"]["tls-server-name"] = name
    other = tmp_path / "kubeconfig"
    await anyio.Path(other).write_text(yaml.safe_dump(config))
    async with connect("test", kubeconfig=other) as client:
        if is_it:
            assert b"APIGroupList" in await client.get_raw("/apis")
        else:
            with pytest.raises(KubeUnavailableError, match="certificate"):
                await client.get_raw("/apis")

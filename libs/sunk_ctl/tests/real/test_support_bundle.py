"""A support bundle of a real Kubernetes in which secrets stand wherever users and charts put them."""

import json
import re
import tarfile
from base64 import b64encode
from collections.abc import Generator
from pathlib import Path
from typing import Final

import anyio
import pytest
from typer.testing import CliRunner, Result

from sunk_ctl.cluster import opened
from sunk_ctl.last_errors import LastErrors, Leader
from sunk_ctl.main import app
from sunk_ctl.reading_errors import read_errors
from sunk_lab.config import from_environment
from sunk_lab.kube.lab import KubeLab
from sunk_lab.processes import wait_for
from sunk_lab.slurm.releases import SLURM_24_11
from sunk_lab.slurm.roots import image_of

pytestmark = pytest.mark.lab

NAMESPACE: Final = "bundle"
LABELS: Final = {"app.kubernetes.io/part-of": "sunk", "app.kubernetes.io/name": "sunk-syncer"}
PASSWORD: Final = "Hunter2-plain"  # noqa: S105 - made up
RANDOM: Final = "pV7kQ2xZ9mB4nC8sD1fG6hJ3kL5qW0eR7tY2uI9oP4aS"
TOKEN: Final = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImEifQ.eyJzdW4iOiJub2RlMSIsImV4cCI6MX0.c2lnbmF0dXJlLXg"  # noqa: S105 - made up
BINARY: Final = b64encode(bytes(range(64))).decode()
SEED: Final = f"SUAM{'LK45GT7ZQ2XHWB3NYDCPJ6VRA' * 2}OEF2"
"""As a user of NATS has one."""
CRYPT: Final = "$6$rounds=5000$c2FsdHNhbHQ$Zk1kq0xv9bUu7yQw3eRt5yUi8oPa1sDf4gHj6kLz2xCv"
MYSQL: Final = "s1urm-DBD"
REGISTRY: Final = "pull-Secret-7"
DOCKER: Final = json.dumps(
    {
        "auths": {
            "registry.example": {
                "username": "bot",
                "password": REGISTRY,
                "auth": b64encode(f"bot:{REGISTRY}".encode()).decode(),
            }
        }
    }
)
PLANTED: Final = (
    *(PASSWORD, RANDOM, TOKEN, BINARY, SEED, CRYPT, MYSQL, REGISTRY),
    b64encode(f"bot:{REGISTRY}".encode()).decode(),
    b64encode(DOCKER.encode()).decode(),
)
PRINTED: Final = f"""\
echo '{{"level":"info","message":"starting","nats_password":"{PASSWORD}"}}'
echo 'nats: Authorization Violation at nats://syncer:{PASSWORD}@nats:4222'
echo 'X-SLURM-USER-TOKEN: {TOKEN}'
echo 'decoding {TOKEN} and {RANDOM} failed'
echo 'no account has the user of {SEED}'
echo 'login:x:{CRYPT}:20000::::'
echo '+ mysql --host=db -u slurm -p{MYSQL} slurm_acct_db'
echo '{DOCKER}'
echo 'dockerconfigjson: {b64encode(DOCKER.encode()).decode()}'
echo -e 'ldap:\\n  bindpw: |\\n    {PASSWORD}\\n  uri: ldap://directory'
echo '-----BEGIN PRIVATE KEY-----'; echo '{BINARY}'; echo '-----END PRIVATE KEY-----'
echo '{{"time":"2026-01-01T00:00:00+00:00","level":"error","message":"call","error":"token={TOKEN} refused"}}'
echo '{{"time":"2026-01-01T00:00:01+00:00","level":"warning","message":"call refused"}}'
echo 'the last line stays'
exit 1
"""


def objects() -> list[dict[str, object]]:
    """Return what stands in the namespace."""
    container = {
        "name": "main",
        "image": SLURM_24_11.image,
        "command": ["bash", "-c", PRINTED],
        "env": [{"name": "DATABASE_PASSWORD", "value": PASSWORD}, {"name": "LOG_LEVEL", "value": "info"}],
        "args": [f"--token={RANDOM}", "--password", PASSWORD],
    }
    notes = {"example.com/note": PASSWORD, "sunk.coreweave.com/drain": f"see http://a:{PASSWORD}@wiki"}
    template = {
        "metadata": {"labels": LABELS, "annotations": notes},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    compute = {**LABELS, "sunk.coreweave.com/nodeset": "gpu"}
    metadata = {"name": "syncer", "namespace": NAMESPACE, "labels": LABELS}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"password": PASSWORD}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {**metadata, "name": "registry"},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": DOCKER},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {
                "slurmdbd.conf": f"StorageUser=slurm\nStoragePass={PASSWORD}\n",
                "password": PASSWORD,
                "nats.json": json.dumps({"users": [{"user": "a", "password": PASSWORD}]}, indent=2),
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {**metadata, "annotations": notes},
            "spec": {"selector": {"matchLabels": LABELS}, "template": template},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "gpu-0", "namespace": NAMESPACE, "labels": compute, "annotations": notes},
            "spec": {**template["spec"], "restartPolicy": "Never"},
        },
    ]


@pytest.fixture(scope="module")
def lab(kube_lab: KubeLab) -> Generator[KubeLab]:
    """Yield a Kubernetes in which a container has printed its secrets and was started again."""
    kube_lab.load(image_of(SLURM_24_11, from_environment().cache, lambda _line: None))
    made = objects()
    kube_lab.kubectl("apply", "-f", "-", input=json.dumps(made[0]))
    wait_for(
        "the ServiceAccount",
        lambda: kube_lab.kubectl("-n", NAMESPACE, "get", "serviceaccount", "default"),
        30,
    )
    kube_lab.kubectl("apply", "-f", "-", input="\n---\n".join(map(json.dumps, made)))

    def has_restarted() -> bool:
        started = "{.items[*].status.containerStatuses[*].lastState.terminated.exitCode}"
        over = "{.items[?(@.status.phase=='Failed')].metadata.name}"
        path = f"jsonpath={started},{over}"
        return kube_lab.kubectl("-n", NAMESPACE, "get", "pods", "-o", path) == "1,gpu-0"

    wait_for("the second start, and the end of the other", has_restarted, 120)
    reasons = ("-n", NAMESPACE, "get", "events", "-o", "jsonpath={.items[*].reason}")
    wait_for("its Event", lambda: "BackOff" in kube_lab.kubectl(*reasons), 120)
    yield kube_lab
    kube_lab.kubectl("delete", "namespace", NAMESPACE, "--timeout=180s")


def kubeconfig(lab: KubeLab, folder: Path, *rights: str) -> Path:
    """Return that of a ServiceAccount of the namespace with *rights* there: resources to get and list."""
    where = ("-n", NAMESPACE)
    if rights:
        lab.kubectl(*where, "create", "role", "helps", "--verb=get,list", f"--resource={','.join(rights)}")
        lab.kubectl(
            *where, "create", "rolebinding", "helps", "--role=helps", f"--serviceaccount={NAMESPACE}:default"
        )
    found = json.loads(lab.kubeconfig.read_text())
    token = lab.kubectl(*where, "create", "token", "default").strip()
    found["users"] = [{"name": found["users"][0]["name"], "user": {"token": token}}]
    file = folder / "kubeconfig"
    file.write_text(json.dumps(found))
    return file


def bundle(config: Path, file: Path, *options: str) -> Result:
    """Run the program."""
    words = ["support-bundle", "--kubeconfig", str(config), "--file", str(file), *options]
    return CliRunner(env={"NO_PROXY": "*"}).invoke(app, words)


def unpacked(file: Path) -> dict[str, str]:
    """Return the text of each file of a bundle, without the folder."""
    with tarfile.open(file) as archive:
        found = {one.name: archive.extractfile(one) for one in archive.getmembers()}
        return {name.partition("/")[2]: data.read().decode() for name, data in found.items() if data}


def test_a_bundle_holds_logs_settings_and_states_and_no_secret(lab: KubeLab, tmp_path: Path) -> None:
    result = bundle(lab.kubeconfig, tmp_path / "b.tar.gz")

    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600
    files = unpacked(tmp_path / "b.tar.gz")
    folder = f"namespaces/{NAMESPACE}"
    log = files[f"{folder}/logs/gpu-0/main.log"]
    for planted in PLANTED:
        assert [name for name, text in files.items() if planted in text] == []
    assert "no account has the user of [redacted]" in log
    assert "+ mysql --host=db -u slurm -p[redacted] slurm_acct_db" in log
    assert "the last line stays" in log
    assert "uri: ldap://directory" in log
    assert '"message":"starting"' in log
    assert [name for name in files if re.search(r"/logs/syncer-[^/]+/main\.previous\.log", name)]
    assert "StorageUser=slurm" in files[f"{folder}/configmaps/syncer/slurmdbd.conf"]
    assert json.loads(files[f"{folder}/configmaps/syncer/nats.json"])["users"][0]["user"] == "a"
    pod = json.loads(files[f"{folder}/pods.json"])[0]
    assert {"name": "LOG_LEVEL", "value": "info"} in pod["spec"]["containers"][0]["env"]
    assert [one["name"] for one in json.loads(files[f"{folder}/compute-pods.json"])] == ["gpu-0"]
    assert "gitVersion" in json.loads(files["versions/kubernetes.json"])
    assert "BackOff" in files[f"{folder}/events.json"]
    assert "view/status.json: this Kubernetes cluster has no API" in files["README.txt"]


def test_what_the_user_may_not_read_is_left_out_and_named(lab: KubeLab, tmp_path: Path) -> None:
    config = kubeconfig(lab, tmp_path, "pods", "pods/log", "deployments.apps")

    everywhere = bundle(config, tmp_path / "a.tar.gz")
    elsewhere = bundle(lab.kubeconfig, tmp_path / "a.tar.gz", "--namespace", "nowhere")
    here = bundle(config, tmp_path / "b.tar.gz", "--namespace", NAMESPACE)

    assert everywhere.exit_code == 3
    assert "Name the namespaces that you may read (--namespace)" in everywhere.stderr
    assert elsewhere.exit_code == 4
    assert [one.name for one in tmp_path.glob("*.gz*")] == ["b.tar.gz"]
    assert here.exit_code == 0, here.stderr
    files = unpacked(tmp_path / "b.tar.gz")
    assert {f"namespaces/{NAMESPACE}/{name}" for name in ("deployments.json", "logs/gpu-0/main.log")} <= {
        *files
    }
    for planted in PLANTED:
        assert [name for name, text in files.items() if planted in text] == []
    for text in (here.stderr, files["README.txt"]):
        assert re.search(rf"Secrets of {NAMESPACE} .*by name and form only\): secrets is forbidden", text)
        assert f"namespaces/{NAMESPACE}/configmaps: configmaps is forbidden" in text


def test_the_last_error_of_a_service_is_read_with_the_users_rights(lab: KubeLab, tmp_path: Path) -> None:
    labels = ",".join(f"{name}={value}" for name, value in LABELS.items())
    listed = ("get", "pods", "-l", labels, "-o", "jsonpath={.items[*].metadata.name}")
    names = lab.kubectl("-n", NAMESPACE, *listed).split()
    pod = next(name for name in names if name.startswith("syncer-"))
    gone = Leader(service="metrics-exporter", pod="gone")

    admin = anyio.run(last_errors, lab.kubeconfig, (Leader(service="syncer", pod=pod, cluster="lab"), gone))
    other = anyio.run(last_errors, kubeconfig(lab, tmp_path), (gone,))

    (found,) = admin.found
    assert (found.service, found.cluster, found.pod) == ("syncer", "lab", f"{NAMESPACE}/{pod}")
    assert found.error == "call: token=[redacted]"
    assert admin.unknown == ("Pod gone: it is not there",)
    assert other.found == ()
    (why,) = other.unknown
    assert 'Pod gone: pods "gone" is forbidden' in why


async def last_errors(config: Path, wanted: tuple[Leader, ...]) -> LastErrors:
    async with opened("", config) as cluster:
        return await read_errors(cluster, wanted)


def test_a_file_that_is_there_is_not_replaced(lab: KubeLab, tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    file.write_text("mine")

    result = bundle(lab.kubeconfig, file, "--namespace", NAMESPACE)

    assert result.exit_code == 1
    assert "--file" in result.stderr
    assert file.read_text() == "mine"

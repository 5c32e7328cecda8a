"""What `helm uninstall` runs first gives the NodeSets their sizes again, whatever ends it."""

import importlib.util
import json
import signal
import threading
from collections.abc import Callable, Generator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit

import helm_python as helm
import pytest

from sunk_hook_gateway.testing.certificates import Authority
from sunk_lab.charts import render

SCRIPT: Final = Path(__file__).parents[2] / "helm/slurm/files/uninstall.py"
BEFORE: Final = "sunk.coreweave.com/replicas-before-uninstall"


class Cluster:
    """NodeSets in memory, whose Pods go once nobody asks for them and *ends* lets them."""

    def __init__(self, ends: Callable[[], bool]) -> None:
        self.namespace, self.selector = "slurm", "app"
        self.sets: dict[str, dict[str, Any]] = {
            name: {"metadata": {"name": name, "annotations": {}}, "spec": {"replicas": replicas}}
            for name, replicas in (("gpu", 4), ("all", None))
        }
        self._ends = ends

    def nodesets(self) -> list[dict[str, Any]]:
        return list(self.sets.values())

    def pods(self) -> list[SimpleNamespace]:
        running = [name for name, found in self.sets.items() if found["spec"]["replicas"] != 0]
        if not running and self._ends():
            return []
        return [SimpleNamespace(name="gpu-1", nodeset="gpu", running="", is_ending=False)]

    def resize(self, nodeset: dict[str, Any], replicas: object, before: str | None) -> None:
        nodeset["metadata"]["annotations"] = {} if before is None else {BEFORE: before}
        nodeset["spec"]["replicas"] = replicas

    def delete(self, nodeset: dict[str, Any]) -> None:
        del self.sets[nodeset["metadata"]["name"]]

    def sizes(self) -> dict[str, object]:
        return {name: found["spec"]["replicas"] for name, found in self.sets.items()}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Generator[ModuleType]:
    spec = importlib.util.spec_from_file_location("uninstall", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    handler = signal.getsignal(signal.SIGTERM)
    yield module
    signal.signal(signal.SIGTERM, handler)


def run(script: ModuleType, ends: Callable[[], bool], wait_s: int = 60) -> tuple[object, Cluster]:
    """Return what the script ends with, and what it leaves."""
    cluster = Cluster(ends)
    vars(script)["Cluster"] = partial(_same, cluster)
    try:
        return script.main("slurm", "prod", str(wait_s)), cluster
    except (SystemExit, OSError) as error:
        return error, cluster


def _same(cluster: Cluster, _namespace: str, _release: str) -> Cluster:
    return cluster


def killed() -> bool:
    signal.raise_signal(signal.SIGTERM)
    return False


def cut_off() -> bool:
    raise ConnectionResetError


def test_nodesets_without_pods_are_deleted(script: ModuleType) -> None:
    status, cluster = run(script, lambda: True)

    assert (status, cluster.sets) == (0, {})


@pytest.mark.parametrize(
    ("ends", "wait_s"),
    [(lambda: False, 0), (killed, 60), (cut_off, 60)],
    ids=["jobs run too long", "it is told to end", "the API server is away"],
)
def test_whatever_ends_an_uninstall_before_its_time_all_is_as_it_was(
    script: ModuleType, ends: Callable[[], bool], wait_s: int
) -> None:
    status, cluster = run(script, ends, wait_s)

    assert status != 0
    assert cluster.sizes() == {"gpu": 4, "all": None}
    assert all(BEFORE not in found["metadata"]["annotations"] for found in cluster.nodesets())


def test_a_process_that_follows_one_that_was_killed_knows_the_former_sizes(script: ModuleType) -> None:
    cluster = Cluster(lambda: False)
    script.empty(cluster)  # And killed.
    vars(script)["Cluster"] = partial(_same, cluster)

    status = script.main("slurm", "prod", "0")

    assert (status, cluster.sizes()) == (script.REFUSED, {"gpu": 4, "all": None})


def test_none_follows_one_that_gave_everything_back(script: ModuleType) -> None:
    values = {"clusterName": "prod", "nats": {"existingSecret": "nats"}}
    objects = render(helm.Chart.load(SCRIPT.parents[1]), values, name="prod", namespace="slurm")
    job = objects["Job", "prod-uninstall"]["spec"]
    (rule,) = job["podFailurePolicy"]["rules"]

    told, _ = run(script, killed)

    assert job["backoffLimit"] > 0
    assert isinstance(told, SystemExit)
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [told.code])


NODESETS: Final = "/apis/sunk.coreweave.com/v1alpha1/namespaces/slurm/nodesets"
PODS: Final = "/api/v1/namespaces/slurm/pods"
METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PAGE: Final = 500
"""More Pods at once may have no room in the memory of the script's container."""


class Api(ThreadingHTTPServer):
    """An API server with NodeSets, and a controller whose Pods go only when nobody knows of a job there."""

    daemon_threads = True

    def __init__(self, authority: Authority) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.socket = authority.server().wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )
        self.nodesets: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.wrote: list[tuple[str, str]] = []
        self.refuses_pods = False
        self.busy = 0
        """So many calls are refused by an API server that has too many."""

    def have(self, name: str, pods: int, *, is_busy: bool, **annotations: str) -> None:
        """Have a NodeSet with *pods*."""
        meta = {"name": name, "annotations": annotations}
        self.nodesets[name] = {"metadata": meta, "spec": {"replicas": pods}}
        for number in range(pods):
            labels = {"sunk.coreweave.com/nodeset": name, "sunk.coreweave.com/running": str(is_busy).lower()}
            self.pods[f"{name}-{number}"] = {"metadata": {"name": f"{name}-{number}", "labels": labels}}

    def sizes(self) -> dict[str, object]:
        return {name: found["spec"]["replicas"] for name, found in self.nodesets.items()}

    def answer(self, method: str, path: str, accept: str, body: dict[str, Any]) -> tuple[int, object]:
        where = urlsplit(path)
        query = {name: value for name, (value,) in parse_qs(where.query).items()}
        kind, _, name = where.path.removeprefix(NODESETS).removeprefix(PODS).rpartition("/")
        assert kind == ""
        of_pods = where.path.startswith(PODS)
        if self.busy:
            self.busy -= 1
            return 429, {}
        if method != "GET":
            self.wrote.append((method, where.path.removeprefix("/apis/sunk.coreweave.com/v1alpha1")))
        if method == "GET" and of_pods:
            return (403, {}) if self.refuses_pods else self._page(query, accept)
        if method == "GET":
            return 200, {"metadata": {}, "items": list(self.nodesets.values())}
        if method == "DELETE" and body.get("propagationPolicy") == "Foreground":
            return 422, {}  # sunk-nodesets-deletion
        if name not in (self.pods if of_pods else self.nodesets):
            return 404, {}
        if of_pods:
            del self.pods[name]
        elif method == "PATCH":
            known = self.nodesets[name]
            for key, value in body["metadata"]["annotations"].items():
                known["metadata"]["annotations"].pop(key, None)
                known["metadata"]["annotations"] |= {} if value is None else {key: value}
            known["spec"] |= body["spec"]
        else:
            self.nodesets[name]["metadata"]["deletionTimestamp"] = "now"
        self._reconcile()
        return 200, {}

    def _page(self, query: dict[str, str], accept: str) -> tuple[int, object]:
        assert accept == METADATA
        assert int(query["limit"]) <= PAGE
        begin = int(query.get("continue", "0"))
        end = begin + int(query["limit"])
        more = {"continue": str(end)} if end < len(self.pods) else {}
        return 200, {"metadata": more, "items": list(self.pods.values())[begin:end] or None}

    def _reconcile(self) -> None:
        for name, nodeset in list(self.nodesets.items()):
            is_leaving = "deletionTimestamp" in nodeset["metadata"]
            mine = {
                key: pod["metadata"]["labels"]["sunk.coreweave.com/running"]
                for key, pod in self.pods.items()
                if pod["metadata"]["labels"]["sunk.coreweave.com/nodeset"] == name
            }
            if is_leaving or nodeset["spec"]["replicas"] == 0:
                for key, runs in mine.items():
                    if runs == "false":
                        del self.pods[key]
            if is_leaving and not any(runs == "true" for runs in mine.values()):
                del self.nodesets[name]


class Handler(BaseHTTPRequestHandler):
    server: Api  # pyright: ignore[reportIncompatibleVariableOverride] - it is the one that starts us

    def do_GET(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
        accept = self.headers["Accept"] or ""
        status, content = self.server.answer(self.command, self.path, accept, body)
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


@pytest.fixture
def api(script: ModuleType, tmp_path: Path) -> Generator[Api]:
    authority = Authority(tmp_path, "ca")
    (tmp_path / "token").write_text("secret")
    with Api(authority) as server:
        vars(script).update(API=f"https://127.0.0.1:{server.server_port}", ACCOUNT=tmp_path)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def test_a_nodeset_that_is_to_go_now_goes_with_its_jobs_though_no_foreground_deletion_is_let_through(
    script: ModuleType, api: Api
) -> None:
    api.have("gpu", 2, is_busy=True, **{"sunk.coreweave.com/uninstall": "now"})
    api.have("cpu", 1, is_busy=False)

    status = script.main("slurm", "prod", "60")

    assert (status, api.nodesets, api.pods) == (0, {}, {})


def test_only_nodesets_that_are_to_go_now_lose_their_jobs(script: ModuleType, api: Api) -> None:
    api.have("gpu", 2, is_busy=True, **{"sunk.coreweave.com/uninstall": "now"})
    api.have("cpu", 1, is_busy=True)

    status = script.main("slurm", "prod", "0")

    assert (status, api.sizes(), list(api.pods)) == (script.REFUSED, {"cpu": 1}, ["cpu-0"])


def test_a_large_cluster_is_read_page_by_page(
    script: ModuleType, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    api.have("gpu", 2 * PAGE + 1, is_busy=True)

    status = script.main("slurm", "prod", "0")

    told = capsys.readouterr().out
    assert (status, api.sizes()) == (script.REFUSED, {"gpu": 2 * PAGE + 1})
    assert told.count(": runs jobs\n") == 2 * PAGE + 1


def test_a_cluster_that_cannot_be_read_is_not_emptied(script: ModuleType, api: Api) -> None:
    api.have("gpu", 1, is_busy=True)
    api.refuses_pods = True

    with pytest.raises(HTTPError):
        script.main("slurm", "prod", "60")

    assert (api.wrote, api.sizes()) == ([], {"gpu": 1})


def test_a_process_that_follows_one_that_was_killed_gives_the_sizes_back_though_it_gets_no_further(
    script: ModuleType, api: Api
) -> None:
    api.have("gpu", 1, is_busy=True)
    script.empty(script.Cluster("slurm", "prod"))  # And killed.
    emptied = api.sizes()
    api.refuses_pods = True

    with pytest.raises(HTTPError):
        script.main("slurm", "prod", "60")

    assert (emptied, api.sizes()) == ({"gpu": 0}, {"gpu": 1})


def test_an_api_server_that_has_too_many_calls_is_asked_again(script: ModuleType, api: Api) -> None:
    api.have("gpu", 1, is_busy=False)
    api.busy = 2

    assert (script.main("slurm", "prod", "60"), api.nodesets) == (0, {})

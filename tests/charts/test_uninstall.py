"""What `helm uninstall` runs first gives the NodeSets their sizes again, whatever ends it."""

import importlib.util
import signal
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import helm_python as helm
import pytest

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

    def pods(self) -> list[dict[str, Any]]:
        running = [name for name, found in self.sets.items() if found["spec"]["replicas"] != 0]
        if self._ends() and not running:
            return []
        return [{"metadata": {"name": "gpu-1"}, "status": {}}]

    def resize(self, nodeset: dict[str, Any], replicas: object, before: str | None) -> None:
        nodeset["metadata"]["annotations"] = {} if before is None else {BEFORE: before}
        nodeset["spec"]["replicas"] = replicas

    def delete(self, nodeset: dict[str, Any], propagation: str) -> None:
        assert propagation == "Background"
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

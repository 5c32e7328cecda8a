"""The charts' network policies, evaluated for every two parts of both releases: who may connect to whom.

What a network plugin does with them is tried in `test_network_policies.py`.
"""

from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest

from sunk_lab import charts
from sunk_lab.kube.policies import Object, reaches

CHARTS: Final = Path(__file__).parents[2] / "helm"
SUNK: Final[dict[str, Any]] = {"clusters": [{"name": "prod", "namespace": "slurm"}]}
SLURM: Final[dict[str, Any]] = {
    "clusterName": "prod",
    "nats": {"existingSecret": "passwords"},
    "compute": {"nodes": {"gpu": {"gresGpu": "h100:8"}}},
    "directory": {},
}
NAMESPACES: Final = [
    {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}
    for name in ("sunk", "slurm", "tenant", "monitoring")
]
TENANT: Final = "a Pod of a tenant"
NEIGHBOUR: Final = "another Pod in the Slurm cluster's namespace"
PROMETHEUS: Final = "Prometheus"
STRANGERS: Final = {TENANT: "tenant", NEIGHBOUR: "slurm", PROMETHEUS: "monitoring"}

DAEMONS: Final = {"slurmd", "slurm-login", "slurmctld", "slurmrestd", "slurmdbd", "slurm-accounting-setup"}
EVERYBODY: Final = "everybody"
MAY: Final[dict[tuple[str, str], set[str] | str]] = {
    ("slurmctld", "slurmctld"): DAEMONS | {"slurm-test"},
    ("slurmdbd", "slurmdbd"): DAEMONS | {"slurm-test"},
    ("slurmd", "slurmd"): DAEMONS | {"slurm-test"},
    ("slurmrestd", "slurmrestd"): {"sunk-syncer", "sunk-scheduler", "slurm-test"},
    ("mariadb", "mysql"): {"slurmdbd"},
    ("slurm-login", "ssh"): EVERYBODY,
    ("sunk-hook-gateway", "http"): {"slurmd", "slurm-login"},
    ("sunk-nats", "nats"): {
        *("sunk-nodeset-controller", "sunk-syncer", "sunk-scheduler"),
        *("sunk-hook-gateway", "sunk-metrics-exporter"),
    },
    ("sunk-nats", "cluster"): {"sunk-nats"},
    ("sunk-nats", "monitor"): {"sunk-test"},
    ("sunk-nodeset-controller", "http"): EVERYBODY,
    ("sunk-hook-gateway", "metrics"): EVERYBODY,
    ("sunk-syncer", "metrics"): EVERYBODY,
    ("sunk-scheduler", "metrics"): EVERYBODY,
    ("sunk-metrics-exporter", "metrics"): EVERYBODY,
}
"""By part and port. The services' metrics are everybody's until `networkPolicy.metricsFrom` says whose."""


def pods(made: charts.Objects, namespace: str) -> dict[str, Object]:
    """Return a Pod of each part, by its name: what its workload would make."""
    found: dict[str, Object] = {}
    for (kind, _), one in made.items():
        pod = one if kind == "Pod" else one.get("spec", {}).get("template")
        if kind in ("Pod", "Deployment", "StatefulSet", "Job", "NodeSet") and pod:
            labels = pod["metadata"]["labels"]
            metadata = {"namespace": namespace, "name": kind, "labels": labels}
            found[labels["app.kubernetes.io/name"]] = {"metadata": metadata, "spec": pod["spec"]}
    return found


class World:
    """Both releases and Pods that belong to neither."""

    def __init__(self, sunk: dict[str, Any], slurm: dict[str, Any]) -> None:
        self.policies = list[Object]()
        self.pods: dict[str, Object] = {
            name: {"metadata": {"namespace": namespace, "name": name}, "spec": {"containers": []}}
            for name, namespace in STRANGERS.items()
        }
        for chart, values in (("sunk", SUNK | sunk), ("slurm", SLURM | slurm)):
            made = charts.render(helm.Chart.load(CHARTS / chart), values, name=chart, namespace=chart)
            self.pods |= pods(made, chart)
            for (kind, _), one in made.items():
                if kind == "NetworkPolicy":
                    one["metadata"].setdefault("namespace", chart)
                    self.policies.append(one)

    def who_reaches(self, part: str, port: str) -> set[str]:
        """Return the parts that may connect to the port of *part*."""
        return {
            name
            for name, pod in self.pods.items()
            if reaches(self.policies, NAMESPACES, pod, self.pods[part], port)
        }

    def ports(self) -> set[tuple[str, str]]:
        """Return each port of each part."""
        return {
            (name, port["name"])
            for name, pod in self.pods.items()
            for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
            for port in container.get("ports", ())
        }


@pytest.fixture(scope="module")
def world() -> World:
    return World({}, {})


def test_each_part_is_reached_by_those_who_need_it_and_by_nobody_else(world: World) -> None:
    found = {(part, port): world.who_reaches(part, port) for part, port in world.ports()}

    assert found == {where: set(world.pods) if who == EVERYBODY else set(who) for where, who in MAY.items()}


def test_a_pod_in_which_users_run_programs_reaches_neither_the_bus_nor_slurmrestd(world: World) -> None:
    for user in ("slurmd", "slurm-login", TENANT, NEIGHBOUR):
        assert user not in world.who_reaches("sunk-nats", "nats")
        assert user not in world.who_reaches("slurmrestd", "slurmrestd")


def test_metrics_are_read_by_those_who_are_named_and_by_nobody_else() -> None:
    scraper = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    named = {"networkPolicy": {"metricsFrom": [scraper]}}

    world = World(named, named)

    for part, port in MAY:
        if port in ("metrics", "monitor") or (part, port) == ("sunk-nodeset-controller", "http"):
            assert world.who_reaches(part, port) - {"sunk-test"} == {PROMETHEUS}, part
    assert world.who_reaches("sunk-hook-gateway", "http") == {"slurmd", "slurm-login"}


def test_other_teams_reach_their_own_server_once_they_are_named_and_nothing_else() -> None:
    team = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "tenant"}}}
    teams = {"nats": {"subscribers": ["billing"]}}

    world = World(teams | {"networkPolicy": {"subscribersFrom": [team]}}, {})

    assert world.who_reaches("sunk-nats-teams", "nats") == {TENANT}
    assert world.who_reaches("sunk-nats-teams", "monitor") == {"sunk-test"}
    assert world.who_reaches("sunk-nats", "leafnodes") == {"sunk-nats-teams"}
    assert {part for part in MAY if TENANT in world.who_reaches(*part)} == {
        part for part, who in MAY.items() if who == EVERYBODY
    }
    assert World(teams, {}).who_reaches("sunk-nats-teams", "nats") == set()


def test_whoever_is_named_reaches_the_bus_and_nothing_else() -> None:
    team = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "tenant"}}}

    world = World({"networkPolicy": {"natsFrom": [team]}}, {})

    assert TENANT in world.who_reaches("sunk-nats", "nats")
    assert {part for part in MAY if TENANT in world.who_reaches(*part)} == {
        ("sunk-nats", "nats"),
        *(part for part, who in MAY.items() if who == EVERYBODY),
    }

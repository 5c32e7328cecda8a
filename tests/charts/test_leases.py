"""How long the leases last that the charts give the services: as long with three NATS servers as with one."""

from pathlib import Path
from typing import Any, Final

import helm_python as helm
import msgspec
import pytest

from sunk_lab.charts import env_of, pod_specs, render
from sunk_nodeset_controller.config import Config as NodesetController
from sunk_pod_scheduler.config import Config as PodScheduler
from sunk_syncer.config import Config as Syncer

CHARTS: Final = Path(__file__).parents[2] / "helm"
SLURM: Final[dict[str, Any]] = {"clusterName": "prod", "compute": {"nodes": {"gpu": {}}}}
SUNK: Final[dict[str, Any]] = {"clusters": [{"name": "prod", "namespace": "slurm"}]}
LEASES: Final = {
    "sunk-nodeset-controller": ("SUNK_NODESET_CONTROLLER_LEASE_TTL_S", NodesetController),
    "prod-scheduler": ("SUNK_POD_SCHEDULER_LEASE_TTL_S", PodScheduler),
    "prod-syncer": ("SUNK_SYNCER_LEASE_TTL_S", Syncer),
}
WANTED_S: Final = 3
"""Another replica leads a second later at most: within 5 s of a kill."""


@pytest.mark.parametrize("servers", [1, 3])
def test_a_lease_ends_soon_enough_for_another_replica(servers: int) -> None:
    nats: dict[str, Any] = {"nats": {"replicas": servers}}
    specs = pod_specs(render(helm.Chart.load(CHARTS / "sunk"), SUNK | nats, name="sunk", namespace="sunk"))
    nats["nats"] |= {"existingSecret": "passwords"}
    slurm = render(helm.Chart.load(CHARTS / "slurm"), SLURM | nats, name="prod", namespace="slurm")
    specs |= pod_specs(slurm)

    for name, (variable, config) in LEASES.items():
        defaults = {field.name: field.default for field in msgspec.structs.fields(config)}
        assert int(env_of(specs[name]).get(variable, defaults["lease_ttl_s"])) == WANTED_S, name

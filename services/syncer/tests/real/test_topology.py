"""A node's place in the topologies of a real Slurm follows its Node's labels."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import SLURM_26_05
from sunk_runtime.testing import until
from sunk_syncer.testing import Stage, ready_pod

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

N1 = "node01"
FILE = """---
- topology: tree
  cluster_default: true
  tree:
    switches:
      - {switch: "all", children: "none"}
      - {switch: "none"}
- topology: block
  cluster_default: false
  block:
    block_sizes: [1]
    blocks:
      - {block: "b1"}
      - {block: "b2"}
"""


async def test_a_node_that_is_relabelled_is_moved_by_one_write_and_without_a_reconfigure(
    stage: Stage, slurm: HostSlurm
) -> None:
    def record() -> dict[str, Any]:  # Any: JSON.
        return json.loads(slurm.exec("scontrol", "show", "node", N1, "--json"))["nodes"][0]

    def placed() -> int:
        return sum(line.get("action") == "PlaceNode" for line in stage.syncer.log)

    def extra() -> str:
        return str(record()["extra"])

    def slurmd_start() -> int:
        """Return when slurmd started: a reconfigure has it start again."""
        return record()["slurmd_start_time"]["number"]

    def reads() -> int:
        """Return how often slurmctld has read its configuration."""
        return (slurm.logs / "slurmctld.log").read_text().count("slurmctld version")

    if slurm.release is not SLURM_26_05:  # 24.11 has no places: nothing is written, no error logged.
        await stage.pod(replace(ready_pod(), topology="tree:all:f1,block:b1"))
        await until(lambda: '"sunk"' in extra())
        assert placed() == 0
        return
    slurm.write_file("topology.yaml", FILE)
    slurm.exec("scontrol", "reconfigure")
    try:
        await until(lambda: "SwitchName=all" in slurm.exec("scontrol", "show", "topology"))
        await until(lambda: slurmd_start() > 0)
        before = slurmd_start(), reads()
        for place in ("tree:all:f1:f1.s1,block:b1", "tree:all:f2:f2.s1,block:b2"):
            await stage.pod(replace(ready_pod(), topology=place))
            await until(lambda place=place: record()["topology"] == place)
        await until(lambda: '"sunk"' in extra())
        after = slurmd_start(), reads()
    finally:
        slurm.exec("rm", "/lab/etc/topology.yaml")
        slurm.exec("scontrol", "reconfigure")
        await until(lambda: slurmd_start() > 0)

    assert placed() == 2
    assert after == before

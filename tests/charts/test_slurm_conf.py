"""The chart's slurm.conf, read by a real slurmctld of both releases."""

from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest
import yaml

from sunk_lab.charts import Objects, render
from sunk_lab.errors import LabError
from sunk_lab.processes import wait_for
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.testing import slurm_lab

__all__ = ["slurm_lab"]

pytestmark = pytest.mark.lab
CHART: Final = Path(__file__).parents[2] / "helm/slurm"
EXAMPLES: Final = sorted((CHART / "examples").glob("*.yaml"))


def made(values: dict[str, Any]) -> Objects:
    return render(helm.Chart.load(CHART), {"clusterName": "lab"} | values, name="slurm", namespace="slurm")


def at_home(text: str, port: int) -> str:
    """Return *text* with the host, ports and folders of a cluster on the machine."""
    replaced = {
        "SlurmctldHost=": "SlurmctldHost=ctl(127.0.0.1)",
        "SlurmctldPort=": f"SlurmctldPort={port}",
        "SlurmdPort=": f"SlurmdPort={port + 2}",
        "AuthAltParameters=": "AuthAltParameters=jwt_key=/lab/etc/jwt.key",
        "StateSaveLocation=": "StateSaveLocation=/lab/state",
        "SlurmctldPidFile=": "SlurmctldPidFile=/lab/pid/slurmctld.pid",
        "ClusterName=": "ClusterName=lab",  # As the state says that is there.
        "Accounting": "",
        "Prolog=": "",
        "Epilog=": "",
    }
    lines = (
        next((new for start, new in replaced.items() if line.startswith(start)), line)
        for line in text.splitlines()
        if "-backup-0(" not in line
    )
    return "\n".join(lines) + "\n"


def shown(slurm_lab: HostSlurm, values: dict[str, Any]) -> dict[str, str]:
    """Start slurmctld with the slurm.conf of *values*; return what it says of it."""
    objects = made(values)
    files = objects["ConfigMap", "slurm-slurm-conf"]["data"]
    text = at_home(files["slurm.conf"], slurm_lab.controller_port)
    slurm_lab.kill_daemon("slurmctld")
    wait_for("slurmctld to end", lambda: slurm_lab.pid_of("slurmctld") is None, pause_s=0.02)
    for name, content in files.items():
        slurm_lab.write_file(name, "" if name in ("cgroup.conf", "gres.conf") else content)
    for kind in ("prolog-slurmctld", "epilog-slurmctld"):
        slurm_lab.exec("mkdir", "-p", f"/lab/etc/{kind}.d")
        script = objects["ConfigMap", "slurm-scripts"]["data"][kind]
        at = slurm_lab.write_file(kind, script.replace("/etc/sunk/", "/lab/etc/"))
        text = text.replace(f"=/etc/sunk/scripts/{kind}\n", f"={at}\n")
        scripts = objects.get(("ConfigMap", f"slurm-{kind}"), {"data": {}})["data"]
        for name, content in scripts.items():
            slurm_lab.write_file(f"{kind}.d/{name}", content)
    slurm_lab.write_file("slurm.conf", text)

    slurm_lab.start_daemon("slurmctld")
    wait_for("slurmctld to answer", lambda: "UP" in slurm_lab.exec("scontrol", "ping"))

    lines = slurm_lab.exec("scontrol", "show", "config").splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


LIVES_LONGER_S: Final = 60
"""Than the longest wait for a lock and the cluster's own prolog: what starts a job."""


@pytest.mark.parametrize(("deadline_s", "own_prolog_s"), [(10, 60), (60, 60), (3600, 600)])
def test_credentials_outlive_the_longest_prolog(
    slurm_lab: HostSlurm, deadline_s: int, own_prolog_s: int
) -> None:
    told = shown(
        slurm_lab,
        {"slurmConfig": {"hookDeadline": deadline_s}, "hooks": {"timeoutSeconds": own_prolog_s}},
    )
    life_s = deadline_s + own_prolog_s + LIVES_LONGER_S

    assert told["AuthInfo"] == f"ttl={life_s},cred_expire={life_s}"
    assert int(told["PrologEpilogTimeout"].split()[0]) < life_s
    assert int(told["BatchStartTimeout"].split()[0]) <= life_s


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_slurmctld_takes_the_slurm_conf_of_every_example(slurm_lab: HostSlurm, example: Path) -> None:
    told = shown(slurm_lab, yaml.safe_load(example.read_text()))
    assert told["PrologFlags"] == "Alloc,DeferBatch"
    assert told["PrologEpilogTimeout"].split()[0] == "150"
    assert told["BatchStartTimeout"].split()[0] == "180"
    assert told["MinJobAge"].split()[0] == "300"  # Slurm's own, as the table of sizes says.
    assert told["ReturnToService"] == "2"
    assert told["SelectTypeParameters"] == "CR_CORE_MEMORY"
    assert "enable_configless" in told["SlurmctldParameters"]
    log = (slurm_lab.logs / "slurmctld.log").read_text()
    assert "error: Parse" not in log
    assert "fatal" not in log


SMALL: Final = {"slurm": {"cpus": 4, "memory": 4000}}
LARGE: Final = {"resources": {"limits": {"cpu": "1500m", "memory": "17Gi"}}}
"""Two CPUs, and 16 GiB less what compute.reservedMemory keeps."""


@pytest.mark.parametrize(
    ("nodes", "given", "all_of_them", "of_each"),
    [
        ({"small": SMALL, "large": LARGE}, 0, 1000, {"small": "1000", "large": "8192"}),
        ({"small": SMALL, "large": LARGE}, 3000, 3000, {"small": "UNLIMITED", "large": "UNLIMITED"}),
        ({"anything": {}}, 0, 2000, {"anything": "UNLIMITED"}),
        ({"anything": {}, "large": LARGE}, 0, 8192, {"anything": "UNLIMITED", "large": "8192"}),
        ({"tiny": {"slurm": {"cpus": 8, "memory": 4}}}, 0, 1, {"tiny": "1"}),
    ],
)
def test_a_job_that_names_no_memory_gets_what_its_nodes_have_for_each_cpu(
    slurm_lab: HostSlurm, nodes: dict[str, Any], given: int, all_of_them: int, of_each: dict[str, str]
) -> None:
    told = shown(slurm_lab, {"slurmConfig": {"defMemPerCPU": given}, "compute": {"nodes": nodes}})

    partitions = {}
    for line in slurm_lab.exec("scontrol", "--oneliner", "show", "partition").splitlines():
        words = dict(word.split("=", 1) for word in line.split())
        partitions[words["PartitionName"]] = words.get("DefMemPerCPU", words.get("DefMemPerNode"))
    assert told["DefMemPerCPU"] == str(all_of_them)
    assert {name: partitions[name] for name in of_each} == of_each


def test_jobs_that_name_no_memory_use_all_cpus_of_a_small_node(slurm_lab: HostSlurm) -> None:
    shown(slurm_lab, {"compute": {"nodes": {"small": SMALL, "large": LARGE}}})
    slurm_lab.add_node("n", cpus=4, memory_mib=4000, features=("small",))
    wait_for("the node", lambda: "idle" in slurm_lab.exec("sinfo", "-hn", "n", "-o", "%T"), 60, 0.1)

    for partition in ("small", "all"):
        job = slurm_lab.exec("sbatch", "--parsable", "-p", partition, "--array=1-80", "--wrap", "sleep 300")
        wait_for("four tasks", lambda: slurm_lab.exec("squeue", "-ht", "R").count("\n") == 4, 60, 0.1)
        slurm_lab.exec("scancel", job.strip())
        wait_for("their end", lambda: not slurm_lab.exec("squeue", "-h").strip(), 60, 0.1)


LUA: Final = """
function slurm_job_submit(job, partitions, uid)
  if job.comment == nil then
    slurm.log_user("say what it is for, by --comment")
    return slurm.ERROR
  end
  job.admin_comment = "%s"
  return slurm.SUCCESS
end

function slurm_job_modify(job, old, partitions, uid)
  return slurm.SUCCESS
end
"""
LINE: Final = "JobSubmitPlugins=lua"


def test_slurmctld_asks_the_job_submit_lua_of_the_values_and_its_next_version_without_a_restart(
    slurm_lab: HostSlurm,
) -> None:
    def submitted() -> str:
        job = slurm_lab.exec("sbatch", "--parsable", "--hold", "--comment=test", "--wrap", "true").strip()
        return slurm_lab.exec("scontrol", "show", "job", job)

    def values(word: str) -> dict[str, Any]:
        return {"slurmConfig": {"extraConfig": LINE, "files": {"job_submit.lua": LUA % word}}}

    told = shown(slurm_lab, values("first"))
    assert told["JobSubmitPlugins"] == "lua"
    slurm_lab.add_node("n")
    wait_for("the node", lambda: "idle" in slurm_lab.exec("sinfo", "-hn", "n", "-o", "%T"), 60, 0.1)
    with pytest.raises(LabError, match="say what it is for, by --comment"):
        slurm_lab.exec("sbatch", "--hold", "--wrap", "true")
    assert "AdminComment=first" in submitted()

    pid = slurm_lab.pid_of("slurmctld")
    changed = made(values("second"))["ConfigMap", "slurm-slurm-conf"]["data"]["job_submit.lua"]
    slurm_lab.write_file("job_submit.lua", changed)
    slurm_lab.exec("scontrol", "reconfigure")  # As the syncer does for each of these files.

    wait_for("the new version", lambda: "AdminComment=second" in submitted(), 60, 0.1)
    assert slurm_lab.pid_of("slurmctld") == pid


def test_slurmctld_runs_its_hooks_in_the_order_of_their_names(slurm_lab: HostSlurm) -> None:
    script = '#!/bin/bash\necho "{0} $SLURM_JOB_ID" >>/lab/state/seen\n'
    shown(
        slurm_lab,
        {
            "hooks": {
                "prologSlurmctld": {"20-b": script.format("b"), "10-a": script.format("a")},
                "epilogSlurmctld": {"9-c": script.format("c"), "10-d": script.format("d")},
            }
        },
    )
    slurm_lab.add_node("n")
    wait_for("the node", lambda: "idle" in slurm_lab.exec("sinfo", "-hn", "n", "-o", "%T"), 60, 0.1)
    seen = slurm_lab.state / "seen"

    job = slurm_lab.exec("sbatch", "--parsable", "--wrap", "true").strip()

    wait_for("its end", lambda: seen.exists() and f"c {job}" in seen.read_text(), 60, 0.1)
    assert seen.read_text().splitlines() == [f"{name} {job}" for name in ("a", "b", "d", "c")]


def test_a_slurmd_without_shared_folders_gets_the_files_that_slurm_sends(slurm_lab: HostSlurm) -> None:
    files = {name: f"# {name} of the values\n" for name in ("mpi.conf", "oci.conf", "acct_gather.conf")}
    shown(slurm_lab, {"slurmConfig": {"files": files}})
    server = f"127.0.0.1:{slurm_lab.controller_port}"
    key = "unset SLURM_CONF; export SLURM_SACK_KEY=/lab/etc/slurm.key"
    start = f'{key}; exec slurmd -D -Z -N "$1" --conf "$2" --conf-server {server}'

    slurm_lab.add_node("n", prepare=start)

    wait_for("the node", lambda: "idle" in slurm_lab.exec("sinfo", "-hn", "n", "-o", "%T"), 60, 0.1)
    found = {name: slurm_lab.exec("cat", f"/var/spool/slurmd/conf-cache/{name}") for name in files}
    assert found == files

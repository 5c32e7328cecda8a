"""Slurm's configuration as text, and what it is made for."""

import base64
import hashlib
import hmac
import json
from dataclasses import replace

import pytest

from sunk_lab.errors import LabError
from sunk_lab.slurm.conf import NodeRange, SlurmConf, render_dynamic_node, render_gres_conf, render_slurm_conf
from sunk_lab.slurm.releases import RELEASES, release_of
from sunk_lab.slurm.roots import recipe_of
from sunk_lab.slurm.tokens import new_token

CONF = SlurmConf(
    controller="ctl(127.0.0.1)",
    jwt_key="/k/jwt.key",
    state_folder="/state",
    spool_folder="/spool",
    run_folder="/run",
)
GPUS = NodeRange(count=3, first_port=7011, gpus=8, gpu_folder="/gpu")


def settings(conf: SlurmConf) -> dict[str, str]:
    """Return what slurmd reads: of a key given twice the last."""
    return dict(line.split("=", 1) for line in render_slurm_conf(conf).splitlines())


def test_a_batch_script_waits_for_the_prologs_of_all_its_nodes() -> None:
    assert settings(CONF)["PrologFlags"] == "Alloc,DeferBatch"


def test_memory_is_counted_and_a_job_that_names_none_gets_its_share() -> None:
    found = settings(replace(CONF, memory_per_cpu_mib=4000))

    assert (found["SelectTypeParameters"], found["DefMemPerCPU"]) == ("CR_Core_Memory", "4000")


def test_no_key_is_one_that_24_11_dies_at() -> None:
    assert not {"PrologTimeout", "EpilogTimeout"} & settings(CONF).keys()


def test_nodes_that_register_themselves_are_not_named() -> None:
    assert "NodeName" not in settings(CONF)


def test_named_nodes_share_one_machine_with_a_port_a_folder_and_a_pid_file_each() -> None:
    found = settings(replace(CONF, nodes=GPUS))

    assert found["NodeName"] == (
        "node[01-03] NodeHostname=ctl NodeAddr=127.0.0.1 Port=[7011-7013]"
        " CPUs=4 RealMemory=16000 Gres=gpu:8 State=UNKNOWN"
    )
    assert (found["SlurmdSpoolDir"], found["SlurmdPidFile"]) == ("/spool/%n", "/run/slurmd.%n.pid")


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        pytest.param(GPUS, "NodeName=node[01-03] Name=gpu File=/gpu/[0-7]\n", id="with GPUs"),
        pytest.param(
            replace(GPUS, gpus=4, gpu_types=("h100", "a100")),
            "NodeName=node[01-03] Name=gpu Type=h100 File=/gpu/[0-1]\n"
            "NodeName=node[01-03] Name=gpu Type=a100 File=/gpu/[2-3]\n",
            id="with GPUs of two types",
        ),
        pytest.param(replace(GPUS, gpus=0), "", id="without GPUs"),
        pytest.param(None, "", id="without named nodes"),
    ],
)
def test_gres_conf_names_the_device_files_of_the_gpus(nodes: NodeRange | None, text: str) -> None:
    assert render_gres_conf(replace(CONF, nodes=nodes)) == text


@pytest.mark.parametrize(
    ("count", "first", "last"),
    [(1, "node01", "node01"), (99, "node01", "node99"), (100, "node001", "node100")],
)
def test_names_are_as_wide_as_the_last_and_at_least_two_digits(count: int, first: str, last: str) -> None:
    names = NodeRange(count=count, first_port=1).names

    assert (names[0], names[-1], len(names)) == (first, last, count)


def test_a_line_of_the_callers_comes_after_ours_so_that_it_holds() -> None:
    assert settings(replace(CONF, more=("KillWait=5",)))["KillWait"] == "5"


def test_a_node_that_registers_itself_says_no_port_unless_it_has_its_own() -> None:
    plain = render_dynamic_node(cpus=8, memory_mib=16000, address="$(POD_IP)")
    own = render_dynamic_node(cpus=8, memory_mib=16000, address="127.0.0.1", port=7, features=("a", "b"))

    assert plain == "CPUs=8 RealMemory=16000 NodeAddr=$(POD_IP)"
    assert own == "CPUs=8 RealMemory=16000 NodeAddr=127.0.0.1 Port=7 Feature=a,b"


def test_an_unknown_release_is_refused_with_those_there_are() -> None:
    with pytest.raises(LabError, match=r"no Slurm 22\.05 here: there are 24\.11, 26\.05"):
        release_of("22.05")


def test_a_changed_recipe_is_another_root() -> None:
    digests = {recipe_of(release).digest for release in RELEASES}
    digests.add(replace(recipe_of(RELEASES[0]), packages=("slurmd",)).digest)

    assert len(digests) == 3


def test_a_token_names_its_user_and_is_signed_with_the_key() -> None:
    key = b"k" * 32
    head, body, signature = new_token(key, user="sunk", lifespan_s=60).split(".")

    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    expected = hmac.new(key, f"{head}.{body}".encode(), hashlib.sha256).digest()
    assert (claims["sun"], claims["exp"] - claims["iat"]) == ("sunk", 60)
    assert base64.urlsafe_b64decode(signature + "=") == expected


def test_nodes_without_a_slurmd_are_in_a_partition_of_their_own() -> None:
    records = NodeRange(count=120, first_port=0, prefix="record")
    text = render_slurm_conf(replace(CONF, nodes=NodeRange(count=2, first_port=1), records=records))

    assert "NodeName=record[001-120] CPUs=4 RealMemory=16000 State=CLOUD\n" in text
    assert "PartitionName=main Nodes=node[01-02] Default=YES" in text
    assert "PartitionName=records Nodes=record[001-120] " in text


def test_nodes_without_a_slurmd_may_have_gpus() -> None:
    records = NodeRange(count=2, first_port=0, prefix="record", gpus=8, gpu_types=("h100",))

    text = render_slurm_conf(replace(CONF, records=records))

    assert "NodeName=record[01-02] CPUs=4 RealMemory=16000 Gres=gpu:h100:8 State=CLOUD\n" in text

"""SPANK plugins from images, by ``compute.plugins``: what the chart makes of them, and how it copies them."""

import subprocess
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest

from sunk_lab.charts import Objects, render

CHART: Final = Path(__file__).parents[2] / "helm/slurm"
IMAGE: Final = {"registry": "registry.example.com", "repository": "hpc/greet", "tag": "1"}
GREET: Final[dict[str, Any]] = {
    "name": "greet",
    "image": IMAGE,
    "libraries": [{"path": "/usr/lib/plugins/greet.so", "args": ["hello", "mode=0700"]}],
}
OTHER: Final[dict[str, Any]] = {
    "name": "other",
    "image": IMAGE,
    "libraries": [{"path": "/opt/a.so", "required": False}, {"path": "/opt/b.so"}],
}
LINES: Final = (
    "required /etc/sunk/plugins/greet/greet.so hello mode=0700\n"
    "optional /etc/sunk/plugins/other/a.so\n"
    "required /etc/sunk/plugins/other/b.so"
)


@pytest.fixture(scope="module")
def chart() -> helm.Chart:
    return helm.Chart.load(CHART)


def made(chart: helm.Chart, *plugins: dict[str, Any], **values: Any) -> Objects:  # noqa: ANN401 - free-form.
    compute: dict[str, Any] = {
        "nodes": {"cpu": {"volumes": [{"name": "mine", "emptyDir": {}}]}},
        "plugins": list(plugins),
    }
    given: dict[str, Any] = {
        "clusterName": "prod",
        "nats": {"existingSecret": "passwords"},
        "compute": compute,
    }
    return render(chart, given | values, name="prod", namespace="slurm")


def pods(objects: Objects) -> dict[str, dict[str, Any]]:
    """Return the Pods' specs that load plugins, by the container that does."""
    return {
        "slurmd": objects["NodeSet", "prod-cpu"]["spec"]["template"]["spec"],
        "sshd": objects["StatefulSet", "prod-login"]["spec"]["template"]["spec"],
    }


def inits(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in pod.get("initContainers", [])}


@pytest.mark.parametrize("name", ["slurmd", "sshd"])
def test_compute_and_login_pods_have_the_libraries_and_the_lines_in_order(
    chart: helm.Chart, name: str
) -> None:
    pod = pods(made(chart, GREET, OTHER))[name]

    found = inits(pod)
    copies = [one for one in found if one.startswith("plugin-")]
    assert copies == ["plugin-greet", "plugin-other"]
    assert found["plugin-greet"]["image"] == "registry.example.com/hpc/greet:1"
    assert found["plugin-other"]["command"][-3:] == ["/plugins/other", "/opt/a.so", "/opt/b.so"]
    assert found["plugstack"]["env"] == [{"name": "LINES_OF_PLUGINS", "value": LINES}]
    (container,) = (one for one in pod["containers"] if one["name"] == name)
    mount = {"name": "plugins", "mountPath": "/etc/sunk/plugins", "readOnly": True}
    assert mount in container["volumeMounts"]
    assert {"name": "plugins", "emptyDir": {}} in pod["volumes"]


def test_slurmctld_has_the_file_that_its_plugstack_conf_includes(chart: helm.Chart) -> None:
    """It loads no plugins, and does not answer for a minute without it."""
    objects = made(chart, GREET)

    (slurmctld,) = objects["StatefulSet", "prod-controller"]["spec"]["template"]["spec"]["containers"]
    (mount,) = (one for one in slurmctld["volumeMounts"] if "plugins" in one["mountPath"])
    included = objects["ConfigMap", "prod-slurm-conf"]["data"]["plugstack.conf"].split()
    assert included == ["include", mount["mountPath"]]
    assert objects["ConfigMap", "prod-scripts"]["data"][mount["subPath"]].startswith("#")


def test_the_users_own_volumes_and_lines_stay(chart: helm.Chart) -> None:
    objects = made(chart, GREET, slurmConfig={"plugstackConfig": "optional mine.so"})

    text = objects["ConfigMap", "prod-slurm-conf"]["data"]["plugstack.conf"]
    assert text.splitlines() == ["optional mine.so", "include /etc/sunk/plugins/plugstack.conf"]
    # By that key Slurm opens a relative path below the working directory; without it, next to slurm.conf.
    assert "PlugStackConfig" not in objects["ConfigMap", "prod-slurm-conf"]["data"]["slurm.conf"]
    assert {"name": "mine", "emptyDir": {}} in pods(objects)["slurmd"]["volumes"]


def test_a_change_of_plugins_changes_the_pods_and_none_leaves_no_trace(chart: helm.Chart) -> None:
    changed = GREET | {"libraries": [{"path": "/usr/lib/plugins/greet.so"}]}

    assert pods(made(chart, GREET))["slurmd"] != pods(made(chart, changed))["slurmd"]
    assert "plugins" not in str(pods(made(chart)))
    assert "plugstack.conf" not in made(chart)["ConfigMap", "prod-slurm-conf"]["data"]


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "Greet"},
        {"image": {"repository": "hpc/greet"}},
        {"libraries": []},
        {"libraries": [{"path": "greet.so"}]},
        {"libraries": [{"path": "/lib/a b.so"}]},
        {"libraries": [{"path": "/lib/a.so", "args": ["a b"]}]},
        {"libraries": [{"path": "/lib/a.so", "args": ["a\nrequired /tmp/evil.so"]}]},
        {"libraries": [{"path": "/lib/a.so", "args": ["$(id)"]}]},
        {"libraries": [{"path": "/lib/a.so", "args": ["#"]}]},
        {"libraries": [{"path": "/lib/a.so", "args": [""]}]},
    ],
    ids=str,
)
def test_the_schema_refuses_what_plugstack_conf_would_read_differently(
    chart: helm.Chart, changed: dict[str, Any]
) -> None:
    with pytest.raises(helm.HelmError, match="/compute/plugins/0"):
        made(chart, GREET | changed)


@pytest.mark.parametrize(
    ("plugins", "why"),
    [
        ([GREET, GREET], 'two plugins have the name "greet"'),
        ([OTHER | {"libraries": [{"path": "/a/x.so"}, {"path": "/b/x.so"}]}], 'with the file name "x.so"'),
    ],
    ids=["names", "files"],
)
def test_one_file_is_never_written_over_another(
    chart: helm.Chart, plugins: list[dict[str, Any]], why: str
) -> None:
    with pytest.raises(helm.HelmError, match=why):
        made(chart, *plugins)


def copy(chart: helm.Chart, folder: Path, library: str) -> subprocess.CompletedProcess[str]:
    """Run what the init container of a plugin runs, with *folder* in place of its own."""
    plugin = GREET | {"libraries": [{"path": library}]}
    command = inits(pods(made(chart, plugin))["sshd"])["plugin-greet"]["command"]
    told = [str(folder) if word.startswith("/plugins/") else word for word in command]
    return subprocess.run(told, capture_output=True, text=True, check=False)


def test_a_copy_is_for_all_users_and_a_new_file_each_time(chart: helm.Chart, tmp_path: Path) -> None:
    library = tmp_path / "greet.so"
    library.write_text("one")
    library.chmod(0o600)
    copied = tmp_path / "to/greet.so"
    assert copy(chart, tmp_path / "to", str(library)).returncode == 0

    with copied.open() as loaded:
        library.write_text("two")
        assert copy(chart, tmp_path / "to", str(library)).returncode == 0

        assert (loaded.read(), copied.read_text()) == ("one", "two")
    assert copied.stat().st_mode & 0o777 == 0o755
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["greet.so"]


def test_a_library_that_its_image_lacks_fails_the_init_container_by_name(
    chart: helm.Chart, tmp_path: Path
) -> None:
    ran = copy(chart, tmp_path / "to", "/nowhere/greet.so")

    assert ran.returncode != 0
    assert "/nowhere/greet.so" in ran.stderr

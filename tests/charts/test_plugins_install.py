"""A SPANK plugin from an image, and one volume for login, jobs and Pods through Slurm, on real kubelets."""

import tempfile
from collections.abc import Generator
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pytest

from sunk_lab import debian
from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.images import ImageConfig, write_root_image
from sunk_lab.installation import NAMESPACE, Installation, install
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm import cluster_images
from sunk_lab.slurm.releases import RELEASES, Release

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(1800)]
COMPILE: Final = Path(__file__).parent / "spank/compile.sh"
IMAGE: Final = {"registry": cluster_images.REGISTRY, "repository": "sunk/greet"}
SHARED: Final = {"name": "shared", "mountPath": "/shared"}
VOLUME: Final = {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}
AS_ADA: Final = "cd /tmp && timeout 60 setpriv --reuid=2000 --regid=2000 --clear-groups"
NOT_IN_IMAGE: Final = ("proc/", "sys/", "dev/", "run/", "tmp/", "usr/include/", "usr/share/", "usr/lib/gcc/")


def plugin_archive(release: Release, folder: Path) -> Path:
    """Return the archive of an image with a plugin that was compiled against the headers of *release*."""
    recipe = debian.Recipe(suite=release.suite, packages=("gcc", "libc6-dev", "libslurm-dev"), script=COMPILE)
    root = debian.root_of(recipe, from_environment().cache / "slurm", lambda _line: None)

    def keep(path: PurePosixPath) -> bool:
        return not str(path).startswith(NOT_IN_IMAGE) and not debian.is_machine_specific(str(path))

    archive = folder / "greet.tar"
    tag = f"{IMAGE['registry']}/{IMAGE['repository']}:{release.version}"
    write_root_image(archive, tag=tag, root=root, config=ImageConfig(), keep=keep)
    return archive


class Plugged(Installation):
    """A cluster with a plugin, and with a volume that login and compute Pods mount."""

    def make_namespaces(self) -> None:
        super().make_namespaces()
        with tempfile.TemporaryDirectory() as folder:
            self.lab.load(plugin_archive(self.slurm, Path(folder)))
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "shared", "namespace": NAMESPACE},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],  # Of one Node, which all of them are on.
                    "resources": {"requests": {"storage": "10Mi"}},
                },
            }
        )

    def values(self) -> dict[str, Any]:
        values = super().values()
        library = {"path": "/usr/lib/plugins/greet.so", "args": ["hello"]}
        image = IMAGE | {"tag": self.slurm.version}
        values["compute"]["plugins"] = [{"name": "greet", "image": image, "libraries": [library]}]
        return values | {"global": {"volumes": [VOLUME], "volumeMounts": [SHARED]}}


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def cluster(request: pytest.FixtureRequest) -> Generator[Plugged]:
    """Both charts on one Node."""
    with reserved_lab() as lab:
        made = Plugged(lab, nodes=("node1",), slurm=request.param)
        install(made, from_environment().cache, lambda _line: None)
        yield made


def test_an_option_of_the_plugin_reaches_the_tasks_of_a_job(cluster: Plugged) -> None:
    greeted = cluster.login(f"{AS_ADA} srun -N1 --greet=ada printenv GREETING || scontrol show job")
    plain = cluster.login(f"{AS_ADA} srun -N1 bash -c 'echo ${{GREETING-none}}'")

    assert (greeted.strip(), plain.strip()) == ("hello-ada", "none")


def test_login_a_job_and_a_pod_through_slurm_see_the_same_file(cluster: Plugged) -> None:
    cluster.login("chmod 777 /shared; echo login >/shared/file; chmod 666 /shared/file")
    seen = cluster.login(f"{AS_ADA} srun -N1 bash -c 'cat /shared/file; echo job >>/shared/file'")
    assert seen.split() == ["login"]
    reader = {
        "name": "reader",
        "image": f"{cluster_images.REGISTRY}/{cluster_images.SLURM}:{cluster.slurm.version}",
        "args": ["cat", "/shared/file"],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "volumeMounts": [SHARED],
    }
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "reader", "namespace": NAMESPACE},
            "spec": {
                "schedulerName": "slurm-slurm",
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 20,
                "containers": [reader],
                "volumes": [VOLUME],
            },
        }
    )

    def has_run() -> bool:
        shown = cluster.kubectl("get", "pod", "reader", "-o", "jsonpath={.status.phase}")
        if shown.strip() == "Succeeded":
            return True
        raise LabError(cluster.kubectl("describe", "pod", "reader") + cluster.login("squeue; sinfo -R"))

    wait_for("the Pod to have run", has_run, 120)

    assert cluster.kubectl("logs", "reader").split() == ["login", "job"]

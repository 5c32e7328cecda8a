"""Accounting in a database of the user's own: from the first install on, and moved to another later."""

from collections.abc import Generator
from functools import partial
from typing import Any, Final

import pytest

from sunk_kube.wellknown import TAINT_LOCK
from sunk_lab.config import from_environment
from sunk_lab.installation import NAMESPACE, Installation, install, slurm_values
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm import cluster_images

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(1800)]
IMAGE: Final = f"{cluster_images.REGISTRY}/{cluster_images.DATABASE}:{cluster_images.DATABASE_VERSION}"
ELSEWHERE: Final = "databases"
PORT: Final = 3307
PASSWORD: Final = r"it's #1, \ & `$secret` = 100%"  # noqa: S105 - of a database that the test makes.
# Whatever its owner starts it with; slurmdbd asks for the last of it.
SERVER: Final = """
mariadb-install-db --datadir=/tmp/data --auth-root-authentication-method=normal --skip-test-db >/dev/null
exec mariadbd --no-defaults --datadir=/tmp/data --socket=/tmp/mysqld.sock --bind-address=0.0.0.0 \\
    --innodb-snapshot-isolation=OFF
"""


class Books(Installation):
    """A cluster whose accounting is in the database `books`, of another namespace."""

    def make_namespaces(self) -> None:
        super().make_namespaces()
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}})
        self.make_database("books")

    def values(self) -> dict[str, Any]:
        values = super().values()
        return values | {"accounting": values["accounting"] | {"external": external("books")}}

    def make_database(self, name: str) -> None:
        """Make a server with a database and a user, all called *name*, and the Secret of the user."""
        labels = {"app": name}
        container = {"name": "mariadb", "image": IMAGE, "command": ["bash", "-ec", SERVER]}
        # Its Node is a compute Node, whose locks drive out every Pod that does not tolerate them.
        pod = {"tolerations": [{"key": TAINT_LOCK, "operator": "Exists"}], "containers": [container]}
        ports = [{"port": PORT, "targetPort": 3306}]
        specs = {"Pod": pod, "Service": {"selector": labels, "ports": ports}}
        for kind, spec in specs.items():
            metadata = {"name": name, "namespace": ELSEWHERE, "labels": labels}
            self.apply({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec})
        metadata = {"name": name, "namespace": NAMESPACE}
        secret = {"stringData": {"password": PASSWORD}}
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata} | secret)
        wait_for("the database", partial(self.ask, name, "SELECT 1"), 120)
        quoted = PASSWORD.replace("\\", "\\\\").replace("'", "''")
        self.ask(name, f"CREATE DATABASE {name}")
        self.ask(name, f"CREATE USER {name}@'%' IDENTIFIED BY '{quoted}'")
        self.ask(name, f"GRANT ALL ON {name}.* TO {name}@'%'")

    def ask(self, server: str, question: str) -> str:
        """Return what *server* says to its owner."""
        client = ("mariadb", "--no-defaults", "--socket=/tmp/mysqld.sock", "--user=root", "--batch")
        return self.lab.kubectl(
            "-n", ELSEWHERE, "exec", server, "--", *client, "--skip-column-names", "--execute", question
        )

    def has_ended(self, job: str) -> bool:
        """Return whether accounting has *job* as completed."""
        return "COMPLETED" in self.login(f"sacct -aXn --name={job} -o state")

    def knows_placeholders(self) -> bool:
        """Return whether accounting has the account and the user of Pods through Slurm."""
        return self.login("sacctmgr -nP show assoc account=sunk format=user").split() == ["sunk"]


def external(name: str) -> dict[str, Any]:
    """Return the values of the database *name*."""
    host = f"{name}.{ELSEWHERE}.svc"
    return {"host": host, "port": PORT, "user": name, "database": name, "existingSecret": name}


@pytest.fixture(scope="module")
def cluster() -> Generator[Books]:
    """Both releases with one compute Node."""
    with reserved_lab() as lab:
        made = Books(lab, nodes=("node1",))
        install(made, from_environment().cache, lambda _line: None)
        yield made


def test_accounting_is_in_a_database_of_the_users_own(cluster: Books) -> None:
    cluster.login("timeout 60 srun -J booked true")

    wait_for("the job in sacct", partial(cluster.has_ended, "booked"), 60)
    assert "booked" in cluster.ask("books", "SELECT job_name FROM books.prod_job_table")
    wait_for("the user of placeholders", cluster.knows_placeholders, 60)
    assert "slurm-mariadb" not in cluster.uids("statefulset")


def test_a_cluster_moves_to_an_empty_database_and_back_to_what_it_left(cluster: Books) -> None:
    cluster.login("timeout 60 srun -J left true")
    wait_for("the job in sacct", partial(cluster.has_ended, "left"), 60)

    cluster.install_slurm(slurm_values(cluster.nodes))  # With the embedded one.

    wait_for("the user of placeholders", cluster.knows_placeholders, 120)
    cluster.await_idle()
    cluster.login("timeout 60 srun -J moved true")
    wait_for("the job in sacct", partial(cluster.has_ended, "moved"), 60)
    assert not cluster.has_ended("left")
    cluster.install_slurm()
    wait_for("the old books", partial(cluster.has_ended, "left"), 60)
    assert not cluster.has_ended("moved")
    cluster.await_idle()
    cluster.login("timeout 60 srun -J again true")
    wait_for("the job in sacct", partial(cluster.has_ended, "again"), 60)


def test_the_database_is_ready_once_its_own_tables_are_of_its_version(cluster: Books) -> None:
    cluster.install_slurm(slurm_values(cluster.nodes))
    client = "mariadb --no-defaults --socket=/run/mysqld/mysqld.sock --user=root --execute"
    exec_in = ("exec", "slurm-mariadb-0", "--", "bash", "-c")
    older = "echo -n 10.2.1-MariaDB >/var/lib/mysql/data/mariadb_upgrade_info"
    cluster.kubectl(*exec_in, f"{client} 'ALTER TABLE mysql.proc DROP COLUMN aggregate' && {older}")
    cluster.kubectl("delete", "pod", "slurm-mariadb-0")

    def is_there() -> bool:
        return "slurm-mariadb-0" in cluster.uids("pod")

    wait_for("the next one", is_there, 60)
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "pod/slurm-mariadb-0")

    cluster.kubectl(*exec_in, f"{client} 'CREATE PROCEDURE slurm_acct_db.any() SELECT 1'")
    cluster.await_idle()
    cluster.login("timeout 60 srun -J later true")
    wait_for("the job in sacct", partial(cluster.has_ended, "later"), 60)

"""The cause of each alert, made on both installed charts: `sunkctl doctor` names its runbook, with the fix.

Three causes stand in test_view_install.py: an exporter, a bus and a slurmrestd that are gone. Thresholds are
lowered by values, as far as a cause lasts seconds here in place of minutes: before any cause is made, nothing
is found. What a gauge tells goes once the cause is taken away as its runbook says. What a counter tells stays
for the hour that its alert looks back.

With Slurm 26.05 only `./task test:nightly` makes them.

The Nodes of a lab have one clock, so one service has another by Debian's libfaketime.
"""

import base64
import json
import os
import signal
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final

import pytest
from cryptography import x509
from typer.testing import CliRunner

from sunk_ctl.main import app
from sunk_ctl.runbook_rules import RULES
from sunk_events import subjects
from sunk_events.nodes import NodeDrained
from sunk_events.placements import PlacementState
from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.installation import NAMESPACE, SUNK_NAMESPACE, Installation, install, merged
from sunk_lab.kube.cgroups import processes_of, slowed
from sunk_lab.kube.images import PAUSE
from sunk_lab.kube.prerequisites import unpacked
from sunk_lab.processes import stopped, wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm.cluster_images import REGISTRY, SLURM
from sunk_lab.slurm.releases import SLURM_24_11, SLURM_26_05, Release
from sunk_nodeset_controller.certificates.issuing import Pair, names_of, new_authority, new_server

pytestmark = [
    pytest.mark.lab,
    pytest.mark.install,
    pytest.mark.timeout(1800),  # The images are made from the code as it is now.
]
NODES: Final = ("node1", "node2", "node3")
CLUSTER: Final = "prod"
PATIENCE_S: Final = 400
FIXES: Final = {rule.alert: rule.fix for rule in RULES}
THRESHOLDS: Final = {
    "SunkSlurmListStale": 60,  # In a quiet cluster the syncer asks for all nodes each QUIET_MAX_S.
    "SunkSlurmRefuses": 3,
    "SunkFactsNotRead": 200,
    "SunkLockPendingLong": 15,
    "SunkPlacementWaitsLong": 30,
    "SunkDrainOld": 45,  # A drain of a failed lock stays for 30 s.
    "SunkDrainOutlivesCause": 60,
}
STATE: Final = "/var/spool/slurmctld/state"
OLDER: Final = "/tmp/older"  # noqa: S108 - of a container
GONE: Final = "/gone"
RULES_CRD: Final = "prometheusrules.monitoring.coreos.com"
AUTHORITY: Final = "sunk-nats-authority"
ENDS_SOON: Final = timedelta(days=86)
"""The age of a certificate of 90 days that should have been renewed long ago."""
WRONG_CLOCK: Final = {
    "LD_PRELOAD": "/clock/libfaketime.so.1",
    "FAKETIME_TIMESTAMP_FILE": "/clock/offset",
    "FAKETIME_DISABLE_SHM": "1",
    "DONT_FAKE_MONOTONIC": "1",
}
CLOCK: Final = {
    "extraEnv": [{"name": name, "value": value} for name, value in WRONG_CLOCK.items()],
    "extraVolumes": [{"name": "clock", "configMap": {"name": "clock"}}],
    "extraVolumeMounts": [{"name": "clock", "mountPath": "/clock", "readOnly": True}],
}
ADMIN: Final = """
import asyncio, ssl, sys, nats, nats.js.errors
async def main():
    who = dict(user="admin", password=sys.argv[1], inbox_prefix=b"_INBOX.admin")
    tls = ssl.create_default_context(cafile="/var/run/secrets/nats-ca/ca.crt")
    client = await nats.connect("tls://sunk-nats.sunk:4222", tls=tls, **who)
    js = client.jetstream(timeout=20)
{body}
    await client.flush(60)
asyncio.run(main())
"""
FILL: Final = """
stream, subject = sys.argv[2:]
await js.add_stream(name=stream, subjects=[subject])
end, sizes = asyncio.get_running_loop().time() + 60, [1_000_000, 10_000, 100]
while sizes and asyncio.get_running_loop().time() < end:
    sent = [js.publish(subject, bytes(sizes[0])) for _ in range(20)]
    answers = await asyncio.gather(*sent, return_exceptions=True)
    if any(isinstance(one, nats.js.errors.APIError) for one in answers):
        sizes.pop(0)
print("" if sizes else "full")
"""
BURST: Final = """
info = await js.stream_info(sys.argv[2], subjects_filter=">")
facts = [await js.get_last_msg(sys.argv[2], subject) for subject in info.state.subjects]
for fact in [one for one in facts if one.data.startswith(b"{")][:10]:
    for _ in range(800):
        await client.publish(fact.subject, fact.data)
"""
"""A thousand facts of each subject are kept."""


class Cluster(Installation):
    """Both releases with TLS and alerts; each of three Nodes is a compute Node too."""

    libfaketime: bytes

    def make_namespaces(self) -> None:
        super().make_namespaces()
        names = {"kind": "PrometheusRule", "plural": "prometheusrules"}
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        spec = {
            "group": "monitoring.coreos.com",
            "names": names,
            "scope": "Namespaced",
            "versions": [version],
        }
        kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        self.apply({**kind, "metadata": {"name": RULES_CRD}, "spec": spec})
        self.lab.kubectl("wait", "--for=condition=Established", f"crd/{RULES_CRD}")
        self.show_hooks(timedelta())
        self.set_clock("+0")

    def sunk_values(self) -> dict[str, Any]:
        more = {
            "alerts": {"enabled": True, "thresholds": THRESHOLDS},
            "nats": {"tls": {"generate": True}, "persistence": {"maxFileStore": "1536MiB"}},
            "nodesetController": {"slurm": {"staleSeconds": 30}},
        }
        return merged(super().sunk_values(), more)

    def values(self) -> dict[str, Any]:
        more = {
            "slurmConfig": {"hookDeadline": 40},
            "hookGateway": {"tls": {"existingSecret": "hooks-tls"}},
            "syncer": {"settings": {"QUIET_MAX_S": "10"}},
            "metricsExporter": CLOCK,
        }
        return merged(super().values(), more)

    @contextmanager
    def upgraded(self, **more: Any) -> Generator[None]:  # noqa: ANN401 - values are free-form.
        """Have *more* in the values of the Slurm cluster meanwhile."""
        self.install_slurm(merged(self.values(), more))
        try:
            yield
        finally:
            self.install_slurm()

    def findings(self, seconds: int = 1) -> dict[str, list[dict[str, str]]]:
        """Return what `sunkctl doctor` finds, by runbook, or where it is."""
        words = ("doctor", "--kubeconfig", str(self.lab.kubeconfig), "--seconds", str(seconds), "-o", "json")
        done = CliRunner(env={"NO_PROXY": "*"}).invoke(app, words)
        if done.exit_code not in {0, 1}:  # A Pod went meanwhile.
            raise LabError(done.stderr)
        found: dict[str, list[dict[str, str]]] = {}
        for one in json.loads(done.stdout)["findings"]:
            found.setdefault(one["runbook"] or one["where"], []).append(one)
        return found

    def names(self, alert: str, words: str = "", seconds: int = 1) -> None:
        """See that doctor comes to name the runbook of *alert*, with *words* and its fix."""

        def is_named() -> bool:
            found = self.findings(seconds)
            if not any(words in one["what"] for one in found.get(alert, ())):
                raise LabError(json.dumps(found))
            assert {one["fix"] for one in found[alert]} == {FIXES[alert]}
            return True

        wait_for(alert, is_named, PATIENCE_S, pause_s=1.0)

    def forgets(self, alert: str) -> None:
        """See that doctor comes to name the runbook of *alert* no more."""

        def is_forgotten() -> bool:
            if found := self.findings().get(alert):
                raise LabError(json.dumps(found))
            return True

        wait_for(f"no {alert}", is_forgotten, PATIENCE_S, pause_s=1.0)

    def admin(self, body: str, *args: str) -> str:
        """Run *body* as the administrator of the bus; return what it prints."""
        script = ADMIN.format(body=textwrap.indent(body.strip(), "    "))
        sunk = ("-n", SUNK_NAMESPACE)
        template = "go-template={{.data.admin | base64decode}}"
        password = self.lab.kubectl(*sunk, "get", "secret", "sunk-nats-users", "-o", template)
        run = ("exec", "deployment/sunk-nodeset-controller", "--", "python3", "-c", script, password, *args)
        return self.lab.kubectl(*sunk, *run)

    def show_hooks(self, age: timedelta) -> None:
        """Have the hook gateway's Secret hold a certificate of that *age*."""
        host = f"slurm-hook-gateway.{NAMESPACE}.svc"
        made = new_server(self._hooks, [host], datetime.now(UTC) - age)
        pems = {"tls.crt": made.crt, "tls.key": made.key, "ca.crt": self._hooks.crt}
        self._keep("Secret", "hooks-tls", data=_encoded(pems), type="Opaque")

    def set_clock(self, offset: str) -> None:
        """Have the exporter's clock differ from that of the machine by *offset* seconds."""
        library = {"libfaketime.so.1": self.libfaketime}
        self._keep("ConfigMap", "clock", binaryData=_encoded(library), data={"offset": f"{offset}\n"})

    def submit(self, words: str, script: str = "sleep 3600") -> str:
        """Submit a job and return its id."""
        wrap = f"sbatch --parsable --mem=100 --output=/dev/null {words} --wrap='{script}'"
        return self.login(f"cd /tmp; {wrap}").strip()

    def state(self, job: str) -> str:
        """Return the state of *job*."""
        return self.login(f"squeue -h -t all -j {job} -o %T").strip()

    def place(self, name: str) -> None:
        """Apply a Pod that Slurm is to place."""
        self._start(name, {"schedulerName": "slurm-slurm", "terminationGracePeriodSeconds": 1})

    def stay_on(self, node: str, name: str) -> None:
        """Start an ordinary Pod on the Node *node* that has an hour to leave, and does once it has `GONE`."""
        run = f"trap : TERM; while [ ! -e {GONE} ]; do sleep 0.2; done"
        container = {"image": f"{REGISTRY}/{SLURM}:{self.slurm.version}", "command": ["bash", "-c", run]}
        self._start(name, {"nodeName": node, "terminationGracePeriodSeconds": 3600}, **container)
        self.await_running(name)

    def await_running(self, name: str) -> None:
        """Wait until the Pod *name* runs."""
        phase = ("get", "pod", name, "-o", "jsonpath={.status.phase}")
        wait_for(f"{name} to run", lambda: self.lab.kubectl(*phase) == "Running", PATIENCE_S)

    def sweep(self) -> None:
        """End what a test has begun; all nodes are idle and unlocked afterwards."""
        self.lab.kubectl("delete", "pod", "--all", "--force", "--grace-period=0")
        self.lab.kubectl("uncordon", *self.nodes)
        self.login("squeue -h -r -o %i | xargs --no-run-if-empty scancel")
        self.await_idle()
        taints = ("get", "nodes", "-o", "jsonpath={.items[*].spec.taints[*].key}")
        wait_for("no lock", lambda: "sunk.coreweave.com/lock" not in self.lab.kubectl(*taints), 120)

    @cached_property
    def _hooks(self) -> Pair:
        return new_authority("hooks", datetime.now(UTC))

    def _keep(self, kind: str, name: str, **content: Any) -> None:  # noqa: ANN401 - Kubernetes' own schema
        metadata = {"name": name, "namespace": NAMESPACE}
        self.apply({"apiVersion": "v1", "kind": kind, "metadata": metadata, **content})

    def _start(self, name: str, spec: dict[str, Any], **container: Any) -> None:  # noqa: ANN401 - as above
        resources = {"requests": {"cpu": "10m", "memory": "16Mi"}}
        main = {"name": "main", "image": PAUSE, "resources": resources, **container}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}}
        self.apply({**pod, "spec": {"restartPolicy": "Never", **spec, "containers": [main]}})


def _encoded(content: dict[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(data).decode() for name, data in content.items()}


def _ids(release: Release) -> str:
    return f"slurm {release.version}"


@pytest.fixture(
    scope="module",
    params=[SLURM_24_11, pytest.param(SLURM_26_05, marks=pytest.mark.nightly)],
    ids=_ids,
)
def cluster(request: pytest.FixtureRequest) -> Generator[Cluster]:
    config = from_environment()
    package = unpacked("libfaketime", cache=config.cache, report=print)
    with reserved_lab() as lab:
        made = Cluster(lab, nodes=NODES, slurm=request.param)
        made.libfaketime = next(package.glob("usr/lib/*/faketime/libfaketime.so.1")).read_bytes()
        install(made, config.cache, lambda _line: None)
        yield made


@pytest.fixture(autouse=True)
def _swept(cluster: Cluster) -> Generator[None]:
    yield
    cluster.sweep()


def test_nothing_is_found_before_any_cause_is_made(cluster: Cluster) -> None:
    def is_well() -> bool:
        if found := cluster.findings(seconds=10):
            raise LabError(json.dumps(found))
        return True

    wait_for("nothing to find", is_well, PATIENCE_S)


def test_a_list_that_slurm_does_not_tell_is_named_also_by_a_syncer_that_was_restarted(
    cluster: Cluster,
) -> None:
    """A slurmctld without partitions has lost its configuration, so the syncer does not believe it."""
    partitions = cluster.login("sinfo -h -o %R").split()
    cluster.login("; ".join(f"scontrol delete PartitionName={name}" for name in partitions))
    try:
        cluster.names("SunkSlurmListStale", "partitions")
        cluster.kubectl("rollout", "restart", "deployment/slurm-syncer")
        cluster.await_rollout("slurm-syncer")
        cluster.names("SunkSlurmListStale", "partitions")
    finally:
        cluster.login("scontrol reconfigure")

    cluster.forgets("SunkSlurmListStale")


def test_a_lease_that_no_replica_may_hold_is_named_and_the_log_says_why(cluster: Cluster) -> None:
    with cluster.without_rights(NAMESPACE, "slurm-scheduler-lease"):
        cluster.names("SunkNoLeader", "sunk-pod-scheduler-prod")
        log = cluster.kubectl("logs", "deployment/slurm-scheduler", "-c", "scheduler", "--tail=20")

    assert "lease call failed" in log
    assert "is forbidden" in log
    cluster.forgets("SunkNoLeader")


def test_a_nodeset_of_which_slurm_is_not_heard_is_named(cluster: Cluster) -> None:
    with cluster.without_pods("slurm-syncer"):
        cluster.names("SunkNodeSetBlind", "slurm/slurm-cpu")

    cluster.forgets("SunkNodeSetBlind")


def test_a_node_whose_pod_is_not_ready_for_long_is_named(cluster: Cluster) -> None:
    uid = cluster.uids("pod")[cluster.slurmd_on("node3")]
    with stopped(processes_of(uid, "slurmd")):
        cluster.names("SunkDrainOld", "pod not ready")

    cluster.forgets("SunkDrainOld")


def test_a_pod_that_waits_for_its_turn_in_slurm_is_named(cluster: Cluster) -> None:
    job = cluster.submit("-N3 --exclusive")
    wait_for("the job", lambda: cluster.state(job) == "RUNNING", 120)
    cluster.place("late")

    cluster.names("SunkPlacementWaitsLong")
    cluster.login(f"scancel {job}")

    cluster.await_running("late")
    cluster.forgets("SunkPlacementWaitsLong")


def test_a_placeholder_whose_pod_and_placement_are_gone_is_named(cluster: Cluster) -> None:
    cluster.place("gone")
    cluster.await_running("gone")
    uid = cluster.lab.kubectl("get", "pod", "gone", "-o", "jsonpath={.metadata.uid}")
    key = subjects.key_subject(subjects.bucket(CLUSTER, PlacementState), uid)
    assert "SunkPlaceholderWithoutPod" not in cluster.findings()

    with cluster.without_pods("slurm-scheduler"):
        cluster.lab.kubectl("delete", "pod", "gone", "--force", "--grace-period=0")
        cluster.admin('await js.publish(sys.argv[2], b"", headers={"KV-Operation": "DEL"})', key)

    cluster.names("SunkPlaceholderWithoutPod")
    wait_for("its job to go", lambda: cluster.login("squeue -h -u sunk") == "", 120)


def test_pods_whose_jobs_slurmctld_has_lost_are_named(cluster: Cluster) -> None:
    controller = ("exec", "slurm-controller-0", "-c", "slurmctld", "--", "bash", "-c")
    lose = f"cd {STATE}; rm -f job_state* last_job_id"
    if cluster.slurm is SLURM_26_05:  # It does not start without these files, so it gets older ones.
        cluster.kubectl(*controller, f"mkdir {OLDER}; cp -p {STATE}/job_state* {STATE}/last_job_id {OLDER}")
        lose = f"{lose}; cp -p {OLDER}/* ."
    cluster.place("kept")
    cluster.await_running("kept")
    assert "SunkPodsWithoutJob" not in cluster.findings()
    (process,) = processes_of(cluster.uids("pod")["slurm-controller-0"], "slurmctld")

    os.kill(process, signal.SIGSTOP)  # It would write them once more.
    cluster.kubectl(*controller, lose)
    os.kill(process, signal.SIGKILL)

    cluster.names("SunkPodsWithoutJob")


def test_pods_that_do_not_leave_are_named_while_prologs_wait_and_once_jobs_are_refused_and_held(
    cluster: Cluster,
) -> None:
    pods = [f"stays-{node}" for node in NODES]
    for node, pod in zip(NODES, pods, strict=True):
        cluster.stay_on(node, pod)
    assert not {"SunkLockPendingLong", "SunkLocksRefused", "SunkJobsHeldByLocks"} & {*cluster.findings()}

    for node in NODES:
        for _ in range(2):
            cluster.submit(f"-w {cluster.slurmd_on(node)}")

    cluster.names("SunkLockPendingLong")
    cluster.names("SunkLocksRefused")
    cluster.names("SunkJobsHeldByLocks")
    assert "SunkPrologsDrainNodes" not in cluster.findings()
    for pod in pods:
        cluster.lab.kubectl("exec", pod, "--", "touch", GONE)
    wait_for("the Pods to leave", lambda: "stays" not in cluster.lab.kubectl("get", "pods"), 120)
    cluster.forgets("SunkLockPendingLong")


def test_prologs_that_reach_no_gateway_are_named_and_their_drains_go_once_there_is_one(
    cluster: Cluster,
) -> None:
    def set_partitions(state: str) -> None:
        for name in cluster.login("sinfo -h -o %R").split():
            cluster.login(f"scontrol update PartitionName={name} State={state}")

    with cluster.without_pods("slurm-hook-gateway"):
        for node in NODES:  # Of one job, the first prolog that gives up takes it from the others.
            cluster.submit(f"-w {cluster.slurmd_on(node)}")
        cluster.names("SunkPrologsDrainNodes", "3 nodes")
        set_partitions("DOWN")
    try:
        cluster.forgets("SunkPrologsDrainNodes")
        wait_for("no drain", lambda: cluster.drains() == {}, 120)
    finally:
        set_partitions("UP")


def test_a_fact_that_no_service_can_read_is_named(cluster: Cluster) -> None:
    subject = subjects.facts(CLUSTER, NodeDrained).replace("*", "n1")
    assert "SunkDeadLetters" not in cluster.findings()

    cluster.admin('await js.publish(sys.argv[2], b"no JSON")', subject)

    cluster.names("SunkDeadLetters")


def test_an_exporter_that_does_not_keep_up_with_facts_is_named(cluster: Cluster) -> None:
    (uid,) = cluster.uids_of("slurm-metrics-exporter")
    with slowed(processes_of(uid, "python3")[0]):
        cluster.admin(BURST, subjects.fact_stream(CLUSTER))
        cluster.names("SunkFactsNotRead", "metrics-exporter-facts")
        cluster.kubectl("rollout", "restart", "deployment/slurm-metrics-exporter")
        cluster.await_rollout("slurm-metrics-exporter")

    cluster.forgets("SunkFactsNotRead")


def test_a_bus_without_space_is_named_until_the_streams_of_a_cluster_that_is_gone_are_removed(
    cluster: Cluster,
) -> None:
    stream, facts = subjects.fact_stream("gone"), subjects.facts("gone")
    wait_for("a full bus", lambda: "full" in cluster.admin(FILL, stream, facts), PATIENCE_S)
    try:
        cluster.names("SunkBusFull", seconds=15)
    finally:
        cluster.admin("await js.delete_stream(sys.argv[2])", stream)

    cluster.forgets("SunkBusFull")


def test_a_certificate_of_nats_whose_renewal_is_stopped_is_named_until_it_may_go_on(cluster: Cluster) -> None:
    def data(name: str) -> dict[str, bytes]:
        found = json.loads(cluster.lab.kubectl("-n", SUNK_NAMESPACE, "get", "secret", name, "-o", "json"))
        return {key: base64.b64decode(text) for key, text in found["data"].items()}

    with cluster.without_rights(SUNK_NAMESPACE, "sunk-nats-certificate"):
        authority = data(AUTHORITY)
        hosts = names_of(x509.load_pem_x509_certificate(data("sunk-nats-tls")["tls.crt"]))
        signer = Pair(authority["1.crt"], authority["1.key"])
        old = new_server(signer, sorted(hosts), datetime.now(UTC) - ENDS_SOON)
        patch = json.dumps({"data": _encoded({"tls.crt": old.crt, "tls.key": old.key})})
        sunk = ("-n", SUNK_NAMESPACE)
        cluster.lab.kubectl(*sunk, "rollout", "restart", "deployment/sunk-nats-certificate")
        cluster.lab.kubectl(*sunk, "patch", "secret", "sunk-nats-tls", "--type=merge", "-p", patch)
        cluster.names("SunkNatsCertificateNotRenewed", "4% of its time left")

    cluster.forgets("SunkNatsCertificateNotRenewed")


def test_a_certificate_of_the_hook_gateway_that_was_not_renewed_is_named(cluster: Cluster) -> None:
    before = cluster.uids_of("slurm-hook-gateway")
    cluster.show_hooks(ENDS_SOON)
    cluster.names("SunkCertificateEnds", "4% of its time left")

    cluster.show_hooks(timedelta())

    cluster.forgets("SunkCertificateEnds")
    assert cluster.uids_of("slurm-hook-gateway") == before


def test_a_clock_that_is_off_is_named(cluster: Cluster) -> None:
    cluster.set_clock("+20")
    cluster.names("SunkClockOff")

    cluster.set_clock("+0")

    cluster.forgets("SunkClockOff")


def test_what_slurm_refuses_the_syncers_user_is_named_and_the_drain_that_stays_for_it(
    cluster: Cluster,
) -> None:
    cluster.lab.kubectl("cordon", "node3")
    wait_for("the drain", lambda: len(cluster.drains()) == 1, 120)
    with cluster.upgraded(syncer={"slurmUser": "ada"}):
        cluster.lab.kubectl("uncordon", "node3")
        cluster.names("SunkSlurmRefuses", "UndrainNode")
        cluster.names("SunkDrainOutlivesCause", "cordon")
        assert "node not changed" in cluster.kubectl("logs", "deployment/slurm-syncer", "-c", "syncer")

    wait_for("no drain", lambda: cluster.drains() == {}, 120)
    cluster.forgets("SunkDrainOutlivesCause")


def test_jobs_without_series_of_their_own_are_named(cluster: Cluster) -> None:
    for _ in range(2):
        cluster.submit("--hold")
    with cluster.upgraded(metricsExporter={"settings": {"JOB_SERIES_MAX": "1"}}):
        cluster.names("SunkJobSeriesCapped")

    cluster.forgets("SunkJobSeriesCapped")

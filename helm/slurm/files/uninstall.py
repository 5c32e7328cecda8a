"""What `helm uninstall` runs first: gives the Nodes back while those still run who know about their jobs.

What must stay true: whoever is told that it failed has lost nothing. So the NodeSets are made empty before
they are deleted, for that can be taken back and a deletion cannot; their sizes are kept on them meanwhile. A
process that is killed gives nothing back: the Job starts another, which goes on. None follows `REFUSED`.
A cluster of any size has room in the memory of the container: of its Pods only what is needed is kept.

Arguments: the namespace, the release, how many seconds to wait. The annotation `sunk.coreweave.com/uninstall`
of a NodeSet, if it is `now`, takes its Pods away with all their jobs.
"""

import json
import pathlib
import signal
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

API = "https://kubernetes.default.svc"
ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
BEFORE = "sunk.coreweave.com/replicas-before-uninstall"
NOW = "sunk.coreweave.com/uninstall"
NODESET = "sunk.coreweave.com/nodeset"
RUNNING = "sunk.coreweave.com/running"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PAGE = 500
TOO_MANY = 429
REFUSED = 3  # Ends with it once all is as it was.
PAUSE_S = 1.0
TRIES = 30
GONE_S = 60.0  # A NodeSet without Pods goes at once, but for a controller that is just being replaced.

Object = dict[str, Any]


class Pod(NamedTuple):
    """A compute Pod that is there."""

    name: str
    nodeset: str
    running: str
    is_ending: bool


def pod_of(meta: Object) -> Pod:
    """Return what is kept of a Pod with the metadata *meta*."""
    labels = meta.get("labels", {})
    return Pod(
        meta["name"], labels.get(NODESET, ""), labels.get(RUNNING, ""), is_ending="deletionTimestamp" in meta
    )


class Cluster:
    """The objects of one release."""

    def __init__(self, namespace: str, release: str) -> None:
        self.namespace = namespace
        self.selector = f"app.kubernetes.io/instance={release},app.kubernetes.io/name=slurmd"
        self._nodesets = f"/apis/sunk.coreweave.com/v1alpha1/namespaces/{namespace}/nodesets"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))

    def nodesets(self) -> list[Object]:
        """Return the NodeSets that are there."""
        return list(self._list(self._nodesets, "application/json"))

    def pods(self) -> list[Pod]:
        """Return the compute Pods that are there."""
        return [pod_of(found["metadata"]) for found in self._list(self._pods, METADATA)]

    def resize(self, nodeset: Object, replicas: object, before: str | None) -> None:
        """Set the size of *nodeset* and what is remembered of its former one."""
        body = {"metadata": {"annotations": {BEFORE: before}}, "spec": {"replicas": replicas}}
        self._call("PATCH", f"{self._nodesets}/{nodeset['metadata']['name']}", body)

    def delete(self, nodeset: Object) -> None:
        """Delete *nodeset*; it being gone is success."""
        body = {"propagationPolicy": "Background"}
        self._call("DELETE", f"{self._nodesets}/{nodeset['metadata']['name']}", body)

    def end(self, pod: Pod) -> None:
        """Delete *pod* under its jobs; it being gone is success."""
        self._call("DELETE", f"{self._pods}/{pod.name}")

    def _list(self, path: str, accept: str) -> Iterator[Object]:
        """Yield what is there, page by page."""
        query = {"labelSelector": self.selector, "limit": PAGE}
        while True:
            page = self._call("GET", f"{path}?{urllib.parse.urlencode(query)}", accept=accept)
            yield from page["items"] or ()  # An empty list of metadata has none.
            if not (following := page["metadata"].get("continue")):
                return
            query["continue"] = following

    def _call(
        self, method: str, path: str, body: Object | None = None, accept: str = "application/json"
    ) -> Object:
        """Call the API server, again while it does not answer; what is not there is no error."""
        for left in reversed(range(TRIES)):
            headers = {
                "Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}",
                "Accept": accept,
                "Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json",
            }
            content = json.dumps(body).encode() if body else None
            request = urllib.request.Request(API + path, content, headers, method=method)  # noqa: S310 - the API server.
            try:
                with urllib.request.urlopen(request, timeout=10, context=self._trust) as answer:  # noqa: S310
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code == 404 and method != "GET":  # noqa: PLR2004 - Not Found.
                    return {}
                is_final = error.code < 500 and error.code != TOO_MANY  # noqa: PLR2004 - faults of its own pass.
                if is_final or not left:
                    raise
            except OSError:
                if not left:
                    raise
            time.sleep(PAUSE_S)
        raise AssertionError


def trouble(pod: Pod) -> str:
    """Return why a compute Pod is still there."""
    if pod.is_ending:
        return "ends"
    return {"true": "runs jobs", "false": "is not drained yet"}.get(
        pod.running, "it is not known whether it runs jobs: check that slurmctld and the syncer run"
    )


def empty(cluster: Cluster) -> set[str]:
    """Ask every NodeSet to give its Pods up. Return the names of those that are to lose them now.

    Kubernetes could delete these Pods itself (Foreground), but the sunk release refuses that to every user.
    """
    gone_now: set[str] = set()
    for nodeset in cluster.nodesets():
        known = nodeset["metadata"].get("annotations", {})
        if known.get(NOW) == "now":
            cluster.delete(nodeset)
            gone_now.add(nodeset["metadata"]["name"])
        elif "deletionTimestamp" not in nodeset["metadata"] and BEFORE not in known:
            cluster.resize(nodeset, 0, json.dumps(nodeset["spec"].get("replicas")))
    return gone_now


def restore(cluster: Cluster) -> None:
    """Give every NodeSet its former size; one that is being deleted stays empty."""
    for nodeset in cluster.nodesets():
        before = nodeset["metadata"].get("annotations", {}).get(BEFORE)
        if before is not None and "deletionTimestamp" not in nodeset["metadata"]:
            cluster.resize(nodeset, json.loads(before), None)


def advice(cluster: Cluster, pods: list[Pod], release: str, waited_s: int) -> str:
    """Return what to tell those whose cluster is not uninstalled, as *pods* are still there."""
    lines = [f"not uninstalled: after {waited_s} s these Slurm nodes still exist:"]
    lines += [f"  {pod.name}: {trouble(pod)}" for pod in sorted(pods)]
    lines += [
        "Wait for the jobs or cancel them (squeue, scancel), and uninstall again. Or end jobs and nodes:",
        f"  kubectl -n {cluster.namespace} annotate nodesets --selector {cluster.selector} {NOW}=now",
        f"  helm uninstall {release} --namespace {cluster.namespace}",
        f"To keep the release after all: helm rollback {release} --namespace {cluster.namespace}",
    ]
    return "\n".join(lines)


def dismiss(cluster: Cluster) -> int:
    """Delete NodeSets without Pods: nothing can be lost with them. Return 0 once they are gone."""
    until = time.monotonic() + GONE_S
    while nodesets := cluster.nodesets():
        if time.monotonic() > until:
            print(
                "not uninstalled: NodeSets without Pods still exist: check that the nodeset-controller runs"
            )
            return REFUSED
        for nodeset in nodesets:
            cluster.delete(nodeset)
        time.sleep(PAUSE_S)
    return 0


def uninstall(cluster: Cluster, release: str, wait_s: int) -> int:
    """Return 0 once no NodeSet of *release* is left, else what the process ends with."""
    until = time.monotonic() + wait_s
    cluster.pods()  # Where they cannot be read, nothing is made empty.
    gone_now = empty(cluster)
    while pods := cluster.pods():
        for pod in pods:
            if pod.nodeset in gone_now and not pod.is_ending:
                cluster.end(pod)
        if time.monotonic() > until:
            print(advice(cluster, pods, release, wait_s))
            return REFUSED
        time.sleep(PAUSE_S)
    return dismiss(cluster)


def end(signum: int, _: object) -> NoReturn:
    """End, as somebody asked."""
    print(f"not uninstalled: ended by signal {signal.Signals(signum).name}")
    sys.exit(REFUSED)


def main(namespace: str, release: str, wait: str) -> int:
    """Uninstall; whatever ends it before its time, a signal too, the NodeSets have their sizes again."""
    # The first process of a container hears no signal that it does not handle.
    signal.signal(signal.SIGTERM, end)
    cluster = Cluster(namespace, release)
    status = 1
    try:
        status = uninstall(cluster, release, int(wait))
    finally:
        if status:
            restore(cluster)
            print("the NodeSets have their former sizes again")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

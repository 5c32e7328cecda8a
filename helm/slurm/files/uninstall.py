"""What `helm uninstall` runs first: gives the Nodes back while those still run who know about their jobs.

What must stay true: whoever is told that it failed has lost nothing. So the NodeSets are made empty before
they are deleted, for that can be taken back and a deletion cannot; their sizes are kept on them meanwhile. A
process that is killed gives nothing back: the Job starts another, which goes on. None follows `REFUSED`.

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
from typing import Any, NoReturn

API = "https://kubernetes.default.svc"
ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
BEFORE = "sunk.coreweave.com/replicas-before-uninstall"
NOW = "sunk.coreweave.com/uninstall"
REFUSED = 3  # Ends with it once all is as it was.
PAUSE_S = 1.0
TRIES = 30
GONE_S = 60.0  # A NodeSet without Pods goes at once, but for a controller that is just being replaced.

Object = dict[str, Any]


class Cluster:
    """The objects of one release."""

    def __init__(self, namespace: str, release: str) -> None:
        self.namespace = namespace
        self.selector = f"app.kubernetes.io/instance={release},app.kubernetes.io/name=slurmd"
        self._nodesets = f"/apis/sunk.coreweave.com/v1alpha1/namespaces/{namespace}/nodesets"
        self._trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))

    def nodesets(self) -> list[Object]:
        """Return the NodeSets that are there."""
        return self._list(self._nodesets)

    def pods(self) -> list[Object]:
        """Return the compute Pods that are there."""
        return self._list(f"/api/v1/namespaces/{self.namespace}/pods")

    def resize(self, nodeset: Object, replicas: object, before: str | None) -> None:
        """Set the size of *nodeset* and what is remembered of its former one."""
        body = {"metadata": {"annotations": {BEFORE: before}}, "spec": {"replicas": replicas}}
        self._call("PATCH", f"{self._nodesets}/{nodeset['metadata']['name']}", body)

    def delete(self, nodeset: Object, propagation: str) -> None:
        """Delete *nodeset*; it being gone is success."""
        body = {"propagationPolicy": propagation}
        self._call("DELETE", f"{self._nodesets}/{nodeset['metadata']['name']}", body)

    def _list(self, path: str) -> list[Object]:
        return self._call("GET", f"{path}?{urllib.parse.urlencode({'labelSelector': self.selector})}")[
            "items"
        ]

    def _call(self, method: str, path: str, body: Object | None = None) -> Object:
        """Call the API server, again while it does not answer; what is not there is no error."""
        for left in reversed(range(TRIES)):
            headers = {
                "Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}",
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
                if error.code < 500 or not left:  # noqa: PLR2004 - it will not change its mind.
                    raise
            except OSError:
                if not left:
                    raise
            time.sleep(PAUSE_S)
        raise AssertionError


def trouble(pod: Object) -> str:
    """Return why a compute Pod is still there."""
    said = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
    if "deletionTimestamp" in pod["metadata"]:
        return "ends"
    return {"True": "runs jobs", "False": "is not drained yet"}.get(
        said.get("SlurmRunning", ""), "nobody says whether it runs jobs: is slurmctld up, and the syncer?"
    )


def name_of(found: Object) -> str:
    """Return the name of an object."""
    return found["metadata"]["name"]


def empty(cluster: Cluster) -> None:
    """Ask every NodeSet to give its Pods up; one that is to be gone now loses them."""
    for nodeset in cluster.nodesets():
        known = nodeset["metadata"].get("annotations", {})
        if known.get(NOW) == "now":
            cluster.delete(nodeset, "Foreground")
        elif "deletionTimestamp" not in nodeset["metadata"] and BEFORE not in known:
            cluster.resize(nodeset, 0, json.dumps(nodeset["spec"].get("replicas")))


def restore(cluster: Cluster) -> None:
    """Give every NodeSet its former size; one that is being deleted stays empty."""
    for nodeset in cluster.nodesets():
        before = nodeset["metadata"].get("annotations", {}).get(BEFORE)
        if before is not None and "deletionTimestamp" not in nodeset["metadata"]:
            cluster.resize(nodeset, json.loads(before), None)


def advice(cluster: Cluster, pods: list[Object], release: str, waited_s: int) -> str:
    """Return what to tell those whose cluster is not uninstalled, as *pods* are still there."""
    lines = [f"not uninstalled: after {waited_s} s there are still nodes of Slurm:"]
    lines += [f"  {name_of(pod)}: {trouble(pod)}" for pod in sorted(pods, key=name_of)]
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
            print("not uninstalled: NodeSets without Pods do not go: is the nodeset-controller up?")
            return REFUSED
        for nodeset in nodesets:
            cluster.delete(nodeset, "Background")
        time.sleep(PAUSE_S)
    return 0


def uninstall(cluster: Cluster, release: str, wait_s: int) -> int:
    """Return 0 once no NodeSet of *release* is left, else what the process ends with."""
    until = time.monotonic() + wait_s
    empty(cluster)
    while pods := cluster.pods():
        if time.monotonic() > until:
            print(advice(cluster, pods, release, wait_s))
            return REFUSED
        time.sleep(PAUSE_S)
    return dismiss(cluster)


def end(signum: int, _: object) -> NoReturn:
    """End, as somebody asked."""
    print(f"not uninstalled: told to end by {signal.Signals(signum).name}")
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
            print("the NodeSets have their sizes again")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

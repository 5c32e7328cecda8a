"""What the lab itself asks the API server: raw objects as JSON, over one kept-alive connection.

The services have a client of their own; a test that looked through theirs would see what they see.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sunk_lab.stack.http import Http, content
from sunk_lab.stack.raw import Object, dig_list

_PATHS: Final = {
    "Namespace": "api/v1/namespaces",
    "Node": "api/v1/nodes",
    "Pod": "api/v1/namespaces/{}/pods",
    "Secret": "api/v1/namespaces/{}/secrets",
    "ConfigMap": "api/v1/namespaces/{}/configmaps",
    "Service": "api/v1/namespaces/{}/services",
    "ServiceAccount": "api/v1/namespaces/{}/serviceaccounts",
    "Event": "api/v1/namespaces/{}/events",
    "Deployment": "apis/apps/v1/namespaces/{}/deployments",
    "DaemonSet": "apis/apps/v1/namespaces/{}/daemonsets",
    "Job": "apis/batch/v1/namespaces/{}/jobs",
    "StatefulSet": "apis/apps/v1/namespaces/{}/statefulsets",
    "Lease": "apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "Role": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "ClusterRole": "apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "CustomResourceDefinition": "apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "JobSet": "apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "LeaderWorkerSet": "apis/leaderworkerset.x-k8s.io/v1/namespaces/{}/leaderworkersets",
    "ResourceFlavor": "apis/kueue.x-k8s.io/v1beta2/resourceflavors",
    "ClusterQueue": "apis/kueue.x-k8s.io/v1beta2/clusterqueues",
    "LocalQueue": "apis/kueue.x-k8s.io/v1beta2/namespaces/{}/localqueues",
    "Workload": "apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads",
    "PodGroup": "apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups",
    "NodeSet": "apis/sunk.coreweave.com/v1alpha1/namespaces/{}/nodesets",
}
NOT_FOUND: Final = 404


class _NamedCluster(msgspec.Struct):
    cluster: Object


class _NamedUser(msgspec.Struct):
    user: Object


class _KubeConfig(msgspec.Struct):
    clusters: list[_NamedCluster]
    users: list[_NamedUser]


class KubeApi:
    """One connection to the API server as the lab's administrator."""

    def __init__(self, kubeconfig: Path) -> None:
        config = msgspec.json.decode(kubeconfig.read_bytes(), type=_KubeConfig)
        cluster, user = config.clusters[0].cluster, config.users[0].user
        self.server: Final = str(cluster["server"])
        self.authority: Final = str(cluster["certificate-authority"])
        tls = ssl.create_default_context(cafile=self.authority)
        tls.load_cert_chain(user["client-certificate"], user["client-key"])
        self._http = Http(base_url=self.server, verify=tls, timeout=30, trust_env=False)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def get(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        """Return the object, or None if there is none."""
        answer = self._http.ask("GET", f"{_path(kind, namespace)}/{name}")
        return None if answer.status_code == NOT_FOUND else content(answer)

    def list(self, kind: str, namespace: str = "default", **selectors: str) -> list[Object]:
        """Return the objects that *selectors* (``labelSelector``, ``fieldSelector``) select."""
        return list(content(self._http.ask("GET", _path(kind, namespace), params=selectors))["items"])

    def changes(
        self, kind: str, namespace: str = "default", *, since: str = "", **selectors: str
    ) -> tuple[Object, ...]:
        """Return what has become of objects after the version *since*, each step, and what comes in a second.

        Without a version: what is there, as ``ADDED``. Asked again soon enough no step is left out.
        """
        query = {"watch": "true", "timeoutSeconds": "1", **({"resourceVersion": since} if since else {})}
        answer = self._http.ask("GET", _path(kind, namespace), params=selectors | query)
        if answer.is_error:
            content(answer)
        return tuple(dict(msgspec.json.decode(line)) for line in answer.content.splitlines())

    def apply(self, manifest: Object) -> Object:
        """Make the object as *manifest* says, by server-side apply."""
        meta = manifest["metadata"]
        return content(
            self._http.ask(
                "PATCH",
                f"{_path(manifest['kind'], meta.get('namespace', 'default'))}/{meta['name']}",
                params={"fieldManager": "sunk-lab", "force": "true"},
                headers={"Content-Type": "application/apply-patch+yaml"},
                content=msgspec.json.encode(manifest),
            )
        )

    def create(self, manifest: Object) -> Object:
        """Create the object."""
        namespace = manifest["metadata"].get("namespace", "default")
        return content(self._http.ask("POST", _path(manifest["kind"], namespace), json=manifest))

    def patch(
        self, kind: str, name: str, change: Mapping[str, Any], namespace: str = "default", sub: str = ""
    ) -> Object:
        """Merge *change* into the object, or into one of its sub-resources."""
        return content(
            self._http.ask(
                "PATCH",
                f"{_path(kind, namespace)}/{name}{sub}",
                headers={"Content-Type": "application/merge-patch+json"},
                content=msgspec.json.encode(change),
            )
        )

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        """Delete the object; it not being there is success."""
        answer = self._http.ask("DELETE", f"{_path(kind, namespace)}/{name}")
        if answer.status_code != NOT_FOUND:
            content(answer)

    def service_account_token(self, name: str, namespace: str, audience: str = "", hours: int = 24) -> str:
        """Return a token that speaks for a ServiceAccount."""
        spec: Object = {"expirationSeconds": hours * 3600, **({"audiences": [audience]} if audience else {})}
        answer = self._http.ask(
            "POST",
            f"{_path('ServiceAccount', namespace)}/{name}/token",
            json={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
        )
        return str(content(answer)["status"]["token"])


def condition(thing: Object | None, kind: str) -> Object | None:
    """Return the condition of *kind* that an object carries."""
    return next((entry for entry in dig_list(thing, "status", "conditions") if entry["type"] == kind), None)


def kubeconfig_with_token(api: KubeApi, token: str) -> Object:
    """Return a kubeconfig for whoever *token* speaks for."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [
            {"name": "lab", "cluster": {"server": api.server, "certificate-authority": api.authority}}
        ],
        "users": [{"name": "lab", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
    }


def _path(kind: str, namespace: str) -> str:
    return "/" + _PATHS[kind].format(namespace)

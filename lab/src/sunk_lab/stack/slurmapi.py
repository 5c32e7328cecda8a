"""What the lab itself asks slurmrestd, as root, over one kept-alive connection."""

from typing import Final

from sunk_lab.stack.http import Http, content
from sunk_lab.stack.raw import Object, dig_list

VERSION: Final = "v0.0.42"
"""The one that both Slurms of the lab serve."""


class SlurmApi:
    """One connection to slurmrestd."""

    def __init__(self, url: str, token: str) -> None:
        self._http = Http(
            base_url=f"{url}/slurm/{VERSION}",
            headers={"X-SLURM-USER-TOKEN": token},
            timeout=30,
            trust_env=False,
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def node(self, name: str) -> Object | None:
        """Return the node, or None: an unknown one is answered with 200 and an empty list."""
        found = dig_list(self._get(f"node/{name}"), "nodes")
        return found[0] if found else None

    def nodes(self) -> list[Object]:
        """Return every node."""
        return dig_list(self._get("nodes"), "nodes")

    def job(self, job: int) -> Object | None:
        """Return the job, or None if slurmctld does not know it."""
        answer = self._http.ask("GET", f"job/{job}")
        if "Invalid job id" in answer.text:
            return None
        found = dig_list(content(answer), "jobs")
        return found[0] if found else None

    def jobs(self) -> list[Object]:
        """Return every job."""
        return dig_list(self._get("jobs"), "jobs")

    def update_node(self, name: str, **change: object) -> None:
        """Change a node: ``state=["DRAIN"], reason="..."``."""
        self._post(f"node/{name}", change)

    def submit(self, script: str, *, node: str = "", name: str = "job", **more: object) -> int:
        """Submit a batch job as root and return its id."""
        job: Object = {
            "name": name,
            "current_working_directory": "/tmp",  # noqa: S108 - in the slurmd Pod, which is the job's own
            "environment": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            "memory_per_cpu": {"set": True, "number": 100},
            **({"required_nodes": [node]} if node else {}),
            **more,
        }
        return int(self._post("job/submit", {"script": script, "job": job})["job_id"])

    def cancel(self, job: int) -> None:
        """Cancel a job as scancel does; it being over is success."""
        self._http.ask("DELETE", f"job/{job}")

    def _get(self, path: str) -> Object:
        return content(self._http.ask("GET", path))

    def _post(self, path: str, body: object) -> Object:
        return content(self._http.ask("POST", path, json=body))


def node_state(node: Object | None) -> set[str]:
    """Return the words of a node's state."""
    return set((node or {}).get("state") or ())


def job_state(job: Object | None) -> set[str]:
    """Return the words of a job's state."""
    found = (job or {}).get("job_state") or ()
    return {found} if isinstance(found, str) else set(found)

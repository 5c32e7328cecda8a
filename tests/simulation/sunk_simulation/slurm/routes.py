"""What slurmrestd asks slurmctld for, by method and path."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sunk_simulation.http import Reply, Request
from sunk_simulation.slurm import errors, shapes
from sunk_simulation.slurm.errors import SlurmError
from sunk_simulation.slurm.select import names_of
from sunk_simulation.slurm.slurmctld import Slurmctld

NOT_FOUND: Final = Reply(404, b"Unable find requested URL")
_NODE_FLAGS: Final = frozenset({"ALL", "DETAIL", "MIXED", "FUTURE"})
_JOB_FLAGS: Final = frozenset({"ALL", "DETAIL", "LOCAL", "MIXED"})
_REQUEUE_VERSION: Final = "v0.0.45"
"""The only one that has the call."""


class Call:
    """One question to slurmctld."""

    def __init__(self, ctld: Slurmctld, request: Request, version: str, path: str, user: str) -> None:
        self._ctld = ctld
        self._request = request
        self._version = version
        self._path = path
        self._user = user

    def answer(self) -> shapes.Shape | Reply:
        """Return the answer.

        Raises:
            SlurmError: slurmctld refuses.
        """
        kind, _, name = self._path.partition("/")
        match self._request.method, kind, name:
            case "GET", "nodes", "":
                return self._nodes()
            case "GET", "node", _:
                return self._node(name)
            case "POST", "nodes", "":
                return self._change_nodes(self._body().get("name") or [])
            case "POST", "node", _:
                return self._change_nodes([name])
            case "DELETE", "node", _:
                self._ctld.nodes.delete(name, self._user)
                return {}
            case "GET" | "POST" | "DELETE", "job" | "jobs", _:
                return self._job(kind, name)
            case "GET", "partitions" | "reservations" | "diag" | "ping" | "reconfigure", "":
                return self._other(kind)
            case _:
                return NOT_FOUND

    def _nodes(self) -> shapes.Shape | Reply:
        ctld, since = self._ctld, self._since()
        self._count("REQUEST_NODE_INFO")
        flags = self._flags(_NODE_FLAGS)
        if since:
            if since - 1 >= ctld.nodes_changed:
                return Reply(304)
            if ctld.conf.is_24_11 and since - 1 >= ctld.partitions_changed:
                raise SlurmError(-1, "Unable to query partitions")
        ctld.nodes.count()
        rows = [self._shown(node.name, flags) for node in ctld.nodes.all.values()]
        shown = [row for row in rows if "FUTURE" in flags or "FUTURE" not in row["state"]]
        return {"nodes": shown, "last_update": shapes.number(ctld.now())}

    def _node(self, name: str) -> shapes.Shape:
        self._count("REQUEST_NODE_INFO_SINGLE")
        flags = self._flags(_NODE_FLAGS)
        if name not in self._ctld.nodes.all:
            return {"errors": [{"error_number": 0, "error": "No error", "description": ""}]}
        return {"nodes": [self._shown(name, flags)], "last_update": shapes.number(self._ctld.now())}

    def _shown(self, name: str, flags: frozenset[str]) -> shapes.Shape:
        ctld = self._ctld
        node = ctld.nodes.all[name]
        base, *more = ctld.nodes.words(node)
        if "MIXED" in flags and 0 < node.counted[0] < node.cpus and base in {"IDLE", "ALLOCATED"}:
            base = "MIXED"
        partitions = [
            one.name for one in ctld.state.partitions.values() if node in ctld.nodes.in_partition(one)
        ]
        return shapes.node(node, [base, *more], partitions)

    def _change_nodes(self, expressions: list[str]) -> shapes.Shape:
        change, refused = self._body(), list[SlurmError]()
        self._count("REQUEST_UPDATE_NODE")
        self._need_administrator()
        for name in (name for one in expressions for name in names_of(one)):
            try:
                self._ctld.nodes.update(name, change, self._user)
            except SlurmError as error:
                refused.append(error)
        if refused:
            raise refused[0]
        return {}

    def _job(self, kind: str, name: str) -> shapes.Shape | Reply:  # noqa: C901 - a table of calls
        ctld, method = self._ctld, self._request.method
        if kind == "jobs":
            return self._jobs(name)
        if (method, name) == ("POST", "submit"):
            return self._submit()
        number, _, what = name.partition("/")
        if what == "requeue":
            if self._version != _REQUEUE_VERSION:
                return NOT_FOUND
            ctld.jobs.requeue(ctld.jobs.named(number), hold=False, user=self._user)
            return {}
        if not number.isdecimal():
            return NOT_FOUND
        match method:
            case "GET":
                if "LOCAL" not in self._flags(_JOB_FLAGS):
                    self._count("REQUEST_FED_INFO")
                self._count("REQUEST_JOB_INFO_SINGLE")
                jobs = ctld.jobs.shown(int(number))
                return {"jobs": [shapes.job(one, self._version) for one in jobs]}
            case "POST":
                ctld.jobs.update(ctld.jobs.get(int(number)), self._body(), self._user)
                return {}
            case _ if not ctld.jobs.is_known(int(number)):
                return {}
            case _:
                jobs = ctld.jobs.shown(int(number))
                if (signal := self._request.query.get("signal")) and signal.removeprefix("SIG") != "KILL":
                    ctld.jobs.signal(jobs, signal)
                else:
                    ctld.jobs.cancel(jobs, user=self._user)
                return {}

    def _jobs(self, name: str) -> shapes.Shape | Reply:
        ctld, jobs = self._ctld, self._ctld.jobs.all.values()
        if name == "state/":
            self._count("REQUEST_JOB_STATE")
            return {"jobs": [row for job in jobs for row in shapes.job_rows(job)]}
        if name:
            return NOT_FOUND
        self._count("REQUEST_JOB_INFO")
        since = self._since()
        if since and since - 1 >= ctld.jobs_changed:
            text = f"No job changes since update_time[{since}]"
            return {"jobs": [], "last_update": shapes.number(0), "warnings": [{"description": text}]}
        shown = [shapes.job(job, self._version) for job in jobs]
        return {"jobs": shown, "last_update": shapes.number(ctld.now())}

    def _submit(self) -> shapes.Shape:
        self._count("REQUEST_SUBMIT_BATCH_JOB")
        body = self._body()
        asked: list[Mapping[str, Any]] = body["jobs"] if body.get("jobs") else [body["job"]]
        job = self._ctld.jobs.submit(asked, body.get("script") or asked[0].get("script") or "", self._user)
        return {"job_id": job, "step_id": "batch", "job_submit_user_msg": ""}

    def _other(self, kind: str) -> shapes.Shape:
        ctld, state = self._ctld, self._ctld.state
        match kind:
            case "partitions":
                found = [(one, ctld.nodes.in_partition(one)) for one in state.partitions.values()]
                rows = [shapes.partition(one, nodes) for one, nodes in found]
                return {"partitions": rows, "last_update": shapes.number(ctld.now())}
            case "reservations":
                known = state.reservations.values()
                rows = [shapes.reservation(one, len(names_of(one.nodes))) for one in known]
                return {"reservations": rows, "last_update": shapes.number(ctld.now())}
            case "ping":
                return {"pings": [{"hostname": "slurmctld", "responding": True, "mode": "primary"}]}
            case "reconfigure":
                self._need_administrator()
                ctld.slurm.reconfigure()
                return {}
            case _:
                self._count("REQUEST_STATS_INFO")
                return {"statistics": self._statistics()}

    def _statistics(self) -> shapes.Shape:
        ctld, jobs = self._ctld, list(self._ctld.jobs.all.values())
        return {
            "req_time": shapes.number(ctld.now()),
            "server_thread_count": 1,
            "schedule_cycle_last": 100,
            "schedule_queue_length": sum(job.is_pending for job in jobs),
            "jobs_submitted": ctld.counts["submitted"],
            "jobs_started": ctld.counts["started"],
            "jobs_completed": ctld.counts["completed"],
            "jobs_canceled": ctld.counts["canceled"],
            "jobs_pending": sum(job.is_pending for job in jobs),
            "jobs_running": sum(job.base == "RUNNING" for job in jobs),
            "rpcs_by_message_type": [
                {"message_type": name, "count": count, "average_time": shapes.number(100)}
                for name, count in sorted(ctld.rpcs.items())
            ],
        }

    def _flags(self, known: frozenset[str]) -> frozenset[str]:
        """Return the flags that are asked for, or the defaults."""
        given = [value for name, value in self._request.pairs if name == "flags"]
        if unknown := [flag for flag in given if flag not in known]:
            raise SlurmError(errors.INVALID_VALUE, f"Unknown flag {unknown[0]}")
        return frozenset(given or {"ALL", "DETAIL", "MIXED"})

    def _since(self) -> int:
        given = self._request.query.get("update_time", "0")
        return int(given) if given.isdecimal() else 0

    def _body(self) -> Mapping[str, Any]:
        return msgspec.json.decode(self._request.body) if self._request.body else {}

    def _count(self, message: str) -> None:
        self._ctld.rpcs[message] += 1

    def _need_administrator(self) -> None:
        if self._user not in {"root", "slurm"}:
            raise SlurmError(errors.USER_ID_MISSING)

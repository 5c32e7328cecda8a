"""Records as slurmrestd shows them, in the shapes of each API version. Pure."""

from typing import Any, Final

from sunk_simulation.slurm.conf import USERS
from sunk_simulation.slurm.records import (
    AccountedJob,
    JobRecord,
    NodeRecord,
    PartitionRecord,
    ReservationRecord,
)
from sunk_slurm import hostlist

Shape = dict[str, Any]
_SIGNALS: Final = {9: "KILL", 15: "TERM", 10: "USR1", 2: "INT"}


def number(value: float | None, *, is_infinite: bool = False) -> Shape:
    """Return a number as slurmrestd has it; None is unset."""
    is_set = value is not None and not is_infinite
    return {"set": is_set, "infinite": is_infinite, "number": value or 0}


def node(record: NodeRecord, words: list[str], partitions: list[str]) -> Shape:
    """Return a node in the state *words*."""
    cpus, memory, gpus = record.counted
    return {
        "name": record.name,
        "hostname": record.name,
        "address": record.address,
        "state": words,
        "reason": record.reason,
        "reason_set_by_user": record.reason_user,
        "reason_changed_at": number(record.reason_time),
        "cpus": record.cpus,
        "effective_cpus": record.cpus,
        "alloc_cpus": cpus,
        "alloc_idle_cpus": record.cpus - cpus,
        "real_memory": record.real_memory,
        "alloc_memory": memory,
        "gres": f"gpu:{record.gpus}" if record.gpus else "",
        "gres_used": f"gpu:{gpus}" if record.gpus else "",
        "features": list(record.features),
        "active_features": list(record.active_features),
        "partitions": partitions,
        "extra": record.extra,
        "comment": record.comment,
        "boot_time": number(record.boot_time),
        "slurmd_start_time": number(record.slurmd_start_time),
        "version": "",
    }


def job(record: JobRecord, version: str) -> Shape:
    """Return a job as API *version* shows it."""
    count = len(record.nodes) or max(record.min_nodes, len(record.required_nodes), 1)
    cpus = sum(held.cpus for held in record.held.values()) or max(
        record.tasks, record.tasks_per_node * count, count
    ) * max(record.cpus_per_task, 1)
    gpus = sum(held.gpus for held in record.held.values())
    memory = sum(held.memory for held in record.held.values())
    allocated = f"cpu={cpus},mem={memory}M,node={count},billing={cpus}" if record.held else ""
    is_limited = record.time_limit is not None
    limit = record.time_limit if is_limited else (525600 if record.start_time and record.nodes else None)
    return {
        "job_id": record.job_id,
        "job_state": [record.base, *sorted(record.flags)],
        "state_reason": record.reason,
        "state_description": record.description,
        "name": record.name,
        "user_id": record.user_id,
        "user_name": USERS.get(record.user_id, ""),
        "group_id": record.group_id,
        "account": record.account.lower(),
        "partition": record.partition,
        "qos": record.qos,
        "nodes": hostlist.compress(record.nodes),
        "required_nodes": ",".join(record.required_nodes),
        "excluded_nodes": record.excluded_nodes,
        "batch_host": record.batch_host,
        "batch_flag": True,
        "job_resources": _resources(record),
        "gres_detail": [
            f"gpu:{held.gpus}(IDX:0-{held.gpus - 1})" for held in record.held.values() if held.gpus
        ],
        "cpus": number(cpus),
        "node_count": number(count),
        "tasks": number(record.tasks or 1),
        "tres_req_str": f"cpu={cpus},mem={record.memory or 4000 * cpus}M,node={count},billing={cpus}",
        "tres_alloc_str": allocated + (f",gres/gpu={gpus}" if gpus and allocated else ""),
        "submit_time": number(record.submit_time),
        "start_time": number(record.start_time),
        "end_time": number(record.end_time),
        "suspend_time": number(record.suspend_time),
        "preempt_time": number(record.preempt_time),
        "time_limit": number(limit, is_infinite=limit is None),
        "exit_code": _exit_code(record),
        "array_job_id": number(record.array_job_id),
        "array_task_id": number(record.array_task_id),
        "array_task_string": _tasks(record.array_tasks),
        "het_job_id": number(record.het_job_id),
        "het_job_offset": number(record.het_offset),
        "het_job_id_set": "",
        "dependency": record.dependency,
        "hold": record.priority == 0,
        "priority": number(record.priority),
        "requeue": record.requeue,
        "restart_cnt": record.restart_cnt,
        "flags": ["JOB_WAS_RUNNING"] if record.is_active else [],
        "shared": [record.shared] if record.shared and version != "v0.0.45" else [],
        "comment": record.comment,
        "admin_comment": record.admin_comment,
        "extra": record.extra,
    }


def job_rows(record: JobRecord) -> list[Shape]:
    """Return its rows in ``jobs/state/``."""
    words = [record.base, *sorted(record.flags)]
    name = str(record.job_id)
    if record.array_tasks:
        return [{"job_id": f"{name}_{task}", "state": words} for task in record.array_tasks]
    if record.array_task_id is not None:
        name = f"{name}_{record.array_task_id}"
    elif record.het_job_id:
        name = f"{name}+{record.het_offset}"
    return [{"job_id": name, "state": words}]


def partition(record: PartitionRecord, nodes: list[NodeRecord]) -> Shape:
    """Return a partition."""
    return {
        "name": record.name,
        "nodes": {"configured": hostlist.compress(node.name for node in nodes), "total": len(nodes)},
        "cpus": {"total": sum(node.cpus for node in nodes)},
        "partition": {"state": ["UP" if record.is_up else "DOWN"]},
    }


def reservation(record: ReservationRecord, count: int) -> Shape:
    """Return a reservation."""
    return {
        "name": record.name,
        "node_list": record.nodes,
        "node_count": count,
        "users": record.users,
        "flags": list(record.flags),
        "start_time": number(record.start_time),
        "end_time": number(record.end_time),
    }


def accounted(record: AccountedJob) -> Shape:
    """Return what slurmdbd has of a job."""
    return {
        "job_id": record.job_id,
        "name": record.name,
        "user": record.user,
        "extra": record.extra,
        "kill_request_user": record.kill_request_user,
        "state": {"current": [record.state], "reason": "None"},
        "time": {"submission": record.submit_time, "end": record.end_time},
    }


def _resources(record: JobRecord) -> Shape | None:
    if not record.held:
        return None
    rows = [
        {"name": name, "cpus": {"count": held.cpus}, "memory": {"allocated": held.memory}}
        for name, held in record.held.items()
    ]
    return {"nodes": {"allocation": rows}, "cpus": sum(held.cpus for held in record.held.values())}


def _exit_code(record: JobRecord) -> Shape:
    if record.signal:
        signal = {"id": number(record.signal), "name": _SIGNALS.get(record.signal, "")}
        return {"status": ["SIGNALED"], "return_code": number(None), "signal": signal}
    status = "ERROR" if record.exit_code else "SUCCESS"
    return {
        "status": [status],
        "return_code": number(record.exit_code),
        "signal": {"id": number(None), "name": ""},
    }


def _tasks(tasks: tuple[int, ...]) -> str:
    return hostlist.compress(f"t{task}" for task in tasks).removeprefix("t").strip("[]") if tasks else ""

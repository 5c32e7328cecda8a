"""A job's description, as slurmrestd takes it, to a record. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from sunk_simulation.slurm import errors
from sunk_simulation.slurm.conf import USERS, SlurmConf
from sunk_simulation.slurm.errors import SlurmError
from sunk_simulation.slurm.records import JobRecord
from sunk_simulation.slurm.select import names_of


def described(asked: Mapping[str, Any], script: str) -> JobRecord:
    """Return the record of a job that nobody has checked yet."""
    job = JobRecord(0, script=script, priority=0 if asked.get("hold") else 1)
    for name in ("name", "account", "partition", "qos", "extra", "comment", "admin_comment", "dependency"):
        setattr(job, name, str(asked.get(name) or ""))
    job.reservation = str(asked.get("reservation") or "")
    job.user_id = user_id(asked.get("user_id"))
    job.group_id = user_id(asked.get("group_id"))
    job.environment = tuple(asked.get("environment") or ())
    job.required_nodes = tuple(name for word in asked.get("required_nodes") or () for name in names_of(word))
    job.excluded_nodes = ",".join(word for word in asked.get("excluded_nodes") or () if word)
    job.min_nodes = asked.get("minimum_nodes") or 1
    job.max_nodes = asked.get("maximum_nodes") or 0
    job.tasks = asked.get("tasks") or 0
    job.tasks_per_node = asked.get("tasks_per_node") or 0
    job.cpus_per_task = asked.get("cpus_per_task") or 1
    job.memory = number_of(asked.get("memory_per_node"))
    job.gpus = gpus_of(str(asked.get("tres_per_node") or ""))
    constraints = str(asked.get("constraints") or "")
    job.constraints = tuple(word for word in constraints.replace("&", ",").split(",") if word)
    shared = asked.get("shared") or ()
    sharing = str(shared if isinstance(shared, str) else next(iter(shared), ""))
    job.shared = "" if sharing == "oversubscribe" else sharing
    job.time_limit = number_of(asked.get("time_limit"))
    job.requeue = asked.get("requeue") is not False
    job.warning_signal = str(asked.get("kill_warning_signal") or "")
    priority = number_of(asked.get("priority"))
    if priority is not None:
        job.priority = priority  # It undoes a hold.
    if array := asked.get("array"):
        job.array_tasks = tuple(int(task) for task in names_of(f"[{str(array).partition('%')[0]}]"))
    return job


def of_user(job: JobRecord, user: int, conf: SlurmConf) -> JobRecord:
    """Return *job* as *user*, who is no administrator, may submit it; everybody's group has his number.

    Raises:
        SlurmError: he may not, or nobody knows him; 24.11 takes such a one for ``nobody``.
    """
    if user not in conf.users and not conf.is_24_11:
        raise SlurmError(errors.AUTH_NOBODY)
    if user not in conf.users or job.user_id != user:
        raise SlurmError(errors.USER_ID_MISSING)
    if job.group_id not in {0, user}:
        raise SlurmError(errors.INVALID_GROUP)
    if job.admin_comment:
        raise SlurmError(errors.ACCESS_DENIED)
    job.group_id = user
    return job


def number_of(given: Any) -> int | None:
    """Return a number, which slurmrestd also takes as an object; None where it is unset or infinite."""
    if isinstance(given, dict):
        said = cast(dict[str, Any], given)
        return int(said.get("number") or 0) if said.get("set") and not said.get("infinite") else None
    return int(given) if given is not None else None


def gpus_of(text: str) -> int:
    """Return how many GPUs ``gres/gpu:h100:2`` asks for."""
    words = [word for word in text.split(",") if word.removeprefix("gres/").startswith("gpu")]
    return sum(int(last) if (last := word.rpartition(":")[2]).isdecimal() else 1 for word in words)


def user_id(given: Any) -> int:
    """Return a user's number, of a name or a number."""
    if given is None or given == "":
        return 0
    if str(given).isdecimal():
        return int(given)
    return next((number for number, name in USERS.items() if name == given), 65534)

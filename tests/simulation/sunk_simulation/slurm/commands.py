"""Slurm's commands, as far as tests and scripts use them: scontrol, sbatch, scancel, squeue, sinfo.

They are run by root on a machine that reaches slurmctld at once, and take no time.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sunk_simulation.slurm import shapes
from sunk_simulation.slurm.errors import SlurmError
from sunk_simulation.slurm.records import JobRecord, NodeRecord, ReservationRecord
from sunk_simulation.slurm.select import names_of
from sunk_simulation.slurm.slurmctld import Slurmctld
from sunk_slurm import hostlist

if TYPE_CHECKING:
    from sunk_simulation.slurm.model import ModelSlurm

ROOT: Final = "root"
_OPTIONS: Final = {
    "-N": "nodes",
    "-n": "ntasks",
    "-c": "cpus-per-task",
    "-w": "nodelist",
    "-x": "exclude",
    "-p": "partition",
    "-J": "job-name",
    "-d": "dependency",
    "-D": "chdir",
    "-o": "output",
    "-a": "array",
    "-C": "constraint",
    "-t": "time",
    "-H": "hold",
}
_JOB_FIELDS: Final = (
    ("extra", "extra"),
    ("comment", "comment"),
    ("admin_comment", "admincomment"),
    ("name", "jobname"),
    ("tres_per_node", "gres"),
    ("tasks", "numcpus"),
    ("memory_per_node", "minmemorynode"),
)
"""slurmrestd's words and scontrol's."""
_FLAGS: Final = frozenset({"hold", "requeue", "no-requeue", "parsable", "exclusive"})


class CommandError(Exception):
    """A command failed."""


def run(slurm: "ModelSlurm", argv: Sequence[str], user: str = ROOT) -> str:
    """Run a command as *user*, a name or a number, and return what it prints.

    Raises:
        CommandError: it failed.
    """
    match argv:
        case ["setpriv", "--reuid", number, "--clear-groups", *rest]:
            return run(slurm, rest, number)
        case ["scontrol", "--version"]:
            return f"slurm-wlm {slurm.conf.release}.5\n"
        case ["scontrol", "show", "config"]:
            return _config(slurm)
        case ["date", "+%s"]:
            return f"{slurm.ctld.now() if slurm.ctld else slurm.now()}\n"
        case _:
            pass
    ctld = slurm.ctld
    if ctld is None or ctld.process.is_paused:
        raise CommandError("Unable to contact slurm controller (connect failure)")
    commands: dict[str, Callable[[Slurmctld, list[str]], str]] = {
        "sbatch": _sbatch,
        "scancel": _scancel,
        "scontrol": partial(_scontrol, user),
        "sinfo": _sinfo,
        "squeue": _squeue,
    }
    try:
        return commands[argv[0]](
            ctld, [word for word in argv[1:] if word not in {"-o", "--oneliner"} or argv[0] != "scontrol"]
        )
    except SlurmError as error:
        raise CommandError(f"{' '.join(argv)[:200]}: {error}") from error


def _sbatch(ctld: Slurmctld, words: list[str]) -> str:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            parts.append([])
        else:
            parts[-1].append(word)
    asked: list[dict[str, Any]] = []
    script = ""
    for part in parts:
        options = _options(part)
        script = script or (f"#!/bin/sh\n{options['wrap']}\n" if "wrap" in options else "")
        asked.append(_description(options))
    return f"{ctld.jobs.submit(asked, script, ROOT)}\n"


def _options(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        elif word[:2] in _OPTIONS:
            name, equals, value = _OPTIONS[word[:2]], word[2:], word[2:]
        else:
            raise CommandError(f"sbatch: {word} is not known to the model")
        if not equals and name not in _FLAGS:
            value = left.pop(0)
        found[name] = value
    return found


def _description(options: dict[str, str]) -> dict[str, Any]:
    least, _, most = options.get("nodes", "1").partition("-")
    asked: dict[str, Any] = {
        "name": options.get("job-name", "wrap"),
        "environment": ["PATH=/usr/bin:/bin"],
        "hold": "hold" in options,
        "minimum_nodes": int(least),
        "maximum_nodes": int(most) if most else None,
        "required_nodes": list(names_of(options.get("nodelist", ""))),
        "excluded_nodes": [options["exclude"]] if "exclude" in options else [],
        "tasks": int(options.get("ntasks", 0)),
        "cpus_per_task": int(options.get("cpus-per-task", 1)),
        "tres_per_node": options.get("gres", ""),
        "shared": ["none"] if "exclusive" in options else [],
        "requeue": "no-requeue" not in options,
    }
    if "mem" in options:
        asked["memory_per_node"] = int(options["mem"].rstrip("M"))
    if "time" in options:
        asked["time_limit"] = int(options["time"])
    for ours, theirs in (
        ("array", "array"),
        ("partition", "partition"),
        ("dependency", "dependency"),
        ("extra", "extra"),
        ("comment", "comment"),
        ("constraint", "constraints"),
        ("uid", "user_id"),
    ):
        if ours in options:
            asked[theirs] = options[ours]
    return asked


def _scancel(ctld: Slurmctld, words: list[str]) -> str:
    if any(word.startswith("--user") for word in words):
        alive = [job for job in ctld.jobs.all.values() if not job.is_over]
        if alive:
            ctld.jobs.cancel(alive)
        return ""
    for name in (word for word in words if not word.startswith("-")):
        ctld.jobs.cancel(ctld.jobs.named(name.strip()))
    return ""


def _scontrol(user: str, ctld: Slurmctld, words: list[str]) -> str:  # noqa: C901 - a table of verbs
    match words:
        case ["ping"]:
            return "Slurmctld(primary) at ctl is UP\n"
        case ["reconfigure"]:
            ctld.slurm.reconfigure()
        case ["show", "hostnames", expression]:
            return "".join(f"{name}\n" for name in names_of(expression))
        case ["show", "node" | "nodes", *names, "--json"]:
            return msgspec.json.encode({"nodes": [_node_json(ctld, name) for name in names]}).decode()
        case ["show", "node" | "nodes", *names]:
            return "".join(_node_text(ctld, ctld.nodes.get(name)) for name in names or ctld.nodes.all)
        case ["show", "job", name]:
            return "".join(_job_text(ctld, job) for job in ctld.jobs.named(name.strip()))
        case ["update", *assigned]:
            _update(ctld, _assigned(assigned), user)
        case ["create", *assigned]:
            _create(ctld, _assigned(assigned))
        case ["delete", *assigned]:
            _delete(ctld, _assigned(assigned))
        case ["notify", *_]:
            pass
        case [verb, *names]:
            _verb(ctld, verb, [job for name in names for job in ctld.jobs.named(name.strip())], user)
        case _:
            raise CommandError("scontrol: nothing to do")
    return ""


def _verb(ctld: Slurmctld, verb: str, jobs: list[JobRecord], user: str) -> None:
    match verb:
        case "hold":
            ctld.jobs.hold(jobs)
        case "release":
            ctld.jobs.release(jobs)
        case "requeue" | "requeuehold":
            ctld.jobs.requeue(jobs, hold=verb == "requeuehold", user=user)
        case "suspend":
            ctld.jobs.suspend(jobs)
        case "resume":
            ctld.jobs.resume(jobs)
        case _:
            raise CommandError(f"scontrol: {verb} is not known to the model")


def _assigned(words: Sequence[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    return {name.lower(): value for name, _, value in pairs}


def _update(ctld: Slurmctld, given: dict[str, str], user: str) -> None:
    if "partitionname" in given:
        ctld.state.partitions[given["partitionname"]].is_up = given["state"].upper() == "UP"
        ctld.partition_changed()
        ctld.scheduling.soon()
    elif (job := given.get("jobid") or given.get("job")) is not None:
        change: dict[str, Any] = {ours: given[theirs] for ours, theirs in _JOB_FIELDS if theirs in given}
        if "nodelist" in given:
            change["required_nodes"] = [given["nodelist"]]
        if "requeue" in given:
            change["requeue"] = given["requeue"] == "1"
        if "priority" in given:
            change["priority"] = int(given["priority"])
        if "starttime" in given:
            change["begin_time"] = given["starttime"]
        for record in ctld.jobs.named(job):
            ctld.jobs.update(record, change, user)
    else:
        _update_node(ctld, given)


def _update_node(ctld: Slurmctld, given: dict[str, str]) -> None:
    change: dict[str, Any] = {name: given[name] for name in ("extra", "comment", "reason") if name in given}
    if "state" in given:
        change["state"] = [given["state"].upper()]
    for ours, theirs in (("features", "availablefeatures"), ("features_act", "activefeatures")):
        if theirs in given:
            change[ours] = given[theirs].split(",")
    for name in names_of(given.get("nodename") or given["node"]):
        ctld.nodes.update(name, change, ROOT)


def _create(ctld: Slurmctld, given: dict[str, str]) -> None:
    if "nodename" in given:
        ctld.nodes.create(given["nodename"], given["state"].upper())
        return
    start = ctld.now() + int(given["starttime"].partition("+")[2] or 0)
    name = given["reservationname"]
    ctld.state.reservations[name] = ReservationRecord(
        name,
        hostlist.compress(names_of(given["nodes"])),
        given.get("users", ""),
        tuple(given.get("flags", "").split(",")),
        start,
        start + int(given["duration"]) * 60,
    )
    ctld.slurm.changed()


def _delete(ctld: Slurmctld, given: dict[str, str]) -> None:
    if "nodename" in given:
        ctld.nodes.delete(given["nodename"], ROOT)
    else:
        ctld.state.reservations.pop(given["reservationname"])
        ctld.slurm.changed()


def _squeue(ctld: Slurmctld, words: list[str]) -> str:
    options, states = _squeue_options(words), set[str]()
    jobs = list(ctld.jobs.all.values())
    if "jobs" in options:
        jobs = [job for name in options["jobs"].split(",") for job in ctld.jobs.named(name)]
    match options.get("states", "").lower():
        case "all":
            shown = jobs
        case "":
            shown = [job for job in jobs if not job.is_over or job.is_completing]
        case given:
            states = set(given.upper().split(","))
            shown = [job for job in jobs if job.base in states and not job.is_completing]
    lines: list[str] = []
    for job in shown:
        tasks = job.array_tasks if "array" in options and job.array_tasks else (job.array_task_id,)
        lines += [_squeue_line(job, task, options) for task in tasks]
    return "".join(f"{line}\n" for line in lines)


def _squeue_options(words: list[str]) -> dict[str, str]:
    short = {"-h": "noheader", "-r": "array", "-j": "jobs", "-t": "states", "-o": "format", "-O": "Format"}
    found: dict[str, str] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        name, _, value = (short[word], "", "") if word in short else word[2:].partition("=")
        if word in {"-j", "-t", "-o", "-O"}:
            value = left.pop(0)
        found[name] = value
    return found


def _squeue_line(job: JobRecord, task: int | None, options: dict[str, str]) -> str:
    state = "COMPLETING" if job.is_completing else job.base
    array = str(job.array_job_id or job.job_id)
    name = f"{array}_{task}" if task is not None else str(job.job_id)
    fields = {
        "%T": state,
        "%i": name,
        "%N": hostlist.compress(job.nodes),
        "%F": array,
        "%K": "N/A" if task is None else str(task),
        "%r": job.description or job.reason,
        "JobArrayID": name,
        "JobID": str(job.job_id),
        "State": state,
        "BatchFlag": "0" if job.het_offset else "1",
    }
    if "Format" in options:
        return "".join(
            f"{fields[name]}{end}"
            for name, _, end in (w.partition(":") for w in options["Format"].split(",") if w)
        )
    return re.sub(r"%[A-Za-z]", lambda found: fields[found[0]], options.get("format", "%i"))


def _sinfo(ctld: Slurmctld, words: list[str]) -> str:
    options = {name: words[at + 1] for at, name in enumerate(words[:-1]) if name in {"-n", "-t", "-o"}}
    names = names_of(options["-n"]) if "-n" in options else tuple(ctld.nodes.all)
    wanted = options.get("-t", "").split(",")
    lines: list[str] = []
    for node in map(ctld.nodes.get, names):
        state = _short(ctld.nodes.words(node))
        fields = {"%T": state, "%N": node.name, "%E": node.reason or "none"}
        if "-t" not in options or state.rstrip("*") in wanted:
            lines.append(re.sub(r"%[A-Z]", lambda found, fields=fields: fields[found[0]], options["-o"]))
    return "".join(f"{line}\n" for line in lines)


def _short(words: list[str]) -> str:
    """Return a node's state as sinfo has it."""
    base, *flags = words
    busy = base in {"ALLOCATED", "MIXED"} or "COMPLETING" in flags
    if "DRAIN" in flags:
        text = "draining" if busy else "drained"
    else:
        text = "completing" if "COMPLETING" in flags else base.lower()
    return text + ("*" if "NOT_RESPONDING" in flags else "")


def _node_json(ctld: Slurmctld, name: str) -> shapes.Shape:
    node = ctld.nodes.get(name)
    return shapes.node(node, ctld.nodes.words(node), [])


def _node_text(ctld: Slurmctld, node: NodeRecord) -> str:
    base, *flags = ctld.nodes.words(node)
    lines = [
        f"NodeName={node.name} CPUTot={node.cpus} RealMemory={node.real_memory}",
        f"   AvailableFeatures={','.join(node.features) or '(null)'}",
        f"   ActiveFeatures={','.join(node.active_features) or '(null)'}",
        f"   State={'+'.join([base, *flags])} Version={ctld.conf.release}",
    ]
    lines += [f"   Comment={node.comment}"] if node.comment else []
    lines += [f"   Extra={node.extra}"] if node.extra else []
    lines += [f"   Reason={node.reason} [{node.reason_user}@{node.reason_time}]"] if node.reason else []
    return "\n".join((*lines, "", ""))


def _job_text(ctld: Slurmctld, job: JobRecord) -> str:
    state = "COMPLETING" if job.is_completing else job.base
    array = f" ArrayJobId={job.array_job_id} ArrayTaskId={job.array_task_id}" if job.array_job_id else ""
    lines = [
        f"JobId={job.job_id}{array} JobName={job.name}",
        f"   UserId={ctld.user_name(job.user_id)}({job.user_id})",
        f"   Priority={job.priority} Nice=0 Account=(null) QOS=(null)",
        f"   JobState={state} Reason={job.reason} Dependency={job.dependency or '(null)'}",
        f"   Requeue={int(job.requeue)} Restarts={job.restart_cnt} BatchFlag=1",
        f"   ExitCode={job.exit_code}:{job.signal}",
        f"   NodeList={hostlist.compress(job.nodes) or '(null)'}",
    ]
    lines += [f"   Comment={job.comment}"] if job.comment else []
    lines += [f"   AdminComment={job.admin_comment}"] if job.admin_comment else []
    lines += [f"   Extra={job.extra}"] if job.extra else []
    return "\n".join((*lines, "", ""))


def _config(slurm: "ModelSlurm") -> str:
    return (
        f"KillWait                = {slurm.conf.kill_wait_s} sec\n"
        f"MinJobAge               = {slurm.conf.min_job_age_s} sec\n"
        "StateSaveLocation       = /lab/state\n"
    )

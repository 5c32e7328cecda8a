"""What Slurm's own tools say of a cluster, as the samples that a scrape ought to have: for tests.

Nothing of the exporter's own tables is used here, so that a mistake in them cannot hide.
"""

import re
from collections import Counter
from typing import Final

from sunk_metrics_exporter.testing.exporter import Samples
from sunk_slurm.hostlist import expand

_FIELD, _END = "\x1f", "\x1e"
"""No name has them in it."""
SINFO: Final = ("sinfo", "--noheader", "--all", "--Node", "--Format")
SINFO_FIELDS: Final = "NodeList,PartitionName,StateLong,StateCompact,CPUsState,Memory,AllocMem,Gres,GresUsed"
SQUEUE: Final = (
    *("squeue", "--noheader", "--all", "--states=all", "--array", "--format"),
    _FIELD.join(("%A", "%T", "%P", "%a", "%u", "%j", "%r")) + _END,
)
SHOW_JOBS: Final = ("scontrol", "show", "job", "--details")
SDIAG: Final = ("sdiag",)
_MARKS: Final = "*~#!%$@^-+"
"""What sinfo puts behind a state's word."""
_COMPACT: Final = {"drng": "drain", "failg": "fail"}
"""The documents have one name for both."""
_NODES: Final = ("alloc", "comp", "down", "drain", "err", "fail", "idle", "maint", "mix", "resv")
_QUEUE: Final = (
    *("CANCELLED", "COMPLETED", "COMPLETING", "CONFIGURING", "FAILED", "NODE_FAIL"),
    *("PENDING", "PREEMPTED", "RUNNING", "SUSPENDED", "TIMEOUT"),
)
_MICROSECONDS: Final = 1e-6


def sinfo() -> tuple[str, ...]:
    """Return the command whose output `nodes` reads."""
    return (*SINFO, ",".join(f"{field}:|" for field in SINFO_FIELDS.split(",")))


def nodes(text: str, partitions: list[str]) -> Samples:
    """Return what sinfo says of nodes; *partitions* are there without any node too."""
    per_node: dict[str, dict[str, int]] = {}
    members: dict[str, list[str]] = {partition: [] for partition in partitions}
    words: dict[tuple[str, ...], float] = {}
    compact: dict[str, str] = {}
    for row in text.splitlines():
        name, partition, long, short, cpus, memory, held, gres, used, _ = row.split("|")
        alloc, _, _, total = (int(word) for word in cpus.split("/"))
        gpus, gpus_held = _gpus(gres), _gpus(used)
        per_node[name] = {
            "cpu_alloc": alloc,
            "cpu_idle": total - alloc,
            "cpu_total": total,
            "mem_alloc": int(held),
            "mem_total": int(memory),
            "gpu_alloc": gpus_held,
            "gpu_idle": gpus - gpus_held,
            "gpu_total": gpus,
        }
        members[partition].append(name)
        words[name, partition, long.rstrip(_MARKS)] = 1
        compact[name] = short
    counts = Counter(_COMPACT.get(word.rstrip(_MARKS), word.rstrip(_MARKS)) for word in compact.values())
    samples: Samples = {"slurm_node_state": words, "slurm_nodes_total": {(): len(compact)}}
    samples["slurm_nodes_not_responding"] = {(): sum("*" in word for word in compact.values())}
    samples |= {f"slurm_nodes_{word}": {(): counts[word]} for word in _NODES}
    for what in next(iter(per_node.values())):
        samples[f"slurm_node_{what}"] = {(name,): values[what] for name, values in per_node.items()}
        samples[f"slurm_partition_{what}"] = {
            (partition,): sum(per_node[name][what] for name in names) for partition, names in members.items()
        }
    return {name: found for name, found in samples.items() if name not in _UNDOCUMENTED}


_UNDOCUMENTED: Final = ("slurm_node_mem_idle",)


def _gpus(gres: str) -> int:
    return sum(int(count) for count in re.findall(r"gpu(?::[a-z]\w*)?:(\d+)", gres))


def jobs(queue: str, shown: str) -> Samples:
    """Return what squeue says of jobs, and ``scontrol show job`` of what they hold."""
    rows = [row.split(_FIELD) for row in queue.split(f"{_END}\n") if row]
    states = Counter(row[1] for row in rows)
    samples: Samples = {
        f"slurm_queue_{word.lower().replace('cancelled', 'canceled')}": {(): states[word]} for word in _QUEUE
    }
    waiting = [row for row in rows if row[1] == "PENDING"]
    samples["slurm_queue_pending_dependency"] = {(): sum(row[6] == "Dependency" for row in waiting)}
    for what, words in (
        ("pending", {"PENDING"}),
        ("running", {"RUNNING", "CONFIGURING"}),
        ("suspended", {"SUSPENDED"}),
    ):
        samples[f"slurm_jobs_{what}"] = dict(Counter(_whose(row) for row in rows if row[1] in words))
    samples["slurm_job_state"] = {(*_whose(row), row[0], row[5], row[1].lower()): 1 for row in rows}
    holders = {row[0]: _whose(row) for row in rows if row[1] == "RUNNING"}
    return samples | _held(shown, holders)


def _whose(row: list[str]) -> tuple[str, str, str]:
    return row[2], row[3].replace("(null)", ""), row[4]


def _held(shown: str, holders: dict[str, tuple[str, str, str]]) -> Samples:
    cpus, gpus = dict[tuple[str, ...], float](), dict[tuple[str, ...], float]()
    for job in re.split(r"^JobId=", shown, flags=re.MULTILINE)[1:]:
        number = job.split()[0]
        shares = re.findall(r"^ +Nodes=(\S+) CPU_IDs=(\S+) Mem=\d+ GRES=(\S*)", job, re.MULTILINE)
        for names, ids, gres in shares if number in holders else ():
            for node in expand(names):
                whose = (*holders[number], number, node)
                cpus[whose] = len(list(expand(f"c[{ids}]")))
                gpus[whose] = _gpus(gres)
    return {"slurm_job_cpus_allocated": cpus, "slurm_job_gpus_allocated": gpus}


def scheduler(text: str) -> dict[str, float]:
    """Return what sdiag says, by the name of a metric without labels."""
    main, _, backfill = text.partition("Backfilling stats")
    found = {
        "threads": _number(text, "Server thread count"),
        "dbd_queue": _number(text, "DBD Agent queue size"),
        "jobs_submitted": _number(text, "Jobs submitted"),
        "jobs_started": _number(text, "Jobs started"),
        "jobs_completed": _number(text, "Jobs completed"),
        "jobs_cancelled": _number(text, "Jobs canceled"),
        "jobs_failed": _number(text, "Jobs failed"),
        "jobs_pending": _number(text, "Jobs pending"),
        "jobs_running": _number(text, "Jobs running"),
        "queue": _number(main, "Last queue length"),
        "cycle_last_seconds": _number(main, "Last cycle") * _MICROSECONDS,
        "cycle_mean_seconds": _number(main, "Mean cycle") * _MICROSECONDS,
        "cycle_mean_depth": _number(main, "Mean depth cycle"),
        "cycles_per_minute": _number(main, "Cycles per minute"),
        "backfill_cycle_last_seconds": _number(backfill, "Last cycle") * _MICROSECONDS,
        "backfill_cycle_mean_seconds": _number(backfill, "Mean cycle") * _MICROSECONDS,
        "backfill_depth_mean": _number(backfill, "Depth Mean"),
        "backfilled_jobs_total": _number(backfill, r"Total backfilled jobs \(since last slurm start\)"),
        "backfilled_jobs_cycle_total": _number(
            backfill, r"Total backfilled jobs \(since last stats cycle start\)"
        ),
        "backfilled_jobs_heterogeneous_total": _number(
            backfill, "Total backfilled heterogeneous job components"
        ),
    }
    return {f"slurm_scheduler_{name}": value for name, value in found.items()}


def _number(text: str, label: str) -> float:
    """Return the number behind *label*; sdiag leaves out means of nothing."""
    match = re.search(rf"^\s*{label}: *(\d+)", text, re.MULTILINE)
    return float(match[1]) if match else 0.0


def rpcs(text: str) -> dict[str, tuple[int, float]]:
    """Return count and mean duration by message type."""
    rows = re.findall(
        r"^\s+(\w+) +\( *\d+\) count:(\d+) +ave_time:(\d+)", text.partition("by user")[0], re.MULTILINE
    )
    return {kind: (int(count), int(mean) * _MICROSECONDS) for kind, count, mean in rows}

"""What slurmctld does with jobs."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sunk_simulation.slurm import errors
from sunk_simulation.slurm.errors import SlurmError
from sunk_simulation.slurm.records import Held, JobRecord, NodeRecord
from sunk_simulation.slurm.select import could_ever, names_of
from sunk_simulation.slurm.submission import described, gpus_of, number_of, of_user

if TYPE_CHECKING:
    from sunk_simulation.slurm.slurmctld import Slurmctld
    from sunk_simulation.slurm.slurmd import Registration

TEXT_MAX: Final = 1024
"""Of a job's extra, comment and name."""
MESSAGE_TIMEOUT_S: Final = 10.0
"""After which a message that nobody answered counts."""
YEAR_S: Final = 31_536_000
TIME_LIMIT_MAX: Final = 525_600
_TEXTS: Final = ("extra", "comment", "name")


class Jobs:
    """The jobs of one slurmctld."""

    def __init__(self, ctld: "Slurmctld") -> None:
        self._ctld = ctld

    @property
    def all(self) -> dict[int, JobRecord]:
        """Return the records by their numbers."""
        return self._ctld.state.jobs

    def get(self, job_id: int) -> JobRecord:
        """Return the record of that number.

        Raises:
            SlurmError: there is none.
        """
        if job_id not in self.all:
            raise SlurmError(errors.INVALID_JOB_ID)
        return self.all[job_id]

    def is_known(self, job_id: int) -> bool:
        """Whether there is a record of that number, or of its array or heterogeneous job."""
        return any(job_id in {job.job_id, job.array_job_id, job.het_job_id} for job in self.all.values())

    def shown(self, job_id: int) -> list[JobRecord]:
        """Return what is told of a number: of an array's all tasks, of a heterogeneous job's all of it."""
        jobs = self.all.values()
        found = [job for job in jobs if job_id in {job.job_id, job.array_job_id, job.het_job_id}]
        if not found:
            raise SlurmError(errors.INVALID_JOB_ID)
        return sorted(found, key=lambda job: job.job_id)

    def named(self, name: str) -> list[JobRecord]:
        """Return what commands mean by *name*: ``7``, ``7_3``, ``7_[1-2]`` or ``7+1``.

        Tasks that have not begun are split off the record that stands for them.
        """
        number, _, tasks = name.partition("_")
        if not tasks:
            return self.shown(int(number.partition("+")[0]))
        wanted = {int(one) for one in names_of(tasks.strip("[]") if "[" not in tasks else tasks)}
        array = self.shown(int(number))
        for meta in [job for job in array if job.array_tasks]:
            if wanted >= set(meta.array_tasks):
                array = [*array, meta]
                continue
            array += [self.split(meta, task) for task in meta.array_tasks if task in wanted]
        found = [job for job in array if job.array_task_id in wanted]
        found += [job for job in array if job.array_tasks and wanted >= set(job.array_tasks)]
        if not found:
            raise SlurmError(errors.INVALID_JOB_ID)
        return list({job.job_id: job for job in found}.values())

    def recover(self) -> None:
        """Begin with those that were saved."""
        for job in self.all.values():
            for node in sorted(job.completing):
                self._terminate(job, node)

    def submit(self, asked: Sequence[Mapping[str, Any]], script: str, user: str) -> int:
        """Take a job, which has several descriptions if it is heterogeneous, and return its number.

        Raises:
            SlurmError: it is not acceptable.
        """
        ctld = self._ctld
        jobs = [described(one, script) for one in asked]
        if user.isdecimal():
            jobs = [of_user(job, int(user), ctld.slurm.conf) for job in jobs]
        for job in jobs:
            self._check(job)
        first = ctld.state.last_job_id + 1
        for offset, job in enumerate(jobs):
            ctld.state.last_job_id += 1
            job.job_id = ctld.state.last_job_id
            if len(jobs) > 1:
                job.het_job_id, job.het_offset = first, offset
            if job.array_tasks:
                job.array_job_id = job.job_id
            job.submit_time = job.begin_time = ctld.now()
            if not job.priority:
                job.reason = "JobHeldUser"
            self.all[job.job_id] = job
            ctld.counts["submitted"] += 1
            ctld.slurm.job_submitted(job, user)
            ctld.job_changed(job)
        ctld.scheduling.soon()
        return first

    def split(self, meta: JobRecord, task: int) -> JobRecord:
        """Give one task of an array a record of its own; the last one keeps the array's number."""
        if meta.array_tasks == (task,):
            meta.array_tasks, meta.array_task_id = (), task
            return meta
        self._ctld.state.last_job_id += 1
        job = copy.deepcopy(meta)
        job.job_id = self._ctld.state.last_job_id
        job.array_task_id, job.array_tasks = task, ()
        meta.array_tasks = tuple(one for one in meta.array_tasks if one != task)
        self.all[job.job_id] = job
        return job

    def start(self, job: JobRecord, held: dict[str, Held]) -> None:
        """Give it its nodes; its script begins when all prologs have ended."""
        ctld = self._ctld
        job.base, job.reason, job.description = "RUNNING", "Prolog", ""
        job.flags.clear()
        job.nodes, job.held, job.preparing = tuple(held), held, set(held)
        job.completing = set()
        job.life = ctld.slurm.loop.now_ns
        job.is_launched = job.has_exited = False
        job.exit_code = job.signal = job.preempt_time = 0
        job.start_time = ctld.now()
        limit_s = YEAR_S if job.time_limit is None else job.time_limit * 60
        job.end_time = job.start_time + limit_s
        ctld.counts["started"] += 1
        ctld.job_changed(job)
        for node in job.nodes:
            ctld.send(node, "prolog", copy.copy(job))

    def prolog_complete(self, job_id: int, life: int, node: str) -> None:
        """Take note that the prolog on a node has ended, whatever way."""
        job = self._same(job_id, life)
        if job is None or node not in job.preparing:
            return
        job.preparing.discard(node)
        if not job.preparing and job.base == "RUNNING" and not job.is_completing:
            job.reason = "None"
            self._ctld.job_changed(job)
            if job.batch_host:
                self._launch(job, job.batch_host)

    def _launch(self, job: JobRecord, node: str) -> None:
        """Have its script begin; one whose launch no slurmd acknowledges waits again, whatever it asked for.

        Source: ``job_complete`` in ``_notify_slurmctld_nodes`` (agent.c).
        """
        job.is_launched = True
        is_lost = self._ctld.slurm.is_launch_lost(job)
        if is_lost or not self._ctld.send(node, "launch", copy.copy(job)):
            self._ctld.later(MESSAGE_TIMEOUT_S, self._launch_unanswered, job.job_id, job.life, node)

    def _launch_unanswered(self, job_id: int, life: int, node: str) -> None:
        self._ctld.nodes.note_silence(node)
        job = self._same(job_id, life)
        if job is not None and job.is_active and not job.has_exited:
            for one in self._whole(job):
                self._put_back(one, hold=False)

    def launch_failed(self, job_id: int, life: int, node: str) -> None:
        """Drain a node whose prolog has failed, and put its job back, be it cancelled meanwhile."""
        ctld = self._ctld
        ctld.nodes.drain_named(node, "Prolog error")
        job = self._same(job_id, life)
        if job is None or (job.is_over and not job.is_completing):
            return
        if not job.requeue:
            self._finish(job, "FAILED")
            return
        for one in self._whole(job):
            self._put_back(one, hold=ctld.conf.holds_on_prolog_fail)
            if ctld.conf.holds_on_prolog_fail:
                one.description = "launch failed requeued held"

    def batch_complete(self, job_id: int, life: int, code: int, signal: int) -> None:
        """Take note of how its script has ended."""
        job = self._same(job_id, life)
        if job is None or job.has_exited:
            return
        job.has_exited, job.exit_code, job.signal = True, code, signal
        if job.is_active:
            is_well = not code and not signal
            job.reason = "None" if is_well else "NonZeroExitCode"
            base = "PREEMPTED" if job.preempt_time else "COMPLETED" if is_well else "FAILED"
            for one in self._whole(job):
                self._finish(one, base)
        else:
            self._ctld.job_changed(job)

    def epilog_complete(self, job_id: int, life: int, node: str) -> None:
        """Take note that a node is free of it."""
        job = self._same(job_id, life)
        if job is not None and node in job.completing:
            job.completing.discard(node)
            self._complete_if_free(job)

    def node_is_down(self, node: str) -> None:
        """End what runs on a node that is down."""
        for job in self._ctld.nodes.jobs_on(node):
            if job.is_completing:
                job.completing.discard(node)
                self._complete_if_free(job)
                continue
            for one in self._whole(job):
                if job.requeue:
                    self._put_back(one, hold=False)
                else:
                    self._finish(one, "NODE_FAIL")
                one.completing.discard(node)
                self._complete_if_free(one)

    def compare(self, node: NodeRecord, told: "Registration") -> None:
        """Compare what a node has with what it should have."""
        name = node.name
        for job in self._ctld.nodes.jobs_on(name):
            if name in job.completing:
                self._terminate(job, name)
            elif job.start_time < told.boot_time or (
                job.is_launched and job.batch_host == name and (job.job_id, job.life) not in told.steps
            ):
                if job.has_exited or self._ctld.now() - job.start_time < 2:
                    continue
                for one in self._whole(job):
                    if job.requeue:
                        self._put_back(one, hold=False)
                    else:
                        self._finish(one, "NODE_FAIL")
        for job_id, life in told.steps:
            job = self._same(job_id, life)
            if job is None or name not in job.nodes or (job.is_over and not job.is_completing):
                self._ctld.tell("orphan step", job=job_id, node=name)
                self._ctld.send(name, "terminate", job_id, life)

    def terminate_again(self, node: str) -> None:
        """Say once more what is to end on *node*."""
        for job in list(self.all.values()):
            if node in job.completing:
                self._terminate(job, node)

    def cancel(self, jobs: list[JobRecord], *, user: str = "root") -> None:
        """End jobs; those that are over stay as they are."""
        for job in [job for job in jobs if not job.is_over]:
            self._ctld.slurm.job_touched(job, "cancel", user)
            job.cancelled_by = user
            self._ctld.counts["canceled"] += 1
            if job.is_active:
                self._finish(job, "CANCELLED")
                continue
            job.base, job.end_time = "CANCELLED", self._ctld.now()
            if not job.is_completing:
                job.start_time = job.end_time
            self._ctld.job_changed(job)

    def signal(self, jobs: list[JobRecord], name: str) -> None:
        """Send a signal to those of their scripts that run."""
        for job in jobs:
            if job.base == "RUNNING" and not job.is_completing and job.batch_host:
                self._ctld.send(job.batch_host, "signal", job.job_id, job.life, name)

    def requeue(self, jobs: list[JobRecord], *, hold: bool, user: str = "root") -> None:
        """Put jobs back into the queue.

        Raises:
            SlurmError: none of them may be.
        """
        refused: SlurmError | None = None
        numbers = {job.job_id for job in jobs}
        for job in jobs:
            if job.het_offset and job.het_job_id not in numbers:
                refused = SlurmError(errors.NOT_HET_JOB_LEADER)
            elif not job.requeue:
                refused = SlurmError(errors.DISABLED)
            elif job.is_pending:
                if hold:
                    self._hold(job, "job requeued in held state")
                else:
                    refused = SlurmError(errors.JOB_PENDING)
            else:
                refused = None
                self._ctld.slurm.job_touched(job, "requeue", user)
                self._put_back(job, hold=hold)
        if refused is not None:
            raise refused

    def suspend(self, jobs: list[JobRecord]) -> None:
        """Stop their processes; the nodes look idle."""
        for job in jobs:
            if job.base != "RUNNING" or job.is_completing:
                raise SlurmError(errors.JOB_NOT_RUNNING)
            job.base, job.priority, job.suspend_time = "SUSPENDED", 0, self._ctld.now()
            self._ctld.job_changed(job)
            self._ctld.send(job.batch_host or job.nodes[0], "suspend", job.job_id, job.life)
        self._ctld.scheduling.soon()

    def resume(self, jobs: list[JobRecord]) -> None:
        """Let them go on."""
        for job in jobs:
            if job.base != "SUSPENDED":
                raise SlurmError(errors.JOB_NOT_SUSPENDED)
            job.end_time += self._ctld.now() - job.suspend_time
            job.base, job.priority, job.suspend_time = "RUNNING", 1, self._ctld.now()
            self._ctld.job_changed(job)
            self._ctld.send(job.batch_host or job.nodes[0], "resume", job.job_id, job.life)

    def hold(self, jobs: list[JobRecord], *, is_admin: bool = True) -> None:
        """Hold those that wait; those that run say so and run on, also one that is in its prolog."""
        for job in jobs:
            if job.is_pending or job.base == "RUNNING":
                self._hold(job, "", is_admin=is_admin)

    def release(self, jobs: list[JobRecord]) -> None:
        """Release those that are held; of one that runs the priority is that of a new one then."""
        for job in jobs:
            is_held = not job.priority and (job.is_pending or job.base == "RUNNING")
            if job.base == "RUNNING":
                job.priority = 1
            if is_held:
                job.priority, job.reason, job.description = 1, "None", ""
                self._ctld.job_changed(job)
        self._ctld.scheduling.soon()

    def update(self, job: JobRecord, change: Mapping[str, Any], user: str) -> None:  # noqa: C901 - a table of fields
        """Change what *change* names.

        Raises:
            SlurmError: it may not be changed, or not so.
        """
        _check_change(job, change, is_user=user.isdecimal())
        for name in (*_TEXTS, "admin_comment"):
            if change.get(name) is not None:
                setattr(job, name, str(change[name]))
        if given := change.get("excluded_nodes"):
            job.excluded_nodes = ",".join(word for word in given if word)
        if given := change.get("required_nodes"):
            job.required_nodes = tuple(name for word in given for name in names_of(word))
        if change.get("requeue") is not None:
            job.requeue = bool(change["requeue"])
        if change.get("tres_per_node") is not None:
            job.gpus = gpus_of(str(change["tres_per_node"]))
        if change.get("tasks") is not None:
            job.tasks, job.cpus_per_task = int(change["tasks"]), 1
        if (memory := number_of(change.get("memory_per_node"))) is not None:
            job.memory = memory
        if change.get("begin_time") is not None:
            job.begin_time = min(job.begin_time, self._ctld.now())
        self._ctld.slurm.job_touched(job, "update", user)
        if change.get("hold") is False:
            self.release([job])
        elif change.get("hold"):
            self.hold([job])
        if (priority := number_of(change.get("priority"))) is not None:
            job.priority = priority
        self._ctld.job_changed(job)
        self._ctld.scheduling.soon()

    def preempt(self, job: JobRecord) -> None:
        """Take its place for another, at once or when its grace is over."""
        ctld = self._ctld
        if job.preempt_time or job.is_completing:
            return
        partition = ctld.state.partitions[job.partition]
        job.preempt_time = ctld.now()
        if not partition.grace_time_s:
            self._finish(job, "PREEMPTED")
            return
        job.end_time = min(job.end_time, ctld.now() + partition.grace_time_s)
        ctld.job_changed(job)
        if job.warning_signal and job.batch_host:
            ctld.send(job.batch_host, "signal", job.job_id, job.life, job.warning_signal)
        ctld.later(partition.grace_time_s, self._end_grace, job.job_id, job.life)

    def end_those_over_limits(self) -> None:
        """End jobs whose time is over."""
        for job in list(self.all.values()):
            if job.base == "RUNNING" and not job.is_completing and job.end_time <= self._ctld.now():
                self._finish(job, "PREEMPTED" if job.preempt_time else "TIMEOUT")

    def purge(self) -> None:
        """Forget jobs that have been over for MinJobAge."""
        ctld = self._ctld
        before = ctld.now() - ctld.conf.min_job_age_s
        for job in list(self.all.values()):
            if job.is_over and not job.is_completing and job.end_time <= before:
                del self.all[job.job_id]
                ctld.jobs_changed = ctld.now()
                ctld.tell("job is forgotten", job=job.job_id)
                ctld.slurm.changed()

    def _same(self, job_id: int, life: int) -> JobRecord | None:
        job = self.all.get(job_id)
        return job if job is not None and job.life == life else None

    def _whole(self, job: JobRecord) -> list[JobRecord]:
        """Return all components of a heterogeneous job, or it alone."""
        if not job.het_job_id:
            return [job]
        return [one for one in self.all.values() if one.het_job_id == job.het_job_id]

    def _check(self, job: JobRecord) -> None:
        ctld = self._ctld
        job.partition = job.partition or ctld.conf.partitions[0].name
        if job.partition not in ctld.state.partitions:
            raise SlurmError(errors.INVALID_PARTITION)
        for name in (*job.required_nodes, *names_of(job.excluded_nodes)):
            if name not in ctld.nodes.all:
                raise SlurmError(errors.INVALID_NODE_NAME)
        if set(job.required_nodes) & set(names_of(job.excluded_nodes)):
            raise SlurmError(errors.INVALID_NODE_NAME)
        if any(len(getattr(job, name)) > TEXT_MAX for name in _TEXTS):
            raise SlurmError(errors.PATHNAME_TOO_LONG)
        nodes = ctld.nodes.in_partition(ctld.state.partitions[job.partition])
        features = {word for node in nodes for word in (*node.features, *node.active_features)}
        if not set(job.constraints) <= features:
            raise SlurmError(errors.INVALID_FEATURE)
        one = dataclasses.replace(job, min_nodes=1)  # 26.05 lets one wait for nodes that may come.
        if not could_ever(job if ctld.conf.is_24_11 else one, nodes):
            raise SlurmError(errors.CONFIG_UNAVAILABLE)

    def _hold(self, job: JobRecord, description: str, *, is_admin: bool = False) -> None:
        job.priority, job.description = 0, description
        job.reason = "JobHeldAdmin" if is_admin else "JobHeldUser"
        self._ctld.job_changed(job)

    def _put_back(self, job: JobRecord, *, hold: bool) -> None:
        """Make it wait again, when its nodes are free of it."""
        was_completing, was_active = job.is_completing, job.is_active
        job.base, job.reason, job.description = "PENDING", "None", ""
        job.priority = job.priority or 1
        job.restart_cnt += 1
        job.preparing.clear()
        if hold:
            self._hold(job, "job requeued in held state")
        if was_active:
            self._complete(job)
        elif not was_completing:
            self._wait_again(job)
        self._ctld.job_changed(job)

    def _finish(self, job: JobRecord, base: str) -> None:
        job.base, job.end_time = base, self._ctld.now()
        job.preparing.clear()
        self._ctld.counts["completed"] += 1
        self._complete(job)
        self._ctld.job_changed(job)
        self._ctld.later(0.0, self._depended_on)

    def _complete(self, job: JobRecord) -> None:
        job.flags = {"COMPLETING"}
        job.completing = set(job.nodes)
        for node in job.nodes:
            self._terminate(job, node)

    def _terminate(self, job: JobRecord, node: str) -> None:
        self._ctld.send(node, "terminate", job.job_id, job.life)

    def _complete_if_free(self, job: JobRecord) -> None:
        if job.completing or not job.is_completing:
            return
        job.flags.discard("COMPLETING")
        if job.is_pending:
            self._wait_again(job)
        self._ctld.job_changed(job)
        self._ctld.scheduling.soon()

    def _wait_again(self, job: JobRecord) -> None:
        now, delay_s = self._ctld.now(), self._ctld.conf.requeue_delay_s
        job.nodes, job.held = (), {}
        job.submit_time = now
        job.begin_time = job.start_time = now + delay_s + 1
        job.end_time = 0
        if job.priority:
            job.reason = "BeginTime"

    def _end_grace(self, job_id: int, life: int) -> None:
        job = self._same(job_id, life)
        if job is not None and job.is_active:
            self._finish(job, "PREEMPTED")

    def _depended_on(self) -> None:
        self._ctld.scheduling.soon()


def _check_change(job: JobRecord, change: Mapping[str, Any], *, is_user: bool) -> None:
    """Refuse what may not be changed of *job*, or not so; *is_user*: by its user, no administrator."""
    if is_user and "admin_comment" in change:
        raise SlurmError(errors.USER_ID_MISSING)
    if job.is_over:
        raise SlurmError(errors.JOB_FINISHED)
    if any(len(str(change.get(name) or "")) > TEXT_MAX for name in _TEXTS):
        raise SlurmError(errors.PATHNAME_TOO_LONG)
    if not job.is_pending and {"excluded_nodes", "required_nodes"} & change.keys():
        raise SlurmError(errors.JOB_NOT_PENDING)
    if not job.priority and "priority" in change and change.get("hold") is None:
        raise SlurmError(errors.JOB_HELD)

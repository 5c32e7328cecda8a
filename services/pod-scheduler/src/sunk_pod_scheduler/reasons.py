"""What the pod-scheduler says on Pods: see `sunk_kube.reasons`."""

from typing import Final

from sunk_kube.reasons import Reason

_POD: Final = "Pod"
_MEMBER: Final = "Pod of a gang"
_UNSCHEDULED: Final = "`PodScheduled` False"
_JOB_LOST: Final = "`SlurmJobLost` True"


class PodReason(Reason):
    """On Pods that a pod-scheduler serves, and on those that name a scheduler that does not serve them."""

    VALIDATION_FAILED = (
        "ValidationFailed",
        _POD,
        "Warning",
        _UNSCHEDULED,
        "The Pod has an error, or asks for something that its namespace may not use; no job exists.",
        "Change the Pod: the message names each error.",
    )
    PLACEHOLDER_SUBMITTED = (
        "PlaceholderSubmitted",
        _POD,
        "Normal",
        "",
        "Slurm has the placeholder job of the Pod, or of its gang.",
        "Nothing.",
    )
    SUBMISSION_FAILED = (
        "SubmissionFailed",
        _POD,
        "Warning",
        f"{_UNSCHEDULED}; {_JOB_LOST}",
        "Slurm refused the job, in Slurm's words; the pod-scheduler tries again, less and less often.",
        "Change the Pod, or ask the administrator.",
    )
    SLURM_UNAVAILABLE = (
        "SlurmUnavailable",
        _POD,
        "Normal",
        _UNSCHEDULED,
        "Slurm does not answer.",
        "Wait: the job is submitted as soon as Slurm answers.",
    )
    NO_NODE_FITS = (
        "NoNodeFits",
        _POD,
        "Warning",
        _UNSCHEDULED,
        "No Slurm node fits the node selector, affinity, tolerations and node annotations, or too few do.",
        "Change them, or wait for such a node.",
    )
    KUBELET_REFUSES = (
        "KubeletRefuses",
        _POD,
        "Warning",
        _UNSCHEDULED,
        "Kubelets refused five Pods of this Pod's owner, so this one waits.",
        "Remove the cause in the message; the pod-scheduler tries again within ten minutes.",
    )
    RELEASE_REFUSED = (
        "ReleaseRefused",
        _POD,
        "Warning",
        _UNSCHEDULED,
        "Slurm refuses to release the job, in Slurm's words.",
        "Ask the administrator.",
    )
    JOB_HELD = (
        "JobHeld",
        _POD,
        "Warning",
        _UNSCHEDULED,
        "Slurm holds the job: slurmctld does not know its user, or an administrator holds it.",
        "Ask the administrator.",
    )
    WAITING_FOR_SLURM = (
        "WaitingForSlurm",
        _POD,
        "Normal",
        _UNSCHEDULED,
        "The job waits in Slurm's queue; the message has Slurm's reason and the start that Slurm expects.",
        "Wait, or see `squeue --start`.",
    )
    WAITING_FOR_LOCK = (
        "WaitingForLock",
        _POD,
        "Normal",
        _UNSCHEDULED,
        "The job has a node, and waits in its prolog until the node is locked; other Pods must leave first.",
        "Wait.",
    )
    SCRIPT_SILENT = (
        "ScriptSilent",
        _POD,
        "Warning",
        _UNSCHEDULED,
        "The job runs, and its script has not called the hook gateway.",
        "Ask the administrator whether the node reaches and trusts the address in the message.",
    )
    NODE_UNSUITED = (
        "NodeUnsuited",
        _POD,
        "Normal",
        _UNSCHEDULED,
        "The node that Slurm chose no longer fits the Pod; this job ends, and another is submitted.",
        "Nothing.",
    )
    JOB_TOO_SMALL = (
        "JobTooSmall",
        _POD,
        "Normal",
        _UNSCHEDULED,
        "The job's user made the job smaller in Slurm than the Pod; it ends, and another is submitted.",
        "Do not change placeholder jobs.",
    )
    JOB_REQUEUED = (
        "JobRequeued",
        _POD,
        "Normal",
        _UNSCHEDULED,
        "Slurm requeued the job: slurmd did not acknowledge its launch, or its user did. A new one follows.",
        "Nothing; if it comes again and again, ask the administrator to look at slurmd on the nodes.",
    )
    BOUND = (
        "Bound",
        _POD,
        "Normal",
        "",
        "The Pod has its Node; in a gang the message has its rank.",
        "Nothing.",
    )
    KUBELET_REFUSED = (
        "KubeletRefused",
        _POD,
        "Warning",
        "",
        "The kubelet of the Node refused the Pod; for ten minutes its owner's next Pods avoid that Node.",
        "Read the kubelet's reason in the message.",
    )
    CUT_OFF = (
        "CutOff",
        _POD,
        "Warning",
        "",
        "Many scripts do not call the hook gateway; the Pod stays as long as Slurm says that its job runs.",
        "Ask the administrator to look at the network between nodes and hook gateway.",
    )
    JOB_LOST = (
        "JobLost",
        _POD,
        "Warning",
        _JOB_LOST,
        "The Pod runs, and Slurm does not know its job; the message says what the pod-scheduler does.",
        "Nothing; to free the node, delete the Pod.",
    )
    JOB_FOUND = (
        "JobFound",
        _POD,
        "Normal",
        "`SlurmJobLost` False",
        "The Pod has a job in Slurm again.",
        "Nothing.",
    )
    MARK_COPIED = (
        "MarkCopied",
        _POD,
        "Warning",
        "",
        "Another Slurm job has a copy of the mark of the Pod's job; the pod-scheduler leaves that job alone.",
        "Ask the administrator which user submitted the job in the message.",
    )
    POD_ENDS = (
        "PodEnds",
        "Pod and its controller",
        "Warning",
        "",
        "The pod-scheduler is about to delete the Pod, because of its job; the message says why.",
        "Read the message; see [how a Pod ends](pod-scheduler.md#how-a-pod-ends).",
    )
    NO_EFFECT = (
        "NoEffect",
        _POD,
        "Warning",
        "",
        "The Pod has fields that have no effect, because Slurm chooses the Node.",
        "Remove them, or use [the annotations](pods.md).",
    )
    STATIC_CPUS = (
        "StaticCPUs",
        _POD,
        "Warning",
        "",
        "A container is Guaranteed with whole CPUs: the kubelet may pin CPUs that Slurm gives to others.",
        "Set the CPU limit above the request, or request a fraction.",
    )
    SHARED_GPUS = (
        "SharedGPUs",
        _POD,
        "Warning",
        "",
        "Slurm may give the Pod's GPUs to other jobs too.",
        "Set `sunk.coreweave.com/exclusive` as the message says.",
    )
    OLD_ANNOTATION = (
        "OldAnnotation",
        _POD,
        "Warning",
        "",
        "`sunk.coreweave.com/exclusive` has a boolean, as before SUNK 5.7.",
        "Write one of the words in the message.",
    )
    SCHEDULER_OUT_OF_SCOPE = (
        "SchedulerOutOfScope",
        _POD,
        "Warning",
        "",
        "After ten seconds: the Pod names a scheduler that does not serve its namespace.",
        "Name one of those in the message.",
    )
    SCHEDULER_UNKNOWN = (
        "SchedulerUnknown",
        _POD,
        "Warning",
        "",
        "After five minutes: no pod-scheduler has the name, and no other scheduler has set `PodScheduled`.",
        "Name one of those in the message.",
    )
    WAITING_FOR_GANG = (
        "WaitingForGang",
        _MEMBER,
        "Normal",
        _UNSCHEDULED,
        "Members are missing, or cannot be passed to Slurm.",
        "Wait, or fix the other members.",
    )
    GANG_INCOMPLETE = (
        "GangIncomplete",
        _MEMBER,
        "Warning",
        _UNSCHEDULED,
        "Members are still missing after `gang_wait_s`; the last one's arrival starts the gang.",
        "Create the Pods that are missing, or correct the size.",
    )
    GANG_FULL = (
        "GangFull",
        _MEMBER,
        "Normal",
        _UNSCHEDULED,
        "The gang is placed with other Pods, and has no seat for this one.",
        "Wait for the next gang of the workload, or correct the size.",
    )
    SEAT_DOES_NOT_FIT = (
        "SeatDoesNotFit",
        _MEMBER,
        "Warning",
        _UNSCHEDULED,
        "The Pod took the seat of a dead member, and the node of that seat does not fit it.",
        "Read the cause in the message, and change the Node or the Pod.",
    )
    WORKLOAD_UNKNOWN = (
        "WorkloadUnknown",
        _MEMBER,
        "Warning",
        _UNSCHEDULED,
        "The API server does not let the pod-scheduler read the Pod's Job.",
        "Ask the administrator; the message has the API server's reason.",
    )
    GANG_ENDS = (
        "GangEnds",
        "Pod of a gang, and its controller",
        "Warning on a Pod that is about to be deleted; Normal on one without a Node or one that already ends",
        "",
        "The gang ends; the message says why.",
        "Read the message; see [the life of a gang](gangs.md#the-life-of-a-gang).",
    )

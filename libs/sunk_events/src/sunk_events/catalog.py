"""Every type of the contract, with the one service that owns it.

Schemas, golden files, `docs/events.md` and the permissions of NATS users are made from these tables.
"""

from typing import Final, Literal

from sunk_events import dead, hooks, jobs, locks, nodes, nodesets, placements, requests
from sunk_events.base import Event, Reply, Request, State

Owner = Literal["syncer", "nodeset-controller", "pod-scheduler", "hook-gateway", "any"]

EVENTS: Final[dict[type[Event], Owner]] = {
    nodes.NodeRegistered: "syncer",
    nodes.NodeRemoved: "syncer",
    nodes.NodeDraining: "syncer",
    nodes.NodeDrained: "syncer",
    nodes.NodeUndrained: "syncer",
    nodes.NodeDown: "syncer",
    nodes.NodeUp: "syncer",
    nodes.NodeNotResponding: "syncer",
    nodes.NodeResponding: "syncer",
    nodes.NodeAllocated: "syncer",
    nodes.NodeIdle: "syncer",
    nodes.NodeExtraReplaced: "syncer",
    jobs.JobSubmitted: "syncer",
    jobs.JobStarted: "syncer",
    jobs.JobRequeued: "syncer",
    jobs.JobHeld: "syncer",
    jobs.JobReleased: "syncer",
    jobs.JobCompleting: "syncer",
    jobs.JobEnded: "syncer",
    nodesets.PodReady: "nodeset-controller",
    nodesets.PodNotReady: "nodeset-controller",
    nodesets.PodCondemned: "nodeset-controller",
    nodesets.PodSpared: "nodeset-controller",
    nodesets.PodTerminating: "nodeset-controller",
    nodesets.PodGone: "nodeset-controller",
    nodesets.NodeCordoned: "nodeset-controller",
    nodesets.NodeUncordoned: "nodeset-controller",
    nodesets.NodeVerified: "nodeset-controller",
    nodesets.NodeRebootRequested: "nodeset-controller",
    locks.LockPending: "nodeset-controller",
    locks.LockLocked: "nodeset-controller",
    locks.LockUnlocked: "nodeset-controller",
    placements.PlacementRefused: "pod-scheduler",
    placements.PlacementSubmitted: "pod-scheduler",
    placements.PlacementStarted: "pod-scheduler",
    placements.PlacementBound: "pod-scheduler",
    placements.PlacementOverdue: "pod-scheduler",
    placements.PlacementEnded: "pod-scheduler",
    hooks.PrehookCalled: "hook-gateway",
    hooks.ReleaseCalled: "hook-gateway",
    hooks.StartedCalled: "hook-gateway",
    hooks.PlacementReleaseCalled: "hook-gateway",
    hooks.RebootCalled: "hook-gateway",
    hooks.NodeNudgeCalled: "hook-gateway",
    hooks.JobNudgeCalled: "hook-gateway",
    dead.DeadLetter: "any",
}
"""Facts. The owner of one is the only service that publishes it."""

STATES: Final[dict[type[State], Owner]] = {
    nodes.SlurmNodeState: "syncer",
    nodes.SlurmPartitionState: "syncer",
    nodes.SlurmReservationState: "syncer",
    nodes.SlurmStatisticsState: "syncer",
    jobs.SlurmJobState: "syncer",
    nodesets.KubePodState: "nodeset-controller",
    nodesets.NodeSliceState: "nodeset-controller",
    nodesets.KubeWatchState: "nodeset-controller",
    locks.LockState: "nodeset-controller",
    placements.PlacementState: "pod-scheduler",
}
"""States. The owner of one is the only writer of its bucket."""

REQUESTS: Final[dict[type[Request], tuple[Owner, tuple[type[Reply], ...]]]] = {
    requests.AcquireLock: (
        "nodeset-controller",
        (requests.LockGranted, requests.LockWaiting, requests.JobNotRunning),
    ),
    requests.ReleaseLock: ("nodeset-controller", (requests.Noted,)),
    requests.ConfirmNode: ("syncer", (requests.NodeConfirmed,)),
    requests.ConfirmJobs: ("syncer", (requests.JobsConfirmed,)),
    requests.NudgeNode: ("syncer", (requests.Noted,)),
    requests.NudgeJob: ("syncer", (requests.Noted,)),
    requests.PlacementAnnounced: ("pod-scheduler", (requests.Noted,)),
    requests.PlacementSilent: ("pod-scheduler", (requests.Noted,)),
    requests.ReleasePlacement: ("pod-scheduler", (requests.PlacementReleased,)),
    requests.RebootNode: ("nodeset-controller", (requests.Noted,)),
    requests.RequeueJob: ("syncer", (requests.Noted,)),
    requests.ExplainSlurmNode: ("syncer", (requests.Explanation,)),
    requests.ExplainJob: ("syncer", (requests.Explanation,)),
    requests.ExplainJobToOwner: ("syncer", (requests.Explanation,)),
    requests.ExplainKubeNode: ("nodeset-controller", (requests.Explanation,)),
    requests.ExplainPlacement: ("pod-scheduler", (requests.Explanation,)),
}
"""Questions: who answers, and with what. `Later` and `Refused` answer any of them."""

ANY_REPLY: Final[tuple[type[Reply], ...]] = (requests.Later, requests.Refused)

REPLIES: Final[tuple[type[Reply], ...]] = (
    *ANY_REPLY,
    *dict.fromkeys(reply for _, replies in REQUESTS.values() for reply in replies),
)

"""Which event led to what is done next about a Pod or a gang. Pure."""

from collections.abc import Iterable

import msgspec

from sunk_events.base import UNKNOWN, Cause, event_id
from sunk_events.placements import PlacementPhase
from sunk_kube.pods import Pod


class Origins(msgspec.Struct, frozen=True, kw_only=True):
    """The newest event of each thing that decides about a Pod."""

    pod: Cause = UNKNOWN
    placement: Cause = UNKNOWN
    job: Cause = UNKNOWN
    """As the bus tells of it."""
    announcement: Cause = UNKNOWN
    """That the placeholder's script runs."""
    is_pod_leaving: bool = False
    """It is over, being deleted or gone."""

    def of(self, phase: PlacementPhase | None) -> Cause:
        """Return what led to the step that follows *phase*, in the trace of the whole way if there is one.

        Args:
            phase: What is stored; None: nothing yet.
        """
        match phase:
            case None | "refused":
                found = (self.pod,)
            case "submitted" | "started":
                found = (self.placement,)
            case "released":
                found = (self.announcement, self.job, self.placement)
            case "bound":
                found = (self.pod, self.placement) if self.is_pod_leaving else (self.job, self.placement)
            case "ending" | "ended":
                found = (self.pod, self.placement)
        event = next((one for one in found if one.id), UNKNOWN)
        return Cause(event.id, self.placement.trace or event.trace)


def of_pod(pod: Pod) -> Cause:
    """Return what *pod* became what it is by: the version of its object."""
    return Cause(event_id("Pod", pod.metadata.uid, pod.metadata.resource_version))


def of_pods(pods: Iterable[Pod]) -> Cause:
    """Return the same of the one that came, or was deleted, last."""
    known = {
        moment: pod
        for pod in pods
        if (moment := pod.metadata.deletion_timestamp or pod.metadata.creation_timestamp) is not None
    }
    return of_pod(known[max(known)]) if known else UNKNOWN

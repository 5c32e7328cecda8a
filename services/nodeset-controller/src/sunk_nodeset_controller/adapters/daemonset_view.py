"""Which DaemonSets there are: a Pod is a daemon where the one that it names exists.

What must stay true: unknown is never absent. What the view lacks is asked for once more, consistently, for a
view may be behind a daemon that has just come. That a uid is nobody's holds for ever, as no later object gets
it, so it is remembered: made-up owners cost a call each, and not one a look.
"""

import logging
from collections.abc import Mapping
from typing import Final

import msgspec

from sunk_kube.client import KubeClient
from sunk_kube.objects import KubeObject
from sunk_kube.reflector import Reflector
from sunk_kube.resources import Resource
from sunk_nodeset_controller.locks.daemon_claims import DaemonClaim
from sunk_runtime.errors import SunkError

log = logging.getLogger(__name__)

DAEMON_OWNERS: Final = Resource(group="apps", kind="DaemonSet", plural="daemonsets", struct=KubeObject)
REFUTED_MAX: Final = 10_000
"""So many made-up owners are remembered; any more are asked for again."""


class Daemons(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that say that they are a DaemonSet's, told apart; the others are not, though they say so."""

    proven: frozenset[str] = frozenset()
    """The uids of those that are."""
    unknown: Mapping[str, str] = {}
    """The uids of those of which it could not be found out, with why."""


class DaemonSetView:
    """All DaemonSets, kept current by `run`; without it each is asked for."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._view: Reflector[KubeObject] = Reflector(client, DAEMON_OWNERS)
        self._refuted: set[DaemonClaim] = set()
        self._trouble = ""
        """Why the last question had no answer."""

    async def run(self) -> None:
        """Keep the view current until cancelled."""
        await self._view.run()

    async def judge(self, claims: Mapping[str, DaemonClaim]) -> Daemons:
        """Return which of *claims*, by the uid of the Pod that makes it, are true.

        After the first question without an answer no other is asked: a lock waits for this.
        """
        proven, unknown = set[str](), dict[str, str]()
        for uid, claim in claims.items():
            if _is(self._view.get(f"{claim.namespace}/{claim.name}"), claim):
                proven.add(uid)
                continue
            if not claim.is_possible or claim in self._refuted:
                continue
            if unknown:
                unknown[uid] = next(iter(unknown.values()))
                continue
            try:
                if await self._exists(claim):
                    proven.add(uid)
            except SunkError as error:
                unknown[uid] = str(error)
                self._note(str(error))
        return Daemons(proven=frozenset(proven), unknown=unknown)

    async def _exists(self, claim: DaemonClaim) -> bool:
        found = await self._client.find(DAEMON_OWNERS, claim.name, claim.namespace)
        self._note("")
        if _is(found, claim):
            return True
        if len(self._refuted) >= REFUTED_MAX:
            self._refuted.clear()
        self._refuted.add(claim)
        return False

    def _note(self, trouble: str) -> None:
        """Note why it is not known who is a daemon, which is told once; empty: it is."""
        if trouble and not self._trouble:
            log.warning("daemons cannot be recognised", extra={"error": trouble})
        self._trouble = trouble


def _is(found: KubeObject | None, claim: DaemonClaim) -> bool:
    return found is not None and found.metadata.uid == claim.uid

"""Who is let in, by what the bus says of the Pod or the placeholder whose token was shown.

What must stay true: nobody is let in for the name of a Pod that has gone; what the bus does not tell is
waited for a little, and then "ask again", never "no".
"""

from collections.abc import Collection
from typing import Final

import anyio
import msgspec

from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_hook_gateway.access.tokens import (
    AccessError,
    Caller,
    admit,
    admit_job,
    is_present,
    is_slurmctld,
    require_member,
)
from sunk_hook_gateway.adapters.ports import Callers
from sunk_hook_gateway.adapters.user_tokens import UserTokens
from sunk_hook_gateway.adapters.views import Placements
from sunk_runtime.errors import TransientError
from sunk_runtime.views import StateView

VIEWS_WAIT_S: Final = 2.0
"""How long a call waits for views that are being read, and for a state that its script outran."""
UNKNOWN_S: Final = 0.5
"""A Pod, or a node, that is not known may be one whose state its first prolog outran."""
MAX_TOKEN: Final = 128
"""The contract's limit of a placeholder's token."""
NOT_FOUND: Final = 404


class Admitted(msgspec.Struct, frozen=True):
    """A caller that was let in."""

    caller: Caller = Caller()
    """The Pod that the token belongs to."""
    placement: PlacementState | None = None
    """Whose placeholder's token it is. None of these: a job without a placement, whose owner judges it."""
    user: str = ""
    """The user of Slurm whose token it is."""


class Admission:
    """Lets callers in: at once where all that is needed is known, else after a wait that is to be counted."""

    def __init__(
        self,
        callers: Callers,
        namespace: str,
        *,
        pods: StateView[KubePodState],
        placements: Placements,
        slurmctld_accounts: Collection[str] = (),
        users: UserTokens | None = None,
    ) -> None:
        self._callers = callers
        self._users = users or UserTokens(None)
        self._namespace = namespace
        self._slurmctld_accounts = frozenset(slurmctld_accounts)
        self._pods = pods
        self._placements = placements

    def node_at_once(self, token: str, node: str | None, *, or_slurmctld: bool = False) -> Admitted | None:
        """Let in the Pod of *node*, or of any if that is None; None: `node` may wait for what is not known.

        With *or_slurmctld* slurmctld's Pod is let in too. The bus does not know this Pod, so its token
        counts until it expires.

        Raises:
            AccessError: somebody else.
            TransientError: it cannot be told now.
        """
        caller = self._callers.identify_at_once(token)
        if caller is None:
            return None
        if or_slurmctld and self._is_slurmctld(caller):
            return Admitted(caller)
        self._require(caller, node)
        return Admitted(caller) if self._is_present(caller) else None

    async def node(self, token: str, node: str | None, *, or_slurmctld: bool = False) -> Admitted:
        """Let in the callers that `node_at_once` lets in. Raises as that does."""
        caller = await self._callers.identify(token)
        if or_slurmctld and self._is_slurmctld(caller):
            return Admitted(caller)
        self._require(caller, node)
        if not self._is_present(caller):
            with anyio.move_on_after(VIEWS_WAIT_S):
                await self._pods.complete()
                await anyio.sleep(UNKNOWN_S)
        if not self._is_present(caller):
            raise TransientError(f"the NodeSet Pod {caller.pod} that this token is bound to is not known")
        return Admitted(caller)

    def job_at_once(self, token: str, job: int) -> Admitted | None:
        """Let in the placeholder *job*; None: `job` may wait for its placement. Raises `AccessError`."""
        if not token or len(token) > MAX_TOKEN:
            raise AccessError("token is malformed")
        placement = self._placements.of_job(job)
        if placement is None:
            return None
        admit_job(token, placement.token_sha256)
        return Admitted(placement=placement)

    async def job(self, token: str, job: int, *, accepts_unplaced: bool) -> Admitted:
        """Let in the placeholder *job*, and one without a placement if *accepts_unplaced*.

        Raises:
            AccessError: the token is another's, or the job no placeholder.
            TransientError: placements are not read yet.
        """
        await self._placements.find(job, within_s=VIEWS_WAIT_S)
        if (found := self.job_at_once(token, job)) is not None:
            return found
        if not self._placements.is_complete:
            raise TransientError("placements are not read yet")
        if not accepts_unplaced:
            raise AccessError(f"job {job} is no placeholder", status=NOT_FOUND)
        return Admitted()

    async def user(self, token: str) -> Admitted:
        """Let in a user of Slurm. Raises as `UserTokens.user` does."""
        return Admitted(user=await self._users.user(token))

    def _is_slurmctld(self, caller: Caller) -> bool:
        return is_slurmctld(caller, self._namespace, self._slurmctld_accounts)

    def _require(self, caller: Caller, node: str | None) -> None:
        if node is None:
            require_member(caller, self._namespace)
        else:
            admit(caller, node, self._namespace)

    def _is_present(self, caller: Caller) -> bool:
        state = self._pods.get(caller.pod) if caller.pod else None
        return is_present(caller, None if state is None else state.uid)

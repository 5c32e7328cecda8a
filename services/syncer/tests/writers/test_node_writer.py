"""Nothing is written upon a look that is old, and a list that failed is nobody's look."""

import math
import time
from collections.abc import Collection
from typing import Self

import anyio
import anyio.lowlevel
import pytest
from msgspec import structs

from sunk_runtime.errors import ConflictError, TransientError
from sunk_runtime.leases import Leadership
from sunk_slurm.errors import SlurmUnavailableError
from sunk_slurm.testing import node
from sunk_slurm.wire import Features, Node
from sunk_syncer.actions import (
    DeleteNode,
    DescribeNode,
    DownNode,
    DrainNode,
    NodeAction,
    ResumeNode,
    UndrainNode,
)
from sunk_syncer.config import Config
from sunk_syncer.writers.node_writer import LIST_FRESH_S, NodeWriter, Seen, list_good_until

pytestmark = pytest.mark.anyio

CONFIG = Config(cluster="c1")
NAMES = [f"n{index:02d}" for index in range(60)]
OURS = "k8s: cordon"


class Slurm:
    """Both what looks and what writes, of nodes that a test changes."""

    waiting = 0

    def expect(self, action: NodeAction) -> None:
        """Nobody tells here."""

    def __init__(self) -> None:
        self.nodes = {name: node(name, "IDLE", "DRAIN", reason=OURS) for name in NAMES}
        self.is_away = False
        self.may_write = anyio.Event()
        self.may_write.set()
        self.until: list[float] = []
        """Until when each write was to be sent."""
        self.written: list[str] = []
        self.overwritten: list[str] = []
        """Nodes whose drain somebody else had set."""
        self.lists = 0
        self.looked_drained: set[str] = set()

    def __len__(self) -> int:
        return len(self.nodes)

    def look(self, name: str) -> None:
        """Take note of nothing."""

    def is_drained(self, name: str) -> bool:
        """Whether a single look, as after a nudge, has shown *name* drained."""
        return name in self.looked_drained

    async def fresh(self, name: str) -> Node | None:
        await anyio.lowlevel.checkpoint()
        return self.nodes.get(name)

    async def fresh_list(self) -> dict[str, Node]:
        self.lists += 1
        await anyio.lowlevel.checkpoint()
        if self.is_away:
            raise SlurmUnavailableError("list nodes: no answer")
        return dict(self.nodes)

    async def _write(self, name: str) -> None:
        await self.may_write.wait()
        if not self.nodes[name].reason.startswith("k8s:") and self.nodes[name].state_now.is_drain:
            self.overwritten.append(name)
        self.written.append(name)

    def sending_until(self, moment: float) -> Self:
        self.until.append(moment)
        return self

    async def drain(self, name: str, reason: str) -> None:
        await self._write(name)
        self.nodes[name] = node(name, "IDLE", "DRAIN", reason=reason)

    async def drain_several(self, names: Collection[str], reason: str) -> None:
        for name in names:
            await self.drain(name, reason)

    async def undrain(self, name: str) -> None:
        await self._write(name)
        self.nodes[name] = node(name)

    async def set_down(self, name: str, reason: str | None = None) -> None:
        del reason
        await self._write(name)

    async def resume(self, name: str) -> None:
        await self._write(name)

    async def describe_node(
        self, name: str, *, extra: str | None = None, features: Features | None = None
    ) -> None:
        del extra, features
        await self._write(name)

    async def place_node(self, name: str, topology: str) -> None:
        del topology
        await self._write(name)

    async def delete_node(self, name: str) -> None:
        await self._write(name)


def deeds_of(slurm: Slurm, config: Config = CONFIG) -> NodeWriter:
    watch: object = slurm
    return NodeWriter(slurm, watch, Leadership("syncer", 1, float("inf")), config)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def look_all(node_writer: NodeWriter, names: Collection[str] = NAMES) -> dict[str, Seen | None]:
    """Look at all of *names* at once, from a list where that is cheaper; None: it failed."""
    seen: dict[str, Seen | None] = {}

    async def one(name: str) -> None:
        try:
            seen[name] = await node_writer.look(name, may_be_listed=True)
        except TransientError:
            seen[name] = None

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(one, name)
    return seen


@pytest.mark.parametrize(
    ("config", "looks", "nodes", "lists"),
    [
        pytest.param(CONFIG, 19, 60, 0, id="19 nodes by default"),
        pytest.param(CONFIG, 20, 60, 1, id="20 nodes by default"),
        pytest.param(structs.replace(CONFIG, list_from=1), 1, 3, 1, id="one node where one is set"),
        pytest.param(structs.replace(CONFIG, list_from=2), 1, 3, 0, id="one node where two are set"),
        pytest.param(structs.replace(CONFIG, list_from=2), 2, 3, 1, id="two nodes where two are set"),
        pytest.param(structs.replace(CONFIG, list_from=2), 7, 60, 0, id="less than an eighth"),
        pytest.param(structs.replace(CONFIG, list_from=2), 8, 60, 1, id="more than an eighth"),
    ],
)
async def test_nodes_to_drain_are_listed_from_as_many_as_the_setting_says_or_an_eighth_of_all(
    config: Config, looks: int, nodes: int, lists: int
) -> None:
    slurm = Slurm()
    slurm.nodes = {name: slurm.nodes[name] for name in NAMES[:nodes]}

    seen = await look_all(deeds_of(slurm, config), NAMES[:looks])

    assert (slurm.lists, sum(one is not None and one.is_listed for one in seen.values())) == (lists, lists)


async def test_who_asked_for_a_list_that_failed_is_not_given_an_old_one() -> None:
    slurm = Slurm()
    node_writer = deeds_of(slurm)
    await look_all(node_writer)
    slurm.nodes = {name: node(name, "IDLE", "DRAIN", reason="bad disk") for name in NAMES}
    slurm.is_away = True
    lists = slurm.lists
    during = await look_all(node_writer)
    failed_lists = slurm.lists - lists
    slurm.is_away = False
    after = await look_all(node_writer)

    told = {one.node.reason for one in during.values() if one is not None}
    assert told <= {"bad disk"}
    assert None in during.values()
    assert failed_lists <= 2  # Who came together shares the failure too.
    assert {one.node.reason for one in after.values() if one is not None} == {"bad disk"}
    assert None not in after.values()


async def test_undrains_that_waited_long_for_their_place_leave_what_an_operator_drained_meanwhile() -> None:
    slurm = Slurm()
    node_writer = deeds_of(slurm)
    slurm.may_write = anyio.Event()

    async def undrain(name: str) -> None:
        async with node_writer.place(name):
            seen = await node_writer.look(name)
            if seen is not None and seen.node.reason == OURS:
                await node_writer.carry_out(UndrainNode(name), seen)

    async with anyio.create_task_group() as tasks:
        for name in NAMES:
            tasks.start_soon(undrain, name)
        await anyio.wait_all_tasks_blocked()
        for name in NAMES[-20:]:
            slurm.nodes[name] = node(name, "IDLE", "DRAIN", reason="bad disk")
        slurm.may_write.set()

    assert slurm.overwritten == []
    assert sorted(slurm.written) == NAMES[:-20]


@pytest.mark.parametrize(
    "action",
    [
        UndrainNode("n00"),
        DrainNode("n00", "k8s: other"),
        DownNode("n00", None),
        ResumeNode("n00"),
        DescribeNode("n00", "{}"),
        DeleteNode("n00"),
    ],
    ids=lambda action: type(action).__name__,
)
async def test_no_deed_is_done_upon_an_old_look(
    action: UndrainNode | DrainNode | DownNode | ResumeNode | DescribeNode | DeleteNode,
) -> None:
    slurm = Slurm()
    node_writer = deeds_of(slurm)
    old = Seen(slurm.nodes["n00"], good_until=time.monotonic() - 1)
    async with node_writer.place("n00"):
        with pytest.raises(ConflictError):
            await node_writer.carry_out(action, old)

    assert slurm.written == []


async def test_a_write_that_waits_for_its_turn_is_not_sent_upon_an_old_look_either() -> None:
    slurm = Slurm()
    node_writer = deeds_of(slurm)
    lifted = Seen(slurm.nodes["n00"], good_until=time.monotonic() + 50)
    drained = Seen(slurm.nodes["n01"], good_until=time.monotonic() + 60)
    async with node_writer.place("n00"):
        await node_writer.carry_out(UndrainNode("n00"), lifted)
    await node_writer.drain(DrainNode("n01", "k8s: other"), drained)

    assert slurm.until == [lifted.good_until, drained.good_until]


async def test_who_was_seen_drained_since_the_list_is_left_out_of_a_drain_of_many() -> None:
    slurm = Slurm()
    slurm.nodes = {name: node(name) for name in NAMES}
    node_writer = deeds_of(slurm)
    seen = await look_all(node_writer)
    slurm.nodes["n07"] = node("n07", "IDLE", "DRAIN", reason="bad disk")
    slurm.looked_drained.add("n07")
    left_out: list[str] = []

    async def drain(name: str) -> None:
        found = seen[name]
        assert found is not None
        never_too_old = structs.replace(found, good_until=math.inf)  # However slow this machine is.
        try:
            await node_writer.drain(DrainNode(name, OURS), never_too_old)
        except ConflictError:
            left_out.append(name)

    async with anyio.create_task_group() as tasks:
        for name in NAMES:
            tasks.start_soon(drain, name)

    assert (left_out, slurm.overwritten) == (["n07"], [])
    assert sorted(slurm.written) == [name for name in NAMES if name != "n07"]


async def test_a_list_that_waited_for_its_turn_is_not_written_upon_though_nobody_has_looked_since() -> None:
    slurm = Slurm()
    slurm.nodes = {name: node(name) for name in NAMES}
    node_writer = deeds_of(slurm)
    seen = await look_all(node_writer)
    listed = {name for name, found in seen.items() if found is not None and found.is_listed}
    slurm.may_write = anyio.Event()
    left_out: list[str] = []

    async def drain(name: str, reason: str) -> None:
        found = seen[name]
        assert found is not None
        try:
            await node_writer.drain(DrainNode(name, reason), found)
        except ConflictError:
            left_out.append(name)

    async with anyio.create_task_group() as tasks:
        first, others = NAMES[:4], NAMES[4:]
        for name in first:  # They have all places to write from: their reasons differ.
            tasks.start_soon(drain, name, f"k8s: {name}")
        await anyio.wait_all_tasks_blocked()
        for name in others:
            tasks.start_soon(drain, name, OURS)
        await anyio.sleep(2 * LIST_FRESH_S)
        for name in NAMES[-10:]:
            slurm.nodes[name] = node(name, "IDLE", "DRAIN", reason="bad disk")
        slurm.may_write.set()

    assert set(NAMES[-10:]) < listed  # The first ones were looked at singly: there were few as yet.
    assert set(left_out) >= listed
    assert slurm.overwritten == []


@pytest.mark.parametrize(
    ("took_s", "good_s"),
    [
        pytest.param(0.01, 0.51, id="half a second is left to write"),
        pytest.param(1.5, 3.0, id="or as long as it took"),
        pytest.param(4.0, 5.0, id="and never more than for a look"),
        pytest.param(9.0, 5.0, id="it came too late"),
    ],
)
def test_a_list_may_be_written_upon_as_long_as_it_took_once_it_has_come(took_s: float, good_s: float) -> None:
    assert list_good_until(100.0, 100.0 + took_s) == pytest.approx(100.0 + good_s)


class Stuck(Slurm):
    """Undrains take as long as the test wants; drains take no time."""

    async def drain(self, name: str, reason: str) -> None:
        self.written.append(name)
        self.nodes[name] = node(name, "IDLE", "DRAIN", reason=reason)


async def test_a_drain_does_not_wait_until_all_that_are_undrained_have_been() -> None:
    slurm = Stuck()
    slurm.nodes["new"] = node("new")
    slurm.may_write = anyio.Event()
    node_writer = deeds_of(slurm)

    async def undrain(name: str) -> None:
        async with node_writer.place(name):
            seen = await node_writer.look(name)
            assert seen is not None
            await node_writer.carry_out(UndrainNode(name), seen)

    async with anyio.create_task_group() as tasks:
        for name in NAMES:
            tasks.start_soon(undrain, name)
        await anyio.wait_all_tasks_blocked()
        seen = await node_writer.look("new")
        assert seen is not None

        with anyio.fail_after(5):
            assert await node_writer.drain(DrainNode("new", OURS), seen)

        assert slurm.written == ["new"]
        tasks.cancel_scope.cancel()

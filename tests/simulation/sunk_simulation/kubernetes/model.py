# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The Kubernetes of a simulation: an API server, its controllers, its Nodes, and their faults."""

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, Literal

from sunk_simulation import reached
from sunk_simulation.http import Reply, Request, listen
from sunk_simulation.kubernetes import controllers
from sunk_simulation.kubernetes.controller import Controller
from sunk_simulation.kubernetes.errors import StatusError
from sunk_simulation.kubernetes.kinds import NAMESPACES, NODES, PODS
from sunk_simulation.kubernetes.kubelets import Kubelet, Workloads
from sunk_simulation.kubernetes.registry import Registry
from sunk_simulation.kubernetes.scheduler import Scheduler
from sunk_simulation.kubernetes.server import ApiServer, refused
from sunk_simulation.kubernetes.store import Change, Store
from sunk_simulation.loop import Process
from sunk_simulation.network import NetworkLoop
from sunk_simulation.trace import Trace

PORT: Final = 6443
KUBECONFIG: Final = Path(__file__).with_name("kubeconfig")
"""For clients of the one that is called ``kubernetes``; it believes any token."""
COMPACTED_S: Final = 300.0
"""How often what happened before the last time is forgotten, as etcd is told to."""
TAKES_S: Final = (0.0005, 0.01)
"""How long a request takes."""
NAMESPACES_AT_START: Final = ("default", "kube-system")
_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})

How = Literal["lost", "doubled", "late", "refused"]
"""What becomes of a request: its answer is lost after it took effect; it takes effect twice; it takes
effect a while later, and its answer comes then; it is refused."""


class Fault:
    """What becomes of some of the next requests."""

    def __init__(
        self, how: How, count: int, *, seconds: float = 0.0, error: StatusError | None = None
    ) -> None:
        self.how: Final = how
        self.left = count
        self.seconds: Final = seconds
        self.error: Final = error
        self.writes_only = how in ("lost", "doubled")


class ModelKubernetes:
    """A cluster that may be killed, paused, and have faults. `store` is what a checker looks at."""

    def __init__(
        self,
        loop: NetworkLoop,
        trace: Trace,
        random: Random,
        *,
        name: str = "kubernetes",
        host: str = "",
        port: int = PORT,
    ) -> None:
        self.store: Final = Store()
        self.trace: Final = trace
        self.name: Final = name
        self.host: Final = host or name
        self.port: Final = port
        self.process: Process | None = None
        """That of the API server."""
        self.manager: Process | None = None
        """That of the controllers."""
        self.kubelets: Final[dict[str, Kubelet]] = {}
        """By their Nodes."""
        self.heard: Final[dict[str, float]] = {}
        self.changed: Callable[[], object] = lambda: None
        """Called after each change of the store: `Simulation.changed`."""
        self.on_written: Callable[[Request], object] = lambda _request: None
        """Told of each request that may change something, when it comes."""
        self.registry: Final = Registry(self.store, self._now_s, random)
        self.controllers: Final[tuple[Controller, ...]] = tuple(
            kind(self, random) for kind in (*controllers.ALL, Scheduler)
        )
        self._loop: Final = loop
        self._random: Final = random
        self._faults: Final[deque[Fault]] = deque()
        self._server: ApiServer | None = None
        self._processes: Final[dict[str, Process]] = {}
        self._behind: int | None = None
        self.store.follow(self._told)

    @property
    def is_running(self) -> bool:
        """Whether the API server does."""
        return self.process is not None and self.process.is_alive and not self.process.is_paused

    def start(self) -> None:
        """Start API server and controllers; those that run go on."""
        if self.process is None or not self.process.is_alive:
            self._loop.network.revive_host(self.host)
            self.process = process = self._loop.process(self.name, host=self.host)
            self._server = server = ApiServer(self.registry, self._random)
            server.version_seen = self._version_seen
            self.trace.write(self.name, "starts", objects=sum(map(len, self.store.objects.values())))
            process.run(lambda: listen(process, self.port, self._answer))
            process.start(self._compact)
            for namespace in NAMESPACES_AT_START:
                if namespace not in self.store.of(NAMESPACES.resource):
                    self.registry.create(NAMESPACES, {"metadata": {"name": namespace}})
            self.store.forget()  # What a watch can go on from is in its memory.
        if self.manager is None or not self.manager.is_alive:
            self.manager = self._loop.process("kube-controller-manager", host=self.host)
            self.manager.start(_for_ever)
            for controller in self.controllers:
                controller.start(self.manager)

    def kill(self) -> None:
        """End the API server between two lines; what it answered for is stored."""
        if self.process is not None and self.process.is_alive:
            self.trace.write(self.name, "is killed")
            self.process.kill()
        self._server = None

    def go_back(self, older: Store) -> None:
        """End it, and give it the state that it had when *older* was made by `store.copy()`."""
        self.kill()
        self.trace.write(self.name, "goes back")
        self.store.put_back(older)
        self.changed()

    def add_node(self, name: str, workloads: Workloads | None = None) -> Kubelet:
        """Have a Node of that name, whose kubelet runs what *workloads* makes of Pods."""
        kubelet = Kubelet(self, self._random, name, len(self.kubelets) + 1, workloads)
        self.kubelets[name] = kubelet
        self.start_kubelet(name)
        return kubelet

    def start_kubelet(self, name: str) -> None:
        """Start it; it running is success. A Node that was deleted is registered again."""
        if name in self._processes and self._processes[name].is_alive:
            return
        process = self._processes[name] = self._loop.process(f"kubelet-{name}", host=name)
        process.start(_for_ever)
        self.heard.pop(name, None)
        self.kubelets[name].start(process)

    def kubelet_process(self, name: str) -> Process:
        """Return the process of a kubelet, to be killed or paused: what runs there goes on."""
        return self._processes[name]

    def lose_power(self, name: str) -> None:
        """End a Node with all that runs there."""
        self.trace.write(self.name, "node loses power", node=name)
        self._processes[name].kill()
        self.kubelets[name].lose_power()

    def lose_answers(self, count: int = 1) -> None:
        """Let so many of the next answers to writes get lost, after what was asked took effect."""
        self._faults.append(Fault("lost", count))

    def double(self, count: int = 1) -> None:
        """Let so many of the next writes be done twice, as where a proxy sends them again."""
        self._faults.append(Fault("doubled", count))

    def delay(self, count: int, seconds: float) -> None:
        """Let so many of the next requests wait for so long until they take effect."""
        self._faults.append(Fault("late", count, seconds=seconds))

    def refuse(self, count: int, reason: str, *, retry_after_s: int = 1) -> None:
        """Refuse so many of the next requests for a *reason*: TooManyRequests, InternalError, Conflict …"""
        error = StatusError(reason, "the simulation wants it so", retry_after_s=retry_after_s)
        self._faults.append(Fault("refused", count, error=error))

    def compact(self) -> None:
        """Forget what happened until now: watches that begin and lists that go on from before get 410."""
        self.trace.write(self.name, "is compacted")
        self.store.forget()

    def end_watches(self) -> None:
        """End every watch."""
        if self._server is not None:
            self.trace.write(self.name, "ends watches")
            self._server.end_watches()

    def stall_watches(self, seconds: float) -> None:
        """Tell watches nothing for so long, not even bookmarks; their connections stay."""
        self.trace.write(self.name, "stalls watches")
        if self._server is not None:
            self._server.is_stalled = True
            self._loop.network.later(seconds, self._go_on, self._server)

    def lag(self, seconds: float) -> None:
        """Have lists and watches tell what is so now for so long, whatever is written meanwhile."""
        self.trace.write(self.name, "lags")
        self._behind = self.store.version
        self._loop.network.later(seconds, self._catch_up)

    def tell(self, who: str, what: str, **more: object) -> None:
        """Write a line of the trace."""
        self.trace.write(who, what, **more)

    def _go_on(self, server: ApiServer) -> None:
        server.is_stalled = False
        self._wake()

    def _catch_up(self) -> None:
        self._behind = None
        self._wake()

    def _version_seen(self) -> int:
        return self.store.version if self._behind is None else max(self._behind, self.store.forgotten)

    def _wake(self) -> None:
        process, server = self.process, self._server
        if server is not None and process is not None and process.is_alive:
            process.run(server.wake)

    def _told(self, change: Change) -> None:
        self.trace.write(
            self.name, change.type.lower(), what=f"{change.resource} {change.key}", version=change.version
        )
        _note(change)
        self._wake()
        self.changed()

    async def _answer(self, request: Request) -> Reply:
        server = self._server
        assert server is not None
        if request.method in _WRITES:
            self.on_written(request)
        await asyncio.sleep(self._random.uniform(*TAKES_S))
        fault = self._fault(request)
        if fault is None:
            return await server.answer(request)
        self.trace.write(self.name, f"request is {fault.how}", method=request.method, path=request.path)
        match fault.how:
            case "refused":
                assert fault.error is not None
                return refused(fault.error)
            case "late":
                # Also where its client has gone by then.
                return await asyncio.shield(asyncio.ensure_future(_late(server, request, fault.seconds)))
            case "doubled":
                await server.answer(request)
                return await server.answer(request)
            case _:
                reply = await server.answer(request)
                return Reply(reply.status, is_broken=True)

    def _fault(self, request: Request) -> Fault | None:
        if request.query.get("watch"):
            return None
        for fault in self._faults:
            if fault.writes_only and request.method not in _WRITES:
                continue
            fault.left -= 1
            if not fault.left:
                self._faults.remove(fault)
            return fault
        return None

    def _now_s(self) -> float:
        if self.process is None:
            return self._loop.outside.clock.peek_ns() / 1e9
        return self.process.clock.peek_ns() / 1e9

    async def _compact(self) -> None:
        before = self.store.version
        while True:
            await asyncio.sleep(COMPACTED_S)
            before, at = self.store.version, before
            self.store.forget(at)


async def _late(server: ApiServer, request: Request, seconds: float) -> Reply:
    await asyncio.sleep(seconds)
    return await server.answer(request)


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


def _note(change: Change) -> None:
    """Have it counted which state a Node or a Pod is in now."""
    if change.resource not in {PODS.resource, NODES.resource}:
        return
    found = change.after.object
    spec, status, meta = found["spec"], found.get("status") or {}, found["metadata"]
    conditions = sorted(one["type"] for one in status.get("conditions") or () if one["status"] == "True")
    taints = sorted(f"{one['key']}:{one['effect']}" for one in spec.get("taints") or ())
    words = ["deleted"] * ("deletionTimestamp" in meta) + ["unschedulable"] * bool(spec.get("unschedulable"))
    words += ["bound"] * bool(spec.get("nodeName")) + ["finalizers"] * bool(meta.get("finalizers"))
    whose = spec.get("schedulerName", "")
    reached.state(
        f"kubernetes-{change.resource}",
        change.type,
        whose,
        status.get("phase", ""),
        *words,
        *taints,
        *conditions,
    )

"""slurmrestd: slurmctld's answers over HTTP, in the shapes, with the errors and the oddities of each release.

Its faults: it may be away, slow, short of processor time, answer 500, lose an answer after it took effect,
hand out an old list, a cut one or an empty one.
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec

from sunk_simulation.http import Reply, Request, listen
from sunk_simulation.loop import Process
from sunk_simulation.slurm import errors, shapes
from sunk_simulation.slurm.errors import SlurmError
from sunk_simulation.slurm.routes import NOT_FOUND, Call
from sunk_simulation.slurm.slurmctld import MESSAGE_TIMEOUT_S, Slurmctld

if TYPE_CHECKING:
    from sunk_simulation.slurm.model import ModelSlurm

_PATH: Final = re.compile(r"/(slurm|slurmdb)/(v\d+\.\d+\.\d+)/(.*)")
_VERSIONS: Final = "/openapi/v3"
_LOOK: Final = re.compile(r"/job/\d+$")
_LIST: Final = re.compile(r"/(nodes|jobs|jobs/state)/$")
_WORK_S: Final = 0.01
_LIST_WORK_S: Final = 0.02
_VERSIONS_WORK_S: Final = 0.15
"""What an answer takes of a processor; the document of all versions is megabytes."""
SERVICE_USER: Final = "slurm"
"""Whose every token is, where none is looked at."""
_LISTS: Final = frozenset({"nodes/", "jobs/", "jobs/state/"})


class _RefusedError(Exception):
    """It is not Slurm's own answer."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.reply: Final = reply


class Slurmrestd:
    """The daemon."""

    def __init__(self, slurm: "ModelSlurm", host: str, port: int) -> None:
        self.host: Final = host
        self.port: Final = port
        self.process: Process | None = None
        self.latency_s = (0.001, 0.01)
        self.on_written: Callable[[Request], object] = lambda _request: None
        """Told of each request that may change something, when it comes."""
        self.share = 1.0
        """Of a processor; below 1 its work is done one after the other."""
        self._free_s = 0.0
        """When it has done what it was asked for."""
        self._slurm = slurm
        self._lose = 0
        self._fail: list[int] = []
        self._odd_looks: list[Reply] = []
        self.do_lists_fail = False
        """Every list is HTTP 500."""
        self._fail_lists = 0
        self._odd_lists: list[Callable[[list[Any]], list[Any]]] = []
        self._old: dict[str, bytes] = {}
        self._is_stale = False

    @property
    def is_running(self) -> bool:
        """Whether it does."""
        return self.process is not None and self.process.is_alive

    def start(self) -> None:
        """Start it; it running is success."""
        if not self.is_running:
            self._slurm.loop.network.revive_host(self.host)
            self.process = self._slurm.loop.process("slurmrestd", host=self.host)
            self._slurm.trace.write("slurmrestd", "starts")
            listen(self.process, self.port, self._answer)

    def kill(self) -> None:
        """End it."""
        if self.process is not None and self.process.is_alive:
            self._slurm.trace.write("slurmrestd", "is killed")
            self.process.kill()

    def lose_answers(self, count: int = 1) -> None:
        """Break the connection instead of the next answers to writes, after these took effect."""
        self._lose += count

    def fail_answers(self, count: int = 1, status: int = 500) -> None:
        """Answer the next questions with an error that is not Slurm's own."""
        self._fail += [status] * count

    def fail_lists(self, count: int = 1) -> None:
        """Answer the next lists with HTTP 500."""
        self._fail_lists += count

    def refuse_looks(self, count: int = 1) -> None:
        """Refuse the next looks at single nodes and jobs, as where a token may not see them."""
        self._odd_looks += [self._problem(SlurmError(errors.USER_ID_MISSING))] * count

    def empty_looks(self, count: int = 1) -> None:
        """Know nothing of what the next looks at single jobs ask for."""
        self._odd_looks += [self._problem(SlurmError(errors.INVALID_JOB_ID))] * count

    def cut_lists(self, count: int = 1) -> None:
        """Leave out the last half of the next lists."""
        self._odd_lists += [_half] * count

    def empty_lists(self, count: int = 1) -> None:
        """Leave out everything of the next lists."""
        self._odd_lists += [_nothing] * count

    def recover(self) -> None:
        """Have no odd looks and lists left to give."""
        self._odd_looks.clear()
        self._odd_lists.clear()

    def be_stale(self, seconds: float) -> None:
        """Answer lists as they were, for so long."""
        self._is_stale = True
        self._slurm.trace.write("slurmrestd", "hands out old lists")
        self._slurm.loop.network.later(seconds, self._be_fresh)

    def strike(self, random: Random, seconds: float) -> None:
        """Have one of its faults, drawn from *random*; one that lasts does so for *seconds*."""
        match random.randrange(6):
            case 0:
                self.kill()
                self._slurm.loop.network.later(seconds, self.start)
            case 1:
                self.lose_answers(random.randint(1, 3))
            case 2:
                self.fail_answers(random.randint(1, 5))
            case 3:
                self.cut_lists(random.randint(1, 2))
            case 4:
                self.empty_lists(random.randint(1, 2))
            case _:
                self.be_stale(seconds)

    def _be_fresh(self) -> None:
        self._is_stale = False

    async def _answer(self, request: Request) -> Reply:
        if request.method != "GET":
            self.on_written(request)
        await anyio.sleep(self._slurm.random.uniform(*self.latency_s))
        if self.share < 1:
            await self._work(request.path)
        if self._fail:
            self._slurm.trace.write("slurmrestd", "fails", path=request.path)
            return Reply(self._fail.pop(), b"Internal Server Error")
        if self._odd_looks and request.method == "GET" and _LOOK.search(request.path):
            self._slurm.trace.write("slurmrestd", "look is odd", path=request.path)
            return self._odd_looks.pop()
        does_fail = self._fail_lists or self.do_lists_fail
        if does_fail and request.method == "GET" and _LIST.search(request.path):
            self._fail_lists = max(0, self._fail_lists - 1)
            self._slurm.trace.write("slurmrestd", "list fails", path=request.path)
            return Reply(500, b"Internal Server Error")
        if request.path == _VERSIONS:
            trees = ("slurm", "slurmdb") if self._slurm.conf.has_accounting else ("slurm",)
            names = [f"/{tree}/{version}/diag/" for tree in trees for version in self._slurm.conf.versions]
            return Reply(body=msgspec.json.encode({"paths": dict.fromkeys(names, 0)}))
        try:
            reply = await self._served(request)
        except _RefusedError as refused:
            return refused.reply
        if self._lose and request.method != "GET":
            self._lose -= 1
            self._slurm.trace.write("slurmrestd", "answer is lost", path=request.path)
            return Reply(is_broken=True)
        return reply

    async def _work(self, path: str) -> None:
        """Take the processor's time of an answer: also where the caller has gone, who is not missed."""
        work_s = _VERSIONS_WORK_S if path == _VERSIONS else _LIST_WORK_S if _LIST.search(path) else _WORK_S
        now_s = self._slurm.loop.time()
        self._free_s = max(self._free_s, now_s) + work_s / self.share
        await anyio.sleep(self._free_s - now_s)

    async def _served(self, request: Request) -> Reply:
        found = _PATH.fullmatch(request.path)
        if found is None or found[2] not in self._slurm.conf.versions:
            raise _RefusedError(NOT_FOUND)
        tree, version, path = found.groups()
        user = self._user(request)
        if tree == "slurmdb":
            return self._accounted(path)
        ctld = await self._controller()
        if isinstance(ctld, Reply):
            return ctld
        call = Call(ctld, request, version, path, user)
        try:
            answer = call.answer()
        except SlurmError as error:
            self._slurm.trace.write("slurmctld", "refuses", path=path, error=error)
            return self._problem(error)
        if isinstance(answer, Reply):
            return answer
        return self._listed(path, answer)

    def _listed(self, path: str, answer: shapes.Shape) -> Reply:
        """Return an answer, and what faults make of it if it is a list."""
        if path in _LISTS:
            name = path.partition("/")[0]
            if self._odd_lists:
                answer[name] = self._odd_lists.pop()(answer[name])
                self._slurm.trace.write("slurmrestd", "list is not whole", path=path, rows=len(answer[name]))
            elif self._is_stale and path in self._old:
                return Reply(body=self._old[path])
        body = _encoded({**_META, **answer})
        if path in _LISTS:
            self._old[path] = body
        return Reply(body=body)

    async def _controller(self) -> Slurmctld | Reply:
        """Return slurmctld, when it hears."""
        ctld = self._slurm.ctld
        if ctld is not None and ctld.process.is_paused:
            await anyio.sleep(MESSAGE_TIMEOUT_S)
        if ctld is None or self._slurm.ctld is not ctld or ctld.process.is_paused:
            return self._problem(SlurmError(errors.NO_CONNECTION), status=500)
        return ctld

    def _accounted(self, path: str) -> Reply:
        found = re.fullmatch(r"job/(\d+)", path)
        if not self._slurm.conf.has_accounting or found is None:
            raise _RefusedError(NOT_FOUND)
        number = int(found[1])
        rows = [shapes.accounted(one) for one in self._slurm.accounting.values() if one.job_id == number]
        return Reply(body=_encoded({**_META, "jobs": rows}))

    def _user(self, request: Request) -> str:
        """Return who asks."""
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        token = request.headers.get("x-slurm-user-token") or bearer
        if not token:
            raise _RefusedError(Reply(401, b"Authentication failure"))
        key = self._slurm.conf.jwt_key
        if not key:
            return SERVICE_USER
        ctld = self._slurm.ctld
        user = _user_of(token.strip(), key, ctld.now() if ctld is not None else self._slurm.now())
        if user is None:
            raise _RefusedError(self._problem(SlurmError(errors.TOKEN_REFUSED), status=511))
        return user

    def _problem(self, error: SlurmError, *, status: int = 0) -> Reply:
        words = errors.WORDS.get(error.number, "")
        told = {"error_number": error.number, "error": words, "description": error.description, "source": ""}
        is_old = self._slurm.conf.is_24_11 or error.number in {-1, errors.INVALID_VALUE}
        body = msgspec.json.encode({"errors": [told], "warnings": []})
        return Reply(status or (500 if is_old else 422), body)


_META: Final[Mapping[str, Any]] = {"errors": [], "warnings": []}


def _half(rows: list[Any]) -> list[Any]:
    return rows[: len(rows) // 2]


def _nothing(_: list[Any]) -> list[Any]:
    return []


def _encoded(answer: shapes.Shape) -> bytes:
    """Return it as JSON; bytes of users that are no UTF-8 go through as they are."""
    try:
        return msgspec.json.encode(answer)
    except UnicodeEncodeError:
        return json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _user_of(token: str, key: bytes, now: int) -> str | None:
    """Return whose token it is; None if it is nobody's, or no more."""
    try:
        head, body, signature = token.split(".")
        mac = hmac.new(key, f"{head}.{body}".encode(), hashlib.sha256).digest()
        if not hmac.compare_digest(base64.urlsafe_b64encode(mac).rstrip(b"="), signature.encode()):
            return None
        claims = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, msgspec.DecodeError):
        return None
    return claims["sun"] if claims["exp"] > now else None

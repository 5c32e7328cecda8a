"""An API server that misbehaves: what comes of it is later, again or never, and never a wrong view."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from sunk_kube import api
from sunk_kube.answers import RETRY_LAST_S
from sunk_kube.bodies import EventText
from sunk_kube.client import KubeClient, connect
from sunk_kube.errors import KubeBusyError, KubeUnavailableError
from sunk_kube.leases import KubeLease
from sunk_kube.objects import KubeObject
from sunk_kube.reflector import Reflector
from sunk_kube.resources import LEASES, PODS, Resource
from sunk_kube.testing import SampleReason, pod
from sunk_runtime.errors import ConfigError
from sunk_runtime.testing import WITHIN_S, until

pytestmark = pytest.mark.anyio

THINGS = Resource(kind="ConfigMap", plural="configmaps", struct=KubeObject)
Answer = Callable[[SocketStream], Awaitable[None]]


def thing(name: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "resourceVersion": str(version)}}


def answer(status: int, body: object, **headers: str) -> Answer:
    """Answer with *body*, JSON unless it is text."""
    text = body if isinstance(body, str) else json.dumps(body)
    lines = [f"HTTP/1.1 {status} Whatever", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]

    async def send(stream: SocketStream) -> None:
        port = stream.extra(SocketAttribute.local_port)  # noqa: S610 - anyio, not Django
        said = text.replace("ISSUER", f"http://127.0.0.1:{port}")
        head = [*lines, f"Content-Length: {len(said)}"]
        await stream.send("\r\n".join([*head, "", said]).encode())

    return send


def listed(*names: str, version: int = 1) -> Answer:
    return answer(
        200, {"metadata": {"resourceVersion": str(version)}, "items": [thing(name) for name in names]}
    )


def watched(*events: tuple[str, object]) -> Answer:
    """Send *events* and end the watch."""
    return answer(200, "".join(json.dumps({"type": kind, "object": body}) + "\n" for kind, body in events))


async def silence(stream: SocketStream) -> None:
    """Take the request and say nothing, for ever."""
    del stream
    await anyio.sleep_forever()


async def stay(stream: SocketStream) -> None:
    """Accept a watch and tell of nothing."""
    await stream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    await anyio.sleep_forever()


def kubeconfig(cluster: dict[str, Any], user: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": cluster}],
        "users": [{"name": "x", "user": user or {}}],
    }


@asynccontextmanager
async def server(
    tmp_path: Path,
    *answers: Answer,
    timeout_s: float = 5.0,
    user: dict[str, Any] | None = None,
    heard: list[bytes] | None = None,
) -> AsyncGenerator[KubeClient]:
    """Answer one request after the other as *answers* say, the last for ever; *heard* gets the requests."""
    script = list(answers)
    requests = [] if heard is None else heard

    async def serve(stream: SocketStream) -> None:
        async with stream:
            requests.append(await stream.receive())
            with suppress(anyio.BrokenResourceError):  # Who asked may have gone.
                await (script.pop(0) if len(script) > 1 else script[0])(stream)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - anyio, not Django
    address = f"http://127.0.0.1:{port}"
    config = kubeconfig({"server": address}, user)
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config).replace("ISSUER", address))
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        async with connect("test", kubeconfig=path, timeout_s=timeout_s) as client:
            yield client
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(answer(500, "boom"), id="500"),
        pytest.param(answer(200, "<html>"), id="garbage"),
        pytest.param(answer(200, {"metadata": {"name": 7}}), id="a name that is a number"),
        pytest.param(answer(200, '{"metadata":'), id="half an answer"),
        pytest.param(silence, id="silence"),
    ],
)
async def test_an_answer_that_is_none_means_later(tmp_path: Path, bad: Answer) -> None:
    async with server(tmp_path, bad, timeout_s=0.5) as client:
        with pytest.raises(KubeUnavailableError):
            await client.get(PODS, "web", "default")


async def test_a_server_that_asks_for_an_hour_is_asked_again_before(tmp_path: Path) -> None:
    async with server(tmp_path, answer(503, {}, Retry_After="3600")) as client:
        with pytest.raises(KubeUnavailableError) as refused:
            await client.get(PODS, "web", "default")

    assert refused.value.retry_after_s == RETRY_LAST_S


async def test_a_refused_lease_is_tried_again_and_ends_nobody(tmp_path: Path) -> None:
    async with server(tmp_path, answer(403, {"message": "no right yet"})) as client:
        lease = KubeLease(client, "default", "leader", "me")
        with pytest.raises(KubeUnavailableError, match="no right yet"):
            await lease.acquire()


async def test_a_watch_that_is_too_much_makes_everybody_quiet(tmp_path: Path) -> None:
    busy = answer(429, {}, Retry_After="20")
    async with server(tmp_path, listed("a"), busy, listed()) as client, anyio.create_task_group() as tasks:

        async def is_quiet() -> bool:
            with anyio.move_on_after(0.2) as waited:
                await client.list_all(PODS)
            return waited.cancelled_caught

        view = Reflector(client, THINGS)
        tasks.start_soon(view.run)
        await view.complete()
        await until(is_quiet)
        tasks.cancel_scope.cancel()


async def test_a_watch_that_ends_at_once_is_no_hot_loop(tmp_path: Path) -> None:
    heard: list[bytes] = []
    async with server(tmp_path, listed("a"), watched(), heard=heard) as client:
        with anyio.move_on_after(1.5):
            await Reflector(client, THINGS).run()

    assert len(heard) <= 6


async def test_too_many_requests_carry_how_long_to_wait(tmp_path: Path) -> None:
    async with server(tmp_path, answer(429, {}, Retry_After="3")) as client:
        with pytest.raises(KubeBusyError) as refused:
            await client.get(PODS, "web", "default")

    assert refused.value.retry_after_s == 3


async def test_who_was_asked_for_quiet_asks_nothing_else_meanwhile(tmp_path: Path) -> None:
    busy = answer(429, {}, Retry_After="3600")
    async with server(tmp_path, busy, listed()) as client:
        with pytest.raises(KubeBusyError):
            await client.get(PODS, "web", "default")
        with anyio.move_on_after(0.2) as waited:
            await client.list_all(PODS)
        await client.find(LEASES, "leader", "default")  # Who leads need not wait.

    assert waited.cancelled_caught


async def test_a_budget_that_forbids_an_eviction_holds_nobody_else_up(tmp_path: Path) -> None:
    budget = answer(429, {"reason": "TooManyRequests"}, Retry_After="3600")
    async with server(tmp_path, budget, listed()) as client:
        with pytest.raises(KubeBusyError):
            await client.evict(pod())

        assert await client.list_all(PODS) == []


async def test_a_namespace_with_too_many_events_holds_nobody_else_up(tmp_path: Path) -> None:
    too_many = answer(429, {"reason": "TooManyRequests"}, Retry_After="3600")
    async with server(tmp_path, too_many, listed()) as client:
        with pytest.raises(KubeBusyError):
            await client.record(
                PODS, pod(), EventText(reason=SampleReason.WAITING, action="Evicting", note="because")
            )

        assert await client.list_all(PODS) == []


async def test_a_server_that_is_not_there_means_later(tmp_path: Path) -> None:
    async with server(tmp_path, silence) as client:
        pass
    async with connect("test", kubeconfig=tmp_path / "kubeconfig") as client:
        with pytest.raises(KubeUnavailableError):
            await client.list_all(PODS)


async def test_a_page_elsewhere_is_no_success(tmp_path: Path) -> None:
    heard: list[bytes] = []
    async with server(tmp_path, answer(302, "", Location="/login"), answer(200, {}), heard=heard) as client:
        with pytest.raises(KubeUnavailableError, match="302"):
            await client.bind_pod(pod(), "gpu-1")

    assert len(heard) == 1


async def test_who_leads_waits_for_no_connection_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "CONNECTIONS", 1)
    heard: list[bytes] = []
    async with (
        server(tmp_path, silence, answer(404, {}), heard=heard) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(client.list_all, PODS)
        await until(lambda: len(heard) == 1)
        assert await client.find(LEASES, "leader", "default") is None
        tasks.cancel_scope.cancel()


async def test_a_kubeconfig_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        async with connect("test", kubeconfig=tmp_path / "nowhere"):
            pass


@pytest.mark.parametrize("text", ["a: b: c", "[]", '{"users": "x"}'])
async def test_a_kubeconfig_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ConfigError, match="kubeconfig"):
        async with connect("test", kubeconfig=path):
            pass


@pytest.mark.parametrize("address", [7, "api:6443", "ftp://api", "http://", "http://a..b", "http://a:-1"])
@pytest.mark.parametrize("key", ["server", "proxy-url"])
async def test_an_address_that_is_none_is_said_at_the_start(
    tmp_path: Path, key: str, address: object
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(kubeconfig({"server": "http://x", key: address})))
    with pytest.raises(ConfigError, match="kubeconfig"):
        async with connect("test", kubeconfig=path):
            pass


@pytest.fixture
def renewed_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RENEW_S", "PAUSE_S"):
        monkeypatch.setattr(api, name, 0.01)
    monkeypatch.setattr(api, "PLUGIN_ENDS_S", WITHIN_S)  # No test leaves a plugin running.


async def token_of(client: KubeClient, heard: list[bytes]) -> str:
    """Return the token of a call that is made now."""
    with suppress(KubeUnavailableError):
        await client.list_all(PODS)
    head = heard[-1].partition(b"\r\n\r\n")[0].decode().splitlines()
    return " ".join(line.split()[-1] for line in head if line.lower().startswith("authorization: bearer"))


async def token_becomes(expected: str, client: KubeClient, heard: list[bytes]) -> None:
    async def is_it() -> bool:
        return await token_of(client, heard) == expected

    await until(is_it)


@pytest.mark.usefixtures("renewed_often")
async def test_a_token_that_rotates_is_followed_and_one_that_is_none_leaves_the_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token, heard = tmp_path / "token", list[bytes]()
    token.write_text("first\n")
    async with server(tmp_path, listed(), user={"tokenFile": str(token)}, heard=heard) as client:
        assert await token_of(client, heard) == "first"
        fresh = tmp_path / "fresh"
        fresh.write_text("second\n")  # As the kubelet does: another file in its place.
        fresh.rename(token)
        await token_becomes("second", client, heard)
        for text in (" \n", "third\nHost: x", "\0", "drei\xdf"):
            token.write_text(text)
            caplog.clear()
            await until(lambda: bool(caplog.records))
            assert await token_of(client, heard) == "second"
        token.unlink()
        caplog.clear()
        await until(lambda: bool(caplog.records))
        assert await token_of(client, heard) == "second"


@pytest.mark.usefixtures("renewed_often")
async def test_a_token_that_is_not_written_yet_is_used_once_it_is(tmp_path: Path) -> None:
    token, heard = tmp_path / "token", list[bytes]()
    token.write_text("")
    async with server(tmp_path, listed(), user={"tokenFile": str(token)}, heard=heard) as client:
        assert not await token_of(client, heard)
        token.write_text("late")
        await token_becomes("late", client, heard)


async def test_a_token_that_is_refused_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "PAUSE_S", 0.0)
    token, heard = tmp_path / "token", list[bytes]()
    token.write_text("first")
    answers = answer(401, {"message": "who are you"}), listed()
    async with server(tmp_path, *answers, user={"tokenFile": str(token)}, heard=heard) as client:
        token.write_text("second")
        with pytest.raises(KubeUnavailableError, match="who are you"):
            await client.list_all(PODS)
        await token_becomes("second", client, heard)


PROVIDER: Final = {
    "idp-issuer-url": "ISSUER",
    "client-id": "c",
    "client-secret": "s",
    "refresh-token": "r",
}
PROVIDED: Final = {"auth-provider": {"name": "oidc", "config": PROVIDER}}
"""A user of an identity provider, which is the server."""
LATER: Final = "2126-01-01T00:00:00Z"
"""When a token of a plugin ends, long after the test."""


def plugin(runs: Path, *, ends: str = LATER, then: str = "") -> dict[str, Any]:
    """Return a user by a plugin, whose token is the number of its run; it does *then* from the second on."""
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    said = json.dumps({**credential, "status": {"token": "TOKEN", "expirationTimestamp": ends}})
    again = f"if [ $n != 1 ]; then {then} fi;" if then else ""
    args = ["-c", f"echo >> {runs}; n=$(wc -l < {runs}); {again} echo '{said}' | sed s/TOKEN/$n/"]
    return {"exec": {"command": "sh", "args": args, "apiVersion": credential["apiVersion"]}}


@pytest.mark.usefixtures("renewed_often")
async def test_a_plugin_runs_again_when_its_token_is_about_to_expire(tmp_path: Path) -> None:
    heard = list[bytes]()
    user = plugin(tmp_path / "runs", ends="2026-01-01T00:00:00Z")
    async with server(tmp_path, listed(), user=user, heard=heard) as client:
        await token_becomes("2", client, heard)


@pytest.mark.usefixtures("renewed_often")
async def test_a_plugin_whose_token_lasts_runs_once(tmp_path: Path) -> None:
    heard = list[bytes]()
    async with server(tmp_path, listed(), user=plugin(tmp_path / "runs"), heard=heard) as client:
        assert {await token_of(client, heard) for _ in range(100)} == {"1"}


async def test_a_plugin_whose_token_is_refused_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PAUSE_S", 0.0)
    heard, user = list[bytes](), plugin(tmp_path / "runs")
    async with server(tmp_path, answer(401, {}), listed(), user=user, heard=heard) as client:
        await token_becomes("2", client, heard)


@pytest.mark.usefixtures("renewed_often")
async def test_a_plugin_that_hangs_is_one_process_and_holds_no_call_up(tmp_path: Path) -> None:
    runs, gate, heard = tmp_path / "runs", tmp_path / "gate", list[bytes]()
    os.mkfifo(gate)
    user = plugin(runs, then=f"cat {gate};")
    async with server(tmp_path, answer(401, {}), listed(), user=user, heard=heard, timeout_s=1.0) as client:
        assert await token_of(client, heard) == "1"
        await until(lambda: runs.read_text() == "\n\n")
        assert {await token_of(client, heard) for _ in range(100)} == {"1"}
        assert runs.read_text() == "\n\n"
        await anyio.Path(gate).write_bytes(b"")
        await token_becomes("2", client, heard)


@pytest.mark.usefixtures("renewed_often")
async def test_a_plugin_that_runs_at_the_end_is_waited_for_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, gate, ended = (tmp_path / name for name in ("runs", "gate", "ended"))
    os.mkfifo(gate)
    start, started = asyncio.create_subprocess_exec, list[asyncio.subprocess.Process]()

    async def started_and_kept(*words: Any, **more: Any) -> asyncio.subprocess.Process:  # noqa: ANN401 - whatever the real one takes
        started.append(await start(*words, **more))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started_and_kept)
    user = plugin(runs, ends="2026-01-01T00:00:00Z", then=f"sleep 0.2; echo >> {ended};")
    with anyio.CancelScope() as cancelled:
        async with server(tmp_path, listed(), user=user):
            await until(lambda: runs.read_text() == "\n\n")
            cancelled.cancel()
    assert ended.read_text() == "\n"

    monkeypatch.setattr(api, "PLUGIN_ENDS_S", 0.1)
    runs.unlink()
    user = plugin(runs, ends="2026-01-01T00:00:00Z", then=f"cat {gate}; echo >> {ended};")
    with anyio.fail_after(WITHIN_S):
        async with server(tmp_path, listed(), user=user):
            await until(lambda: runs.read_text() == "\n\n")
    assert ended.read_text() == "\n"
    with anyio.fail_after(WITHIN_S):
        await anyio.Path(gate).write_bytes(b"")
        await started[-1].communicate()  # Else a test after this one has the warning of an open transport.
    assert ended.read_text() == "\n\n"


async def test_a_call_that_is_refused_last_starts_no_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PAUSE_S", 0.0)
    runs = tmp_path / "runs"
    user = plugin(runs, then="sleep 1000;")
    with anyio.fail_after(WITHIN_S):
        async with server(tmp_path, answer(401, {}), user=user) as client:
            await anyio.sleep(0.05)  # What renews the token waits for a call that is refused.
            with suppress(KubeUnavailableError):
                await client.list_all(PODS)
    assert runs.read_text() == "\n"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # The library's own.
async def test_a_provider_that_hangs_at_the_start_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "BEGIN_S", 0.2)
    with pytest.RaisesGroup(pytest.RaisesExc(ConfigError, match="kubeconfig .*: TimeoutError")):
        async with server(tmp_path, silence, user=PROVIDED):
            pass


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # The library's own.
async def test_a_token_of_an_identity_provider_is_had_anew(tmp_path: Path) -> None:
    heard = list[bytes]()
    endpoint = answer(200, {"token_endpoint": "ISSUER/token"}, Content_Type="application/json")
    fresh = answer(200, {"id_token": "fresh", "refresh_token": "r"}, Content_Type="application/json")
    async with server(tmp_path, endpoint, fresh, listed(), user=PROVIDED, heard=heard) as client:
        assert await token_of(client, heard) == "fresh"


async def test_a_netrc_of_the_servers_host_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc, heard = tmp_path / "netrc", list[bytes]()
    netrc.write_text("machine 127.0.0.1 login somebody password else")
    monkeypatch.setenv("NETRC", str(netrc))
    async with server(tmp_path, listed(), user={"token": "ours"}, heard=heard) as client:
        assert await token_of(client, heard) == "ours"


async def test_a_watch_that_falls_silent_or_breaks_is_an_outage(tmp_path: Path) -> None:
    async def broken(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf")

    async def watch() -> None:
        async with client.watch(THINGS, None, {}, silence_s=0.3) as chunks:
            async for _ in chunks:
                pass

    async with server(tmp_path, stay, broken) as client:
        for _ in range(2):
            with pytest.raises(KubeUnavailableError):
                await watch()


async def test_an_object_of_many_megabytes_is_told(tmp_path: Path) -> None:
    large = {**thing("a", 2), "data": {"large": "x" * (6 << 20)}}

    seen, _ = await keys_after(tmp_path, listed(), watched(("ADDED", large)), stay, count=1)

    assert seen == ["default/a"]


async def keys_after(tmp_path: Path, *answers: Answer, count: int) -> tuple[list[str], list[str]]:
    """Return the first *count* changes of a view, and its keys then."""
    async with server(tmp_path, *answers, timeout_s=1.0) as client:
        view = Reflector(client, THINGS)
        changes = view.changes()
        seen: list[str] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(view.run)
            with anyio.fail_after(WITHIN_S):
                await view.complete()
                seen += [await anext(changes) for _ in range(count)]
            tasks.cancel_scope.cancel()
        return seen, sorted(view.keys())


async def test_a_version_that_is_gone_means_a_new_list_and_the_difference_is_told(
    tmp_path: Path,
) -> None:
    gone = watched(("ERROR", {"code": 410, "reason": "Expired", "message": "too old"}))

    seen, keys = await keys_after(
        tmp_path, listed("a", "b"), gone, listed("b", "c", version=9), stay, count=4
    )

    assert sorted(seen) == ["default/a", "default/a", "default/b", "default/c"]
    assert keys == ["default/b", "default/c"]


async def test_a_list_that_fails_leaves_the_view_as_it_was(tmp_path: Path) -> None:
    gone = watched(("ERROR", {"code": 410}))

    seen, keys = await keys_after(
        tmp_path, listed("a"), gone, answer(500, ""), answer(200, "<html>"), listed("a", "b"), stay, count=2
    )

    assert seen == ["default/a", "default/b"]
    assert keys == ["default/a", "default/b"]


async def test_a_list_that_suddenly_knows_nothing_is_asked_again(tmp_path: Path) -> None:
    gone = watched(("ERROR", {"code": 410}))
    many = ("a", "b", "c", "d")

    seen, keys = await keys_after(tmp_path, listed(*many), gone, listed(), listed(*many, "e"), stay, count=5)

    assert seen == [f"default/{name}" for name in "abcde"]
    assert len(keys) == 5


async def test_a_list_that_says_twice_that_all_are_gone_is_believed(tmp_path: Path) -> None:
    gone = watched(("ERROR", {"code": 410}))

    _, keys = await keys_after(tmp_path, listed("a", "b", "c", "d"), gone, listed(), listed(), stay, count=8)

    assert keys == []


async def test_a_broken_watch_goes_on_where_it_was(tmp_path: Path) -> None:
    seen, keys = await keys_after(
        tmp_path,
        listed("a"),
        watched(("ADDED", thing("b", 2)), ("BOOKMARK", {"metadata": {"resourceVersion": "5"}})),
        answer(500, ""),
        watched(("DELETED", thing("a", 6))),
        stay,
        count=3,
    )

    assert seen == ["default/a", "default/b", "default/a"]
    assert keys == ["default/b"]


async def test_a_watch_that_tells_nonsense_changes_nothing(tmp_path: Path) -> None:
    seen, keys = await keys_after(
        tmp_path,
        listed("a"),
        answer(200, "nonsense\n"),
        watched(("ADDED", {"metadata": 7})),
        watched(("ADDED", thing("b", 2))),
        stay,
        count=2,
    )

    assert seen == ["default/a", "default/b"]
    assert keys == ["default/a", "default/b"]

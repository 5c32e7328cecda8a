"""A checker of tokens that hangs, and one that cannot take calls for a moment."""

from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream

from sunk_hook_gateway import token_checker
from sunk_hook_gateway.adapters import user_tokens
from sunk_hook_gateway.adapters.user_tokens import UserTokens
from sunk_runtime.errors import TransientError
from sunk_runtime.testing import until
from sunk_slurm.tokens import KeyTokens

pytestmark = pytest.mark.anyio


async def test_a_checker_that_hangs_is_left_alone_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_tokens, "WITHIN_S", 1.0)
    monkeypatch.setattr(user_tokens, "REST_S", 3600.0)
    users, came = UserTokens(tmp_path / "socket"), list[ByteStream]()

    async def hang(stream: ByteStream) -> None:
        async with stream:
            came.append(stream)
            await anyio.sleep_forever()

    listener = await anyio.create_unix_listener(tmp_path / "socket")
    async with listener, anyio.create_task_group() as all_:
        all_.start_soon(listener.serve, hang)
        with pytest.raises(TransientError, match="does not answer"):
            await users.user("token")
        for _ in range(3):
            with pytest.raises(TransientError, match="a moment ago"):
                await users.user("token")
        await until(lambda: bool(came))  # It may be taken later than the caller has given up.
        all_.cancel_scope.cancel()

    assert len(came) == 1


async def test_a_checker_goes_on_after_it_could_take_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_checker, "PAUSE_S", 0.01)
    socket, key_file = tmp_path / "socket", tmp_path / "key"
    key_file.write_bytes(b"k" * 32)
    real, failing = anyio.create_unix_listener, [OSError("in use"), anyio.BrokenResourceError()]

    async def listen(path: Path, *, mode: int) -> object:
        if failing:
            raise ExceptionGroup("as of a task group", [failing.pop()])
        return await real(path, mode=mode)

    async def is_answered() -> bool:
        try:
            return await users.user(KeyTokens(key_file, user="ada").current()) == "ada"
        except TransientError:  # Its socket is there a moment before it listens.
            return False

    users = UserTokens(socket)
    monkeypatch.setattr(anyio, "create_unix_listener", listen)
    async with anyio.create_task_group() as all_:
        all_.start_soon(token_checker.serve, key_file, socket)
        await until(is_answered)
        all_.cancel_scope.cancel()

    assert failing == []

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from sunk_lab.errors import GivenUpError, LabError
from sunk_lab.processes import Processes, run, start_time, wait_for

STUBBORN = ("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")


@pytest.fixture
def processes(tmp_path: Path) -> Generator[Processes]:
    started = Processes(tmp_path)
    yield started
    for name in started.names():
        started.kill(name, signal.SIGKILL)


def test_a_process_is_started_once_and_found_by_another_run(processes: Processes) -> None:
    first = processes.spawn("sleeper", ["sleep", "60"])

    second = processes.spawn("sleeper", ["sleep", "60"])

    assert (second, Processes(processes.folder).pid_of("sleeper")) == (first, first)


def test_a_process_is_the_program_itself_with_its_arguments_untouched(processes: Processes) -> None:
    pid = processes.spawn("odd", ["sh", "-c", "while :; do sleep 1; done", "a b", "$HOME", "*"])

    assert Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[3:6] == [b"a b", b"$HOME", b"*"]


def test_a_process_leads_a_session_of_its_own_so_that_ctrl_c_spares_it(processes: Processes) -> None:
    pid = processes.spawn("sleeper", ["sleep", "60"])

    assert os.getsid(pid) == pid


def test_a_killed_process_is_gone_with_its_pid_file_and_killing_it_again_is_harmless(
    processes: Processes,
) -> None:
    pid = processes.spawn("sleeper", ["sleep", "60"])

    assert processes.kill("sleeper")
    assert not processes.kill("sleeper")
    assert (start_time(pid), processes.names()) == (None, [])


def test_a_process_that_ignores_sigterm_is_killed_in_the_end(processes: Processes) -> None:
    pid = processes.spawn("stubborn", STUBBORN)

    assert processes.kill("stubborn", patience_s=0.2)
    assert start_time(pid) is None


def test_a_pid_that_was_given_to_somebody_else_is_not_killed(processes: Processes) -> None:
    somebody = processes.spawn("somebody", ["sleep", "60"])
    (processes.folder / "run" / "ours.pid").write_text(f"{somebody} 1 self\n")

    assert not processes.kill("ours")
    assert processes.pid_of("somebody") == somebody


def test_a_program_that_is_missing_is_an_error_that_names_the_log(processes: Processes) -> None:
    with pytest.raises(LabError, match=r"ghost ended at once with 127, see .*/log/ghost\.log"):
        processes.spawn("ghost", ["/no/such/program"])

    assert "not found" in processes.log_of("ghost").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_behind_a_prefix_that_forks_the_process_is_the_program_not_the_prefix(processes: Processes) -> None:
    unshare = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

    pid = processes.spawn("inner", ["sleep", "60"], prefix=unshare, forks=True)

    assert Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x0060\x00"
    assert processes.kill("inner", signal.SIGKILL)


def test_the_log_keeps_what_both_streams_say_over_restarts(processes: Processes) -> None:
    for word in ("first", "second"):
        processes.spawn("talker", ["sh", "-c", f"echo {word}; echo {word} >&2; sleep 60"])
        wait_for("the talker", lambda word=word: word in processes.log_of("talker").read_text(), pause_s=0.01)
        processes.kill("talker", signal.SIGKILL)

    assert {"first", "second"} <= set(processes.log_of("talker").read_text().split())


def test_a_failed_command_is_quoted_with_its_last_words() -> None:
    with pytest.raises(LabError, match=r"^sh -c 'echo broken >&2; exit 3': exit 3: broken$"):
        run("sh", "-c", "echo broken >&2; exit 3")


def test_a_command_that_takes_too_long_is_ended() -> None:
    with pytest.raises(LabError, match=r"^sleep 60: not done after 0 s$"):
        run("sleep", 60, timeout_s=0.05)


def test_a_command_gets_its_input_and_its_environment() -> None:
    assert run("sh", "-c", 'cat; echo "$WORD"', input="in ", env={"WORD": "env"}) == "in env\n"


def test_waiting_in_vain_tells_for_what_and_the_last_error() -> None:
    def test() -> bool:
        raise LabError("still starting")

    with pytest.raises(LabError, match=r"^waited 0 s in vain for the moon \(last: still starting\)$"):
        wait_for("the moon", test, 0.01, 0.001)


def test_waiting_ends_early_for_what_can_not_come_any_more() -> None:
    def test() -> bool:
        raise GivenUpError("etcd does not run")

    with pytest.raises(GivenUpError, match="etcd does not run"):
        wait_for("the API server", test, 60)


@pytest.mark.parametrize("prefix", [(), ("unshare", "--fork", "--pid")], ids=["alone", "below a prefix"])
def test_a_frozen_process_stands_still_goes_on_when_thawed_and_can_be_killed(
    processes: Processes, prefix: tuple[str, ...]
) -> None:
    if prefix and os.geteuid() != 0:
        pytest.skip("namespaces need root")
    pid = processes.spawn("sleeper", ["sleep", "60"], prefix=prefix, forks=bool(prefix))
    processes.freeze("sleeper")
    wait_for("it to stand still", lambda: _state(pid) == "T", pause_s=0.01)
    processes.thaw("sleeper")
    wait_for("it to go on", lambda: _state(pid) == "S", pause_s=0.01)
    processes.freeze("sleeper")

    assert processes.kill("sleeper", signal.SIGKILL)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

"""The lab's command line: real servers up and down, and ways to look at them.

`_kube` says what a lab is made of; every command goes through it.
"""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from sunk_lab import nats_image, service_images
from sunk_lab.config import LabConfig, from_environment
from sunk_lab.errors import LabError
from sunk_lab.installation import Installation, install
from sunk_lab.kube.existing import Kube, kube_of
from sunk_lab.kube.lab import KubeLab, check_machine
from sunk_lab.processes import environment
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.roots import image_of, root_of
from sunk_lab.stack.stack import Stack
from sunk_lab.story.demo import demo
from sunk_lab.story.opening import FirstSlurm
from sunk_lab.story.telling import Narrator

Command = Callable[[LabConfig, argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command; return the exit status."""
    arguments = _parser().parse_args(argv)
    command: Command = arguments.command
    try:
        return command(from_environment(), arguments)
    except LabError as error:
        _report(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sunk_lab", description="Real servers on one machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, text: str) -> argparse.ArgumentParser:
        found = commands.add_parser(name, help=text, description=text)
        found.set_defaults(command=command)
        return found

    prepare = add("prepare", _prepare, "build programs and images that the lab needs, once")
    prepare.add_argument(
        "--services", action="store_true", help="the images of the services too, made again after each change"
    )
    up = add("up", _up, "start what does not run: NATS, Kubernetes, Slurm, the services")
    up.add_argument("--kube", action="store_true", help="Kubernetes alone")
    up.add_argument("--nodes", type=int, default=4, help="with --kube: how many nodes")
    add("down", _down, "end and remove everything of this lab")
    demo = add("demo", _demo, "tell the story on the whole stack")
    demo.add_argument("--keep", action="store_true", help="leave everything running")
    cluster = add("cluster", _cluster, "both charts, installed on the lab's Kubernetes by Helm")
    cluster.add_argument("action", choices=("up", "down"))
    cluster.add_argument("--values", type=Path, help="with up: a file with further values of helm/slurm")
    add("status", _status, "what runs, with pid and memory")
    add("logs", _logs, "the end of a log; without a name, which there are").add_argument("name", nargs="?")
    text = "a shell with kubectl set up; with a node's name, on that node"
    add("shell", _shell, text).add_argument("node", nargs="?")
    add("env", _env, "shell variables, to be evaluated")
    add("load", _load, "import image archives into every node").add_argument("archive", type=Path, nargs="+")
    node = add("node", _node, "break a node, or repair it")
    node.add_argument("action", choices=("start", "stop", "kill", "cut", "join"))
    node.add_argument("name")
    return parser


def _kube(config: LabConfig) -> Kube:
    return kube_of(config, _report)


def _stack(config: LabConfig) -> Stack:
    return Stack(config, report=_report)


def _first(config: LabConfig) -> FirstSlurm:
    return FirstSlurm(config.slurm, config.folder / "opening", cache=config.cache, report=_report)


def _prepare(config: LabConfig, arguments: argparse.Namespace) -> int:
    try:
        check_machine()
    except LabError as error:
        _report(f"the lab cannot run here, its tests will be skipped: {error}")
        return 0
    _stack(config).prepare()
    for release in RELEASES:
        image_of(release, config.cache, _report)
        root_of(release, config.cache, _report, has_accounting=True)
    service_images.prepare(config.cache, _report)
    if arguments.services:  # Else the first test that installs a chart makes them, in its time.
        service_images.archive_of(service_images.SERVICES, config.cache, _report)
    nats_image.archive_of(config.cache)
    return 0


def _up(config: LabConfig, arguments: argparse.Namespace) -> int:
    if arguments.kube or config.kubeconfig is not None:
        _kube(config).up(nodes=arguments.nodes)
        return _env(config, arguments)
    stack = _stack(config)
    stack.up()
    for line in stack.how_to_look_around():
        _write(line)
    return 0


def _down(config: LabConfig, _: argparse.Namespace) -> int:
    if config.kubeconfig is None:
        _first(config).down()
        _stack(config).down()
    return 0


def _cluster(config: LabConfig, arguments: argparse.Namespace) -> int:
    lab = KubeLab(config.number, folder=config.folder / "kube", cache=config.cache, report=_report)
    if arguments.action == "down":
        return _down(config, arguments)
    if config.kubeconfig is not None:
        raise LabError("cluster up installs on the lab's own Kubernetes; docs/install.md tells how on others")
    if _stack(config).status():
        raise LabError("this lab runs the story's services: ./task lab:down first, or set SUNK_LAB_NUMBER")
    made = Installation(lab, more=values_of(arguments.values))
    install(made, config.cache, _report)
    for line in made.how_to_look_around():
        _write(line)
    return 0


def values_of(path: Path | None) -> dict[str, Any]:
    """Return the values of a chart that the file *path* has; none without a file.

    Raises:
        LabError: It cannot be read, or has something else; names it.
    """
    if path is None:
        return {}
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise LabError(f"cannot read values from {path}: {error}") from error
    if not isinstance(found, dict):
        raise LabError(f"{path} has no values: it must be a YAML mapping, as for helm --values")
    return cast("dict[str, Any]", found)


def _demo(config: LabConfig, arguments: argparse.Namespace) -> int:
    check_machine()
    return demo(_stack(config), _first(config), Narrator(_write), keep=arguments.keep)


def _status(config: LabConfig, _: argparse.Namespace) -> int:
    kube = _kube(config)
    rows = kube.status() + ([] if config.kubeconfig else _stack(config).status())
    for row in rows:
        _write(f"{row.name:<28}{row.pid or 'ended':>8}{row.memory_mib:>6} MiB")
    if rows:
        _write(f"{'together':<28}{'':>8}{sum(row.memory_mib for row in rows):>6} MiB")
    _write(kube.kubectl("get", "nodes", "-o", "wide").rstrip())
    return 0


def _logs(config: LabConfig, arguments: argparse.Namespace) -> int:
    logs = {path.stem: path for path in sorted(config.folder.glob("*/log/*.log"))}
    if arguments.name is None:
        for path in logs.values():
            _write(str(path))
        return 0
    if arguments.name not in logs:
        raise LabError(f"no log {arguments.name}: there are {' '.join(logs) or 'none'}")
    return _interactive("tail", "-n", "200", str(logs[arguments.name]))


def _shell(config: LabConfig, arguments: argparse.Namespace) -> int:
    kube = _kube(config)
    prefix = kube.shell(arguments.node) if arguments.node else ()
    return _interactive("env", *_variables(kube), *prefix, "bash")


def _env(config: LabConfig, _: argparse.Namespace) -> int:
    variables = [*_variables(_kube(config)), *_bus_variables(config)]
    _write(f"export {' '.join(map(_quoted, variables))}")
    return 0


def _load(config: LabConfig, arguments: argparse.Namespace) -> int:
    _kube(config).load(*arguments.archive)
    return 0


def _node(config: LabConfig, arguments: argparse.Namespace) -> int:
    kube = _kube(config)
    action = {
        "start": kube.start_node,
        "stop": kube.stop_kubelet,
        "kill": kube.kill_node,
        "cut": kube.cut_node,
        "join": kube.join_node,
    }[arguments.action]
    action(arguments.name)
    return 0


def _variables(kube: Kube) -> list[str]:
    variables = [f"KUBECONFIG={kube.kubeconfig}"]
    if isinstance(kube, KubeLab):
        variables.append(f"PATH={kube.programs}:{environment(None).get('PATH', '')}")
    return variables


def _bus_variables(config: LabConfig) -> list[str]:
    """Return where this lab's NATS is, by the name that NATS' own tools read; nothing where it never ran."""
    if config.kubeconfig is not None:
        return []
    try:
        return [f"NATS_URL={_stack(config).nats_url_of('admin')}"]
    except LabError:
        return []


def _quoted(variable: str) -> str:
    name, _, value = variable.partition("=")
    return f"{name}={shlex.quote(value)}"


def _interactive(*argv: str) -> int:
    return subprocess.run(argv, check=False).returncode


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()

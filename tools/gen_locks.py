"""Writes `docs/locks.md` and its drawing: the lock's state machine, from the tables that it runs on.

``--check`` as in `gen_schemas.py`.
"""

import sys
from pathlib import Path
from typing import Final

from drawings import START, Change, ladder
from generated import settle

from sunk_events import subjects
from sunk_events.base import Event
from sunk_nodeset_controller.locks.events import KINDS, NAMES
from sunk_nodeset_controller.locks.machine import STEPS
from sunk_nodeset_controller.locks.model import Step

PAGE: Final = Path("docs/locks.md")
PICTURE: Final = Path("docs/pictures/lock.svg")
STATES: Final = (START, "false", "pending", "locked", "locked_strict")
"""Values of the lock, in the order of the drawing."""
HEAD: Final = """# The lock of a Node

`./task gen` writes this page from the table that the nodeset-controller runs on; do not edit it by hand.
Code and reasons: [machine.py](../services/nodeset-controller/src/sunk_nodeset_controller/locks/machine.py).

A Slurm job starts on a Node only after the Node is *locked* for it. The lock is an annotation and a
`NoExecute` taint: Kubernetes places no other Pods there, and the Pods that are there have to leave. A job
that a Node is locked for is a *holder* of the lock.

## What happens next

The nodeset-controller looks at two things, and the table gives the next step.

Which jobs need the lock:

- `none`: no job needs it.
- `lingering`: no job has needed it since a moment ago.
- `drained`: no job needs it, but a failed lock has drained the node for Pods that may still be there.
- `held`: every holder has the lock.
- `waited for`: one or more holders wait for it.

What is on the Node: neither annotation nor taint (`off`), one without the other (`broken`), or both (`on`).

| needed | on the Node | step | what it does |
|---|---|---|---|
"""
DRAWN: Final = """
After `LOOK`, when the Pods on the Node are known, the step is `SETTLE`: {settle}. For a `drained` node the
nodeset-controller lists the Pods before it does anything else.

## Which Pods may stay

A Pod that tolerates the taint for good may stay and does not block the lock, also with `operator: Exists` and
no key. With the effect `NoSchedule`, the nodeset-controller evicts the other Pods, and three more kinds may
stay: Pods of exempt namespaces, Pods of exempt priority classes, and daemons.

- A Pod is a daemon if the DaemonSet that it names as its controller exists, with that uid, in the Pod's
  namespace. If the nodeset-controller cannot find out whether that DaemonSet exists, the Pod blocks the lock
  and is not evicted.
- A static Pod counts as a daemon: its kubelet shows it as a mirror Pod.

Any tenant can make a Pod that may stay, unless an admission policy of the chart refuses it. By default that
policy only warns: [security.md](security.md#who-may-stay-on-a-locked-node).

## Which Pods a job may run next to

A Pod that Slurm placed does not block a lock while its own placeholder job lives on the node. Before the
nodeset-controller grants the lock to another job there, it asks the syncer whether that placeholder job
runs (`ConfirmJobs`):

- The syncer answers from a list of jobs that it requests from slurmctld after the question. The bus is not
  enough: what the bus says of a job may be as old as the syncer has been away.
- The syncer also looks at each of these jobs. If slurmctld has lost a job, another job may have its number
  by now; the moment of submission shows that.
- A job whose own prolog asks at that moment, before its Pod has come, needs no such answer. The
  nodeset-controller also asks nothing while other Pods block the lock anyway.
- Without an answer the Pod blocks the lock, and the nodeset-controller asks again a second later. The
  deadline of the prolog applies, as for any Pod that blocks.
- A syncer of an earlier version answers `ConfirmNode` and does not know this question. The
  nodeset-controller then uses what the bus says. A syncer that knows no moments of submission recognises
  jobs by number.

## What the bus receives

`false` is no lock. Each change of the lock is a fact. `pending` is on the Node before every lock, but the bus
receives `pending` only if other workloads have to leave first.

- `locked`: no Pod that has to leave can still run.
- `locked_strict`, for placeholder jobs: no Pod that has to leave is bound to the Node any more. Its kubelet
  then admits the placeholder's Pod.

![State diagram of the lock. The table below has the same changes.](pictures/lock.svg)

| from | to | fact | subject |
|---|---|---|---|
"""


def changes() -> tuple[Change, ...]:
    """Return what leads from one value of the lock to another.

    Raises:
        SystemExit: A value is missing in `STATES`; names it.
    """
    if wrong := {value for pair in KINDS for value in pair} ^ set(STATES[1:]):
        raise SystemExit(f"tools/gen_locks.py: these values of the lock are new, or no more: {wrong}")
    listed = (Change(before, after, NAMES[kind]) for (before, after), kind in KINDS.items())
    return (Change(START, "false", "a Node with a NodeSet Pod"), *listed)


def pages() -> dict[Path, str]:
    """Return the page and its drawing."""
    rows = "".join(
        f"| {need} | {stand} | `{step.name}` | {step.value} |\n" for (need, stand), step in STEPS.items()
    )
    facts = "".join(
        f"| `{before}` | `{after}` | `{NAMES[kind]}` | `{_subject(kind)}` |\n"
        for (before, after), kind in KINDS.items()
    )
    text = HEAD + rows + DRAWN.format(settle=Step.SETTLE.value) + facts
    return {PAGE: text, PICTURE: ladder("The lock of a Node", STATES, changes())}


def _subject(kind: type[Event]) -> str:
    return subjects.facts("CLUSTER", kind).replace("CLUSTER", "{cluster}")


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    return settle(pages(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

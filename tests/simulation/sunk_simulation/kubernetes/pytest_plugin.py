# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Runs tests that were written for the lab's Kubernetes against the model, in virtual time.

``pytest -p sunk_simulation.kubernetes.pytest_plugin``: the fixture ``kube_lab`` is the model then. So a
contract of both is one suite.
"""

from pathlib import Path
from typing import Any, Final

import pytest

from sunk_simulation.kubernetes.model import KUBECONFIG, ModelKubernetes
from sunk_simulation.simulation import Simulation
from sunk_simulation.testing import give, world

pytest_plugins = ["sunk_simulation.pytest_plugin"]


class KubeLab:
    """The model behind the face of `sunk_lab.kube.lab.KubeLab`."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig: Final = kubeconfig
        self.model: ModelKubernetes | None = None
        """That of the test that runs."""

    def stop_kubelet(self, name: str) -> None:
        """End a Node's kubelet; its containers run on."""
        assert self.model is not None
        self.model.kubelet_process(name).kill()

    def start_node(self, name: str) -> None:
        """Start a Node whose kubelet does not run."""
        assert self.model is not None
        self.model.start_kubelet(name)


def _begin(sim: Simulation) -> None:
    _lab.model = model = ModelKubernetes(sim.loop, sim.trace, sim.random("kubernetes"))
    model.changed = sim.changed
    model.start()
    for number in (1, 2, 3):
        model.add_node(f"node{number}")
    sim.run(sim.sleep(1.0))  # They are ready then.


_lab: Final = KubeLab(KUBECONFIG)
world.at_start.append(_begin)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> object:
    """Have the lab be the model."""
    return give(fixturedef, request, "kube_lab", _lab)

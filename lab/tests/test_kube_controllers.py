"""Controllers of other projects: what is changed of their manifests, and what they are configured with."""

from dataclasses import replace
from pathlib import Path

import pytest

from sunk_lab.kube.controllers import ALL, JOBSET, KUEUE, LEADER_WORKER_SET, at_url, configuration, key

URL = "https://10.201.0.1:9441"
SERVICE = {"service": {"name": "webhook-service", "namespace": "system", "path": "/mutate--v1-pod"}}


def test_a_webhook_is_asked_at_a_url_with_the_authority_of_its_controller() -> None:
    webhook = {"name": "mpod.kb.io", "clientConfig": SERVICE, "failurePolicy": "Fail"}
    found = at_url({"kind": "MutatingWebhookConfiguration", "webhooks": [webhook]}, URL, "Q0E=")

    assert found["webhooks"] == [
        {
            "name": "mpod.kb.io",
            "clientConfig": {"url": f"{URL}/mutate--v1-pod", "caBundle": "Q0E="},
            "failurePolicy": "Fail",
        }
    ]


def test_a_resource_of_several_versions_is_converted_at_a_url_and_others_stay_as_they_are() -> None:
    spec = {"group": "kueue.x-k8s.io"}
    plain = {"kind": "CustomResourceDefinition", "spec": spec}
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"path": "/convert"}}}}
    found = at_url({**plain, "spec": {**spec, "conversion": conversion}}, URL, "Q0E=")

    assert at_url(plain, URL, "Q0E=") == plain
    assert found["spec"] == {
        "group": "kueue.x-k8s.io",
        "conversion": {
            "strategy": "Webhook",
            "webhook": {"clientConfig": {"url": f"{URL}/convert", "caBundle": "Q0E="}},
        },
    }


def test_a_controller_listens_on_the_labs_bridge_only_and_elects_no_leader() -> None:
    assert configuration(LEADER_WORKER_SET, "10.201.0.1", Path("/home")) == {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "webhook": {"host": "10.201.0.1", "port": 9443, "certDir": "/home"},
        "health": {"healthProbeBindAddress": "10.201.0.1:9444"},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }
    assert configuration(KUEUE, "h", Path("/home"))["integrations"] == {
        "frameworks": ["jobset.x-k8s.io/jobset"]
    }


def test_a_controller_is_compiled_anew_for_another_module_and_not_for_another_configuration() -> None:
    assert key(replace(JOBSET, settings={}, port=1)) == key(JOBSET)
    assert key(replace(JOBSET, digest="h1:another")) != key(JOBSET)


@pytest.mark.parametrize("what", ["name", "module", "port"])
def test_no_two_controllers_share(what: str) -> None:
    assert len({getattr(one, what) for one in ALL}) == len(ALL)

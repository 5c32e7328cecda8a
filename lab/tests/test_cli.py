from pathlib import Path

import pytest

from sunk_lab.cli import main, values_of
from sunk_lab.config import LabConfig, from_environment
from sunk_lab.errors import LabError
from sunk_lab.installation import merged


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("SUNK_LAB_NUMBER", "SUNK_LAB_KUBE", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SUNK_LAB_CACHE", str(tmp_path))
    return tmp_path


def test_without_settings_it_is_lab_0_below_the_users_cache() -> None:
    found = from_environment({"XDG_CACHE_HOME": "/caches"})

    assert (found, found.folder) == (
        LabConfig(cache=Path("/caches/sunk-lab")),
        Path("/caches/sunk-lab/labs/0"),
    )


def test_kubeconfig_alone_does_not_make_the_lab_use_that_cluster(tmp_path: Path) -> None:
    assert from_environment({"KUBECONFIG": str(tmp_path)}).kubeconfig is None


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        pytest.param(
            {"SUNK_LAB_NUMBER": "10"}, "SUNK_LAB_NUMBER must be a number from 0 to 9", id="number too big"
        ),
        pytest.param(
            {"SUNK_LAB_NUMBER": ""}, "SUNK_LAB_NUMBER must be a number from 0 to 9", id="empty number"
        ),
        pytest.param({"SUNK_LAB_KUBE": "other"}, "SUNK_LAB_KUBE must be own or existing", id="unknown kind"),
        pytest.param({"SUNK_LAB_SEEDS": "0"}, "from 1, not '0'", id="seeds"),
        pytest.param({"SUNK_LAB_SLURM": "9.9"}, "no Slurm 9.9 here: there are 24.11, 26.05", id="Slurm"),
        pytest.param({"SUNK_LAB_KUBE": "existing"}, "needs KUBECONFIG", id="existing without kubeconfig"),
        pytest.param(
            {"SUNK_LAB_KUBE": "existing", "KUBECONFIG": "/no/file"},
            "names no file: /no/file",
            id="no such file",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(environment: dict[str, str], sentence: str) -> None:
    with pytest.raises(LabError, match=sentence):
        from_environment(environment)


def test_an_error_is_one_line_and_status_1(nothing_set: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "kill", "node1"]) == 1
    assert capsys.readouterr().err == "error: lab 0 is down: bring it up first\n"
    assert not (nothing_set / "labs").exists()


@pytest.mark.usefixtures("nothing_set")
def test_down_without_a_lab_is_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["down"]), capsys.readouterr().err) == (0, "")


def test_the_variables_can_be_evaluated_by_a_shell(
    nothing_set: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["env"]) == 0
    assert capsys.readouterr().out.startswith(f"export KUBECONFIG={nothing_set}/labs/0/kube/kubeconfig PATH=")


def test_nodes_of_an_existing_cluster_are_never_broken(
    nothing_set: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = nothing_set / "config"
    config.touch()
    monkeypatch.setenv("SUNK_LAB_KUBE", "existing")
    monkeypatch.setenv("KUBECONFIG", str(config))

    assert (main(["node", "kill", "node1"]), main(["down"])) == (1, 0)
    assert capsys.readouterr().err == (
        "error: killing node1 needs the lab's own Kubernetes: unset SUNK_LAB_KUBE\n"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [("a: [", "cannot read values from"), ("- a\n", "has no values: it must be a YAML mapping")],
    ids=["no YAML", "a list"],
)
def test_a_file_of_values_that_is_none_is_named(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(text)

    with pytest.raises(LabError, match=problem):
        values_of(file)


def test_values_of_a_user_go_before_those_of_the_lab_key_by_key(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("compute: {partitions: all, nodes: {cpu: {slurm: {cpus: 2}}}}\nusers: []\n")
    before = {
        "compute": {"nodes": {"cpu": {"slurm": {"cpus": 4, "memory": 4000}}}},
        "users": [{"name": "ada"}],
    }

    assert merged(before, values_of(file)) == {
        "compute": {"partitions": "all", "nodes": {"cpu": {"slurm": {"cpus": 2, "memory": 4000}}}},
        "users": [],
    }
    assert merged(before, values_of(None)) == before

from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from sunk_runtime.config import load, read_table
from sunk_runtime.errors import ConfigError


class Config(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str
    resync_s: Annotated[float, Meta(gt=0)] = 300.0
    port: int = 8080
    is_strict: bool = False
    namespaces: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    token_file: Path | None = None
    folder: Path = Path("/tmp")  # noqa: S108 - a default, nothing is written


def loaded(**env: str) -> Config:
    return load(Config, {"PATH": "/bin", **env}, "SUNK_X_")


def test_what_is_not_set_has_its_default() -> None:
    assert loaded(SUNK_X_CLUSTER="c1") == Config(cluster="c1")


def test_numbers_flags_paths_and_lists_are_read_from_text() -> None:
    config = loaded(
        SUNK_X_CLUSTER="c1",
        SUNK_X_RESYNC_S="1.5",
        SUNK_X_PORT="0",
        SUNK_X_IS_STRICT="true",
        SUNK_X_NAMESPACES="a, b,",
        SUNK_X_PORTS="1,2",
        SUNK_X_TOKEN_FILE="/run/token",  # noqa: S106 - a path, no secret
        SUNK_X_FOLDER="/srv",
    )

    assert config == Config(
        cluster="c1",
        resync_s=1.5,
        port=0,
        is_strict=True,
        namespaces=("a", "b"),
        ports=(1, 2),
        token_file=Path("/run/token"),
        folder=Path("/srv"),
    )


def test_a_list_of_one_needs_no_comma() -> None:
    assert loaded(SUNK_X_CLUSTER="c1", SUNK_X_NAMESPACES="a").namespaces == ("a",)


def test_an_empty_variable_is_as_if_it_were_not_set() -> None:
    assert loaded(SUNK_X_CLUSTER="c1", SUNK_X_PORT="").port == 8080


def test_other_services_variables_are_no_business_of_ours() -> None:
    assert loaded(SUNK_X_CLUSTER="c1", SUNK_Y_PORT="no number").port == 8080


@pytest.mark.parametrize(
    ("env", "words"),
    [
        pytest.param({"SUNK_X_CLUSTR": "c1"}, ["SUNK_X_CLUSTR", "known: SUNK_X_CLUSTER"], id="a typo"),
        pytest.param({}, ["SUNK_X_CLUSTER is missing"], id="missing"),
        pytest.param({"SUNK_X_CLUSTER": ""}, ["SUNK_X_CLUSTER is missing"], id="empty"),
        pytest.param(
            {"SUNK_X_CLUSTER": "c1", "SUNK_X_RESYNC_S": "-1"},
            ["SUNK_X_RESYNC_S='-1'", "> 0"],
            id="not allowed",
        ),
        pytest.param(
            {"SUNK_X_CLUSTER": "c1", "SUNK_X_PORT": "http"}, ["SUNK_X_PORT='http'", "int"], id="no number"
        ),
        pytest.param(
            {"SUNK_X_CLUSTER": "c1", "SUNK_X_IS_STRICT": "maybe"},
            ["SUNK_X_IS_STRICT='maybe'", "bool"],
            id="no flag",
        ),
        pytest.param(
            {"SUNK_X_CLUSTER": "c1", "SUNK_X_PORTS": "1,x"}, ["SUNK_X_PORTS='1,x'", "int"], id="one of a list"
        ),
        pytest.param(
            {"SUNK_X_PORT": "x", "SUNK_X_RESYNC_S": "y"},
            ["SUNK_X_CLUSTER is missing", "SUNK_X_PORT", "SUNK_X_RESYNC_S"],
            id="all at once",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(env: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(**env)

    assert [word for word in words if word not in str(raised.value)] == []
    assert "\n" not in str(raised.value)


class Table(msgspec.Struct, frozen=True):
    types: dict[str, str]


def test_a_table_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "gpus.json"
    file.write_text('{"types":{"H100":"h100"}}')

    assert read_table(file, Table) == Table({"H100": "h100"})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(None, "No such file", id="missing"),
        pytest.param("{", "malformed|truncated", id="no JSON"),
        pytest.param('{"types":{"H100":7}}', r"\$\.types", id="a wrong field"),
        pytest.param("{}", "`types`", id="a missing field"),
    ],
)
def test_a_table_that_cannot_be_read_names_its_file_and_the_field(
    tmp_path: Path, content: str | None, why: str
) -> None:
    file = tmp_path / "gpus.json"
    if content is not None:
        file.write_text(content)

    with pytest.raises(ConfigError, match=why) as raised:
        read_table(file, Table)

    assert str(file) in str(raised.value)

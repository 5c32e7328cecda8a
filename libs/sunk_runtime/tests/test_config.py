from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from sunk_runtime.config import duration_s, load, read_table
from sunk_runtime.errors import ConfigError


class Config(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str
    resync_s: Annotated[float, Meta(gt=0)] = 300.0
    port: int = 8080
    is_strict: bool = False
    namespaces: tuple[str, ...] = ()
    uids: tuple[int, ...] = ()
    token_file: Path | None = None
    replicas: Literal[1, 3] = 1
    mode: Literal["all", "none"] = "all"
    wait_s: Annotated[int, Meta(ge=2)] | None = None
    traces_endpoint: str = ""
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
        SUNK_X_UIDS="1,2",
        SUNK_X_TOKEN_FILE="/run/token",  # noqa: S106 - a path, no secret
        SUNK_X_FOLDER="/srv",
    )

    assert config == Config(
        cluster="c1",
        resync_s=1.5,
        port=0,
        is_strict=True,
        namespaces=("a", "b"),
        uids=(1, 2),
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
            {"SUNK_X_CLUSTER": "c1", "SUNK_X_UIDS": "1,x"}, ["SUNK_X_UIDS='1,x'", "int"], id="one of a list"
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


def told(*arguments: str, **env: str) -> Config:
    return load(Config, {"SUNK_X_CLUSTER": "c1", **env}, "SUNK_X_", arguments)


def test_an_argument_wins_over_its_variable() -> None:
    assert told("--port", "1", SUNK_X_PORT="2").port == 1


def test_arguments_are_written_as_the_documents_have_them() -> None:
    config = told("--namespace=a", "--namespace", "b", "--resync=1m30s", "--is-strict", "--token-file", "/t")

    assert config.namespaces == ("a", "b")
    assert (config.resync_s, config.is_strict, config.token_file) == (90.0, True, Path("/t"))


def test_a_list_beside_one_of_it_keeps_its_whole_name() -> None:
    class Both(msgspec.Struct, frozen=True):
        namespace: str = ""
        namespaces: tuple[str, ...] = ()

    assert load(Both, {}, "SUNK_X_", ["--namespace=a", "--namespaces=b,c"]) == Both("a", ("b", "c"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--colour=red"], r"unknown arguments: --colour; known: .*--resync", id="unknown"),
        pytest.param(["red"], "unknown arguments: red", id="no argument"),
        pytest.param(["--resync"], "--resync needs a value", id="without its value"),
        pytest.param(["--resync", "--port=1"], "--resync needs a value", id="another instead of its value"),
        pytest.param(["--resync=soon"], r"--resync='soon': .*such as 30s", id="no duration"),
        pytest.param(["--resync=nan"], r"--resync='nan'", id="not a number"),
        pytest.param(["--is-strict=maybe"], "--is-strict='maybe'", id="no flag"),
        pytest.param(["--port=x", "--resync=-1", "--red"], "--red.*--resync.*--port", id="all at once"),
    ],
)
def test_a_wrong_argument_is_named_with_what_is_allowed(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        told(*arguments)


def test_one_error_names_what_is_wrong_with_arguments_variables_and_what_is_missing() -> None:
    with pytest.raises(ConfigError) as raised:
        load(Config, {"SUNK_X_TYPO": "1", "SUNK_X_PORT": "x"}, "SUNK_X_", ["--red"])

    words = ["SUNK_X_TYPO", "SUNK_X_PORT='x'", "--red", "SUNK_X_CLUSTER is missing"]
    assert [word for word in words if word not in str(raised.value)] == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("1m", 60),
        ("45", 45),
        ("1h0m1.5s", 3601.5),
        ("500ms", 0.5),
        ("0.25", 0.25),
        ("1e3", 1000),
    ],
)
def test_a_duration_is_read_as_kubernetes_writes_it(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


def test_a_duration_of_whole_seconds_fits_a_setting_of_whole_seconds() -> None:
    assert loaded(SUNK_X_CLUSTER="c1", SUNK_X_WAIT_S="1m").wait_s == 60
    with pytest.raises(ConfigError, match=r"SUNK_X_WAIT_S='2.5s'"):
        loaded(SUNK_X_CLUSTER="c1", SUNK_X_WAIT_S="2.5s")


def test_one_of_few_numbers_or_words_is_read_and_another_is_named() -> None:
    config = loaded(SUNK_X_CLUSTER="c1", SUNK_X_REPLICAS="3", SUNK_X_MODE="none")
    assert (config.replicas, config.mode) == (3, "none")

    for name, value in (("SUNK_X_REPLICAS", "2"), ("SUNK_X_MODE", "some")):
        with pytest.raises(ConfigError, match=f"{name}='{value}'"):
            loaded(SUNK_X_CLUSTER="c1", **{name: value})


def test_a_standard_variable_counts_where_ours_is_not_set() -> None:
    standard = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://theirs"}

    assert loaded(SUNK_X_CLUSTER="c1", **standard).traces_endpoint == "http://theirs"
    ours = loaded(SUNK_X_CLUSTER="c1", SUNK_X_TRACES_ENDPOINT="http://ours", **standard)
    assert ours.traces_endpoint == "http://ours"


def test_a_variable_in_other_letters_is_a_typo() -> None:
    with pytest.raises(ConfigError, match="SUNK_X_Port"):
        loaded(SUNK_X_CLUSTER="c1", SUNK_X_Port="1")


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
        pytest.param(b'{"types":{"\xff":"h100"}}', "(?i)utf-8|unicode|malformed", id="no text"),
    ],
)
def test_a_table_that_cannot_be_read_names_its_file_and_the_field(
    tmp_path: Path, content: str | bytes | None, why: str
) -> None:
    file = tmp_path / "gpus.json"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    with pytest.raises(ConfigError, match=why) as raised:
        read_table(file, Table)

    assert str(file) in str(raised.value)

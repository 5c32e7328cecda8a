"""Pages whose commands a test runs: which commands those are, and whether they print what the page shows."""

import pytest

from sunk_lab.pages import Step, steps


def test_each_block_of_commands_is_a_step_with_what_the_page_shows_below_it() -> None:
    commands = "# A\n\n```sh\none\ntwo\n```\n\nText.\n\n```sh\nthree\n```\n"
    page = f"{commands}\n```text\nA  B\n```\n\n```yaml\na: 1\n```\n"

    assert steps(page) == [Step("one\ntwo\n"), Step("three\n", "A  B\n")]


def test_what_no_command_prints_is_an_error() -> None:
    with pytest.raises(ValueError, match="no commands print this: A"):
        steps("```sh\none\n```\n\n```text\nB\n```\n\n```text\nA\n```\n")


@pytest.mark.parametrize(
    ("shown", "printed", "found"),
    [
        ("NAME STATE\ncpu-... idle\n", "NAME         STATE\ncpu-000-012  idle \n", True),
        ("cpu-... idle\n", "cpu-000-012 idle\ncpu-000-013 idle\n", False),
        ("REASON\nk8s: cordon...\n", "REASON\nk8s: cordon\n", True),
        ("True\n", "False\n", False),
        ("a.c\n", "abc\n", False),
    ],
)
def test_dots_stand_for_text_of_one_line_and_columns_may_be_wider(
    shown: str, printed: str, *, found: bool
) -> None:
    assert Step("", shown).is_shown(printed) is found

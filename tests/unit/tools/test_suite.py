"""`make test` runs every test once, goes on after a part that failed, and ends with its exit status."""

from collections.abc import Sequence

import pytest

from tools.suite import ALONE, main, parts, run_parts


class Runs:
    """What pytest was asked, and the exit statuses that it gives one after another."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.asked: list[Sequence[str]] = []

    def __call__(self, arguments: Sequence[str]) -> int:
        self.asked.append(arguments)
        return self.statuses.pop(0)


@pytest.mark.parametrize(
    ("statuses", "asked", "expected"),
    [
        pytest.param((0, 0, 0), 3, 0, id="all passed"),
        pytest.param((0, 5, 0), 3, 0, id="a part without tests has not failed"),
        pytest.param((1, 0, 4), 3, 1, id="a part that failed does not keep the others from running"),
        pytest.param((0, 0, 3), 3, 3, id="the last one counts as well"),
        pytest.param((0, 2), 2, 2, id="after an interrupt nothing is begun"),
        pytest.param((1, 2), 2, 1, id="a failure is told though it was interrupted later"),
    ],
)
def test_the_exit_status_is_that_of_the_first_part_that_failed(
    capsys: pytest.CaptureFixture[str], statuses: tuple[int, ...], asked: int, expected: int
) -> None:
    run = Runs(*statuses)
    assert run_parts(parts(2), run) == expected
    assert len(run.asked) == asked
    told = capsys.readouterr().out
    assert told.count("passed") == sum(status in (0, 5) for status in statuses)
    assert told.count("FAILED") == sum(status not in (0, 5) for status in statuses)
    assert f"part {asked} of 3" in told


def test_every_test_is_in_exactly_one_part() -> None:
    unit, contract, alone = (part.arguments for part in parts(2))
    marks = " or ".join(ALONE)
    assert unit == ("tests/unit", "-n", "2", "--dist", "loadfile")
    assert contract[:4] == ("tests", "--ignore=tests/unit", "-m", f"not ({marks})")
    assert alone == ("tests", "--ignore=tests/unit", "-m", marks)


@pytest.mark.parametrize(
    ("arguments", "status"), [(("--version",), 0), (("--no-such-option",), 4)], ids=["good", "refused"]
)
def test_with_arguments_it_is_pytest(arguments: Sequence[str], status: int) -> None:
    assert main(arguments) == status

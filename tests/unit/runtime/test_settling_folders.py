"""A model's folder is taken when it has changed and has been quiet since, and not before."""

import os
from pathlib import Path

import pytest

from mcp2026.runtime.errors import ModelLoadError
from mcp2026.runtime.model.file_state import FileState
from mcp2026.runtime.repository_watch import folders
from mcp2026.runtime.repository_watch.folders import look_at
from mcp2026.runtime.repository_watch.settling import FolderState, Settling

QUIET = 1.0


def state(*files: tuple[str, int], passing: tuple[tuple[str, int], ...] = ()) -> FolderState:
    """Return a folder with files of these names and sizes."""
    made, under_way = (
        frozenset(FileState(name, 1, 1, size, 1) for name, size in names) for names in (files, passing)
    )
    return FolderState(made, under_way)


ONE = state(("1/model.onnx", 10))
MORE = state(("1/model.onnx", 10), ("2/model.onnx", 5))
COPIED = state(("1/model.onnx", 10), passing=((".model.onnx.part", 3),))


@pytest.mark.parametrize(
    ("looks", "taken"),
    [
        pytest.param([(0.0, ONE), (0.75, ONE), (1.0, ONE), (5.0, ONE)], {1.0: ["m"]}, id="new"),
        pytest.param([(0.0, ONE), (0.75, MORE), (1.5, MORE), (1.75, MORE)], {1.75: ["m"]}, id="still copied"),
        pytest.param([(0.0, COPIED), (0.75, ONE), (1.0, ONE), (1.75, ONE)], {1.75: ["m"]}, id="renamed"),
        pytest.param([(0.0, ONE), (1.0, ONE), (2.0, COPIED), (4.0, COPIED)], {1.0: ["m"]}, id="leftover"),
        pytest.param([(0.0, ONE), (1.0, ONE), (2.0, None), (3.0, None)], {1.0: ["m"], 3.0: ["m"]}, id="gone"),
        pytest.param(
            [(0.0, ONE), (1.0, ONE), (2.0, None), (2.5, ONE), (4.0, ONE)], {1.0: ["m"]}, id="gone and back"
        ),
        pytest.param(
            [(0.0, ONE), (1.0, ONE), (2.0, None), (2.25, MORE), (3.25, MORE)],
            {1.0: ["m"], 3.25: ["m"]},
            id="replaced by two renames",
        ),
        pytest.param([(0.0, ONE), (0.5, None), (2.0, None)], {}, id="never taken"),
    ],
)
def test_a_folder_is_taken_once_it_is_quiet(
    looks: list[tuple[float, FolderState | None]], taken: dict[float, list[str]]
) -> None:
    settling = Settling(QUIET)
    seen = {}
    for now, found in looks:
        if due := settling.look({} if found is None else {"m": found}, now):
            seen[now] = due
        for name in due:
            assert settling.take(name) == found
    assert seen == taken


def test_the_next_look_is_when_a_folder_may_be_quiet() -> None:
    settling = Settling(QUIET)
    assert settling.next_look(0.0) is None
    settling.look({"m": ONE}, 0.0)
    assert settling.next_look(0.25) == 0.75
    settling.look({"m": ONE}, 1.0)
    settling.take("m")
    assert settling.next_look(1.0) is None


def test_all_are_taken_at_the_start_whatever_moves() -> None:
    settling = Settling(QUIET)
    assert settling.take_all({"b": ONE, "a": COPIED}, 0.0) == ["a", "b"]
    assert settling.look({"b": ONE, "a": COPIED}, 9.0) == []


def write(path: Path, content: bytes = b"x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_links_are_followed_and_a_moved_link_is_a_change(tmp_path: Path) -> None:
    for number, content in enumerate((b"old", b"new")):
        write(tmp_path / f"..{number}" / "m" / "1" / "model.onnx", content)
    (tmp_path / "..data").symlink_to("..0")
    (tmp_path / "m").symlink_to("..data/m")
    before = look_at(tmp_path, ())
    (tmp_path / "..next").symlink_to("..1")
    (tmp_path / "..next").rename(tmp_path / "..data")
    after = look_at(tmp_path, ())
    assert before.keys() == after.keys() == {"m"}
    assert before != after


def test_a_link_that_leads_back_is_walked_once(tmp_path: Path) -> None:
    write(tmp_path / "m" / "1" / "model.onnx")
    (tmp_path / "m" / "1" / "loop").symlink_to("..", target_is_directory=True)
    (tmp_path / "m" / "dangling").symlink_to("nowhere")
    assert len(look_at(tmp_path, ())["m"].files) < 4


@pytest.mark.parametrize("place", ["1/odd", "odd", "1/.odd"])
def test_a_file_that_cannot_be_looked_at_hides_no_model(tmp_path: Path, place: str) -> None:
    write(tmp_path / "other" / "1" / "model.onnx")
    write(tmp_path / "m" / "1" / "model.onnx")
    odd = tmp_path / "m" / place
    odd.symlink_to(odd.name)  # a link to itself
    found = look_at(tmp_path, ())
    assert found.keys() == {"m", "other"}
    assert len(found["m"].files | found["m"].passing) == 2
    odd.unlink()
    odd.symlink_to("model.onnx")
    assert look_at(tmp_path, ())["m"] != found["m"]


def test_no_folder_is_walked_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_FILES", 10)
    for number in range(30):
        write(tmp_path / "files" / "1" / f"{number}")
        write(tmp_path / "copies" / "1" / f".{number}")
        write(tmp_path / "folders" / "1" / f"{number}" / "file")
    found = look_at(tmp_path, ())
    assert found.keys() == {"files", "copies", "folders"}
    assert all(len(one.files) + len(one.passing) <= 20 for one in found.values())
    assert found == look_at(tmp_path, ())


def test_a_name_that_is_no_text_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "m" / "1" / "model.onnx")
    write(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")) / "1" / "model.onnx")
    assert look_at(tmp_path, ()).keys() == {"m"}


def test_what_is_no_model_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / ".hidden" / "1" / "model.onnx")
    write(tmp_path / "notes" / "readme")
    write(tmp_path / "config" / "config.pbtxt")
    write(tmp_path / "m" / "1" / ".model.onnx.part")
    assert look_at(tmp_path, ()).keys() == {"config", "m"}
    assert len(look_at(tmp_path, ())["m"].passing) == 1
    monkeypatch.setattr(folders, "MOST_FILES", 0)
    assert look_at(tmp_path, ()).keys() == {"config", "m"}


def test_a_repository_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no such folder"):
        look_at(tmp_path / "none", ())

"""A cache key changes with what it stands for, and half-written results never appear."""

import contextlib
from pathlib import Path

import pytest

from tools.cluster.cache import cache_folder, content_key, folder_contents, replacing
from tools.cluster.errors import ClusterError
from tools.cluster.go_programs import (
    PROGRAMS,
    linker_flags,
    module_version,
    program_key,
    program_path,
)
from tools.cluster.levels import PROGRAMS as PROGRAMS_OF_LEVEL
from tools.cluster.toolchain import printed_version, required_version

GO_MOD = """\
module m

go 1.24.0

require k8s.io/kubernetes v1.34.4

require (
	k8s.io/api v0.34.4 // indirect
)
"""


def test_the_order_of_parts_does_not_matter() -> None:
    assert content_key({"a": b"1", "b": b"2"}) == content_key({"b": b"2", "a": b"1"})


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"a": b"1", "b": b"3"}, id="another content"),
        pytest.param({"a": b"1", "c": b"2"}, id="another name"),
        pytest.param({"a": b"1"}, id="a part left out"),
        pytest.param({"a": b"1b2"}, id="one part that reads like two"),
    ],
)
def test_any_change_gives_another_key(other: dict[str, bytes]) -> None:
    assert content_key({"a": b"1", "b": b"2"}) != content_key(other)


def test_a_folder_is_told_by_names_contents_modes_and_links(tmp_path: Path) -> None:
    file = tmp_path / "inner" / "file"
    file.parent.mkdir()
    file.write_text("one")
    (tmp_path / "link").symlink_to("inner/file")
    first = content_key(folder_contents(tmp_path))
    assert first == content_key(folder_contents(tmp_path))
    file.chmod(0o755)
    second = content_key(folder_contents(tmp_path))
    file.write_text("two")
    third = content_key(folder_contents(tmp_path))
    assert len({first, second, third}) == 3


def test_a_result_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "result"
    with contextlib.suppress(FileNotFoundError), replacing(target) as temporary:
        temporary.write_text("half")
        (tmp_path / "none").read_text()
    assert list(target.parent.iterdir()) == []
    with replacing(target) as temporary:
        temporary.write_text("whole")
    assert target.read_text() == "whole"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({"MCP2026_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"), ({"XDG_CACHE_HOME": "/b"}, "/b/mcp2026")],
)
def test_the_cache_lies_where_the_environment_says(environment: dict[str, str], expected: str) -> None:
    assert cache_folder(environment) == Path(expected)


def test_a_program_is_built_anew_when_its_version_changes() -> None:
    kubelet = PROGRAMS["kubelet"]
    files = {"go.mod": GO_MOD.encode(), "go.sum": b""}
    newer = files | {"go.mod": GO_MOD.replace("v1.34.4", "v1.34.5").encode()}
    keys = {
        program_key(kubelet, *rest) for rest in ((files, "x86_64"), (newer, "x86_64"), (files, "aarch64"))
    }
    assert len(keys) == 3


def test_a_program_prints_the_version_of_its_module() -> None:
    assert module_version(GO_MOD, "k8s.io/kubernetes") == "v1.34.4"
    assert "version.gitVersion=v1.34.4" in linker_flags(PROGRAMS["kubelet"], GO_MOD)
    assert "gitMinor=34" in linker_flags(PROGRAMS["kubelet"], GO_MOD)


def test_every_program_of_a_level_can_be_built() -> None:
    for names in PROGRAMS_OF_LEVEL.values():
        for name in names:
            assert program_path(name).name == name


def test_an_unknown_program_is_refused_with_those_there_are() -> None:
    with pytest.raises(ClusterError, match=r"no program 'kubeadm'.*kube-apiserver"):
        program_path("kubeadm")


def test_the_toolchain_must_be_as_new_as_the_module_asks() -> None:
    assert required_version(GO_MOD) == (1, 24, 0)
    assert printed_version("go version go1.26.8 linux/amd64") == (1, 26, 8)
    assert printed_version("go version go1.27rc1 linux/amd64") == (1, 27, 0)
    assert printed_version("command not found") is None

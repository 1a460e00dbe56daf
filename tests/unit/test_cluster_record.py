"""What a run made is written down so that exactly that can be removed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.cluster.errors import ClusterError
from tools.cluster.ports import PORTS, choose
from tools.cluster.processes import end, identify, is_alive, of_run, parse_stat, start
from tools.cluster.record import ProcessIdentity, Record, boot_id, checked_name, load, records, state_folder
from tools.cluster.removal import is_remain, mounts_under, remove

MOUNTINFO = """\
1 0 254:0 / / rw - ext4 /dev/vda rw
2 1 254:0 /a /var/lib/kubelet rw shared:1 - ext4 /dev/vda rw
3 2 0:40 / /var/lib/kubelet/pods/x/with\\040space rw - tmpfs tmpfs rw
4 1 0:41 / /var/lib/kubelet-other rw - tmpfs tmpfs rw
"""


def new_record(folder: Path, **given: object) -> Record:
    folder.mkdir(parents=True, exist_ok=True)
    content = {"name": folder.name, "level": "control-plane", "folder": str(folder), "boot_id": boot_id()}
    return Record(**{**content, **given})  # type: ignore[arg-type]


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    record = new_record(tmp_path / "one", owner=ProcessIdentity(1, 2), mounts=["/x"], sysctls={"a.b": "1"})
    record.save()
    assert load(record.path) == record
    assert list(records(tmp_path)) == [record]


@pytest.mark.parametrize("name", ["", "Upper", "-a", "a-", "a/b", "..", "a" * 33])
def test_a_name_that_is_no_good_for_paths_is_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="1 to 32 characters"):
        checked_name(name)


def test_the_state_lies_where_the_environment_says() -> None:
    assert state_folder({"MCP2026_STATE": "/a"}) == Path("/a")


def test_a_process_is_told_from_a_later_one_with_its_id() -> None:
    own = identify(os.getpid())
    assert own is not None
    assert is_alive(own)
    assert not is_alive(ProcessIdentity(own.pid, own.start_ticks + 1))


def test_the_state_and_start_are_read_past_a_name_with_brackets() -> None:
    fields = ["S", *map(str, range(4, 22)), "12345", "23"]
    assert parse_stat(f"7 (a) b (c) {' '.join(fields)}") == ("S", 12345)


def test_a_process_with_another_start_is_not_ended(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        identity = identify(process.pid)
        assert identity is not None
        end([ProcessIdentity(identity.pid, identity.start_ticks - 1)])
        assert is_alive(identity)
        end([identity])
        assert not is_alive(identity)


def test_what_a_program_starts_is_found_and_ended_with_the_run(tmp_path: Path) -> None:
    record = new_record(tmp_path / "run")
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import signal; signal.pause()'])"
    started = start(record, "parent", [sys.executable, "-c", script])
    while len(of_run(record.run_id)) < 2:
        assert is_alive(started.identity)
    os.kill(started.identity.pid, signal.SIGSTOP)
    remove(load(record.path))
    assert of_run(record.run_id) == []
    assert not (tmp_path / "run").exists()


def test_taking_down_twice_does_no_harm(tmp_path: Path) -> None:
    record = new_record(tmp_path / "run")
    record.save()
    remove(record)
    remove(record)


def test_only_links_into_the_run_are_removed(tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    record = new_record(tmp_path / "run", link_folders=[str(links)])
    (links / "ours").symlink_to(tmp_path / "run" / "log")
    (links / "theirs").symlink_to(tmp_path / "run-other" / "log")
    remove(record)
    assert [entry.name for entry in links.iterdir()] == ["theirs"]


def test_a_run_is_a_remain_when_its_owner_or_the_machines_start_is_gone(tmp_path: Path) -> None:
    alive = identify(os.getpid())
    assert alive is not None
    gone = ProcessIdentity(alive.pid, alive.start_ticks + 1)
    assert not is_remain(new_record(tmp_path / "run", owner=alive))
    assert not is_remain(new_record(tmp_path / "run", owner=None))
    assert is_remain(new_record(tmp_path / "run", owner=gone))
    assert is_remain(new_record(tmp_path / "run", owner=alive, boot_id="another"))


def test_mounts_are_listed_from_the_innermost_and_none_of_a_neighbour() -> None:
    expected = ["/var/lib/kubelet/pods/x/with space", "/var/lib/kubelet"]
    assert mounts_under("/var/lib/kubelet", MOUNTINFO) == expected


def test_ports_of_other_runs_and_of_listeners_are_passed_over() -> None:
    first = PORTS.start
    assert choose(2, {first, first + 2}, lambda port: port != first + 1) == [first + 3, first + 4]
    with pytest.raises(ClusterError, match="no free port"):
        choose(1, set(), lambda _: False)

"""Answers of the driver that need no driver to be understood: bus ids, texts, numbers, names of profiles."""

from pathlib import Path

import pytest

from mcp2026.device_plugin.adapters.nvml import normal_bus_id, numa_node_from_sysfs
from mcp2026.device_plugin.adapters.nvml.calls import number_between, printable
from mcp2026.device_plugin.adapters.nvml.mig import marketed_gb
from mcp2026.device_plugin.errors import NvmlError


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        pytest.param("0000:3b:00.0", "00000000:3B:00.0", id="a short domain in lower case"),
        pytest.param("00000010:29:00.0", "00000010:29:00.0", id="a domain that is not zero"),
        pytest.param("10000:E1:00.0", "00010000:E1:00.0", id="a domain of five digits"),
    ],
)
def test_bus_ids_get_domains_of_eight_digits(given: str, normal: str) -> None:
    assert normal_bus_id(given) == normal


@pytest.mark.parametrize(
    "given", ["", "not-a-bus", "0000:zz:00.0", "0000:3b", "000000000:3b:00.0", "0000:3b:00.8", "-1:3b:00.0"]
)
def test_a_bus_id_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(NvmlError, match="PCI bus id that cannot be read"):
        normal_bus_id(given)


@pytest.mark.parametrize(
    ("content", "node"),
    [
        pytest.param("1\n", 1, id="a node"),
        pytest.param("-1\n", None, id="a kernel that knows no node"),
        pytest.param(None, None, id="no such device"),
    ],
)
def test_sysfs_tells_the_numa_node(content: str | None, node: int | None, tmp_path: Path) -> None:
    device = tmp_path / "bus/pci/devices/0010:3b:00.0"
    device.mkdir(parents=True)
    if content is not None:
        (device / "numa_node").write_text(content)
    assert numa_node_from_sysfs(tmp_path, "00000010:3B:00.0") == node


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("NVIDIA L40S", "NVIDIA L40S"),
        (b"NVIDIA L40S ", "NVIDIA L40S"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("a\nb\x00", "a\ufffdb\ufffd"),
        ("", ""),
    ],
)
def test_texts_are_made_printable(given: str | bytes, text: str) -> None:
    assert printable(given) == text


@pytest.mark.parametrize(
    ("value", "known"), [(0, 0), (100, 100), (-1, None), (101, None), (None, None), (float("nan"), None)]
)
def test_numbers_that_cannot_be_true_are_unknown(value: object, known: int | None) -> None:
    assert number_between(value, 0, 100) == known


@pytest.mark.parametrize(
    ("memory_mib", "total_mib", "gb"),
    [
        (4864, 40960, 5),
        (9856, 40960, 10),
        (19968, 40960, 20),
        (40192, 40960, 40),
        (9856, 81920, 10),
        (19968, 81920, 20),
        (40192, 81920, 40),
        (80384, 81920, 80),
        (80384, 81559, 80),
        (5952, 24576, 6),
        (143771 // 2, 143771, 71),
        (4864, 0, 5),
    ],
)
def test_profiles_are_named_in_eighths_of_the_board(memory_mib: int, total_mib: int, gb: int) -> None:
    assert marketed_gb(memory_mib, total_mib) == gb

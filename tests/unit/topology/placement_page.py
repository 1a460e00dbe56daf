"""The part of docs/placement.md that tells what the scorer chooses on each fixture, and why.

`python -m tests.unit.topology.placement_page` writes it; a test compares.
"""

from pathlib import Path

from mcp2026.cli.topology_table import ranges
from mcp2026.topology.explanation import Explanation, explain
from mcp2026.topology.machine import machine_from_file
from mcp2026.topology.snapshot import PlacementSnapshot

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "placement.md"
TOPOLOGIES = ROOT / "tests" / "topologies"
BEGIN = "<!-- choices: written by python -m tests.unit.topology.placement_page -->\n"
END = "<!-- end of choices -->\n"

WHAT_IS_SEEN = {
    "1xgh200": "One GPU: there is no choice.",
    "1xt4-edge": "One GPU whose NUMA node is not told: that changes nothing.",
    "4xa100-pcie-half-bridged": "0 and 1 are bridged, 2 and 3 are not: one GPU is not of the bridged pair.",
    "4xa100-pcie-nvlink-pairs": "Two bridged pairs, all alike.",
    "4xgb200-nvl72-tray": "All on NVSwitches: links are equal, the NUMA node decides.",
    "4xl40s-pcie-2socket": "No NVLink: two GPUs of one socket.",
    "8xa100-pcie-nv12-pairs-all-sys": "Bridged pairs are 0+2, 1+3, 4+5, 6+7; all else goes between sockets.",
    "8xl40s-pcie-2socket": "Pairs behind one PCIe switch first, then one socket.",
    "8xrtx4090-pcie-all-sys": "All pairs are equally slow: the NUMA node decides.",
    "8xt4-pcie-2socket": "Pairs behind one PCIe switch first, then one socket.",
    "dgx-1v-8xv100": "A cube mesh of single and double links: a double link, then four all linked.",
    "dgx-2-16xv100": "16 on NVSwitches in two NUMA nodes.",
    "dgx-a100-8xa100": "Eight on NVSwitches in four NUMA nodes of two GPUs.",
    "hgx-b200-8gpu-one-off-fabric": "GPU 2 is off the fabric: taken for one, not among several.",
    "hgx-h100-8gpu": "Eight on NVSwitches in two NUMA nodes.",
}

PARTLY_FREE = (
    ("4xa100-pcie-half-bridged", (0, 1, 3), 1, "the pair stays whole"),
    ("4xa100-pcie-nvlink-pairs", (0, 2, 3), 1, "1 is taken: 0 has no partner any more"),
    ("8xa100-pcie-nv12-pairs-all-sys", (0, 1, 4, 5, 6), 3, "a bridged pair and a neighbour on its socket"),
    ("8xa100-pcie-nv12-pairs-all-sys", (0, 1, 2, 4, 6), 2, "the only pair that is whole"),
    ("8xrtx4090-pcie-all-sys", (3, 4, 5), 2, "one NUMA node"),
    ("dgx-1v-8xv100", (0, 1, 5), 2, "a double link between sockets before a single one inside"),
    ("hgx-b200-8gpu-one-off-fabric", (0, 1, 2), 2, "not the one off the fabric"),
)


def choices() -> str:
    """Return the tables in Markdown."""
    lines = [
        "All GPUs free, by how many are asked for:",
        "",
        "| machine | chosen | decided by |",
        "|---|---|---|",
    ]
    for path in sorted(TOPOLOGIES.glob("*.yaml")):
        machine = machine_from_file(path)
        everything = tuple(range(len(machine.gpus)))
        chosen, why = [], []
        for size in (1, 2, 4, 8):
            if size < len(everything) or size == len(everything) == 1:
                asked = PlacementSnapshot(machine, everything, size)
                found = explain(asked)
                chosen.append(f"{size}: {ranges(asked.indices(found.choice.gpus))}")
                why.append(f"{size}: {_because(asked, found)}")
        lines.append(
            f"| **{path.stem}**. {WHAT_IS_SEEN[path.stem]} | {'<br>'.join(chosen)} | {'<br>'.join(why)} |"
        )
    lines += [
        "",
        "Some GPUs free:",
        "",
        "| machine | free | asked | chosen | decided by | that is |",
        "|---|---|---|---|---|---|",
    ]
    for name, free, size, meaning in PARTLY_FREE:
        machine = machine_from_file(TOPOLOGIES / f"{name}.yaml")
        asked = PlacementSnapshot(machine, free, size)
        found = explain(asked)
        offered, gpus = ranges(asked.indices(free)), ranges(asked.indices(found.choice.gpus))
        lines.append(f"| {name} | {offered} | {size} | {gpus} | {_because(asked, found)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _because(asked: PlacementSnapshot, found: Explanation) -> str:
    if found.runner_up_score is None:
        return "all sets are equal, lowest indices" if found.equals else "no other set"
    values = {term.name: (term.value, term.unit) for term in found.choice.score.terms}
    lost = {term.name: term.value for term in found.runner_up_score.terms}
    won, unit = values[found.decided_by]
    against = ranges(asked.indices(found.runner_up))
    equals = f", lowest of {found.equals + 1} equal" if found.equals else ""
    return (
        f"`{found.decided_by}` {won} against {lost[found.decided_by]} {unit}".rstrip()
        + f" ({against}){equals}"
    )


def with_choices(page: str) -> str:
    """Return `page` with the part between the marks written anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{choices()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_choices(PAGE.read_text()))

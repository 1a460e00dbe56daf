"""The figures of a run beside what is asked of them. Pure."""

from collections.abc import Sequence

import msgspec

from bench.machine import Machine
from bench.scheduling.figures import percentile

VERBS_MS, OWN_FIGURE_MS, RATE, MEMORY_MIB, COLD_START_S = 10.0, 25.0, 200.0, 600.0, 15.0
AS_WITHOUT = 0.95
"""Of the lower of the two rates without an extender: what is less counts as slower."""


class Times(msgspec.Struct, frozen=True):
    """Of one pod: whether it asks for whole GPUs, how many nodes fitted, how long the answers took, in ms."""

    whole: bool
    fitting: int
    filter_ms: float
    prioritize_ms: float

    @property
    def both_ms(self) -> float:
        """Of both verbs."""
        return self.filter_ms + self.prioritize_ms


class Replayed(msgspec.Struct, frozen=True):
    """What the replay of a phase's events showed."""

    pods: int
    lost: int
    doubles: int
    wrong: int
    moved: int
    problems: list[str] = []


class Attempted(msgspec.Struct, frozen=True):
    """kube-scheduler's own figures of its attempts, in ms: see `scheduler_metrics`."""

    count: float = 0.0
    mean_ms: float = 0.0
    outside_plugins_ms: float = 0.0
    p50_at_most_ms: float = 0.0
    p99_at_most_ms: float = 0.0


class Figures(msgspec.Struct):
    """What a run has measured so far."""

    machine: Machine
    commit: str
    command: str
    nodes: int
    pods: int
    kills: int
    cold_start_s: float | None = None
    alone_per_s: list[float] = []
    """Of kube-scheduler without an extender, before and after the run with one."""
    per_s: float | None = None
    times: list[Times] = []
    asked_again: int = 0
    """Pods that kube-scheduler asked about more than once."""
    alone: Attempted = Attempted()
    attempted: Attempted = Attempted()
    memory_mib: float | None = None
    memory_over_kills_mib: float | None = None
    replayed: Replayed | None = None
    replayed_over_kills: Replayed | None = None
    restarts_s: list[float] = []
    load: dict[str, float] = {}
    """Load averages by phase."""
    processor_share: dict[str, float] = {}
    """Cores that each program used while pods were scheduled with the extender."""
    watch_breaks: int = 0


class Row(msgspec.Struct, frozen=True):
    """A line of the table. `met` None: nothing is asked."""

    what: str
    seen: str
    asked: str = ""
    met: bool | None = None


def rows(figures: Figures) -> list[Row]:
    """Return the lines of what was measured."""
    found: list[Row] = []
    if figures.times:
        found += _verbs(figures.times)
    if figures.attempted.count:
        found += _own_figure(figures)
    if figures.per_s is not None and figures.alone_per_s:
        found += _rates(figures.per_s, figures.alone_per_s)
    if figures.memory_mib is not None:
        most = max(figures.memory_mib, figures.memory_over_kills_mib or 0.0)
        seen = f"{most:.0f} MiB"
        found.append(
            Row("memory of the extender, peak", seen, f"below {MEMORY_MIB:.0f} MiB", most < MEMORY_MIB)
        )
    if figures.cold_start_s is not None:
        met = figures.cold_start_s < COLD_START_S
        found.append(
            Row("start to ready", f"{figures.cold_start_s:.1f} s", f"below {COLD_START_S:.0f} s", met)
        )
    if figures.restarts_s:
        seen = f"{min(figures.restarts_s):.1f} to {max(figures.restarts_s):.1f} s"
        found.append(Row("the same while pods are scheduled", seen))
    if figures.replayed is not None:
        found += _replayed(figures.replayed, "")
    if figures.replayed_over_kills is not None:
        found += _replayed(figures.replayed_over_kills, f" over {figures.kills} kills")
    return found


def _verbs(times: Sequence[Times]) -> list[Row]:
    whole = [each for each in times if each.whole]
    together = [each.both_ms for each in times]
    p99 = percentile(together, 0.99)
    seen = ", ".join(f"{percentile(together, part):.1f}" for part in (0.5, 0.9))
    filters = percentile([each.filter_ms for each in times], 0.99)
    priorities = percentile([each.prioritize_ms for each in times], 0.99)
    return [
        Row(
            "filter and prioritize at the webhook, p99",
            f"{p99:.1f} ms",
            f"below {VERBS_MS:.0f} ms",
            p99 < VERBS_MS,
        ),
        Row("p50 and p90 of that", f"{seen} ms"),
        Row("p99 of filter alone, of prioritize alone", f"{filters:.1f}, {priorities:.1f} ms"),
        Row(
            "p99 of pods with whole GPUs",
            f"{percentile([each.both_ms for each in whole], 0.99):.1f} ms",
        ),
        Row("nodes that fitted, median", f"{percentile([each.fitting for each in times], 0.5):,.0f}"),
    ]


def _own_figure(figures: Figures) -> list[Row]:
    ours, alone = figures.attempted, figures.alone
    calls = ours.outside_plugins_ms - alone.outside_plugins_ms
    return [
        Row(
            "kube-scheduler's time for its calls, mean",
            f"{calls:.1f} ms",
            f"aim: below {OWN_FIGURE_MS:.0f} ms",
            calls < OWN_FIGURE_MS,
        ),
        Row("its attempts whole, mean with and without", f"{ours.mean_ms:.1f}, {alone.mean_ms:.1f} ms"),
        Row(
            "p50, p99 of its attempts with, at most",
            f"{ours.p50_at_most_ms:.0f}, {ours.p99_at_most_ms:.0f} ms",
        ),
        Row(
            "p50, p99 of its attempts without, at most",
            f"{alone.p50_at_most_ms:.0f}, {alone.p99_at_most_ms:.0f} ms",
        ),
    ]


def _rates(rate: float, alone: Sequence[float]) -> list[Row]:
    least = min(alone)
    enough = min(RATE, AS_WITHOUT * least)
    asked = f"{RATE:.0f}/s, or as alone: {enough:.0f}/s"
    met = rate >= enough
    seen = ", ".join(f"{each:.0f}" for each in alone)
    return [
        Row("pods scheduled with the extender", f"{rate:.0f}/s", asked, met),
        Row("by kube-scheduler alone, before and after", f"{seen}/s"),
    ]


def _replayed(replayed: Replayed, when: str) -> list[Row]:
    twice = replayed.doubles + replayed.wrong + replayed.moved
    return [
        Row(f"GPUs given away twice or wrongly{when}", str(twice), "0", twice == 0),
        Row(f"pods never bound{when}", f"{replayed.lost} of {replayed.pods:,}", "0", replayed.lost == 0),
    ]


def table(figures: Figures) -> str:
    """Return the table in Markdown, with where and how it was measured."""
    machine = figures.machine
    size = f"{figures.nodes:,} nodes of 8 GPUs, {figures.pods:,} pods, all nodes scored"
    place = f"{machine.processor}, {machine.cores} cores, {machine.memory_gib} GiB, Linux {machine.kernel}"
    lines = [
        f"{size}, commit {figures.commit}: `{figures.command}`",
        f"{place}, {machine.date} UTC, load average at the start {machine.load}.",
        "",
        "| | measured | asked | |",
        "|---|---|---|---|",
    ]
    verdict = {True: "met", False: "**missed**", None: ""}
    lines += [f"| {row.what} | {row.seen} | {row.asked} | {verdict[row.met]} |" for row in rows(figures)]
    if figures.processor_share:
        shares = sorted(figures.processor_share.items(), key=lambda item: -item[1])
        told = ", ".join(f"{name} {share:.2f}" for name, share in shares if share >= 0.005)
        lines += ["", f"Cores used while pods were scheduled with the extender: {told}."]
    if figures.load:
        told = ", ".join(f"{phase} {load:.1f}" for phase, load in figures.load.items())
        lines += [f"Load averages: {told}."]
    for replayed in (figures.replayed, figures.replayed_over_kills):
        lines += [f"- {problem}" for problem in (replayed.problems if replayed else ())]
    return "\n".join(lines)


def all_met(figures: Figures) -> bool:
    """Tell whether no pod was lost and no GPU given twice; other bars depend on the machine."""
    replays = (figures.replayed, figures.replayed_over_kills)
    return not any(each.lost or each.doubles or each.wrong or each.moved for each in replays if each)

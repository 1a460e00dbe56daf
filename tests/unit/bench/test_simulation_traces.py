"""Jobs from a description or a CSV file; what is wrong in either is named."""

import json
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.errors import BenchError
from bench.simulation.comparison import shipped_scenarios
from bench.simulation.jobs import Job
from bench.simulation.traces import read_csv, read_description, synthetic

DESCRIPTION = """\
machines: {4xa100-pcie-nvlink-pairs: 2}
jobs: 40
load: 0.5
sizes: {1: 50, 2: 50}
duration: {median_s: 100, sigma: 0.5}
serving: {percent: 50, collective_share: 0.05, slo_slowdown: 1.5}
batch_collective_share: 0.02
"""


@pytest.fixture
def description(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(DESCRIPTION)
    return path


@pytest.mark.parametrize("path", shipped_scenarios(), ids=lambda path: path.stem)
def test_what_is_shipped_can_be_read(path: Path) -> None:
    described = read_description(path)
    jobs = synthetic(described, 128, seed=1)
    assert len(jobs) == described.jobs
    assert [job.arrival_s for job in jobs] == sorted(job.arrival_s for job in jobs)
    assert {job.gpus for job in jobs} == set(described.sizes)


def test_as_much_work_comes_as_the_description_says(description: Path) -> None:
    described = read_description(description)
    jobs = [job for seed in range(200) for job in synthetic(described, 8, seed)]
    gpu_seconds = sum(job.gpus * job.duration_s for job in jobs)
    seconds = sum(synthetic(described, 8, seed)[-1].arrival_s for seed in range(200))
    assert gpu_seconds / (8 * seconds) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize(
    ("line", "instead", "problem"),
    [
        pytest.param("load: 0.5", "load: 0", r"> 0.*\$\.load", id="no load"),
        pytest.param("sizes: {1: 50, 2: 50}", "sizes: {1: 50}", "sizes: the sum is 50", id="shares of 50"),
        pytest.param("load: 0.5", "load: .inf", r"\$\.load", id="an endless load"),
        pytest.param("jobs: 40", "job: 40", "job", id="a field that is not"),
        pytest.param("jobs: 40", "jobs: [", "small.yaml", id="not YAML"),
    ],
)
def test_what_is_wrong_in_a_description_is_named(
    description: Path, line: str, instead: str, problem: str
) -> None:
    description.write_text(DESCRIPTION.replace(line, instead))
    with pytest.raises(BenchError, match=problem):
        read_description(description)


def test_jobs_of_a_csv_file_come_by_arrival(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "name,arrival_s,gpus,duration_s,serving,priority,slo_slowdown\n"
        "late,5.5,2,60,true,10,1.5\n"
        ",1,1,30,,,\n"
    )
    assert read_csv(path) == [
        Job("job-00001", 1.0, 1, 30.0),
        Job("late", 5.5, 2, 60.0, priority=10, serving=True, slo_slowdown=1.5),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("arrival_s,gpus,duration_s\n1,0,5\n", r"trace.csv:2: .*gpus", id="no GPU"),
        pytest.param("arrival_s,gpus,duration_s\n1,1,5\n-1,1,5\n", r"trace.csv:3: .*arrival_s", id="before"),
        pytest.param("arrival_s,gpus,duration_s\ninf,1,5\n", r"trace.csv:2: .*arrival_s", id="never"),
        pytest.param("arrival_s,gpus,duration_s\n1,1,nan\n", r"trace.csv:2: .*duration_s", id="no number"),
        pytest.param("arrival_s,gpus\n1,1\n", "duration_s", id="a column is missing"),
        pytest.param("arrival_s,gpus,duration_s,gpu\n1,1,5,1\n", "gpu", id="a column too many"),
        pytest.param("arrival_s,gpus,duration_s\n1,1,5,1\n", "more cells", id="a cell too many"),
        pytest.param("name,arrival_s,gpus,duration_s\na,1,1,5\na,2,1,5\n", "a is there twice", id="twice"),
        pytest.param("arrival_s,gpus,duration_s\n", "no jobs", id="only a header"),
    ],
)
def test_what_is_wrong_in_a_csv_file_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(BenchError, match=problem):
        read_csv(path)


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    for read in (read_csv, read_description):
        with pytest.raises(BenchError, match=r"none: cannot be read: No such file"):
            read(tmp_path / "none")


def test_the_command_prints_tables_and_writes_json(
    description: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.json"
    arguments = ["--scenario", str(description), "--seeds", "2", "--seconds", "2", "--json", str(output)]
    assert main(["simulate", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "| ours / other | first fit |" in printed
    assert "no GPU was measured" in printed
    written = json.loads(output.read_text())
    assert written["simulated"] is True
    assert len(written["placement"]["small"]["ours"]) == 2
    assert written["mig"]["headline"][0]["MIG, seven slices"]["models"] == 7


def test_the_command_takes_a_trace(
    description: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,gpus,duration_s\n0,4,10\n1,2,10\n2,4,10\n")
    assert main(["simulate", "placement", "--scenario", str(description), "--trace", str(trace)]) == 0
    assert "small" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["nothing"], "PART: nothing; allowed: placement, mig", id="an unknown part"),
        pytest.param(["--trace", "x.csv"], "--trace: needs the machines", id="a trace without machines"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments]) == 1
    assert problem in capsys.readouterr().err

"""Data sets in each format: read in any ranges that go forward, refused by place, written as equal bytes."""

import io
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp2026.runtime.dataset.errors import BatchError, ExecutionFailedError, InputRefusedError
from mcp2026.runtime.dataset.formats.choice import FORMATS, Format, make_sink, open_source
from mcp2026.runtime.dataset.formats.interface import Results
from mcp2026.runtime.dataset.rows import Column, fit, row_form, wanted_columns
from mcp2026.runtime.model.signature import STRING, Signature, TensorSpec

ROWS = 1_000
RANDOM = np.random.default_rng(4)
X = RANDOM.standard_normal((ROWS, 2, 3)).astype(np.float32)
N = np.arange(ROWS, dtype=np.int64)
TEXT = np.array([f"grün {row}" for row in range(ROWS)])

INPUTS = (
    TensorSpec("x", np.dtype(np.float32), (None, 2, 3), "FP32"),
    TensorSpec("n", np.dtype(np.int64), (None,), "INT64"),
    TensorSpec("text", STRING, (None,), "BYTES"),
)
SIGNATURE = Signature(INPUTS, INPUTS, shared=True, ahead=True)


def write(path: Path, kind: str) -> Path:
    arrays = {"x": X, "n": N, "text": TEXT}
    if kind == "npz":
        np.savez(path / "d.npz", **arrays, other=np.zeros(3))
    elif kind == "compressed npz":
        np.savez_compressed(path / "d.npz", **arrays)
    elif kind == "jsonl":
        rows = zip(X.tolist(), N.tolist(), TEXT.tolist(), strict=True)
        lines = [json.dumps({"n": n, "label": 1, "x": x, "text": text}) for x, n, text in rows]
        (path / "d.jsonl").write_text("\n".join(lines))
    else:
        columns: dict[str, Any] = {"x": X.tolist(), "n": N, "text": TEXT, "label": N}
        if kind == "flat parquet":
            flat = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 6)
            columns["x"] = flat
        pq.write_table(pa.table(columns), path / "d.parquet", row_group_size=130)
    return next(path.glob("d.*"))


def format_of(path: Path) -> Format:
    return next(name for name in FORMATS if path.suffix == f".{name}")


def read(path: Path, signature: Signature, ranges: list[tuple[int, int]]) -> list[tuple[Column, ...]]:
    source = open_source(format_of(path), path, signature.inputs, path.name)
    try:
        wanted = wanted_columns(signature, row_form(signature, source.rank))
        parts = []
        for first, rows in ranges:
            part = source.read(first, rows, wanted)
            assert (part.first, part.count) == (first, rows)
            parts.append(
                tuple(
                    fit(one, column, first, source.place)
                    for one, column in zip(wanted, part.columns, strict=True)
                )
            )
        return parts
    finally:
        source.close()


KINDS = ["npz", "compressed npz", "jsonl", "parquet", "flat parquet"]


@pytest.fixture(scope="module")
def data_sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: write(tmp_path_factory.mktemp("data"), kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None)
@given(cuts=st.lists(st.integers(0, ROWS), min_size=2, max_size=8, unique=True).map(sorted), data=st.data())
def test_any_ranges_that_go_forward_give_their_rows(
    data_sets: dict[str, Path], kind: str, cuts: list[int], data: st.DataObject
) -> None:
    ranges = [(first, end - first) for first, end in pairwise(cuts)]
    chosen = [one for one in ranges if data.draw(st.booleans())] or ranges[-1:]
    for (first, rows), (x, n, text) in zip(chosen, read(data_sets[kind], SIGNATURE, chosen), strict=True):
        np.testing.assert_array_equal(np.asarray(x), X[first : first + rows])
        np.testing.assert_array_equal(np.asarray(n), N[first : first + rows])
        assert [item.decode() for item in text] == TEXT[first : first + rows].tolist()


def one(name: str, datatype: str, dtype: Any, *dims: int | None) -> Signature:
    spec = TensorSpec(name, np.dtype(dtype), dims, datatype)
    return Signature((spec,), (spec,), shared=True, ahead=True)


FP32 = one("x", "FP32", np.float32, None, 2)


def refusal(path: Path, signature: Signature = FP32, rows: int = 1) -> str:
    with pytest.raises(InputRefusedError) as refused:
        read(path, signature, [(0, rows)])
    return str(refused.value)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"x": [1, 2]}', "{"], "line 2: Input data was truncated. Each line has to be one JSON object"),
        (['{"x": [1, 2]}', ""], None),
        (['{"x": [1, 2]}', "", '{"x": [1, 2]}'], "line 2: it is empty"),
        (["[1, 2]"], "line 1: it is a list"),
        (['{"y": [1, 2]}'], "line 1, input 'x': it is missing. The line's fields are y"),
        (['{"x": [1, 2]}', '{"y": [1, 2]}'], "line 2: Object missing required field `x`"),
        (['{"x": [1, 2]}', '{"x": [1, "2"]}'], "line 2: Expected `float`, got `str` - at `$.x[1]`"),
        (['{"x": [1, 2]}', '{"x": [1, null]}'], "line 2: Expected `float`, got `null` - at `$.x[1]`"),
        (['{"x": [1, 2]}', '{"x": [1, NaN]}'], "line 2: JSON is malformed"),
        (
            ['{"x": [1, 2]}', '{"x": [1, 2, 3]}'],
            "line 2, input 'x': its shape is [3]. A row takes the shape [2]",
        ),
        (['{"x": [1, 1e39]}'], "line 1, input 'x': the value 1e+39 at [1] does not fit float32"),
        (['{"x": [1, 2]}', '{"x": [1, 2], "id": 1}'], "line 2: it has an id, but the first line has none"),
        (['{"x": [1, 2], "id": []}'], "line 1: its id is neither text nor a whole number"),
        (
            ['{"x": [1, 2], "id": 1}', '{"x": [1, 2], "id": "1"}'],
            "line 2: Expected `int`, got `str` - at `$.id`",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, lines: list[str], message: str | None) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(lines))
    if message is None:  # only the end of a line
        assert len(read(path, FP32, [(0, 1)])) == 1
    else:
        assert message in refusal(path, rows=len(lines))


@pytest.mark.parametrize(
    ("signature", "value", "message"),
    [
        (one("x", "UINT8", np.uint8, None), "256", "Expected `int` <= 255 - at `$.x`"),
        (one("x", "UINT64", np.uint64, None), "-1", "Expected `int` >= 0 - at `$.x`"),
        (one("x", "INT64", np.int64, None), "1.5", "Expected `int`, got `float` - at `$.x`"),
        (one("x", "BOOL", np.bool_, None), "1", "Expected `bool`, got `int` - at `$.x`"),
        (one("x", "BYTES", STRING, None), "1", "Expected `str`, got `int` - at `$.x`"),
        (one("x", "FP16", np.float16, None), "70000", "the value 70000.0 at [] does not fit float16"),
        (one("x", "BF16", np.uint16, None), "3.4e38", "the value 3.4e+38 at [] does not fit bfloat16"),
        (one("x", "FP32", np.float32, None, None, None), "[[1, 2], [3]]", "its lists have different lengths"),
    ],
)
def test_a_value_of_another_type_is_named(
    tmp_path: Path, signature: Signature, value: str, message: str
) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text(f'{{"x": {value}}}\n')
    assert message in refusal(path, signature)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 3), np.float32), "row 0 (counted from 0), input 'x': its shape is [3]"),
        (np.zeros((3, 0), np.float32), "its shape is [0]"),
        (np.zeros((3, 2), np.int64), "its type is int64. The input takes float32"),
        (np.zeros((3, 2), np.bool_), "its type is bool"),
        (np.zeros((3, 2), "U1"), "its type is text"),
        (np.array([[0, 0], [0, 1e300]]), "row 1 (counted from 0), input 'x': the value 1e+300 at [1]"),
        (np.float32(1), "it is a single value"),
        (np.zeros((3, 2), np.complex64), "its type is complex64"),
    ],
)
def test_a_bad_array_is_named(tmp_path: Path, array: Any, message: str) -> None:
    np.save(tmp_path / "d.npy", array)
    assert message in refusal(tmp_path / "d.npy", rows=2)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    for suffix in ("npy", "npz", "parquet"):
        (tmp_path / f"d.{suffix}").write_bytes(b"PAR1 this is not it")
        assert "it is no " in refusal(tmp_path / f"d.{suffix}")
    np.save(tmp_path / "d.npy", np.zeros((100, 2), np.float32))
    whole = (tmp_path / "d.npy").read_bytes()
    (tmp_path / "d.npy").write_bytes(whole[:-8])
    assert "truncated" in refusal(tmp_path / "d.npy")
    np.savez_compressed(tmp_path / "d.npz", x=RANDOM.standard_normal((1_000, 2)).astype(np.float32))
    damaged = bytearray((tmp_path / "d.npz").read_bytes())
    damaged[2_000:2_100] = bytes(100)
    (tmp_path / "d.npz").write_bytes(damaged)
    assert "array 'x': it cannot be decompressed" in refusal(tmp_path / "d.npz", rows=1_000)


def test_arrays_of_an_npz_have_to_be_there_and_equally_long(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", y=np.zeros((3, 2)))
    assert "array 'x': it is missing. The file has y" in refusal(tmp_path / "d.npz")
    np.savez(tmp_path / "d.npz", x=X, n=N[:5], text=TEXT)
    assert "different numbers of rows: 'x' has 1000, 'n' has 5" in refusal(tmp_path / "d.npz", SIGNATURE)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[1.0, 2.0], None]), "row 1 (counted from 0), column 'x': it is null"),
        (pa.array([[1.0, 2.0], [None, 1.0]]), "row 1 (counted from 0), column 'x': it is null, holds a null"),
        (pa.array([[1.0, 2.0], [1.0]]), "row 1 (counted from 0), input 'x': its shape is [1]"),
        (pa.array([1.0, 2.0]), "row 0 (counted from 0), input 'x': its shape is []"),
        (pa.array([["a", "b"], ["c", "d"]]), "its type is object"),
    ],
)
def test_a_bad_column_is_named(tmp_path: Path, column: Any, message: str) -> None:
    pq.write_table(pa.table({"x": column}), tmp_path / "d.parquet")
    assert message in refusal(tmp_path / "d.parquet", rows=2)
    pq.write_table(pa.table({"y": column}), tmp_path / "d.parquet")
    assert "column 'x': it is missing. The file has y" in refusal(tmp_path / "d.parquet")


def test_numbers_that_are_none_pass_where_the_format_has_them(tmp_path: Path) -> None:
    values = np.array([[np.nan, np.inf], [1, -np.inf]], np.float32)
    np.save(tmp_path / "d.npy", values)
    pq.write_table(pa.table({"x": list(values)}), tmp_path / "d.parquet")
    for suffix in ("npy", "parquet"):
        ((x,),) = read(tmp_path / f"d.{suffix}", FP32, [(0, 2)])
        np.testing.assert_array_equal(np.asarray(x), values)


@pytest.mark.parametrize("source", [np.int8, np.uint16, np.int64])
def test_whole_numbers_are_converted_if_they_fit(tmp_path: Path, source: Any) -> None:
    signature = one("x", "INT32", np.int32, None)
    np.save(tmp_path / "d.npy", np.array([1, 100], source))
    ((x,),) = read(tmp_path / "d.npy", signature, [(0, 2)])
    assert np.asarray(x).dtype == np.int32
    np.save(tmp_path / "d.npy", np.array([1, 2**40], np.int64))
    assert "row 1 (counted from 0), input 'x': the value 1099511627776" in refusal(
        tmp_path / "d.npy", signature, 2
    )


def test_bfloat16_is_taken_as_floats_and_as_bits(tmp_path: Path) -> None:
    signature = one("x", "BF16", np.uint16, None)
    for values in (np.array([1.0, -2.0], np.float64), np.array([0x3F80, 0xC000], np.uint16)):
        np.save(tmp_path / "d.npy", values)
        ((x,),) = read(tmp_path / "d.npy", signature, [(0, 2)])
        assert np.asarray(x).tolist() == [0x3F80, 0xC000]


COLUMNS: dict[str, Any] = {
    "float": RANDOM.standard_normal((7, 2, 3)).astype(np.float32),
    "half": np.arange(7, dtype=np.float16),
    "big": np.array([2**63, 0, 1, 2, 3, 4, 2**64 - 1], np.uint64),
    "bool": np.arange(14).reshape(7, 2) % 3 == 0,
    "text": np.array([["a", "grün"]] * 6 + [["longer than the others", ""]]),
}


def results(first: int, end: int, names: list[str], ids: bool = False) -> Results:
    columns = []
    for name in names:
        column = COLUMNS[name][first:end]
        if column.dtype.kind == "U":
            texts = np.array([text.encode() for text in column.ravel()], STRING)
            column = texts.reshape(column.shape)
        columns.append(column)
    identities: Any = [f"r{row}" for row in range(first, end)] if ids else None
    return Results(first, end - first, tuple(names), tuple(columns), identities)


def assembled(name: Format, parts: list[Results]) -> bytes:
    sink = make_sink(name, parts[0].names)
    encoded = [sink.encode(part) for part in parts]

    def opened() -> Iterator[Any]:
        return iter([io.BytesIO(part) for part in encoded])

    target = io.BytesIO()
    assert sink.assemble(opened, target) == sum(part.count for part in parts)
    return target.getvalue()


@pytest.mark.parametrize("name", ["npz", "jsonl", "parquet"])
def test_parts_become_one_document_of_all_types(name: Format) -> None:
    names = list(COLUMNS)
    document = assembled(name, [results(0, 3, names), results(3, 6, names), results(6, 7, names)])
    assert document == assembled(name, [results(0, 3, names), results(3, 6, names), results(6, 7, names)])
    if name == "npz":
        read_back: dict[str, Any] = dict(np.load(io.BytesIO(document)))
        assert {key: value.dtype for key, value in read_back.items()} == {
            key: value.dtype for key, value in COLUMNS.items()
        }
    elif name == "jsonl":
        rows = [json.loads(line) for line in document.splitlines()]
        read_back = {key: [row[key] for row in rows] for key in names}
    else:
        read_back = pq.read_table(io.BytesIO(document)).to_pydict()
    for key, column in COLUMNS.items():
        np.testing.assert_array_equal(np.array(read_back[key], column.dtype), column)


@pytest.mark.parametrize("key", COLUMNS)
def test_one_output_becomes_one_array(key: str) -> None:
    document = assembled("npy", [results(0, 5, [key]), results(5, 7, [key])])
    np.testing.assert_array_equal(np.load(io.BytesIO(document)), COLUMNS[key])


@pytest.mark.parametrize("name", ["jsonl", "parquet"])
def test_ids_go_along(name: Format) -> None:
    document = assembled(name, [results(0, 5, ["half"], ids=True), results(5, 7, ["half"], ids=True)])
    if name == "jsonl":
        ids = [json.loads(line)["id"] for line in document.splitlines()]
    else:
        ids = pq.read_table(io.BytesIO(document))["id"].to_pylist()
    assert ids == [f"r{row}" for row in range(7)]


def test_json_names_what_is_no_number() -> None:
    odd = Results(0, 2, ("y",), (np.array([[1, np.nan], [np.inf, -np.inf]], np.float32),))
    rows = [json.loads(line)["y"] for line in assembled("jsonl", [odd]).splitlines()]
    assert rows == [[1.0, "NaN"], ["Infinity", "-Infinity"]]


@pytest.mark.parametrize("name", FORMATS)
def test_rows_of_different_shapes_are_written_where_that_is_possible(name: Format) -> None:
    uneven: Column = [np.arange(2 * n, dtype=np.float32).reshape(2, n) for n in (1, 3, 2)]
    parts = [Results(0, 3, ("y",), (uneven,)), Results(3, 1, ("y",), (np.zeros((1, 2, 9), np.float32),))]
    if name in ("npy", "npz"):
        with pytest.raises(ExecutionFailedError, match=r"different shapes.*\.jsonl"):
            assembled(name, parts)
        return
    document = assembled(name, parts)
    if name == "jsonl":
        rows = [json.loads(line)["y"] for line in document.splitlines()]
    else:
        rows = pq.read_table(io.BytesIO(document))["y"].to_pylist()
    for row, expected in zip(rows, [*uneven, np.zeros((2, 9))], strict=True):
        np.testing.assert_array_equal(np.array(row), expected)


def test_parts_of_different_shapes_are_refused_where_they_do_not_fit() -> None:
    parts = [
        Results(0, 2, ("y",), (np.zeros((2, 3), np.float32),)),
        Results(2, 1, ("y",), (np.zeros((1, 4), np.float32),)),
    ]
    with pytest.raises(BatchError, match=r"rows before 2 have results of shape \[3\], later ones \[4\]"):
        assembled("npy", parts)

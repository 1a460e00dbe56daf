"""Our own model format: what is written is read again, and nothing else is."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from mcp2026.runtime.errors import ModelLoadError
from mcp2026.runtime.model.ir.header import HEADER_BYTES, MAGIC, Header, IrError, decode_header
from mcp2026.runtime.model.ir.left_over import make_and_hold
from mcp2026.runtime.model.ir.manifest import Manifest, decode_manifest, encode_manifest
from mcp2026.runtime.model.ir.optimizing import optimized
from mcp2026.runtime.model.ir.reading import check_weights, is_ir_file, open_ir_file, read_manifest
from mcp2026.runtime.model.ir.writing import (
    Origin,
    WriteError,
    constant_bytes,
    describe_source,
    write_ir_file,
)
from mcp2026.runtime.model.onnx_wire import exchange_tensors, read_values
from mcp2026.runtime.model.sessions import open_model, values_of
from tools.models import MODELS, generate

PAGE = 4096


def write(source: Path, target: Path, *, replace: bool = False, **wishes: Any) -> Manifest:
    origin = Origin(source, describe_source(source), wishes.get("weights", "shared"), "none", None)
    accept = wishes.get("accept", lambda _: None)
    return write_ir_file(origin, target, lambda done, total: None, replace=replace, accept=accept)


def linear(weight: np.ndarray[Any, Any], **more: Any) -> onnx.ModelProto:
    """Return y = x @ weight."""
    return helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "linear",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", weight.shape[0]])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", weight.shape[1]])],
            [numpy_helper.from_array(weight, "w")],
            **more,
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=10,
    )


WEIGHT = np.random.default_rng(3).standard_normal((64, 48), np.float32)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small model in the format."""
    folder = tmp_path_factory.mktemp("ir")
    onnx.save(linear(WEIGHT), folder / "m.onnx")
    write(folder / "m.onnx", folder / "m.mcpir")
    return folder / "m.mcpir"


def answer(path: Path, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    session = open_model(str(path), None, 1, "cpu").session
    found: np.ndarray[Any, Any] = session.run(None, {session.get_inputs()[0].name: rows})[0]
    return found


@pytest.mark.parametrize("name", [name for name in MODELS if name != "resnet50"])
def test_every_sample_model_answers_as_before(name: str, tmp_path: Path) -> None:
    source = generate(name, tmp_path)
    write(source, tmp_path / "c.mcpir")
    with optimized(source, tmp_path) as model:
        write(model, tmp_path / "o.mcpir")
    check_weights(str(tmp_path / "c.mcpir"))
    before = open_model(str(source), None, 1, "cpu").session
    random = np.random.default_rng(0)
    inputs = {
        entry.name: random.standard_normal(
            [dim if isinstance(dim, int) else 1 for dim in entry.shape]
        ).astype(np.float32)
        for entry in before.get_inputs()
        if entry.type == "tensor(float)"
    }
    if len(inputs) != len(before.get_inputs()):
        return  # takes other types: that it loads is enough
    for file in ("c.mcpir", "o.mcpir"):
        after = open_model(str(tmp_path / file), None, 1, "cpu").session
        for left, right in zip(before.run(None, inputs), after.run(None, inputs), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(["c.mcpir", "o.mcpir", source.name])


def test_weights_are_in_whole_pages_and_mapped_from_the_file(whole: Path) -> None:
    manifest = read_manifest(str(whole))
    (tensor,) = manifest.tensors
    assert tensor.offset % PAGE == 0
    assert whole.read_bytes()[tensor.offset :][: tensor.length] == WEIGHT.tobytes()
    session = open_model(str(whole), None, 1, "cpu").session
    maps = Path("/proc/self/maps").read_text().splitlines()
    assert [line for line in maps if line.endswith(str(whole))]
    del session


def test_what_the_manifest_tells(whole: Path) -> None:
    manifest = read_manifest(str(whole))
    source = whole.with_suffix(".onnx")
    assert manifest.source.sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
    assert manifest.size == whole.stat().st_size
    assert [(value.name, value.shape) for value in manifest.inputs] == [("x", ("N", 64))]
    assert manifest.opsets == {"": 17}
    assert decode_manifest(encode_manifest(manifest), manifest.size) == manifest


def test_a_file_may_be_renamed_and_linked(whole: Path, tmp_path: Path) -> None:
    rows = np.ones((2, 64), np.float32)
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "other name.bin").write_bytes(whole.read_bytes())
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "m.onnx").symlink_to(Path("..data") / "other name.bin")
    np.testing.assert_allclose(answer(tmp_path / "m.onnx", rows), rows @ WEIGHT, rtol=1e-3)


def test_the_digest_of_the_configuration_is_of_the_whole_file(whole: Path) -> None:
    digest = hashlib.sha256(whole.read_bytes()).hexdigest()
    assert open_model(str(whole), digest, 1, "cpu").values.outputs[0].name == "y"
    with pytest.raises(ModelLoadError, match="sha256"):
        open_model(str(whole), "0" * 64, 1, "cpu")


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda b: b[:0], "empty"),
        (lambda b: b[:5], "ONNX|truncated"),
        (lambda b: b[:40], "truncated"),
        (lambda b: b[: HEADER_BYTES + 10], "truncated"),
        (lambda b: b[:-1], "truncated"),
        (lambda b: b + b"\0", "longer than it was written"),
        (lambda b: b[:8] + b"\x02" + b[9:], r"version 2.0, this runtime reads 1.x"),
        (lambda b: b[:12] + b"\x80" + b[13:], "header says"),
        (lambda b: b[:16] + b"\x08" + b"\0" * 7 + b[24:], "inside the header"),
        (lambda b: b[:24] + b"\xff" * 8 + b[32:], "2 to 67108864"),
        (lambda b: b[:24] + b"\0" * 8 + b[32:], "2 to 67108864"),
        (lambda b: b[:32] + b"\0" * 32 + b[64:], "manifest was changed"),
        (lambda b: b[:70] + b"\0\0" + b[72:], "graph was changed"),
        (lambda b: b[:-5] + b"x" + b[-4:], "manifest was changed"),
    ],
)
def test_a_broken_file_is_refused(
    whole: Path, tmp_path: Path, edit: Callable[[bytes], bytes], said: str
) -> None:
    path = tmp_path / "broken.mcpir"
    path.write_bytes(edit(whole.read_bytes()))
    with pytest.raises(ModelLoadError, match=said):
        open_model(str(path), None, 1, "cpu")


def rewritten(whole: Path, path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write `whole` to `path` with another manifest, and a header that vouches for it."""
    content = whole.read_bytes()
    header = decode_header(content[:HEADER_BYTES], len(content))
    document = msgspec.json.decode(content[header.manifest_offset :])
    change(document)
    while True:
        encoded = msgspec.json.encode(document)
        size = header.manifest_offset + len(encoded)
        if document.get("size") in (size, "keep"):
            break
        document["size"] = size
    new = Header(header.manifest_offset, len(encoded), hashlib.sha256(encoded).digest())
    path.write_bytes(new.encode() + content[HEADER_BYTES : header.manifest_offset] + encoded)


@pytest.mark.parametrize(
    ("where", "field", "value", "said"),
    [
        ("tensors", "offset", PAGE + 8, "not at a multiple of 4096"),
        ("tensors", "offset", 0, "inside what lies before"),
        ("tensors", "offset", -PAGE, "negative"),
        ("tensors", "offset", PAGE * 1000, "after the file's"),
        ("tensors", "offset", 2**62, "after the file's"),
        ("tensors", "length", -1, "negative"),
        ("tensors", "length", 16, "its shape"),
        ("tensors", "shape", [1, 1], "its shape"),
        ("tensors", "shape", [-64, -48], "shape"),
        ("tensors", "elementType", 8, "element type 8"),
        ("tensors", "elementType", 6, "is not tensor"),
        ("tensors", "name", "other", "is not tensor"),
        ("graph", "offset", 0, "inside what lies before"),
        ("graph", "length", 2**40, "after the file's"),
        ("graph", "length", 0, "1 to"),
        (None, "alignment", 3, "power of two"),
        (None, "alignment", 0, "power of two"),
        (None, "weights", "stolen", "weights"),
        (None, "tensors", [], "manifest does not know"),
        (None, "graph", None, "cannot be read"),
    ],
)
def test_a_manifest_that_cannot_be_true_is_refused(
    whole: Path, tmp_path: Path, where: str | None, field: str, value: Any, said: str
) -> None:
    def change(document: dict[str, Any]) -> None:
        part = document if where is None else document[where]
        (part[0] if isinstance(part, list) else part)[field] = value

    rewritten(whole, tmp_path / "bad.mcpir", change)
    with pytest.raises(ModelLoadError, match=said):
        open_ir_file(str(tmp_path / "bad.mcpir"))


def test_two_tensors_at_one_place_and_one_too_many_are_refused(whole: Path, tmp_path: Path) -> None:
    rewritten(whole, tmp_path / "b", lambda document: document["tensors"].append(document["tensors"][0]))
    with pytest.raises(ModelLoadError, match="inside what lies before"):
        open_ir_file(str(tmp_path / "b"))

    def one_more(document: dict[str, Any]) -> None:
        first = document["tensors"][0]
        end = first["offset"] + first["length"]
        document["tensors"].append({**first, "offset": end, "length": 0, "shape": [0]})

    rewritten(whole, tmp_path / "c", one_more)
    with pytest.raises(ModelLoadError, match="no constant for tensor"):
        open_ir_file(str(tmp_path / "c"))


def test_a_manifest_of_a_later_minor_version_is_read(whole: Path, tmp_path: Path) -> None:
    rewritten(whole, tmp_path / "later.mcpir", lambda document: document.update(signature="…"))
    content = (tmp_path / "later.mcpir").read_bytes()
    (tmp_path / "later.mcpir").write_bytes(content[:10] + b"\x07" + content[11:])
    assert open_ir_file(str(tmp_path / "later.mcpir")).manifest.weights == "shared"


def test_changed_weights_are_found_when_asked_for(whole: Path, tmp_path: Path) -> None:
    content = bytearray(whole.read_bytes())
    content[read_manifest(str(whole)).tensors[0].offset + 100] ^= 1
    (tmp_path / "m.mcpir").write_bytes(content)
    open_ir_file(str(tmp_path / "m.mcpir"))
    with pytest.raises(ModelLoadError, match="tensor 'w' was changed"):
        check_weights(str(tmp_path / "m.mcpir"))


@given(st.binary(max_size=80), st.integers(0, 2**63 - 1))
def test_no_header_whatever_is_anything_but_read_or_refused(tail: bytes, size: int) -> None:
    try:
        header = decode_header(MAGIC + tail, size)
    except IrError:
        return
    assert HEADER_BYTES <= header.manifest_offset <= header.manifest_offset + header.manifest_length <= size


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.data())
def test_no_change_of_a_byte_before_the_weights_goes_unnoticed(
    whole: Path, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(whole.read_bytes())
    tensor = read_manifest(str(whole)).tensors[0]
    graph_end = HEADER_BYTES + read_manifest(str(whole)).graph.length
    after = tensor.offset + tensor.length
    position = data.draw(st.integers(0, graph_end - 1) | st.integers(after, len(content) - 1))
    minor = (10, 11)  # a file of a later minor version is read
    if position in minor:
        return
    content[position] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "changed.mcpir"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError):
        open_model(str(path), None, 1, "cpu")


@given(st.binary(max_size=200))
def test_no_bytes_whatever_make_the_walk_crash(content: bytes) -> None:
    from mcp2026.runtime.model.onnx_wire import WireError

    for walk in (read_values, lambda view: exchange_tensors(view, lambda _: b"")):
        try:
            walk(memoryview(content))
        except WireError:
            continue


@pytest.mark.parametrize("size_threshold", [0, 1024])
def test_a_model_with_external_data_is_converted(tmp_path: Path, size_threshold: int) -> None:
    onnx.save(
        linear(WEIGHT),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=size_threshold,
    )
    assert constant_bytes(tmp_path / "m.onnx") == WEIGHT.nbytes
    write(tmp_path / "m.onnx", tmp_path / "m.mcpir")
    (tmp_path / "w.bin").unlink()
    rows = np.ones((1, 64), np.float32)
    np.testing.assert_allclose(answer(tmp_path / "m.mcpir", rows), rows @ WEIGHT, rtol=1e-3)


@pytest.mark.parametrize(
    ("entry", "value", "said"),
    [
        ("location", "../w.bin", "outside its folder"),
        ("location", "/etc/passwd", "outside its folder"),
        ("location", "absent.bin", "No such file"),
        ("offset", "-8", "has not its"),
        ("offset", "8", "has not its"),
        ("offset", "x", "no number"),
        ("length", "4", "has not its"),
    ],
)
def test_external_data_that_is_not_there_is_refused(
    tmp_path: Path, entry: str, value: str, said: str
) -> None:
    onnx.save(linear(WEIGHT), tmp_path / "m.onnx", save_as_external_data=True, location="w.bin")
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    places = model.graph.initializer[0].external_data
    for place in places:
        if place.key == entry:
            place.value = value
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelLoadError, match=said):
        write(tmp_path / "m.onnx", tmp_path / "m.mcpir")
    assert not list(tmp_path.glob("*.mcpir*"))


def test_constants_of_a_graph_in_a_graph_are_weights_too(tmp_path: Path) -> None:
    branches = [
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["z"])],
            name,
            [],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(factor * WEIGHT, "w")],
        )
        for name, factor in (("then", 1), ("else", 2))
    ]
    choice = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    inputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64]),
    ]
    graph = helper.make_graph(
        [choice], "choice", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10),
        tmp_path / "m.onnx",
    )
    manifest = write(tmp_path / "m.onnx", tmp_path / "m.mcpir")
    assert len(manifest.tensors) == 2
    session = open_model(str(tmp_path / "m.mcpir"), None, 1, "cpu").session
    rows = np.ones((1, 64), np.float32)
    for chosen, factor in ((True, 1), (False, 2)):
        (found,) = session.run(None, {"c": np.array(chosen), "x": rows})
        np.testing.assert_allclose(found, factor * rows @ WEIGHT, rtol=1e-3)


@pytest.mark.parametrize(
    "kind", ["float16", "bfloat16", "float64", "int4", "uint8", "int64", "bool", "float8e4m3fn"]
)
def test_weights_of_every_kind_keep_their_bits(tmp_path: Path, kind: str) -> None:
    element_type = getattr(TensorProto, {"float64": "DOUBLE"}.get(kind, kind.upper()))
    dtype = helper.tensor_dtype_to_np_dtype(element_type)
    values = np.random.default_rng(1).integers(0, 2, 40_000).astype(dtype)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])],
        "constant",
        [],
        [helper.make_tensor_value_info("y", element_type, [40_000])],
        [numpy_helper.from_array(values, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    manifest = write(tmp_path / "m.onnx", tmp_path / "m.mcpir")
    (tensor,) = manifest.tensors
    content = (tmp_path / "m.mcpir").read_bytes()[tensor.offset :][: tensor.length]
    assert content == model.graph.initializer[0].raw_data
    open_ir_file(str(tmp_path / "m.mcpir"))


def test_nothing_is_replaced_unless_it_is_said_and_nothing_partial_stays(whole: Path, tmp_path: Path) -> None:
    source, target = whole.with_suffix(".onnx"), tmp_path / "m.mcpir"
    target.write_bytes(b"mine")
    with pytest.raises(WriteError, match="is there already"):
        write(source, target)
    assert target.read_bytes() == b"mine"

    def refuse(path: Path) -> None:
        assert is_ir_file(str(path))
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        write(source, target, replace=True, accept=refuse)
    assert target.read_bytes() == b"mine"
    write(source, target, replace=True)
    assert is_ir_file(str(target))
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.mcpir"]
    with pytest.raises(WriteError, match=r"No such file or directory"):
        write(source, tmp_path / "absent" / "m.mcpir")


def test_what_another_writer_holds_is_left_alone(whole: Path, tmp_path: Path) -> None:
    def other() -> Path:
        part = tmp_path / ".m.mcpir.0.part"
        part.touch()
        return part

    part, held = make_and_hold(other)
    write(whole.with_suffix(".onnx"), tmp_path / "m.mcpir")
    assert part.exists()
    os.close(held)
    write(whole.with_suffix(".onnx"), tmp_path / "m.mcpir", replace=True)
    assert not part.exists()


def test_a_file_that_is_replaced_while_it_is_loaded_is_noticed(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.mcpir"
    path.write_bytes(whole.read_bytes())
    opened = open_ir_file(str(path))
    opened.check_unchanged()
    (tmp_path / "other").write_bytes(whole.read_bytes())
    (tmp_path / "other").replace(path)
    with pytest.raises(ModelLoadError, match="replaced while it was loaded"):
        opened.check_unchanged()
    path.unlink()
    with pytest.raises(ModelLoadError, match="replaced while it was loaded"):
        opened.check_unchanged()


@pytest.mark.parametrize("form", ["file", "folder"])
@pytest.mark.parametrize("kind", ["onnx", "mcpir"])
def test_a_folder_stands_for_the_model_in_it(
    whole: Path, tmp_path: Path, form: Literal["file", "folder"], kind: str
) -> None:
    path = tmp_path / f"model.{kind}"
    path.write_bytes(whole.with_suffix(f".{kind}").read_bytes())
    given_path = path if form == "file" else tmp_path
    assert values_of(str(given_path)).inputs[0].shape == ("N", 64)
    rows = np.ones((1, 64), np.float32)
    np.testing.assert_allclose(answer(given_path, rows), rows @ WEIGHT, rtol=1e-3)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"a folder without model.mcpir or model.onnx"):
        open_model(str(tmp_path), None, 1, "cpu")

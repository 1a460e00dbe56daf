"""Bytes as Go sends and reads them."""

import json
from typing import Any

import pytest

from mcp2026.scheduler_extender.errors import MalformedRequestError
from mcp2026.scheduler_extender.wire import (
    ExtenderFilterResult,
    HostPriority,
    decode_args,
    encode,
)
from tests.fakes.clusters import node, pod


def body(**members: Any) -> bytes:
    return json.dumps(members).encode()


@pytest.mark.parametrize(
    "members",
    [
        pytest.param({"Pod": pod("p", 2), "Nodes": None, "NodeNames": ["b", "a"]}, id="as Go sends it"),
        pytest.param({"pod": pod("p", 2), "nodes": None, "nodenames": ["b", "a"]}, id="in lower case"),
        pytest.param({"POD": pod("p", 2), "nodeNames": ["b", "a"]}, id="in any case, null left out"),
        pytest.param(
            {"Pod": pod("p", 2), "NodeNames": ["b", "a", "b"], "X": 1}, id="a name twice, more fields"
        ),
    ],
)
def test_arguments_are_read_in_any_letter_case(members: dict[str, Any]) -> None:
    args = decode_args(body(**members))
    assert (args.key, args.node_names, args.whole_nodes) == ("default/p", ("b", "a"), None)


@pytest.mark.parametrize("items", ["Items", "items"])
def test_whole_nodes_are_kept_as_they_came(items: str) -> None:
    args = decode_args(body(Pod=pod("p", 1), Nodes={"metadata": {}, items: [node("a"), node("b")]}))
    assert args.node_names == ("a", "b")
    assert args.whole_nodes is not None
    assert json.loads(bytes(args.whole_nodes["b"])) == node("b")


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        pytest.param(b"", "the body", id="nothing"),
        pytest.param(body(Pod=pod("p", 1), NodeNames=["a"])[:-9], "the body", id="cut off"),
        pytest.param(b"[1]", "the body", id="a list"),
        pytest.param(b"null", "Pod is missing", id="null"),
        pytest.param(b"\xff\xfe", "the body", id="not UTF-8"),
        pytest.param(b'{"Pod":' + b"[" * 100_000, "the body", id="nested without end"),
        pytest.param(body(NodeNames=["a"]), "Pod is missing", id="no pod"),
        pytest.param(body(Pod=None, NodeNames=["a"]), "Pod is missing", id="a null pod"),
        pytest.param(body(Pod="p", NodeNames=["a"]), "Pod: ", id="a pod that is text"),
        pytest.param(body(Pod={"metadata": {"name": "p"}}, NodeNames=["a"]), "p has no spec", id="no spec"),
        pytest.param(body(Pod=pod("p", 1)), "nothing to choose from", id="no nodes at all"),
        pytest.param(body(Pod=pod("p", 1), Nodes={}), "nothing to choose from", id="nodes without items"),
        pytest.param(body(Pod=pod("p", 1), NodeNames="a"), "NodeNames: ", id="names that are text"),
        pytest.param(body(Pod=pod("p", 1), NodeNames=[1]), "NodeNames: ", id="a name that is a number"),
        pytest.param(body(Pod=pod("p", 1), Nodes={"items": [{}]}), "no metadata.name", id="a nameless node"),
    ],
)
def test_a_malformed_body_is_refused_with_what_is_wrong(sent: bytes, complaint: str) -> None:
    with pytest.raises(MalformedRequestError, match=complaint):
        decode_args(sent)


def test_results_have_the_names_of_go_s_fields() -> None:
    result = ExtenderFilterResult(
        node_names=("a",), failed_nodes={"b": "x"}, failed_and_unresolvable_nodes={"c": "y"}
    )
    assert json.loads(encode(result)) == {
        "Nodes": None,
        "NodeNames": ["a"],
        "FailedNodes": {"b": "x"},
        "FailedAndUnresolvableNodes": {"c": "y"},
        "Error": "",
    }
    assert json.loads(encode((HostPriority("a", 10),))) == [{"Host": "a", "Score": 10}]

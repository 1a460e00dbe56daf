"""The arguments of preempt and bind as Go sends them, in each of their shapes."""

import json
from typing import Any

import pytest

from mcp2026.scheduler_extender.errors import MalformedRequestError
from mcp2026.scheduler_extender.wire import (
    BindingArgs,
    ExtenderBindingResult,
    ExtenderPreemptionResult,
    MetaPod,
    MetaVictims,
    ProposedVictims,
    decode_binding,
    decode_preemption,
    encode,
)
from tests.fakes.clusters import pod

BINDING = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n"}


def body(members: dict[str, Any]) -> bytes:
    return json.dumps(members).encode()


WHOLE = {
    "Pods": [{"metadata": {"name": "v", "namespace": "ns", "uid": "u1"}, "spec": {}}],
    "NumPDBViolations": 1,
}


@pytest.mark.parametrize(
    ("members", "proposed"),
    [
        pytest.param(
            {
                "NodeNameToVictims": None,
                "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 1}},
            },
            {"n": ProposedVictims(("u1",), 1)},
            id="UIDs alone",
        ),
        pytest.param(
            {"NodeNameToVictims": {"n": WHOLE}}, {"n": ProposedVictims(("u1",), 1)}, id="whole pods"
        ),
        pytest.param(
            {"NodeNameToMetaVictims": {"n": {"Pods": [], "NumPDBViolations": 0}, "m": {"Pods": None}}},
            {"n": ProposedVictims((), 0), "m": ProposedVictims((), 0)},
            id="empty lists",
        ),
        pytest.param(
            {"nodenametometavictims": {"n": {"pods": [{"uid": "u1"}], "numpdbviolations": 2}}},
            {"n": ProposedVictims(("u1",), 2)},
            id="in lower case",
        ),
        pytest.param({"NodeNameToMetaVictims": {}}, {}, id="no nodes"),
    ],
)
def test_the_arguments_of_preempt_are_read_in_each_shape(
    members: dict[str, Any], proposed: dict[str, ProposedVictims]
) -> None:
    args = decode_preemption(body({"Pod": pod("p", 2), **members}))
    assert args.proposed == proposed
    assert args.pod.metadata.name == "p"


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        ({"Pod": pod("p", 1)}, "both missing"),
        ({"NodeNameToMetaVictims": {}}, "Pod is missing"),
        ({"Pod": {"metadata": {"name": "p"}}, "NodeNameToMetaVictims": {}}, "Pod p has no spec"),
        ({"Pod": pod("p", 1), "NodeNameToMetaVictims": []}, "NodeNameTo"),
        ({"Pod": pod("p", 1), "NodeNameToMetaVictims": {"n": 1}}, "victims of n"),
        ({"Pod": pod("p", 1), "NodeNameToMetaVictims": {"n": {"Pods": [{}]}}}, "has no UID"),
        (
            {"Pod": pod("p", 1), "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": 1}]}}},
            "UID of a victim on n",
        ),
        (
            {"Pod": pod("p", 1), "NodeNameToMetaVictims": {"n": {"NumPDBViolations": "x"}}},
            "NumPDBViolations of n",
        ),
    ],
)
def test_broken_arguments_of_preempt_are_refused(members: dict[str, Any], complaint: str) -> None:
    with pytest.raises(MalformedRequestError, match=complaint):
        decode_preemption(body(members))


@pytest.mark.parametrize("lower", [False, True], ids=["as Go sends it", "in lower case"])
def test_the_arguments_of_bind_are_read(lower: bool) -> None:
    members = {name.lower() if lower else name: value for name, value in BINDING.items()}
    assert decode_binding(body(members)) == BindingArgs("ns", "p", "u", "n")


@pytest.mark.parametrize("missing", sorted(BINDING))
def test_a_binding_that_lacks_something_is_refused(missing: str) -> None:
    members = {name: value for name, value in BINDING.items() if name != missing}
    with pytest.raises(MalformedRequestError, match=f"{missing} is missing"):
        decode_binding(body(members))


def test_answers_have_the_names_of_go() -> None:
    victims = {"n": MetaVictims((MetaPod("u1"),), 1)}
    assert json.loads(encode(ExtenderPreemptionResult(victims))) == {
        "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 1}}
    }
    assert json.loads(encode(ExtenderBindingResult("gone"))) == {"Error": "gone"}

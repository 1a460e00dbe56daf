"""What a request carries, by its headers, and what its token entitles it to."""

from collections.abc import Mapping
from typing import Any

import pytest

from mcp2026.api.scheduling_context import QosClass, SchedulingContext, SlaClaims, SlaRefusal, new_trace
from mcp2026.api.serving import Priorities, ServedVersion, ServingConfig, Tenant
from mcp2026.runtime.batching.policy import MAX_VERIFIED, ModelPolicy
from mcp2026.runtime.context.request_context import RequestContexts
from mcp2026.runtime.errors import STATUS, ErrorCode, RequestError
from mcp2026.runtime.protocol.scheduling_labels import SchedulingLabels, entitled

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACED = {b"traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-01".encode()}
GOLD = SlaClaims(QosClass.GUARANTEED, 1, 5, "acme", "gold")


class Tokens:
    """Knows the token `good` alone."""

    def check(self, token: bytes | None) -> SlaClaims | SlaRefusal:
        return GOLD if token == b"good" else SlaRefusal.EXPIRED if token else SlaRefusal.MISSING


class Untouchable(dict[bytes, bytes]):
    """Headers of which only one may be asked for."""

    def __contains__(self, name: object) -> bool:
        assert name == b"traceparent"
        return super().__contains__(name)

    def get(self, *_: Any) -> Any:
        raise AssertionError


def test_a_request_without_a_trace_costs_one_look_and_has_no_context() -> None:
    assert RequestContexts().of(Untouchable({b"x-mcp-sla-token": b"good"})) is None


def test_a_trace_is_continued_with_the_state_of_others_and_the_class_that_is_named() -> None:
    context = RequestContexts().of(
        TRACED | {b"tracestate": b"vendor=1", b"x-mcp-qos-class": b"Burstable", b"x-mcp-sla-token": b"good"}
    )
    assert context is not None
    assert (context.trace.trace_id, context.trace.tracestate) == (TRACE_ID, "vendor=1")
    assert context.trace.sampled
    assert context.qos_class is QosClass.BURSTABLE
    assert context.claims is context.refusal is None


@pytest.mark.parametrize("header", [b"", b"nonsense", b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01", b"\xff"])
def test_a_malformed_trace_is_a_new_one(header: bytes) -> None:
    contexts = RequestContexts(own_class=QosClass.BEST_EFFORT)
    context = contexts.of({b"traceparent": header, b"tracestate": b"vendor=1", b"x-mcp-qos-class": b"Best"})
    assert context is not None
    assert int(context.trace.trace_id, 16)
    assert (context.trace.parent_id, context.trace.tracestate, context.trace.sampled) == ("", "", False)
    assert context.qos_class is QosClass.BEST_EFFORT


def test_with_spans_every_request_has_a_trace_sampled_by_the_ratio_or_by_its_parent() -> None:
    for ratio, sampled in ((0.0, False), (1.0, True)):
        contexts = RequestContexts(trace_ratio=ratio)
        begun, continued = contexts.of({}), contexts.of(TRACED)
        assert begun is not None
        assert continued is not None
        assert begun.trace.sampled is sampled
        assert continued.trace.sampled


@pytest.mark.parametrize(
    ("headers", "counted", "qos_class"),
    [
        ({b"x-mcp-sla-token": b"good", b"x-mcp-qos-class": b"Burstable"}, "verified", QosClass.GUARANTEED),
        ({b"x-mcp-sla-token": b"bad", b"x-mcp-qos-class": b"Guaranteed"}, "expired", QosClass.BEST_EFFORT),
        ({b"x-mcp-qos-class": b"Guaranteed"}, "missing", QosClass.BEST_EFFORT),
    ],
    ids=["a good token", "a bad token", "no token"],
)
def test_a_token_is_judged_counted_and_gives_the_class(
    headers: Mapping[bytes, bytes], counted: str, qos_class: QosClass
) -> None:
    seen: list[str] = []
    context = RequestContexts(Tokens(), count_token=seen.append).of(headers)
    assert context is not None
    assert seen == [counted]
    assert context.qos_class is qos_class
    assert (context.claims is GOLD) is (counted == "verified")


def test_who_has_no_good_token_is_rejected_only_if_that_is_the_policy() -> None:
    lowest, reject = RequestContexts(Tokens()), RequestContexts(Tokens(), reject=True)
    good, bad = reject.of({b"x-mcp-sla-token": b"good"}), reject.of({b"x-mcp-sla-token": b"bad"})
    assert good is not None
    assert bad is not None
    reject.admit(good)
    lowest.admit(bad)
    with pytest.raises(RequestError, match="x-mcp-sla-token: expired") as refused:
        reject.admit(bad)
    assert refused.value.code is ErrorCode.UNAUTHENTICATED
    status = STATUS[refused.value.code]
    assert (status.http, status.grpc, status.challenge is not None) == (401, "UNAUTHENTICATED", True)


LABELS = SchedulingLabels(3, "beta")


@pytest.mark.parametrize(
    ("context", "levels", "expected"),
    [
        pytest.param(SchedulingContext(new_trace()), 4, LABELS, id="no token: the labels"),
        pytest.param(
            SchedulingContext(new_trace(), claims=GOLD), 4, SchedulingLabels(1, "acme"), id="a token wins"
        ),
        pytest.param(
            SchedulingContext(new_trace(), claims=SlaClaims(QosClass.BURSTABLE, 90, 1, "", "x")),
            4,
            SchedulingLabels(4, ""),
            id="a priority beyond the model's levels is the last",
        ),
        pytest.param(
            SchedulingContext(new_trace(), refusal=SlaRefusal.WRONG_POD),
            4,
            SchedulingLabels(4, ""),
            id="a refused token: last, for the default tenant",
        ),
    ],
)
def test_what_a_request_is_entitled_to(
    context: SchedulingContext, levels: int, expected: SchedulingLabels
) -> None:
    assert entitled(LABELS, context, levels) == expected


def policy() -> ModelPolicy:
    return ModelPolicy(
        ServingConfig(
            "m",
            (ServedVersion("1", "m.onnx"),),
            priorities=Priorities(levels=3, default=2),
            tenants=(Tenant("acme", 2),),
        )
    )


def test_a_verified_tenant_has_its_own_account_with_the_weight_of_its_token() -> None:
    accounts = policy()
    _, _, labelled = accounts.place(1, "acme")
    level, _, verified = accounts.place_verified(1, "acme", 7)
    _, _, unknown = accounts.place_verified(1, "nobody", 9)
    assert level == 1
    assert labelled == "acme"
    assert len({labelled, verified, unknown}) == 3
    assert [accounts.weight(one) for one in (labelled, verified, unknown, "")] == [2, 7, 9, 1]
    assert accounts.place(1, verified)[2] == ""  # nobody gets there by a label


def test_the_accounts_of_tokens_are_bounded() -> None:
    accounts = policy()
    made = {accounts.place_verified(1, f"t{number}", 3)[2] for number in range(MAX_VERIFIED)}
    assert len(made) == MAX_VERIFIED
    assert accounts.place_verified(1, "one more", 3)[2] == ""
    assert accounts.place_verified(1, "t0", 3)[2] in made

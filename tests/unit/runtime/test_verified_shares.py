"""What a verified token buys in the engine: an account of its own with the weight that the token says."""

from pathlib import Path

import numpy as np
from onnx import TensorProto

from mcp2026.api.scheduling_context import QosClass, SchedulingContext, SlaClaims, SlaRefusal, new_trace
from mcp2026.api.serving import Tenant
from tests.unit.runtime.serving import Serve, config, identity

ROW = np.ones((1, 3), np.float32)


def bearer(weight: int) -> SchedulingContext:
    return SchedulingContext(new_trace(), claims=SlaClaims(QosClass.GUARANTEED, 1, weight, "acme", "gold"))


async def test_who_has_a_token_pays_by_its_weight_and_who_has_a_label_by_the_configuration(
    serve: Serve, tmp_path: Path
) -> None:
    serving = serve(config(identity(tmp_path, TensorProto.FLOAT), tenants=(Tenant("acme", 2),)))
    refused = SchedulingContext(new_trace(), refusal=SlaRefusal.EXPIRED)
    serving.submit(ROW, tenant="acme")
    serving.submit(ROW, tenant="acme", context=bearer(7))
    serving.submit(ROW, tenant="acme", context=bearer(5))
    serving.submit(ROW, context=refused)
    serving.submit(ROW, tenant="acme", context=SchedulingContext(new_trace()))
    await serving.outcomes()
    shares = [share for job in serving.jobs for share in job.batch.shares]
    paid: dict[tuple[str, int], int] = {}
    for account, weight, rows in shares:
        paid[account.tenant, weight] = paid.get((account.tenant, weight), 0) + rows
    assert paid == {("acme", 2): 2, ("acme\0" + "7", 7): 1, ("acme\0" + "5", 5): 1, ("", 1): 1}


async def test_a_call_that_fails_has_a_trace_to_name(serve: Serve, tmp_path: Path) -> None:
    serving = serve(config(identity(tmp_path, TensorProto.STRING)))
    seen = []
    failed = serving.service._observer.failed
    serving.service._observer.failed = lambda call, *more: (failed(call, *more), seen.append(call))[1]  # type: ignore[method-assign]
    serving.submit(np.array([[b"x", b"\xff", b"y"]], object))
    await serving.outcomes()
    (call,) = seen
    assert call.context.trace.trace_id

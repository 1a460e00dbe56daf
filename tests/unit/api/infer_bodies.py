"""Bodies of inference for property tests: good ones, and such in which something is amiss."""

import copy
from typing import Any

from hypothesis import strategies as st

SCALAR = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.sampled_from([2**31, 2**40, 2**40 + 1, 2**63, 2**64, 10**30, 10**400, -(2**63) - 1])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, 1.0, 2.0, 1.5, 1e300])
    | st.text(max_size=3)
)
ODD = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
VALUES = (
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=16, max_size=16)
    | st.lists(st.integers(-9, 9) | st.floats(-9, 9), max_size=20)
    | st.lists(st.booleans(), max_size=4)
    | st.lists(st.text(max_size=3), max_size=4)
    | st.lists(SCALAR, max_size=4)
)
SHAPE = st.just([1, 16]) | st.lists(st.integers(-1, 17) | st.just(1.0), max_size=3) | st.just([1] * 33)
TENSOR = st.fixed_dictionaries({"data": VALUES, "shape": SHAPE})
OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from(["add", "pair", "other", ""]),
    "version_id": st.sampled_from(["1", "2"]),
    "outputs": st.lists(st.sampled_from(["output", "sum", "y"]), max_size=3),
    "timeout_ms": st.sampled_from([0, -1, 1, 2.5, 1e-300, 1e300, 10**400]),
    "id": st.text(max_size=3),
}
GOOD = st.fixed_dictionaries({"input": VALUES, "shape": SHAPE}, optional=OPTIONAL) | st.fixed_dictionaries(
    {"inputs": st.dictionaries(st.sampled_from(["input", "a", "b", "x"]), TENSOR, max_size=3)},
    optional=OPTIONAL,
)


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A good body in which up to two things were left out, added or replaced, anywhere."""
    body = copy.deepcopy(draw(GOOD))
    for _ in range(draw(st.integers(0, 2))):
        holder: Any = body
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            key = draw(st.sampled_from(keys)) if keys else None
            if key is not None and isinstance(holder[key], dict | list) and draw(st.booleans()):
                holder = holder[key]
                continue
            break
        step = draw(st.sampled_from(["replace", "remove", "add"]))
        if step == "add" and isinstance(holder, dict):
            holder[draw(st.sampled_from(["input", "shape", "inputs", "zzz", "a.b", "data"]))] = draw(ODD)
        elif step == "add":
            holder.append(draw(ODD))
        elif key is not None and step == "remove":
            del holder[key]
        elif key is not None:
            holder[key] = draw(ODD)
    return body


BODIES = mutated() | ODD

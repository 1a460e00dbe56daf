"""May a new version take requests that were made for the one that is served? Pure."""

from mcp2026.runtime.model.signature import Signature, TensorSpec


def differences(served: Signature, new: Signature) -> list[str]:
    """Return in which ways a caller of `served` would be surprised by `new`; empty: in none.

    The new version must take all that the served one takes, and give at least what it gives, in the same
    types. So it may leave a dimension of an input open that was fixed, fix one of an output that was open,
    and give outputs more.
    """
    return [
        *_names("input", served.inputs, new.inputs, more_is_fine=False),
        *_names("output", served.outputs, new.outputs, more_is_fine=True),
        *(
            text
            for old, other in _pairs(served.inputs, new.inputs)
            for text in _tensor("input", old, other, takes=True)
        ),
        *(
            text
            for old, other in _pairs(served.outputs, new.outputs)
            for text in _tensor("output", old, other, takes=False)
        ),
    ]


def _names(
    kind: str, served: tuple[TensorSpec, ...], new: tuple[TensorSpec, ...], *, more_is_fine: bool
) -> list[str]:
    before, after = ({spec.name for spec in specs} for specs in (served, new))
    told = [f"{kind} {name!r} is missing" for name in sorted(before - after)]
    if not more_is_fine:
        told += [f"{kind} {name!r} is new" for name in sorted(after - before)]
    return told


def _pairs(
    served: tuple[TensorSpec, ...], new: tuple[TensorSpec, ...]
) -> list[tuple[TensorSpec, TensorSpec]]:
    after = {spec.name: spec for spec in new}
    return [(spec, after[spec.name]) for spec in served if spec.name in after]


def _tensor(kind: str, old: TensorSpec, new: TensorSpec, *, takes: bool) -> list[str]:
    if old.datatype != new.datatype:
        return [f"{kind} {old.name!r} is {new.datatype}, was {old.datatype}"]
    narrow, wide = (old, new) if takes else (new, old)
    if not wide.ranked:
        return []
    fits = (
        narrow.ranked
        and len(narrow.dims) == len(wide.dims)
        and all(limit in (None, dim) for dim, limit in zip(narrow.dims, wide.dims, strict=True))
    )
    return [] if fits else [f"{kind} {old.name!r} has the shape {_shape(new)}, had {_shape(old)}"]


def _shape(spec: TensorSpec) -> str:
    return str(spec.wire_shape) if spec.ranked else "of any rank"

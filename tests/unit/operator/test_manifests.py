"""When does a cluster still hold what was applied?"""

from typing import Any

import pytest

from mcp2026.operator.manifests import covers, digest, with_digest

SAME: list[tuple[str, Any, Any]] = [
    ("equal", {"a": 1}, {"a": 1}),
    ("the cluster added a field", {"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}),
    ("a list in another order", [{"name": "a"}, {"name": "b"}], [{"name": "b"}, {"name": "a"}]),
    ("a list with an entry of somebody else", [{"name": "a"}], [{"name": "x"}, {"name": "a", "added": 1}]),
    ("the same quantity", {"limits": {"cpu": "1000m"}}, {"limits": {"cpu": "1"}}),
    ("a quantity as number", {"requests": {"cpu": 2}}, {"requests": {"cpu": "2"}}),
    ("mounts told apart by path", [{"mountPath": "/a", "name": "v"}], [{"mountPath": "/a", "name": "v"}]),
    ("an empty object", {"emptyDir": {}}, {"emptyDir": {"medium": "Memory"}}),
]
DIFFERENT: list[tuple[str, Any, Any]] = [
    ("a value", {"a": 1}, {"a": 2}),
    ("a missing field", {"a": 1}, {}),
    ("a missing entry", [{"name": "a"}], [{"name": "b"}]),
    ("a field in an entry", [{"name": "a", "image": "x"}], [{"name": "a", "image": "y"}]),
    ("an order of plain values", ["--port", "1"], ["1", "--port"]),
    ("a longer plain list", ["a"], ["a", "b"]),
    ("another quantity", {"limits": {"cpu": "1000m"}}, {"limits": {"cpu": "2"}}),
    ("a text that only looks like the same quantity", {"args": "1000m"}, {"args": "1"}),
    ("an object where nothing is", {"a": {}}, {"a": None}),
    ("a list where an object is", [{"name": "a"}], {"name": "a"}),
]


@pytest.mark.parametrize(("desired", "seen"), [row[1:] for row in SAME], ids=[row[0] for row in SAME])
def test_covered(desired: Any, seen: Any) -> None:
    assert covers(desired, seen)


@pytest.mark.parametrize(
    ("desired", "seen"), [row[1:] for row in DIFFERENT], ids=[row[0] for row in DIFFERENT]
)
def test_not_covered(desired: Any, seen: Any) -> None:
    assert not covers(desired, seen)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1Ki", "1024"),
        ("1k", "1000"),
        ("1.5Gi", "1536Mi"),
        ("0.5", "500m"),
        ("1M", "1000k"),
        ("2Ti", "2048Gi"),
    ],
)
def test_quantities_that_are_equal(one: str, other: str) -> None:
    assert covers({"limits": {"memory": one}}, {"limits": {"memory": other}})


def test_what_is_no_quantity_is_compared_as_text() -> None:
    assert covers({"limits": {"memory": "5x"}}, {"limits": {"memory": "5x"}})
    assert not covers({"limits": {"memory": "5x"}}, {"limits": {"memory": "5"}})


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_the_digest_is_added_beside_other_annotations_and_the_manifest_is_left_alone() -> None:
    manifest = {"metadata": {"name": "a", "annotations": {"x": "y"}}}
    marked = with_digest(manifest)
    assert marked["metadata"]["annotations"] == {
        "x": "y",
        "mcp2026.io/manifest-digest": digest(manifest),
    }
    assert manifest == {"metadata": {"name": "a", "annotations": {"x": "y"}}}

"""What is known of the cluster, whatever the order in which events and lists arrive."""

from typing import Any

from mcp2026.operator.store import Store
from tests.fakes.played_cluster import model

KEY = ("team-a", "resnet50")


def seen(name: str, version: int, **metadata: Any) -> dict[str, Any]:
    labels = {"mcp2026.io/inference-model": "resnet50"}
    return {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "labels": labels,
        }
        | metadata
    }


def versioned(resource: dict[str, Any], version: int) -> dict[str, Any]:
    return {**resource, "metadata": {**resource["metadata"], "resourceVersion": str(version)}}


def store_with_model(**spec: Any) -> Store:
    store = Store()
    store.put("InferenceModel", versioned(model(**spec), 1))
    return store


def test_a_child_concerns_the_model_that_its_label_names() -> None:
    store = store_with_model()
    assert store.put("Deployment", seen("resnet50", 5)) == {KEY}
    assert store.put("Pod", seen("resnet50-x", 6)) == {KEY}
    observed = store.observed(KEY)
    assert observed is not None
    assert observed.child("Deployment") == seen("resnet50", 5)
    assert observed.pods == (seen("resnet50-x", 6),)


def test_an_object_without_our_label_concerns_nobody() -> None:
    assert Store().put("Service", seen("x", 1, labels={})) == set()


def test_an_older_event_does_not_undo_what_we_wrote() -> None:
    store = store_with_model()
    store.put("Deployment", seen("resnet50", 9, generation=2))
    assert store.put("Deployment", seen("resnet50", 8, generation=1)) == set()
    observed = store.observed(KEY)
    assert observed is not None
    assert observed.children["Deployment"]["metadata"]["generation"] == 2


def test_versions_compare_as_numbers() -> None:
    store = store_with_model()
    store.put("Deployment", seen("resnet50", 99))
    assert store.put("Deployment", seen("resnet50", 100)) == {KEY}


def test_a_deleted_object_is_forgotten() -> None:
    store = store_with_model()
    store.put("Pod", seen("resnet50-x", 5))
    assert store.drop("Pod", seen("resnet50-x", 6)) == {KEY}
    observed = store.observed(KEY)
    assert observed is not None
    assert observed.pods == ()


def test_the_deletion_of_a_predecessor_does_not_remove_its_successor() -> None:
    store = store_with_model()
    store.put("Deployment", seen("resnet50", 7, uid="second"))
    assert store.drop("Deployment", seen("resnet50", 6, uid="first")) == set()
    observed = store.observed(KEY)
    assert observed is not None
    assert observed.child("Deployment") is not None


def test_a_list_removes_what_was_missed_and_keeps_what_came_later() -> None:
    store = store_with_model()
    store.put("Pod", seen("gone", 5))
    store.put("Pod", seen("newer-than-the-list", 12))
    store.replace("Pod", [seen("there", 8)], list_version="10", namespace=None)
    observed = store.observed(KEY)
    assert observed is not None
    assert sorted(pod["metadata"]["name"] for pod in observed.pods) == ["newer-than-the-list", "there"]


def test_a_list_of_one_namespace_says_nothing_about_another() -> None:
    store = store_with_model()
    store.put("Pod", seen("here", 5))
    store.replace("Pod", [], list_version="10", namespace="team-b")
    observed = store.observed(KEY)
    assert observed is not None
    assert len(observed.pods) == 1


def test_a_model_that_changes_concerns_those_that_wait_for_it() -> None:
    store = store_with_model()
    store.put("InferenceModel", versioned(model("front", dependsOn=["resnet50"]), 2))
    store.put("InferenceModel", versioned(model("other", dependsOn=["front"]), 3))
    waiting = {("team-a", "front"), ("team-a", "other")}
    assert store.put("InferenceModel", versioned(model(), 4)) == {KEY, *waiting}
    observed = store.observed(("team-a", "front"))
    assert observed is not None
    assert observed.dependencies == {"resnet50": versioned(model(), 4)}


def test_a_lease_is_found_by_its_pod_and_goes_with_it() -> None:
    store = store_with_model()
    lease = seen("resnet50-x", 5)
    assert store.put("Lease", lease) == {KEY}
    observed = store.observed(KEY)
    assert observed is not None
    assert observed.leases == {"resnet50-x": lease}
    assert store.drop("Lease", lease) == {KEY}
    observed = store.observed(KEY)
    assert observed is not None
    assert observed.leases == {}


def test_a_cycle_is_seen_from_each_of_its_models_and_gone_when_one_step_is_taken_out() -> None:
    store = Store()
    for version, (name, dependency) in enumerate((("a", "b"), ("b", "c"), ("c", "a"), ("waits", "a")), 1):
        store.put("InferenceModel", versioned(model(name, dependsOn=[dependency]), version))

    def cycle(name: str) -> tuple[str, ...]:
        observed = store.observed(("team-a", name))
        assert observed is not None
        return observed.cycle

    assert [cycle(name) for name in ("a", "b", "c", "waits")] == [
        ("a", "b", "c", "a"),
        ("b", "c", "a", "b"),
        ("c", "a", "b", "c"),
        (),
    ]
    concerned = store.put("InferenceModel", versioned(model("b"), 9))
    assert concerned == {("team-a", name) for name in ("a", "b", "c", "waits")}
    assert [cycle(name) for name in ("a", "b", "c")] == [(), (), ()]


def test_models_of_another_namespace_are_no_part_of_a_cycle() -> None:
    store = store_with_model(dependsOn=["other"])
    elsewhere = versioned(model("other", dependsOn=["resnet50"]), 2)
    elsewhere["metadata"] |= {"namespace": "team-b"}
    store.put("InferenceModel", elsewhere)
    observed = store.observed(KEY)
    assert observed is not None
    assert observed.cycle == ()


def test_a_model_of_an_odd_shape_is_kept_like_any_other() -> None:
    store = Store()
    odd = versioned(model(dependsOn="resnet50"), 1)
    assert store.put("InferenceModel", odd) == {KEY}
    observed = store.observed(KEY)
    assert observed is not None
    assert observed.dependencies == {}


def test_no_model_no_observation() -> None:
    assert Store().observed(KEY) is None

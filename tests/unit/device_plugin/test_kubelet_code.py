"""The generated code of the kubelet's contracts is what its `.proto` files give."""

from pathlib import Path

from mcp2026.device_plugin.kubelet import deviceplugin_pb2, podresources_pb2
from mcp2026.device_plugin.kubelet.generate import HERE, generate


def test_generating_again_changes_nothing(tmp_path: Path) -> None:
    made = generate(tmp_path)
    assert len(made) == 6
    for path in made:
        assert path.read_text() == (HERE / path.name).read_text(), f"{path.name}: generate it again"


def test_the_services_have_the_names_that_the_kubelet_calls() -> None:
    methods = {
        f"/{service.full_name}/{method.name}"
        for module in (deviceplugin_pb2, podresources_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert methods == {
        "/v1beta1.Registration/Register",
        "/v1beta1.DevicePlugin/GetDevicePluginOptions",
        "/v1beta1.DevicePlugin/ListAndWatch",
        "/v1beta1.DevicePlugin/GetPreferredAllocation",
        "/v1beta1.DevicePlugin/Allocate",
        "/v1beta1.DevicePlugin/PreStartContainer",
        "/v1.PodResourcesLister/List",
        "/v1.PodResourcesLister/GetAllocatableResources",
        "/v1.PodResourcesLister/Get",
    }

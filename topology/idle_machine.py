"""A machine as the status of a `GPUTopology`: all GPUs healthy, whole and free."""

from mcp2026.api.gpu_topology import GpuStatus, GPUTopologyStatus, NvLink
from mcp2026.topology.machine import Machine, ancestor_name


def idle_status(machine: Machine) -> GPUTopologyStatus:
    """Return what the device plugin would tell of `machine` while nothing runs on it."""
    return GPUTopologyStatus(
        driver=machine.driver,
        cuda=machine.cuda,
        gpus=tuple(
            GpuStatus(
                index=gpu.index,
                uuid=gpu.uuid,
                product=gpu.product,
                memory_mi_b=gpu.memory_mib,
                pci_bus_id=gpu.pci_bus_id,
                numa_node=gpu.numa_node,
                mig_capable=gpu.mig_capable,
                nvlinks=tuple(NvLink(link.link, link.peer, link.version) for link in gpu.nvlinks),
            )
            for gpu in machine.gpus
        ),
        pcie_ancestors=tuple(
            tuple(ancestor_name(ancestor) for ancestor in row) for row in machine.pcie_ancestors
        ),
    )

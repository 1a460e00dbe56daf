/* The facts of one GPU, and of a MIG device where it has them. */
#define _POSIX_C_SOURCE 200809L

#include "fake_nvml.h"

#include <stdio.h>
#include <string.h>

#define AMPERE 7
#define HOPPER 9
#define FABRIC_COMPLETED 3
#define REMOTE_SWITCH 2
#define MAX_PROCESSES 512
#define FIELD_RECOVERY_ACTION 230

typedef struct {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;

typedef struct {
    u64 total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned int version;
    u64 total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned int gpu, memory;
} nvmlUtilization_t;

typedef struct {
    unsigned int version;
    unsigned char cluster[16];
    nvmlReturn_t status;
    unsigned int clique;
    unsigned char state;
    unsigned int health;
} nvmlGpuFabricInfoV_t;

typedef struct {
    unsigned int field, scope;
    long long timestamp, latency_us;
    unsigned int type;
    nvmlReturn_t result;
    union {
        double real;
        unsigned int number;
        u64 large;
    } value;
} nvmlFieldValue_t;

/* ---- what it is ---- */

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    ENTER_DEVICE(device);
    return give_number(__func__, device->gpu, index, (u64)device->gpu);
}

API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    ENTER_DEVICE(device);
    return give_number(__func__, device->gpu, minor, (u64)device->gpu);
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    ENTER_ANY(device);
    if (device->gi == WHOLE) return give_text(__func__, device->gpu, uuid, length, gpus[device->gpu].uuid);
    struct compute_instance *compute =
        find_compute(find_instance(begin_state(), device->gpu, device->gi), device->ci);
    char found[64] = "";
    if (compute) copy_text(found, sizeof found, compute->uuid);
    end_state(0);
    return compute ? give_text("nvmlDeviceGetUUID:mig", device->gpu, uuid, length, found) : NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    ENTER_ANY(device);
    return give_text(__func__, device->gpu, name, length, gpus[device->gpu].name);
}

API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture) {
    ENTER_DEVICE(device);
    return give_number(__func__, device->gpu, architecture, gpus[device->gpu].architecture);
}

API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    ENTER_DEVICE(device);
    if (!major || !minor) return INVALID_ARGUMENT;
    int capability = gpus[device->gpu].capability;
    give_number(__func__, device->gpu, (unsigned int *)major, (u64)(capability / 10));
    return give_number(__func__, device->gpu, (unsigned int *)minor, (u64)(capability % 10));
}

static nvmlReturn_t give_pci(const char *function, int gpu, nvmlPciInfo_t *pci, const char *bus) {
    unsigned int domain, number, device;
    if (!pci || sscanf(bus, "%x:%x:%x", &domain, &number, &device) != 3) return INVALID_ARGUMENT;
    memset(pci, 0, sizeof *pci);
    pci->domain = domain;
    pci->bus = number;
    pci->device = device;
    char legacy[16], normal[32];
    snprintf(normal, sizeof normal, "%08X:%02X:%02X.0", domain, number & 0xFF, device & 0xFF);
    snprintf(legacy, sizeof legacy, "%04X:%02X:%02X.0", domain & 0xFFFF, number & 0xFF, device & 0xFF);
    copy_text(pci->bus_id_legacy, sizeof pci->bus_id_legacy, legacy);
    return give_text(function, gpu, pci->bus_id, sizeof pci->bus_id, normal);
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    ENTER_DEVICE(device);
    return give_pci(__func__, device->gpu, pci, gpus[device->gpu].bus);
}

/* The NUMA node that the GPU's own memory is: only where the CPU shares it coherently (GH200, GB200). */
API nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node) {
    ENTER_DEVICE(device);
    if (gpus[device->gpu].numa_id == UNKNOWN) return NOT_SUPPORTED;
    return give_number(__func__, device->gpu, node, (u64)gpus[device->gpu].numa_id);
}

/* The set of NUMA nodes nearest to the GPU. */
API nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long *nodes,
                                             unsigned int scope) {
    ENTER_DEVICE(device);
    int node = gpus[device->gpu].numa_node;
    if (!nodes || scope > 1) return INVALID_ARGUMENT;
    if (node == UNKNOWN) return NOT_SUPPORTED;
    if ((unsigned int)node / 64 >= words) return INSUFFICIENT_SIZE;
    memset(nodes, 0, words * sizeof *nodes);
    nodes[node / 64] = 1ul << node % 64;
    u64 nonsense;
    if (garbage(__func__, device->gpu, &nonsense, NULL, 0)) nodes[0] = (unsigned long)nonsense;
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *cpus) {
    ENTER_DEVICE(device);
    if (!cpus) return INVALID_ARGUMENT;
    const u64 *own = gpus[device->gpu].cpus;
    for (unsigned int word = 0; word < words; word++) cpus[word] = word < MAX_CPU_WORDS ? own[word] : 0;
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, unsigned int *level) {
    ENTER_DEVICE(a);
    if (index_of(b) == UNKNOWN) return INVALID_ARGUMENT;
    return give_number(__func__, a->gpu, level, ancestors[a->gpu][b->gpu]);
}

/* ---- NVLink ---- */

/* A GPU of a machine without NVLink supports none of these; link numbers beyond the machine's are invalid. */
static nvmlReturn_t check_link(unsigned int number, const void *out) {
    if (link_count == 0) return NOT_SUPPORTED;
    return out && number < link_count ? SUCCESS : INVALID_ARGUMENT;
}

static int is_up(int gpu, unsigned int number) {
    char name[32];
    snprintf(name, sizeof name, "link.%u", number);
    return gpus[gpu].links[number].exists && fact(gpu, name, 1);
}

static nvmlReturn_t link_that_is_up(nvmlDevice_t device, unsigned int number, const void *out, struct link **link) {
    nvmlReturn_t result = check_link(number, out);
    if (result != SUCCESS) return result;
    *link = &gpus[device->gpu].links[number];
    return is_up(device->gpu, number) ? SUCCESS : NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int number, unsigned int *active) {
    ENTER_DEVICE(device);
    nvmlReturn_t result = check_link(number, active);
    if (result != SUCCESS) return result;
    return give_number(__func__, device->gpu, active, (u64)is_up(device->gpu, number));
}

API nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int number, unsigned int *version) {
    ENTER_DEVICE(device);
    struct link *link;
    nvmlReturn_t result = link_that_is_up(device, number, version, &link);
    if (result != SUCCESS) return result;
    return give_number(__func__, device->gpu, version, link->version);
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int number,
                                                     unsigned int *type) {
    ENTER_DEVICE(device);
    struct link *link;
    nvmlReturn_t result = link_that_is_up(device, number, type, &link);
    if (result != SUCCESS) return result;
    return give_number(__func__, device->gpu, type, link->remote_type);
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int number,
                                                     nvmlPciInfo_t *pci) {
    ENTER_DEVICE(device);
    struct link *link;
    nvmlReturn_t result = link_that_is_up(device, number, pci, &link);
    if (result != SUCCESS) return result;
    return link->remote_bus[0] ? give_pci(__func__, device->gpu, pci, link->remote_bus) : NOT_SUPPORTED;
}

/* NVML_NVLINK_CAP_P2P_SUPPORTED 0 to NVML_NVLINK_CAP_VALID 5: P2P, atomics and validity are given. */
API nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int number, unsigned int capability,
                                               unsigned int *result) {
    ENTER_DEVICE(device);
    struct link *link;
    nvmlReturn_t refused = link_that_is_up(device, number, result, &link);
    if (refused != SUCCESS) return refused;
    if (capability > 5) return INVALID_ARGUMENT;
    *result = capability == 0 || capability == 2 || capability == 5;
    return SUCCESS;
}

/* The fabric of NVSwitches, which GPUs join since Hopper. */
API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info) {
    ENTER_DEVICE(device);
    const struct gpu *gpu = &gpus[device->gpu];
    int switched = gpu->links[0].exists && gpu->links[0].remote_type == REMOTE_SWITCH;
    if (!info || info->version != (sizeof *info | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    if (gpu->architecture < HOPPER || gpu->architecture == ~0u) return NOT_SUPPORTED;
    unsigned int state;
    give_number(__func__, device->gpu, &state, fact(device->gpu, "fabric_state", switched ? FABRIC_COMPLETED : 0));
    info->state = (unsigned char)state;
    info->status = (nvmlReturn_t)fact(device->gpu, "fabric_status", SUCCESS);
    return SUCCESS;
}

/* ---- how it is ---- */

static u64 used_mib(nvmlDevice_t device) {
    struct process all[MAX_PROCESSES];
    unsigned int count = processes(device->gpu, all, MAX_PROCESSES);
    u64 used = 0;
    for (unsigned int i = 0; i < count; i++) {
        if ((device->gi == WHOLE || all[i].gi == device->gi) && all[i].memory_mib != ~0ull) used += all[i].memory_mib;
    }
    return device->gi == WHOLE ? fact(device->gpu, "used_mib", used) : used;
}

static u64 total_mib(nvmlDevice_t device) {
    const struct gpu *gpu = &gpus[device->gpu];
    if (device->gi == WHOLE) return gpu->memory_mib;
    struct instance *instance = find_instance(begin_state(), device->gpu, device->gi);
    u64 total = 0;
    for (unsigned int i = 0; instance && i < gpu->profile_count; i++) {
        if (gpu->profiles[i].id == instance->profile_id) total = gpu->profiles[i].memory_mib;
    }
    end_state(0);
    return total;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    ENTER_ANY(device);
    if (!memory) return INVALID_ARGUMENT;
    give_long(__func__, device->gpu, &memory->total, total_mib(device) << 20);
    give_long(__func__, device->gpu, &memory->used, used_mib(device) << 20);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    ENTER_ANY(device);
    if (!memory) return INVALID_ARGUMENT;
    if (memory->version != (sizeof *memory | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    memory->total = total_mib(device) << 20;
    memory->reserved = 0;
    memory->used = used_mib(device) << 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

/* As on hardware, a GPU in MIG mode tells no utilisation. */
API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    ENTER_DEVICE(device);
    if (!rates) return INVALID_ARGUMENT;
    int mig = begin_state()->mig[device->gpu];
    end_state(0);
    if (mig) return NOT_SUPPORTED;
    give_number(__func__, device->gpu, &rates->memory, 0);
    return give_number(__func__, device->gpu, &rates->gpu, fact(device->gpu, "busy", 0));
}

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *temperature) {
    ENTER_DEVICE(device);
    if (sensor != 0) return INVALID_ARGUMENT;
    return give_number(__func__, device->gpu, temperature, fact(device->gpu, "temperature", 35));
}

API nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, u64 *reasons) {
    ENTER_DEVICE(device);
    return give_long(__func__, device->gpu, reasons, fact(device->gpu, "clocks_event_reasons", 1));
}

API nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, u64 *reasons) {
    ENTER_DEVICE(device);
    return give_long(__func__, device->gpu, reasons, fact(device->gpu, "clocks_event_reasons", 1));
}

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int type, unsigned int counter,
                                             u64 *count) {
    ENTER_DEVICE(device);
    if (type > 1 || counter > 1) return INVALID_ARGUMENT;
    return give_long(__func__, device->gpu, count, type == 1 ? fact(device->gpu, "uncorrected_ecc_errors", 0) : 0);
}

/* Rows are remapped from Ampere on, pages retired before. */
API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                                           unsigned int *pending, unsigned int *failed) {
    ENTER_DEVICE(device);
    if (gpus[device->gpu].architecture < AMPERE) return NOT_SUPPORTED;
    if (!corrected || !uncorrected) return INVALID_ARGUMENT;
    *corrected = *uncorrected = 0;
    give_number(__func__, device->gpu, failed, fact(device->gpu, "remapping_failed", 0));
    return give_number(__func__, device->gpu, pending, fact(device->gpu, "remapping_pending", 0));
}

API nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned int *pending) {
    ENTER_DEVICE(device);
    if (gpus[device->gpu].architecture >= AMPERE) return NOT_SUPPORTED;
    return give_number(__func__, device->gpu, pending, fact(device->gpu, "retirement_pending", 0));
}

API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    ENTER_DEVICE(device);
    if (!values || count < 0) return INVALID_ARGUMENT;
    for (int i = 0; i < count; i++) {
        values[i].type = 1; /* unsigned int */
        values[i].result = values[i].field == FIELD_RECOVERY_ACTION ? SUCCESS : NOT_SUPPORTED;
        give_number(__func__, device->gpu, &values[i].value.number, fact(device->gpu, "recovery_action", 0));
    }
    return SUCCESS;
}

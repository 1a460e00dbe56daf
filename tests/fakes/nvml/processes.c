/* Who uses a GPU or a MIG device, and who may. */
#define _POSIX_C_SOURCE 200809L

#include "fake_nvml.h"

#define MAX_PROCESSES 512

typedef struct {
    unsigned int pid;
    u64 memory;
    unsigned int gi, ci;
} nvmlProcessInfo_t;


static nvmlReturn_t give_processes(const char *function, nvmlDevice_t device, int mps, unsigned int *count,
                                   nvmlProcessInfo_t *out) {
    struct process all[MAX_PROCESSES];
    unsigned int total = processes(device->gpu, all, MAX_PROCESSES), found = 0;
    if (!count) return INVALID_ARGUMENT;
    u64 nonsense;
    if (garbage(function, device->gpu, &nonsense, NULL, 0)) {
        nvmlReturn_t answer = out ? SUCCESS : INSUFFICIENT_SIZE;
        *count = (unsigned int)nonsense;
        return answer;
    }
    for (unsigned int i = 0; i < total; i++) {
        if (all[i].mps != mps || (device->gi != WHOLE && all[i].gi != device->gi)) continue;
        if (out && found < *count) {
            u64 memory = all[i].memory_mib == ~0ull ? ~0ull : all[i].memory_mib << 20;
            out[found] = (nvmlProcessInfo_t){all[i].pid, memory, all[i].gi, all[i].ci};
        }
        found++;
    }
    nvmlReturn_t result = found == 0 || (out && found <= *count) ? SUCCESS : INSUFFICIENT_SIZE;
    *count = found;
    return result;
}

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                         nvmlProcessInfo_t *out) {
    ENTER_ANY(device);
    return give_processes(__func__, device, 0, count, out);
}

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                         nvmlProcessInfo_t *out) {
    ENTER_ANY(device);
    return give_processes(__func__, device, 0, count, out);
}

API nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                            nvmlProcessInfo_t *out) {
    ENTER_ANY(device);
    return give_processes(__func__, device, 1, count, out);
}

API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode) {
    ENTER_DEVICE(device);
    int kept = begin_state()->compute_mode[device->gpu];
    end_state(0);
    return give_number(__func__, device->gpu, mode, (u64)kept);
}

API nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned int mode) {
    ENTER_DEVICE(device);
    if (mode > 3) return INVALID_ARGUMENT;
    if (mode == 1) return NOT_SUPPORTED; /* one thread alone: gone from drivers since CUDA 8 */
    begin_state()->compute_mode[device->gpu] = (int)mode;
    return end_state(1);
}

/* What is in a GPU instance: compute instances, and the MIG devices that the two make. */
#define _POSIX_C_SOURCE 200809L

#include "mig.h"

#include <stdio.h>
#include <string.h>

struct nvmlComputeInstance_st {
    int gpu;
    unsigned int gi, ci;
};
typedef struct nvmlComputeInstance_st *nvmlComputeInstance_t;

typedef struct {
    unsigned int id, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa;
} nvmlComputeInstanceProfileInfo_t;

typedef struct {
    unsigned int version, id, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa;
    char name[96];
} nvmlComputeInstanceProfileInfo_v2_t;

typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t instance;
    unsigned int id, profile_id;
    nvmlPlacement_t placement;
} nvmlComputeInstanceInfo_t;

typedef struct {
    unsigned int multiprocessors, copy, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
    u64 memory_mib;
} nvmlDeviceAttributes_t;

const unsigned int COMPUTE_PROFILE_SLICES[COMPUTE_PROFILES] = {1, 2, 3, 4, 7};

static struct nvmlComputeInstance_st compute_handles[MAX_GPUS][MAX_GI][MAX_COMPUTE];

static nvmlComputeInstance_t compute_handle(int gpu, unsigned int gi, unsigned int ci) {
    compute_handles[gpu][gi][ci] = (struct nvmlComputeInstance_st){gpu, gi, ci};
    return &compute_handles[gpu][gi][ci];
}

static int gpu_of_compute(nvmlComputeInstance_t handle) {
    struct nvmlComputeInstance_st *first = &compute_handles[0][0][0];
    return handle >= first && handle < first + MAX_GPUS * MAX_GI * MAX_COMPUTE ? handle->gpu : UNKNOWN;
}

/* ---- compute instances ---- */

static unsigned int slices_of(int gpu, unsigned int gi) {
    struct instance *instance = find_instance(begin_state(), gpu, gi);
    const struct profile *profile = instance ? profile_by_id(gpu, instance->profile_id) : NULL;
    end_state(0);
    return profile ? profile->slices : 0;
}

static nvmlReturn_t check_compute_profile(nvmlGpuInstance_t handle, unsigned int index, unsigned int engine) {
    if (index >= COMPUTE_PROFILES || engine != 0) return INVALID_ARGUMENT;
    unsigned int slices = COMPUTE_PROFILE_SLICES[index], whole = slices_of(handle->gpu, handle->gi);
    if (whole == 0) return NOT_FOUND;
    return slices && slices <= whole ? SUCCESS : NOT_SUPPORTED;
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t handle, unsigned int index,
                                                              unsigned int engine,
                                                              nvmlComputeInstanceProfileInfo_t *info) {
    int gpu = gpu_of_instance(handle);
    ENTER_INSTANCE(gpu);
    nvmlReturn_t result = info ? check_compute_profile(handle, index, engine) : INVALID_ARGUMENT;
    if (result != SUCCESS) return result;
    memset(info, 0, sizeof *info);
    info->id = index;
    info->instances = slices_of(gpu, handle->gi) / COMPUTE_PROFILE_SLICES[index];
    return give_number(__func__, gpu, &info->slices, COMPUTE_PROFILE_SLICES[index]);
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t handle, unsigned int index,
                                                               unsigned int engine,
                                                               nvmlComputeInstanceProfileInfo_v2_t *info) {
    int gpu = gpu_of_instance(handle);
    ENTER_INSTANCE(gpu);
    nvmlReturn_t result = info ? check_compute_profile(handle, index, engine) : INVALID_ARGUMENT;
    if (result != SUCCESS) return result;
    if (info->version != (sizeof *info | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    info->id = index;
    info->instances = slices_of(gpu, handle->gi) / COMPUTE_PROFILE_SLICES[index];
    return give_number(__func__, gpu, &info->slices, COMPUTE_PROFILE_SLICES[index]);
}

static void make_uuid(char *out, size_t size) {
    unsigned char bytes[16] = {0};
    FILE *random = fopen("/dev/urandom", "re");
    if (!random || fread(bytes, sizeof bytes, 1, random) != 1) fprintf(stderr, "fake NVML: no random bytes\n");
    if (random) fclose(random);
    int length = snprintf(out, size, "MIG-");
    for (size_t i = 0; i < sizeof bytes; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        length += snprintf(out + length, size - (size_t)length, "%s%02x", dash, bytes[i]);
    }
}

API nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t handle, unsigned int profile,
                                                      nvmlComputeInstance_t *compute) {
    int gpu = gpu_of_instance(handle);
    ENTER_INSTANCE(gpu);
    nvmlReturn_t result = compute ? check_compute_profile(handle, profile, 0) : INVALID_ARGUMENT;
    if (result != SUCCESS) return result;
    unsigned int whole = slices_of(gpu, handle->gi);
    struct state *state = begin_state();
    struct instance *instance = find_instance(state, gpu, handle->gi);
    struct compute_instance made = {.profile = profile};
    for (unsigned int i = 0; instance && i < instance->compute_count; i++) {
        made.start += COMPUTE_PROFILE_SLICES[instance->compute[i].profile];
    }
    if (!instance || made.start + COMPUTE_PROFILE_SLICES[profile] > whole) {
        end_state(0);
        return instance ? INSUFFICIENT_RESOURCES : NOT_FOUND;
    }
    while (find_compute(instance, made.ci)) made.ci++;
    make_uuid(made.uuid, sizeof made.uuid);
    instance->compute[instance->compute_count++] = made;
    *compute = compute_handle(gpu, handle->gi, made.ci);
    return end_state(1);
}

API nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t handle) {
    int gpu = gpu_of_compute(handle);
    ENTER_INSTANCE(gpu);
    int used = busy(gpu, handle->gi, handle->ci);
    struct state *state = begin_state();
    struct instance *instance = find_instance(state, gpu, handle->gi);
    struct compute_instance *compute = find_compute(instance, handle->ci);
    nvmlReturn_t result = !compute ? NOT_FOUND : used ? IN_USE : SUCCESS;
    if (result == SUCCESS) *compute = instance->compute[--instance->compute_count];
    nvmlReturn_t written = end_state(result == SUCCESS);
    return result == SUCCESS ? written : result;
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t handle, unsigned int profile,
                                                    nvmlComputeInstance_t *compute, unsigned int *count) {
    int gpu = gpu_of_instance(handle);
    ENTER_INSTANCE(gpu);
    if (!compute || !count) return INVALID_ARGUMENT;
    const struct instance *instance = find_instance(begin_state(), gpu, handle->gi);
    unsigned int found = 0;
    for (unsigned int i = 0; instance && i < instance->compute_count; i++) {
        if (instance->compute[i].profile != profile) continue;
        compute[found++] = compute_handle(gpu, handle->gi, instance->compute[i].ci);
    }
    end_state(0);
    if (!instance) return NOT_FOUND;
    return give_number(__func__, gpu, count, found);
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t handle, unsigned int ci,
                                                       nvmlComputeInstance_t *compute) {
    int gpu = gpu_of_instance(handle);
    ENTER_INSTANCE(gpu);
    if (!compute) return INVALID_ARGUMENT;
    int found = find_compute(find_instance(begin_state(), gpu, handle->gi), ci) != NULL;
    end_state(0);
    if (!found) return NOT_FOUND;
    *compute = compute_handle(gpu, handle->gi, ci);
    return SUCCESS;
}

API nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t *info) {
    int gpu = gpu_of_compute(handle);
    ENTER_INSTANCE(gpu);
    if (!info) return INVALID_ARGUMENT;
    struct compute_instance *compute = find_compute(find_instance(begin_state(), gpu, handle->gi), handle->ci);
    struct compute_instance found = compute ? *compute : (struct compute_instance){0};
    end_state(0);
    if (!compute) return NOT_FOUND;
    info->device = handle_of(gpu, WHOLE, WHOLE);
    info->instance = instance_handle(gpu, handle->gi);
    info->id = found.ci;
    info->profile_id = found.profile;
    info->placement = (nvmlPlacement_t){found.start, COMPUTE_PROFILE_SLICES[found.profile]};
    return SUCCESS;
}

/* ---- MIG devices: a GPU instance with a compute instance ---- */

API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    ENTER_DEVICE(device);
    return give_number(__func__, device->gpu, count, gpus[device->gpu].mig == UNKNOWN ? 0 : MAX_MIG_DEVICES);
}

API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                     nvmlDevice_t *mig_device) {
    ENTER_DEVICE(device);
    if (!mig_device || index >= MAX_MIG_DEVICES) return INVALID_ARGUMENT;
    const struct state *state = begin_state();
    nvmlDevice_t found = NULL;
    for (unsigned int i = 0; state->mig[device->gpu] && i < state->count && !found; i++) {
        const struct instance *one = &state->instances[i];
        if (one->gpu != device->gpu) continue;
        if (index < one->compute_count) found = handle_of(one->gpu, one->gi, one->compute[index].ci);
        else index -= one->compute_count;
    }
    end_state(0);
    if (!found) return NOT_FOUND;
    *mig_device = found;
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig) {
    ENTER_ANY(device);
    return give_number(__func__, device->gpu, is_mig, device->gi != WHOLE);
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *gi) {
    ENTER_ANY(device);
    if (device->gi == WHOLE) return NOT_SUPPORTED;
    return give_number(__func__, device->gpu, gi, device->gi);
}

API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *ci) {
    ENTER_ANY(device);
    if (device->gi == WHOLE) return NOT_SUPPORTED;
    return give_number(__func__, device->gpu, ci, device->ci);
}

API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig_device, nvmlDevice_t *device) {
    ENTER_ANY(mig_device);
    if (!device || mig_device->gi == WHOLE) return INVALID_ARGUMENT;
    *device = handle_of(mig_device->gpu, WHOLE, WHOLE);
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    ENTER_ANY(device);
    if (!attributes) return INVALID_ARGUMENT;
    if (device->gi == WHOLE) return NOT_SUPPORTED;
    memset(attributes, 0, sizeof *attributes);
    struct instance *instance = find_instance(begin_state(), device->gpu, device->gi);
    struct compute_instance *compute = find_compute(instance, device->ci);
    const struct profile *profile = instance ? profile_by_id(device->gpu, instance->profile_id) : NULL;
    if (compute) attributes->compute_slices = COMPUTE_PROFILE_SLICES[compute->profile];
    end_state(0);
    if (!compute || !profile) return NOT_FOUND;
    attributes->gpu_slices = profile->slices;
    return give_long(__func__, device->gpu, &attributes->memory_mib, profile->memory_mib);
}

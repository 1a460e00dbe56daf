/* MIG: modes, profiles, GPU instances, compute instances and MIG devices, with the rules of hardware.
 *
 * A mode changes while no process uses the GPU, else it is pending; MIG is not left while instances exist. An
 * instance takes the memory slices of its placement and the compute slices of its profile (7 in all). It goes
 * when it has no compute instances, and those go when no process uses them. Numbers of instances are used anew,
 * UUIDs never.
 */
#define _POSIX_C_SOURCE 200809L

#include "fake_nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPUTE_SLICES 7
#define MAX_MIG_DEVICES 7
#define MAX_GI 16
#define COMPUTE_PROFILES 9

struct nvmlGpuInstance_st {
    int gpu;
    unsigned int gi;
};
typedef struct nvmlGpuInstance_st *nvmlGpuInstance_t;

struct nvmlComputeInstance_st {
    int gpu;
    unsigned int gi, ci;
};
typedef struct nvmlComputeInstance_st *nvmlComputeInstance_t;

typedef struct {
    unsigned int start, size;
} nvmlPlacement_t;

typedef struct {
    unsigned int id, p2p, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa;
    u64 memory_mib;
} nvmlGpuInstanceProfileInfo_t;

typedef struct {
    unsigned int version, id, p2p, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa;
    u64 memory_mib;
    char name[96];
} nvmlGpuInstanceProfileInfo_v2_t;

typedef struct {
    nvmlDevice_t device;
    unsigned int id, profile_id;
    nvmlPlacement_t placement;
} nvmlGpuInstanceInfo_t;

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

/* By NVML_COMPUTE_INSTANCE_PROFILE_…: 1, 2, 3, 4, 7 slices; the others are of no GPU here. */
static const unsigned int COMPUTE_PROFILE_SLICES[COMPUTE_PROFILES] = {1, 2, 3, 4, 7};

static struct nvmlGpuInstance_st instance_handles[MAX_GPUS][MAX_GI];
static struct nvmlComputeInstance_st compute_handles[MAX_GPUS][MAX_GI][MAX_COMPUTE];

static nvmlGpuInstance_t instance_handle(int gpu, unsigned int gi) {
    instance_handles[gpu][gi] = (struct nvmlGpuInstance_st){gpu, gi};
    return &instance_handles[gpu][gi];
}

static nvmlComputeInstance_t compute_handle(int gpu, unsigned int gi, unsigned int ci) {
    compute_handles[gpu][gi][ci] = (struct nvmlComputeInstance_st){gpu, gi, ci};
    return &compute_handles[gpu][gi][ci];
}

static int gpu_of_instance(nvmlGpuInstance_t handle) {
    struct nvmlGpuInstance_st *first = &instance_handles[0][0];
    return handle >= first && handle < first + MAX_GPUS * MAX_GI ? handle->gpu : UNKNOWN;
}

static int gpu_of_compute(nvmlComputeInstance_t handle) {
    struct nvmlComputeInstance_st *first = &compute_handles[0][0][0];
    return handle >= first && handle < first + MAX_GPUS * MAX_GI * MAX_COMPUTE ? handle->gpu : UNKNOWN;
}

#define ENTER_INSTANCE(handle, gpu)                     \
    do {                                                \
        nvmlReturn_t refused = enter(__func__, gpu);    \
        if (refused != SUCCESS) return refused;         \
        if ((gpu) == UNKNOWN) return INVALID_ARGUMENT;  \
    } while (0)

static const struct profile *profile_by_id(int gpu, unsigned int id) {
    for (unsigned int i = 0; i < gpus[gpu].profile_count; i++) {
        if (gpus[gpu].profiles[i].id == id) return &gpus[gpu].profiles[i];
    }
    return NULL;
}

static const struct profile *profile_by_index(int gpu, unsigned int index) {
    for (unsigned int i = 0; i < gpus[gpu].profile_count; i++) {
        if (gpus[gpu].profiles[i].index == index) return &gpus[gpu].profiles[i];
    }
    return NULL;
}

/* ---- the mode ---- */

API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    ENTER_DEVICE(device);
    if (!current || !pending) return INVALID_ARGUMENT;
    if (gpus[device->gpu].mig == UNKNOWN) return NOT_SUPPORTED;
    struct state *state = begin_state();
    int now = state->mig[device->gpu], later = state->pending[device->gpu];
    end_state(0);
    give_number(__func__, device->gpu, current, (u64)now);
    return give_number(__func__, device->gpu, pending, (u64)later);
}

API nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation) {
    ENTER_DEVICE(device);
    if (!activation || mode > 1) return INVALID_ARGUMENT;
    int gpu = device->gpu;
    if (gpus[gpu].mig == UNKNOWN) return NOT_SUPPORTED;
    nvmlReturn_t needed = fact(gpu, "mig_needs_reset", 0) ? RESET_REQUIRED : SUCCESS;
    if (busy(gpu, WHOLE, WHOLE)) needed = IN_USE;
    struct state *state = begin_state();
    int has_instances = 0;
    for (unsigned int i = 0; i < state->count; i++) has_instances |= state->instances[i].gpu == gpu;
    if (!mode && has_instances) {
        end_state(0);
        return IN_USE;
    }
    *activation = state->mig[gpu] == (int)mode ? SUCCESS : needed;
    state->pending[gpu] = (int)mode;
    if (*activation == SUCCESS) state->mig[gpu] = (int)mode;
    return end_state(1);
}

/* ---- profiles ---- */

API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int index,
                                                     nvmlGpuInstanceProfileInfo_t *info) {
    ENTER_DEVICE(device);
    const struct profile *profile = profile_by_index(device->gpu, index);
    if (!info || index > 0x11) return INVALID_ARGUMENT;
    if (!profile) return NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    give_number(__func__, device->gpu, &info->id, profile->id);
    give_number(__func__, device->gpu, &info->slices, profile->slices);
    give_number(__func__, device->gpu, &info->instances, profile->most);
    return give_long(__func__, device->gpu, &info->memory_mib, profile->memory_mib);
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int index,
                                                      nvmlGpuInstanceProfileInfo_v2_t *info) {
    ENTER_DEVICE(device);
    const struct profile *profile = profile_by_index(device->gpu, index);
    if (!info || index > 0x11) return INVALID_ARGUMENT;
    if (info->version != (sizeof *info | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    if (!profile) return NOT_SUPPORTED;
    give_number(__func__, device->gpu, &info->id, profile->id);
    give_number(__func__, device->gpu, &info->slices, profile->slices);
    give_number(__func__, device->gpu, &info->instances, profile->most);
    give_long(__func__, device->gpu, &info->memory_mib, profile->memory_mib);
    char name[128];
    snprintf(name, sizeof name, "MIG %s", profile->name);
    return give_text(__func__, device->gpu, info->name, sizeof info->name, name);
}

/* All places of a profile, taken or not, as the reference says. */
API nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int profile_id,
                                                               nvmlPlacement_t *placements, unsigned int *count) {
    ENTER_DEVICE(device);
    const struct profile *profile = profile_by_id(device->gpu, profile_id);
    if (!count) return INVALID_ARGUMENT;
    if (!profile) return NOT_SUPPORTED;
    for (unsigned int i = 0; placements && i < profile->placements; i++) {
        placements[i] = (nvmlPlacement_t){profile->starts[i], profile->size};
    }
    return give_number(__func__, device->gpu, count, profile->placements);
}

static int fits(const struct state *state, int gpu, const struct profile *profile, unsigned int start) {
    unsigned int compute = profile->slices, alike = 1;
    u64 taken = ((1ull << profile->size) - 1) << start;
    for (unsigned int i = 0; i < state->count; i++) {
        const struct instance *other = &state->instances[i];
        const struct profile *of_other = other->gpu == gpu ? profile_by_id(gpu, other->profile_id) : NULL;
        if (!of_other) continue;
        if (taken & ((1ull << of_other->size) - 1) << other->start) return 0;
        compute += of_other->slices;
        alike += of_other->id == profile->id;
    }
    return compute <= COMPUTE_SLICES && alike <= profile->most;
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int profile_id,
                                                           unsigned int *count) {
    ENTER_DEVICE(device);
    const struct profile *profile = profile_by_id(device->gpu, profile_id);
    if (!profile) return NOT_SUPPORTED;
    const struct state *state = begin_state();
    unsigned int found = 0;
    for (unsigned int i = 0; state->mig[device->gpu] && i < profile->placements; i++) {
        found += (unsigned int)fits(state, device->gpu, profile, profile->starts[i]);
    }
    end_state(0);
    return give_number(__func__, device->gpu, count, found);
}

/* ---- GPU instances ---- */

/* The smallest number that is free, from where hardware begins for instances of this size. */
static unsigned int free_number(struct state *state, int gpu, unsigned int slices) {
    unsigned int gi = slices >= 7 ? 0 : slices >= 3 ? 1 : slices == 2 ? 3 : 7;
    while (find_instance(state, gpu, gi)) gi++;
    return gi;
}

API nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int profile_id,
                                                          const nvmlPlacement_t *placement,
                                                          nvmlGpuInstance_t *instance) {
    ENTER_DEVICE(device);
    int gpu = device->gpu, possible = 0;
    const struct profile *profile = profile_by_id(gpu, profile_id);
    if (!placement || !instance) return INVALID_ARGUMENT;
    if (!profile) return NOT_SUPPORTED;
    for (unsigned int i = 0; i < profile->placements; i++) {
        possible |= profile->starts[i] == placement->start && profile->size == placement->size;
    }
    if (!possible) return INVALID_ARGUMENT;
    struct state *state = begin_state();
    nvmlReturn_t result = !state->mig[gpu] ? NOT_SUPPORTED
                          : fits(state, gpu, profile, placement->start) && state->count < MAX_INSTANCES
                              ? SUCCESS
                              : INSUFFICIENT_RESOURCES;
    if (result != SUCCESS) {
        end_state(0);
        return result;
    }
    struct instance made = {.gpu = gpu, .profile_id = profile_id, .start = placement->start};
    made.gi = free_number(state, gpu, profile->slices);
    state->instances[state->count++] = made;
    *instance = instance_handle(gpu, made.gi);
    return end_state(1);
}

API nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t handle) {
    int gpu = gpu_of_instance(handle);
    ENTER_INSTANCE(handle, gpu);
    int used = busy(gpu, handle->gi, WHOLE);
    struct state *state = begin_state();
    struct instance *instance = find_instance(state, gpu, handle->gi);
    nvmlReturn_t result = !instance ? NOT_FOUND : instance->compute_count || used ? IN_USE : SUCCESS;
    if (result == SUCCESS) *instance = state->instances[--state->count];
    nvmlReturn_t written = end_state(result == SUCCESS);
    return result == SUCCESS ? written : result;
}

API nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile_id,
                                           nvmlGpuInstance_t *instances, unsigned int *count) {
    ENTER_DEVICE(device);
    if (!instances || !count) return INVALID_ARGUMENT;
    if (!profile_by_id(device->gpu, profile_id)) return NOT_SUPPORTED;
    const struct state *state = begin_state();
    unsigned int found = 0;
    for (unsigned int i = 0; i < state->count; i++) {
        const struct instance *one = &state->instances[i];
        if (one->gpu != device->gpu || one->profile_id != profile_id) continue;
        instances[found++] = instance_handle(one->gpu, one->gi);
    }
    end_state(0);
    return give_number(__func__, device->gpu, count, found);
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int gi, nvmlGpuInstance_t *instance) {
    ENTER_DEVICE(device);
    if (!instance) return INVALID_ARGUMENT;
    int found = find_instance(begin_state(), device->gpu, gi) != NULL;
    end_state(0);
    if (!found) return NOT_FOUND;
    *instance = instance_handle(device->gpu, gi);
    return SUCCESS;
}

API nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t *info) {
    int gpu = gpu_of_instance(handle);
    ENTER_INSTANCE(handle, gpu);
    if (!info) return INVALID_ARGUMENT;
    struct instance *instance = find_instance(begin_state(), gpu, handle->gi);
    struct instance found = instance ? *instance : (struct instance){0};
    end_state(0);
    if (!instance) return NOT_FOUND;
    const struct profile *profile = profile_by_id(gpu, found.profile_id);
    info->device = handle_of(gpu, WHOLE, WHOLE);
    info->id = found.gi;
    info->profile_id = found.profile_id;
    info->placement.size = profile ? profile->size : 0;
    return give_number(__func__, gpu, &info->placement.start, found.start);
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
    ENTER_INSTANCE(handle, gpu);
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
    ENTER_INSTANCE(handle, gpu);
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
    ENTER_INSTANCE(handle, gpu);
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
    ENTER_INSTANCE(handle, gpu);
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
    ENTER_INSTANCE(handle, gpu);
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
    ENTER_INSTANCE(handle, gpu);
    if (!compute) return INVALID_ARGUMENT;
    int found = find_compute(find_instance(begin_state(), gpu, handle->gi), ci) != NULL;
    end_state(0);
    if (!found) return NOT_FOUND;
    *compute = compute_handle(gpu, handle->gi, ci);
    return SUCCESS;
}

API nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t *info) {
    int gpu = gpu_of_compute(handle);
    ENTER_INSTANCE(handle, gpu);
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

/* MIG: modes, profiles and GPU instances, with the rules of hardware; mig_devices.c has what is in them.
 *
 * A mode changes while no process uses the GPU, else it is pending; MIG is not left while instances exist. An
 * instance takes the memory slices of its placement and the compute slices of its profile (7 in all). It goes
 * when it has no compute instances, and those go when no process uses them. Numbers of instances are used anew,
 * UUIDs never.
 */
#define _POSIX_C_SOURCE 200809L

#include "mig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPUTE_SLICES 7

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

static struct nvmlGpuInstance_st instance_handles[MAX_GPUS][MAX_GI];

nvmlGpuInstance_t instance_handle(int gpu, unsigned int gi) {
    instance_handles[gpu][gi] = (struct nvmlGpuInstance_st){gpu, gi};
    return &instance_handles[gpu][gi];
}

int gpu_of_instance(nvmlGpuInstance_t handle) {
    struct nvmlGpuInstance_st *first = &instance_handles[0][0];
    return handle >= first && handle < first + MAX_GPUS * MAX_GI ? handle->gpu : UNKNOWN;
}

const struct profile *profile_by_id(int gpu, unsigned int id) {
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
    ENTER_INSTANCE(gpu);
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
    ENTER_INSTANCE(gpu);
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

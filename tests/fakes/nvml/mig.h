/* What the sources about MIG share: handles of instances, profiles. */
#ifndef FAKE_NVML_MIG_H
#define FAKE_NVML_MIG_H

#include "fake_nvml.h"

#define MAX_MIG_DEVICES 7
#define MAX_GI 16
#define COMPUTE_PROFILES 9

struct nvmlGpuInstance_st {
    int gpu;
    unsigned int gi;
};
typedef struct nvmlGpuInstance_st *nvmlGpuInstance_t;

typedef struct {
    unsigned int start, size;
} nvmlPlacement_t;

/* By NVML_COMPUTE_INSTANCE_PROFILE_…: 1, 2, 3, 4, 7 slices; the others are of no GPU here. */
extern const unsigned int COMPUTE_PROFILE_SLICES[COMPUTE_PROFILES];

nvmlGpuInstance_t instance_handle(int gpu, unsigned int gi);
int gpu_of_instance(nvmlGpuInstance_t handle);
const struct profile *profile_by_id(int gpu, unsigned int id);

#define ENTER_INSTANCE(gpu)                            \
    do {                                               \
        nvmlReturn_t refused = enter(__func__, gpu);   \
        if (refused != SUCCESS) return refused;        \
        if ((gpu) == UNKNOWN) return INVALID_ARGUMENT; \
    } while (0)

#endif

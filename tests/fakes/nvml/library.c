/* The library as a whole: its start and end, handles, and what every call begins and ends with. */
#define _POSIX_C_SOURCE 200809L

#include "fake_nvml.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_HANDLES 2048

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int references;
static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvmlDevice_st handles[MAX_HANDLES];
static unsigned int handle_count;

/* ---- what every call begins with ---- */

static pthread_once_t recording_begun = PTHREAD_ONCE_INIT;
static int recording = -1;

static void begin_recording(void) {
    const char *path = getenv("FAKE_NVML_CALLS");
    if (path) recording = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

/* The file stays open: to open it for each call would cost more than the calls of a real driver do. */
static void record_call(const char *function) {
    pthread_once(&recording_begun, begin_recording);
    if (recording < 0) return;
    char line[128];
    int length = snprintf(line, sizeof line, "%s\n", function);
    if (write(recording, line, (size_t)length) != length) fprintf(stderr, "fake NVML: cannot record a call\n");
}

nvmlReturn_t enter(const char *function, int gpu) {
    record_call(function);
    if (references == 0) return UNINITIALIZED;
    return injected(function, gpu);
}

nvmlDevice_t handle_of(int gpu, unsigned int gi, unsigned int ci) {
    struct nvmlDevice_st *found = NULL;
    pthread_mutex_lock(&handles_lock);
    for (unsigned int i = 0; i < handle_count && !found; i++) {
        if (handles[i].gpu == gpu && handles[i].gi == gi && handles[i].ci == ci) found = &handles[i];
    }
    if (!found && handle_count < MAX_HANDLES) {
        found = &handles[handle_count++];
        *found = (struct nvmlDevice_st){gpu, gi, ci};
    }
    pthread_mutex_unlock(&handles_lock);
    return found;
}

int index_of(nvmlDevice_t device) {
    if (device < handles || device >= handles + handle_count) return UNKNOWN;
    return device->gpu < (int)gpu_count ? device->gpu : UNKNOWN;
}

nvmlReturn_t enter_device(const char *function, nvmlDevice_t device, int mig_too) {
    int gpu = index_of(device);
    nvmlReturn_t result = enter(function, gpu);
    if (result != SUCCESS) return result;
    if (gpu == UNKNOWN) return INVALID_ARGUMENT;
    return mig_too || device->gi == WHOLE ? SUCCESS : INVALID_ARGUMENT;
}

/* ---- what every answer is given by ---- */

nvmlReturn_t give_text(const char *function, int gpu, char *to, unsigned int length, const char *text) {
    char nonsense[200];
    if (!to) return INVALID_ARGUMENT;
    if (garbage(function, gpu, NULL, nonsense, sizeof nonsense)) text = nonsense;
    if (strlen(text) + 1 > length) return INSUFFICIENT_SIZE;
    copy_text(to, length, text);
    return SUCCESS;
}

nvmlReturn_t give_long(const char *function, int gpu, u64 *to, u64 number) {
    if (!to) return INVALID_ARGUMENT;
    *to = number;
    garbage(function, gpu, to, NULL, 0);
    return SUCCESS;
}

nvmlReturn_t give_number(const char *function, int gpu, unsigned int *to, u64 number) {
    if (!to) return INVALID_ARGUMENT;
    u64 given;
    nvmlReturn_t result = give_long(function, gpu, &given, number);
    *to = (unsigned int)given;
    return result;
}

/* ---- start and end ---- */

static nvmlReturn_t init(const char *function) {
    record_call(function);
    nvmlReturn_t result = injected(function, UNKNOWN);
    pthread_mutex_lock(&lock);
    if (result == SUCCESS && references == 0) result = read_machine();
    if (result == SUCCESS) references++;
    pthread_mutex_unlock(&lock);
    return result;
}

API nvmlReturn_t nvmlInit_v2(void) { return init(__func__); }

API nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    return init(__func__);
}

API nvmlReturn_t nvmlShutdown(void) {
    nvmlReturn_t result = enter(__func__, UNKNOWN);
    pthread_mutex_lock(&lock);
    if (result == SUCCESS && references == 0) result = UNINITIALIZED;
    if (result == SUCCESS) references--;
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- the system ---- */

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    ENTER();
    return give_text(__func__, UNKNOWN, version, length, driver);
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    ENTER();
    return give_text(__func__, UNKNOWN, version, length, driver);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER();
    return give_number(__func__, UNKNOWN, (unsigned int *)version, (u64)cuda);
}

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    ENTER();
    return give_number(__func__, UNKNOWN, count, gpu_count);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    nvmlReturn_t refused = enter(__func__, (int)index);
    if (refused != SUCCESS) return refused;
    if (!device || index >= gpu_count) return INVALID_ARGUMENT;
    *device = handle_of((int)index, WHOLE, WHOLE);
    return SUCCESS;
}

static nvmlDevice_t mig_device(const char *uuid) {
    nvmlDevice_t found = NULL;
    struct state *state = begin_state();
    for (unsigned int i = 0; i < state->count && !found; i++) {
        struct instance *one = &state->instances[i];
        for (unsigned int c = 0; c < one->compute_count; c++) {
            if (!strcmp(one->compute[c].uuid, uuid)) found = handle_of(one->gpu, one->gi, one->compute[c].ci);
        }
    }
    end_state(0);
    return found;
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    nvmlDevice_t found = NULL;
    for (unsigned int i = 0; uuid && i < gpu_count && !found; i++) {
        if (!strcmp(gpus[i].uuid, uuid)) found = handle_of((int)i, WHOLE, WHOLE);
    }
    if (uuid && !found && !strncmp(uuid, "MIG-", 4)) found = mig_device(uuid);
    nvmlReturn_t refused = enter(__func__, found ? found->gpu : UNKNOWN);
    if (refused != SUCCESS) return refused;
    if (!uuid || !device) return INVALID_ARGUMENT;
    if (!found) return NOT_FOUND;
    *device = found;
    return SUCCESS;
}

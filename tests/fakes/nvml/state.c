/* What calls can change and hardware keeps: MIG modes and instances, compute modes. A file, so that the plugin
 * after a restart, and any other program beside it, see one truth. Its lines:
 *
 *   mig <gpu> <current> <pending>
 *   compute_mode <gpu> <mode>
 *   instance <gpu> <gi> <profile id> <start>
 *   compute_instance <gpu> <gi> <ci> <profile> <start> <uuid>   after the line of its instance
 *
 * Whoever reads or writes it holds the lock of <file>.lock (flock).
 */
#define _DEFAULT_SOURCE

#include "fake_nvml.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct state state;
static int lock_file = -1;

static void first_state(void) {
    memset(&state, 0, sizeof state);
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) state.mig[gpu] = state.pending[gpu] = gpus[gpu].mig == 1;
}

struct instance *find_instance(struct state *in, int gpu, unsigned int gi) {
    for (unsigned int i = 0; i < in->count; i++) {
        if (in->instances[i].gpu == gpu && in->instances[i].gi == gi) return &in->instances[i];
    }
    return NULL;
}

struct compute_instance *find_compute(struct instance *instance, unsigned int ci) {
    for (unsigned int i = 0; instance && i < instance->compute_count; i++) {
        if (instance->compute[i].ci == ci) return &instance->compute[i];
    }
    return NULL;
}

static void read_line(const char *line) {
    int gpu, current, pending;
    struct instance instance = {0};
    struct compute_instance compute = {0};
    if (sscanf(line, "mig %d %d %d", &gpu, &current, &pending) == 3 && gpu >= 0 && gpu < MAX_GPUS) {
        state.mig[gpu] = current;
        state.pending[gpu] = pending;
    } else if (sscanf(line, "compute_mode %d %d", &gpu, &current) == 2 && gpu >= 0 && gpu < MAX_GPUS) {
        state.compute_mode[gpu] = current;
    } else if (sscanf(line, "instance %d %u %u %u", &instance.gpu, &instance.gi, &instance.profile_id,
                      &instance.start) == 4) {
        if (state.count < MAX_INSTANCES) state.instances[state.count++] = instance;
    } else if (sscanf(line, "compute_instance %d %u %u %u %u %63s", &gpu, &instance.gi, &compute.ci,
                      &compute.profile, &compute.start, compute.uuid) == 6) {
        struct instance *found = find_instance(&state, gpu, instance.gi);
        if (found && found->compute_count < MAX_COMPUTE) found->compute[found->compute_count++] = compute;
    } else fprintf(stderr, "fake NVML: cannot read the line of the state: %s", line);
}

struct state *begin_state(void) {
    pthread_mutex_lock(&lock);
    const char *path = getenv("FAKE_NVML_STATE");
    if (!path) return &state;
    char name[4096];
    snprintf(name, sizeof name, "%s.lock", path);
    lock_file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock_file < 0) lock_file = open(name, O_RDONLY | O_CLOEXEC); /* mounted read-only */
    if (lock_file >= 0) flock(lock_file, LOCK_EX);
    first_state();
    FILE *file = fopen(path, "re");
    char line[256];
    while (file && fgets(line, sizeof line, file)) read_line(line);
    if (file) fclose(file);
    return &state;
}

static nvmlReturn_t write_state(const char *path) {
    char name[4096];
    snprintf(name, sizeof name, "%s.unfinished", path);
    FILE *file = fopen(name, "we");
    if (!file) return NO_PERMISSION;
    for (unsigned int gpu = 0; gpu < gpu_count; gpu++) {
        fprintf(file, "mig %u %d %d\n", gpu, state.mig[gpu], state.pending[gpu]);
        fprintf(file, "compute_mode %u %d\n", gpu, state.compute_mode[gpu]);
    }
    for (unsigned int i = 0; i < state.count; i++) {
        const struct instance *one = &state.instances[i];
        fprintf(file, "instance %d %u %u %u\n", one->gpu, one->gi, one->profile_id, one->start);
        for (unsigned int c = 0; c < one->compute_count; c++) {
            const struct compute_instance *compute = &one->compute[c];
            fprintf(file, "compute_instance %d %u %u %u %u %s\n", one->gpu, one->gi, compute->ci, compute->profile,
                    compute->start, compute->uuid);
        }
    }
    if (fclose(file)) return NO_PERMISSION;
    return rename(name, path) ? NO_PERMISSION : SUCCESS;
}

nvmlReturn_t end_state(int changed) {
    const char *path = getenv("FAKE_NVML_STATE");
    nvmlReturn_t result = changed && path ? write_state(path) : SUCCESS;
    if (lock_file >= 0) close(lock_file);
    lock_file = -1;
    pthread_mutex_unlock(&lock);
    return result;
}

/* Events. A test appends lines to the file FAKE_NVML_EVENTS: "event <gpu> <type> <data> <gi> <ci>". Each event
 * set gets those that came after it was made, in the order of the file; inotify wakes who waits.
 */
#define _DEFAULT_SOURCE

#include "fake_nvml.h"

#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#define MAX_SETS 64

struct nvmlEventSet_st {
    int used;
    int notices; /* the file descriptor of inotify */
    off_t read_up_to;
    u64 types[MAX_GPUS];
};
typedef struct nvmlEventSet_st *nvmlEventSet_t;

typedef struct {
    nvmlDevice_t device;
    u64 type, data;
    unsigned int gi, ci;
} nvmlEventData_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvmlEventSet_st sets[MAX_SETS];

static int open_events(void) {
    const char *path = getenv("FAKE_NVML_EVENTS");
    return path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

/* Woken by new events and, as the control file is replaced by rename, by new faults. */
static int watch(void) {
    int notices = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    const char *events = getenv("FAKE_NVML_EVENTS"), *control = getenv("FAKE_NVML_CONTROL");
    if (notices >= 0 && events) inotify_add_watch(notices, events, IN_MODIFY);
    if (notices >= 0 && control) {
        char path[4096];
        copy_text(path, sizeof path, control);
        inotify_add_watch(notices, dirname(path), IN_MOVED_TO);
    }
    return notices;
}

API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    ENTER();
    if (!set) return INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    nvmlEventSet_t made = NULL;
    for (int i = 0; i < MAX_SETS && !made; i++) {
        if (!sets[i].used) made = &sets[i];
    }
    if (made) {
        memset(made, 0, sizeof *made);
        made->used = 1;
        made->notices = watch();
        int file = open_events();
        made->read_up_to = file < 0 ? 0 : lseek(file, 0, SEEK_END);
        if (file >= 0) close(file);
    }
    pthread_mutex_unlock(&lock);
    *set = made;
    return made ? SUCCESS : INSUFFICIENT_RESOURCES;
}

static int is_set(nvmlEventSet_t set) { return set >= sets && set < sets + MAX_SETS && set->used; }

API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    ENTER();
    if (!is_set(set)) return INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    if (set->notices >= 0) close(set->notices);
    set->used = 0;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, u64 *types) {
    ENTER_DEVICE(device);
    return give_long(__func__, device->gpu, types, gpus[device->gpu].events);
}

API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, u64 types, nvmlEventSet_t set) {
    ENTER_DEVICE(device);
    if (!is_set(set)) return INVALID_ARGUMENT;
    if (types & ~gpus[device->gpu].events) return NOT_SUPPORTED;
    set->types[device->gpu] |= types;
    return SUCCESS;
}

/* The next event of the file that the set asks for; lines that are not complete yet are left. */
static int next_event(nvmlEventSet_t set, nvmlEventData_t *data) {
    int file = open_events();
    if (file < 0) return 0;
    FILE *stream = fdopen(file, "r");
    if (!stream) return 0;
    fseeko(stream, set->read_up_to, SEEK_SET);
    char line[256];
    int found = 0;
    while (!found && fgets(line, sizeof line, stream) && strchr(line, '\n')) {
        int gpu;
        nvmlEventData_t event;
        set->read_up_to = ftello(stream);
        if (sscanf(line, "event %d %llu %llu %u %u", &gpu, &event.type, &event.data, &event.gi, &event.ci) != 5) {
            fprintf(stderr, "fake NVML: cannot read the event: %s", line);
            continue;
        }
        if (gpu < 0 || gpu >= (int)gpu_count || !(set->types[gpu] & event.type)) continue;
        event.device = handle_of(gpu, WHOLE, WHOLE);
        *data = event;
        found = 1;
    }
    fclose(stream);
    return found;
}

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    ENTER();
    if (!data || !is_set(set)) return INVALID_ARGUMENT;
    long long end = now_ms() + timeout_ms;
    while (!next_event(set, data)) {
        long long left = end - now_ms();
        if (left <= 0) return TIMEOUT;
        struct pollfd waiting = {set->notices, POLLIN, 0};
        poll(&waiting, 1, (int)left);
        char notices[4096];
        while (read(set->notices, notices, sizeof notices) > 0) continue;
        nvmlReturn_t refused = injected(__func__, UNKNOWN);
        if (refused != SUCCESS) return refused;
    }
    u64 nonsense;
    if (garbage(__func__, data->device->gpu, &nonsense, NULL, 0)) data->device = (nvmlDevice_t)(size_t)nonsense;
    return SUCCESS;
}

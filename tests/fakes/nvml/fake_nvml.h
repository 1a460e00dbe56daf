/* A libnvidia-ml.so.1 without a driver: answers from a description of a machine.
 *
 * FAKE_NVML_MACHINE  the description (written by machine_lines.py), read by each first nvmlInit
 * FAKE_NVML_CONTROL  optional: faults, facts and processes (control.c). Read again at every call, so that a
 *                    test changes them while the program runs.
 * FAKE_NVML_STATE    optional: what a call can change and hardware keeps: MIG, compute modes (state.c). Shared
 *                    by all processes that name the same file.
 * FAKE_NVML_EVENTS   optional: a file to which a test appends events (events.c)
 * FAKE_NVML_CALLS    optional: a file to which the name of each call is appended
 *
 * Signatures and structures are those of the public NVML reference, as pynvml declares them. Only libc is
 * needed, and of it only what glibc 2.36 has. A new function starts with ENTER, ENTER_DEVICE or ENTER_ANY; a
 * new fixed fact of a GPU is a field of struct gpu and a branch in read_gpu_line; a fact that changes is read
 * by fact().
 */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#include <stddef.h>

#define API __attribute__((visibility("default")))

#define MAX_GPUS 64
#define MAX_LINKS 36
#define MAX_CPU_WORDS 64
#define MAX_PROFILES 16
#define MAX_PLACEMENTS 8
#define UNKNOWN (-1)

typedef unsigned int nvmlReturn_t;
typedef unsigned long long u64;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    RESET_REQUIRED = 16,
    IN_USE = 19,
    INSUFFICIENT_RESOURCES = 23,
    ARGUMENT_VERSION_MISMATCH = 25,
    HANG = 100000,  /* no codes of NVML's: what the control file may ask for */
    DELAY = 100001,
};

/* ---- the machine (machine.c) ---- */

struct link {
    int exists; /* is up, unless the control file takes it down */
    unsigned int remote_type;
    unsigned int version;
    char remote_bus[32];
};

struct profile {
    unsigned int index; /* NVML_GPU_INSTANCE_PROFILE_… */
    unsigned int id;
    unsigned int slices; /* of compute */
    unsigned int most;
    unsigned int size; /* in memory slices */
    u64 memory_mib;
    char name[96];
    unsigned int starts[MAX_PLACEMENTS];
    unsigned int placements;
};

struct gpu {
    char uuid[96];
    char name[96];
    char bus[32];
    u64 memory_mib;
    int numa_node;
    int numa_id;
    int mig; /* UNKNOWN: not capable; else the mode in which it is at first */
    unsigned int architecture;
    int capability; /* 10 × major + minor */
    u64 events;     /* the types of events that it supports */
    u64 cpus[MAX_CPU_WORDS];
    struct link links[MAX_LINKS];
    struct profile profiles[MAX_PROFILES];
    unsigned int profile_count;
};

extern char driver[80];
extern int cuda;
extern unsigned int gpu_count;
extern unsigned int link_count; /* the most that any GPU of the machine has */
extern struct gpu gpus[MAX_GPUS];
extern unsigned int ancestors[MAX_GPUS][MAX_GPUS];

nvmlReturn_t read_machine(void);
void copy_text(char *to, size_t size, const char *from);

/* ---- the control file (control.c) ---- */

struct process {
    int gpu;
    unsigned int pid;
    u64 memory_mib; /* all ones: not told */
    unsigned int gi, ci;
    int mps;
};

nvmlReturn_t injected(const char *function, int gpu);
u64 fact(int gpu, const char *name, u64 otherwise);
int garbage(const char *function, int gpu, u64 *number, char *text, size_t size);
unsigned int processes(int gpu, struct process *out, unsigned int most);
int busy(int gpu, unsigned int gi, unsigned int ci);

/* ---- what hardware keeps (state.c) ---- */

#define MAX_INSTANCES 512
#define MAX_COMPUTE 8

struct compute_instance {
    unsigned int ci;
    unsigned int profile; /* NVML_COMPUTE_INSTANCE_PROFILE_… */
    unsigned int start;
    char uuid[64];
};

struct instance {
    int gpu;
    unsigned int gi;
    unsigned int profile_id;
    unsigned int start;
    unsigned int compute_count;
    struct compute_instance compute[MAX_COMPUTE];
};

struct state {
    int mig[MAX_GPUS], pending[MAX_GPUS], compute_mode[MAX_GPUS];
    unsigned int count;
    struct instance instances[MAX_INSTANCES];
};

/* Begins with the lock taken; end_state gives it back, and writes what was changed if `changed`. */
struct state *begin_state(void);
nvmlReturn_t end_state(int changed);
struct instance *find_instance(struct state *state, int gpu, unsigned int gi);
struct compute_instance *find_compute(struct instance *instance, unsigned int ci);

/* ---- handles and what every call begins with (library.c) ---- */

#define WHOLE 0xFFFFFFFFu /* the gi and ci of a GPU that is not a MIG device */

struct nvmlDevice_st {
    int gpu;
    unsigned int gi, ci;
};
typedef struct nvmlDevice_st *nvmlDevice_t;

nvmlDevice_t handle_of(int gpu, unsigned int gi, unsigned int ci);
int index_of(nvmlDevice_t device);
nvmlReturn_t enter(const char *function, int gpu);
nvmlReturn_t enter_device(const char *function, nvmlDevice_t device, int mig_too);
nvmlReturn_t give_text(const char *function, int gpu, char *to, unsigned int length, const char *text);
nvmlReturn_t give_number(const char *function, int gpu, unsigned int *to, u64 number);
nvmlReturn_t give_long(const char *function, int gpu, u64 *to, u64 number);

#define ENTER()                                          \
    do {                                                 \
        nvmlReturn_t refused = enter(__func__, UNKNOWN); \
        if (refused != SUCCESS) return refused;          \
    } while (0)

#define ENTER_DEVICE(device)                                      \
    do {                                                          \
        nvmlReturn_t refused = enter_device(__func__, device, 0); \
        if (refused != SUCCESS) return refused;                   \
    } while (0)

/* For functions that take the handle of a MIG device too. */
#define ENTER_ANY(device)                                         \
    do {                                                          \
        nvmlReturn_t refused = enter_device(__func__, device, 1); \
        if (refused != SUCCESS) return refused;                   \
    } while (0)

#endif

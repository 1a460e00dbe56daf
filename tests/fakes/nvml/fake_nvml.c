/* A libnvidia-ml.so.1 without a driver: answers from a description of a machine.
 *
 * FAKE_NVML_MACHINE  the description (written by compile_machine in __init__.py), read by each first nvmlInit
 * FAKE_NVML_CONTROL  optional: errors to return instead of answers. Read again at every call, so that a test
 *                    changes them while the program runs. A line is "<function> <gpu> <error>": the function
 *                    or *, the GPU's index or * (calls without a GPU match * alone), the error by its NVML
 *                    name or its number, or HANG for a call that never returns. The first line that
 *                    matches is taken.
 * FAKE_NVML_CALLS    optional: a file to which the name of each call is appended
 *
 * Signatures and structures are those of the public NVML reference, as pynvml declares them. Only libc is
 * needed, and of it only what glibc 2.36 has. A new function starts with ENTER or ENTER_DEVICE; a new fact of
 * a GPU is a field of struct nvmlDevice_st and a branch in read_gpu_line.
 */
#define _POSIX_C_SOURCE 200809L

#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_GPUS 64
#define MAX_LINKS 36
#define MAX_CPU_WORDS 64
#define UNKNOWN (-1)

typedef unsigned int nvmlReturn_t;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    ARGUMENT_VERSION_MISMATCH = 25,
    HANG = 100000, /* no code of NVML's */
};

struct error_name {
    nvmlReturn_t code;
    const char *name;
    const char *text;
};

static const struct error_name ERRORS[] = {
    {0, "NVML_SUCCESS", "Success"},
    {1, "NVML_ERROR_UNINITIALIZED", "Uninitialized"},
    {2, "NVML_ERROR_INVALID_ARGUMENT", "Invalid Argument"},
    {3, "NVML_ERROR_NOT_SUPPORTED", "Not Supported"},
    {4, "NVML_ERROR_NO_PERMISSION", "Insufficient Permissions"},
    {5, "NVML_ERROR_ALREADY_INITIALIZED", "Already Initialized"},
    {6, "NVML_ERROR_NOT_FOUND", "Not Found"},
    {7, "NVML_ERROR_INSUFFICIENT_SIZE", "Insufficient Size"},
    {8, "NVML_ERROR_INSUFFICIENT_POWER", "Insufficient External Power"},
    {9, "NVML_ERROR_DRIVER_NOT_LOADED", "Driver Not Loaded"},
    {10, "NVML_ERROR_TIMEOUT", "Timeout"},
    {11, "NVML_ERROR_IRQ_ISSUE", "Interrupt Request Issue"},
    {12, "NVML_ERROR_LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"},
    {13, "NVML_ERROR_FUNCTION_NOT_FOUND", "Function Not Found"},
    {14, "NVML_ERROR_CORRUPTED_INFOROM", "Corrupted infoROM"},
    {15, "NVML_ERROR_GPU_IS_LOST", "GPU is lost"},
    {16, "NVML_ERROR_RESET_REQUIRED", "GPU requires restart"},
    {17, "NVML_ERROR_OPERATING_SYSTEM", "The operating system has blocked the request"},
    {18, "NVML_ERROR_LIB_RM_VERSION_MISMATCH", "RM has detected an NVML/RM version mismatch"},
    {19, "NVML_ERROR_IN_USE", "In use by another client"},
    {20, "NVML_ERROR_MEMORY", "Insufficient Memory"},
    {21, "NVML_ERROR_NO_DATA", "No data"},
    {23, "NVML_ERROR_INSUFFICIENT_RESOURCES", "Insufficient Resources"},
    {25, "NVML_ERROR_ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"},
    {26, "NVML_ERROR_DEPRECATED", "Deprecated"},
    {27, "NVML_ERROR_NOT_READY", "Not ready"},
    {28, "NVML_ERROR_GPU_NOT_FOUND", "GPU not found"},
    {29, "NVML_ERROR_INVALID_STATE", "Invalid state"},
    {999, "NVML_ERROR_UNKNOWN", "Unknown Error"},
};

struct link {
    int active;
    unsigned int remote_type;
    unsigned int version;
    char remote_bus[32];
};

struct nvmlDevice_st {
    char uuid[96];
    char name[96];
    char bus[32];
    unsigned long long memory_mib;
    unsigned long long used_mib;
    int numa_node;
    int numa_id;
    int mig;
    unsigned int architecture;
    unsigned long long cpus[MAX_CPU_WORDS];
    struct link links[MAX_LINKS];
};

typedef struct nvmlDevice_st *nvmlDevice_t;

typedef struct {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int references;
static char driver[80];
static int cuda;
static unsigned int gpu_count;
static unsigned int link_count; /* the most that any GPU of the machine has */
static struct nvmlDevice_st gpus[MAX_GPUS];
static unsigned int ancestors[MAX_GPUS][MAX_GPUS];

/* ---- the machine ---- */

static void copy_text(char *to, size_t size, const char *from) {
    size_t length = strlen(from);
    if (length >= size) length = size - 1;
    memcpy(to, from, length);
    to[length] = 0;
}

static int read_gpu_line(const char *line) {
    unsigned int index;
    char field[32], value[512];
    if (sscanf(line, "gpu %u %31s %511[^\n]", &index, field, value) != 3 || index >= MAX_GPUS) return 0;
    struct nvmlDevice_st *gpu = &gpus[index];
    if (index >= gpu_count) gpu_count = index + 1;
    if (!strcmp(field, "uuid")) copy_text(gpu->uuid, sizeof gpu->uuid, value);
    else if (!strcmp(field, "name")) copy_text(gpu->name, sizeof gpu->name, value);
    else if (!strcmp(field, "bus")) copy_text(gpu->bus, sizeof gpu->bus, value);
    else if (!strcmp(field, "memory_mib")) gpu->memory_mib = strtoull(value, NULL, 10);
    else if (!strcmp(field, "used_mib")) gpu->used_mib = strtoull(value, NULL, 10);
    else if (!strcmp(field, "numa_node")) gpu->numa_node = atoi(value);
    else if (!strcmp(field, "numa_id")) gpu->numa_id = atoi(value);
    else if (!strcmp(field, "mig")) gpu->mig = atoi(value);
    else if (!strcmp(field, "architecture")) gpu->architecture = (unsigned int)atoi(value);
    else if (!strcmp(field, "cpus")) {
        char *rest = value;
        for (int word = 0; word < MAX_CPU_WORDS && *rest; word++) gpu->cpus[word] = strtoull(rest, &rest, 16);
    } else return 0;
    return 1;
}

static int read_line(const char *line) {
    unsigned int a, b, number, type, version;
    char text[80];
    if (!strncmp(line, "gpu ", 4)) return read_gpu_line(line);
    if (sscanf(line, "driver %79s", text) == 1) {
        copy_text(driver, sizeof driver, text);
        return 1;
    }
    if (sscanf(line, "cuda %u", &number) == 1) {
        cuda = (int)number;
        return 1;
    }
    if (sscanf(line, "link %u %u %u %u %31s", &a, &number, &type, &version, text) == 5) {
        if (a >= MAX_GPUS || number >= MAX_LINKS) return 0;
        struct link *link = &gpus[a].links[number];
        link->active = 1;
        link->remote_type = type;
        link->version = version;
        copy_text(link->remote_bus, sizeof link->remote_bus, strcmp(text, "-") ? text : "");
        if (number >= link_count) link_count = number + 1;
        return 1;
    }
    if (sscanf(line, "ancestor %u %u %u", &a, &b, &number) == 3) {
        if (a >= MAX_GPUS || b >= MAX_GPUS) return 0;
        ancestors[a][b] = number;
        return 1;
    }
    return 0;
}

static nvmlReturn_t read_machine(void) {
    const char *path = getenv("FAKE_NVML_MACHINE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) {
        fprintf(stderr, "fake NVML: FAKE_NVML_MACHINE names no readable file\n");
        return DRIVER_NOT_LOADED;
    }
    memset(gpus, 0, sizeof gpus);
    for (int index = 0; index < MAX_GPUS; index++) {
        gpus[index].numa_node = gpus[index].numa_id = gpus[index].mig = UNKNOWN;
    }
    gpu_count = link_count = 0;
    char line[1024];
    nvmlReturn_t result = SUCCESS;
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '\n' || line[0] == '#' || read_line(line)) continue;
        fprintf(stderr, "fake NVML: %s: cannot read the line: %s", path, line);
        result = DRIVER_NOT_LOADED;
    }
    fclose(file);
    return result;
}

/* ---- what every call begins with ---- */

static nvmlReturn_t error_code(const char *name) {
    if (!strcmp(name, "HANG")) return HANG;
    if (isdigit((unsigned char)name[0])) return (nvmlReturn_t)atoi(name);
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) {
        if (!strcmp(ERRORS[i].name, name)) return ERRORS[i].code;
    }
    fprintf(stderr, "fake NVML: unknown error in the control file: %s\n", name);
    return 999;
}

static void record_call(const char *function) {
    const char *path = getenv("FAKE_NVML_CALLS");
    if (!path) return;
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (file < 0) return;
    char line[128];
    int length = snprintf(line, sizeof line, "%s\n", function);
    if (write(file, line, (size_t)length) != length) fprintf(stderr, "fake NVML: cannot record a call\n");
    close(file);
}

/* The error that the control file asks for, or success. `index` is UNKNOWN where no GPU is concerned. */
static nvmlReturn_t injected(const char *function, int index) {
    const char *path = getenv("FAKE_NVML_CONTROL");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return SUCCESS;
    char line[256], wanted[96], gpu[16], error[64];
    nvmlReturn_t result = SUCCESS;
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#' || sscanf(line, "%95s %15s %63s", wanted, gpu, error) != 3) continue;
        if (strcmp(wanted, "*") && strcmp(wanted, function)) continue;
        if (strcmp(gpu, "*") && (index == UNKNOWN || atoi(gpu) != index)) continue;
        result = error_code(error);
        break;
    }
    fclose(file);
    while (result == HANG) pause();
    return result;
}

static nvmlReturn_t enter(const char *function, int index) {
    record_call(function);
    if (references == 0) return UNINITIALIZED;
    return injected(function, index);
}

static int index_of(nvmlDevice_t device) {
    if (device < gpus || device >= gpus + gpu_count) return UNKNOWN;
    return (int)(device - gpus);
}

static nvmlReturn_t enter_device(const char *function, nvmlDevice_t device) {
    int index = index_of(device);
    nvmlReturn_t result = enter(function, index);
    if (result != SUCCESS) return result;
    return index == UNKNOWN ? INVALID_ARGUMENT : SUCCESS;
}

#define ENTER()                                          \
    do {                                                 \
        nvmlReturn_t refused = enter(__func__, UNKNOWN); \
        if (refused != SUCCESS) return refused;          \
    } while (0)

#define ENTER_DEVICE(device)                                   \
    do {                                                       \
        nvmlReturn_t refused = enter_device(__func__, device); \
        if (refused != SUCCESS) return refused;                \
    } while (0)

static nvmlReturn_t give_text(char *to, unsigned int length, const char *text) {
    if (!to) return INVALID_ARGUMENT;
    if (strlen(text) + 1 > length) return INSUFFICIENT_SIZE;
    copy_text(to, length, text);
    return SUCCESS;
}

static nvmlReturn_t give_pci(nvmlPciInfo_t *pci, const char *bus) {
    unsigned int domain, number, device;
    if (!pci || sscanf(bus, "%x:%x:%x", &domain, &number, &device) != 3) return INVALID_ARGUMENT;
    memset(pci, 0, sizeof *pci);
    pci->domain = domain;
    pci->bus = number;
    pci->device = device;
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", domain, number & 0xFF, device & 0xFF);
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%04X:%02X:%02X.0", domain & 0xFFFF, number & 0xFF,
             device & 0xFF);
    return SUCCESS;
}

/* ---- the library ---- */

static nvmlReturn_t init(const char *function) {
    pthread_mutex_lock(&lock);
    record_call(function);
    nvmlReturn_t result = injected(function, UNKNOWN);
    if (result == SUCCESS && references == 0) result = read_machine();
    if (result == SUCCESS) references++;
    pthread_mutex_unlock(&lock);
    return result;
}

nvmlReturn_t nvmlInit_v2(void) { return init(__func__); }

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    return init(__func__);
}

nvmlReturn_t nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = enter(__func__, UNKNOWN);
    if (result == SUCCESS) references--;
    pthread_mutex_unlock(&lock);
    return result;
}

const char *nvmlErrorString(nvmlReturn_t code) {
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) {
        if (ERRORS[i].code == code) return ERRORS[i].text;
    }
    return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    ENTER();
    return give_text(version, length, driver);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    ENTER();
    return give_text(version, length, driver);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER();
    if (!version) return INVALID_ARGUMENT;
    *version = cuda;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    ENTER();
    if (!count) return INVALID_ARGUMENT;
    *count = gpu_count;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    nvmlReturn_t refused = enter(__func__, (int)index);
    if (refused != SUCCESS) return refused;
    if (!device || index >= gpu_count) return INVALID_ARGUMENT;
    *device = &gpus[index];
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    int found = UNKNOWN;
    for (unsigned int i = 0; uuid && i < gpu_count; i++) {
        if (!strcmp(gpus[i].uuid, uuid)) found = (int)i;
    }
    nvmlReturn_t refused = enter(__func__, found);
    if (refused != SUCCESS) return refused;
    if (!uuid || !device) return INVALID_ARGUMENT;
    if (found == UNKNOWN) return NOT_FOUND;
    *device = &gpus[found];
    return SUCCESS;
}

/* ---- one GPU ---- */

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    ENTER_DEVICE(device);
    if (!index) return INVALID_ARGUMENT;
    *index = (unsigned int)index_of(device);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    ENTER_DEVICE(device);
    if (!minor) return INVALID_ARGUMENT;
    *minor = (unsigned int)index_of(device);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    ENTER_DEVICE(device);
    return give_text(uuid, length, device->uuid);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    ENTER_DEVICE(device);
    return give_text(name, length, device->name);
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture) {
    ENTER_DEVICE(device);
    if (!architecture) return INVALID_ARGUMENT;
    *architecture = device->architecture;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    ENTER_DEVICE(device);
    return give_pci(pci, device->bus);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    ENTER_DEVICE(device);
    if (!memory) return INVALID_ARGUMENT;
    memory->total = device->memory_mib << 20;
    memory->used = device->used_mib << 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    ENTER_DEVICE(device);
    if (!memory) return INVALID_ARGUMENT;
    if (memory->version != (sizeof *memory | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    memory->total = device->memory_mib << 20;
    memory->reserved = 0;
    memory->used = device->used_mib << 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

/* The NUMA node that the GPU's own memory is: only where the CPU shares it coherently (GH200, GB200). */
nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node) {
    ENTER_DEVICE(device);
    if (!node) return INVALID_ARGUMENT;
    if (device->numa_id == UNKNOWN) return NOT_SUPPORTED;
    *node = (unsigned int)device->numa_id;
    return SUCCESS;
}

/* The set of NUMA nodes nearest to the GPU. */
nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long *nodes,
                                         unsigned int scope) {
    ENTER_DEVICE(device);
    if (!nodes || scope > 1) return INVALID_ARGUMENT;
    if (device->numa_node == UNKNOWN) return NOT_SUPPORTED;
    if ((unsigned int)device->numa_node / 64 >= words) return INSUFFICIENT_SIZE;
    memset(nodes, 0, words * sizeof *nodes);
    nodes[device->numa_node / 64] = 1ul << device->numa_node % 64;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *cpus) {
    ENTER_DEVICE(device);
    if (!cpus) return INVALID_ARGUMENT;
    for (unsigned int word = 0; word < words; word++) cpus[word] = word < MAX_CPU_WORDS ? device->cpus[word] : 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    ENTER_DEVICE(device);
    if (!current || !pending) return INVALID_ARGUMENT;
    if (device->mig == UNKNOWN) return NOT_SUPPORTED;
    *current = *pending = (unsigned int)device->mig;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, unsigned int *level) {
    ENTER_DEVICE(a);
    if (!level || index_of(b) == UNKNOWN) return INVALID_ARGUMENT;
    *level = ancestors[index_of(a)][index_of(b)];
    return SUCCESS;
}

/* ---- NVLink ---- */

/* A GPU of a machine without NVLink supports none of these; link numbers beyond the machine's are invalid. */
static nvmlReturn_t check_link(unsigned int number, const void *out) {
    if (link_count == 0) return NOT_SUPPORTED;
    return out && number < link_count ? SUCCESS : INVALID_ARGUMENT;
}

static nvmlReturn_t active_link(nvmlDevice_t device, unsigned int number, const void *out, struct link **link) {
    nvmlReturn_t result = check_link(number, out);
    if (result != SUCCESS) return result;
    *link = &device->links[number];
    return (*link)->active ? SUCCESS : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int number, unsigned int *active) {
    ENTER_DEVICE(device);
    nvmlReturn_t result = check_link(number, active);
    if (result == SUCCESS) *active = (unsigned int)device->links[number].active;
    return result;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int number, unsigned int *version) {
    ENTER_DEVICE(device);
    struct link *link;
    nvmlReturn_t result = active_link(device, number, version, &link);
    if (result == SUCCESS) *version = link->version;
    return result;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int number, unsigned int *type) {
    ENTER_DEVICE(device);
    struct link *link;
    nvmlReturn_t result = active_link(device, number, type, &link);
    if (result == SUCCESS) *type = link->remote_type;
    return result;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int number, nvmlPciInfo_t *pci) {
    ENTER_DEVICE(device);
    struct link *link;
    nvmlReturn_t result = active_link(device, number, pci, &link);
    if (result != SUCCESS) return result;
    return link->remote_bus[0] ? give_pci(pci, link->remote_bus) : NOT_SUPPORTED;
}

/* NVML_NVLINK_CAP_P2P_SUPPORTED 0 to NVML_NVLINK_CAP_VALID 5: P2P, atomics and validity are given. */
nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int number, unsigned int capability,
                                           unsigned int *result) {
    ENTER_DEVICE(device);
    struct link *link;
    nvmlReturn_t refused = active_link(device, number, result, &link);
    if (refused != SUCCESS) return refused;
    if (capability > 5) return INVALID_ARGUMENT;
    *result = capability == 0 || capability == 2 || capability == 5;
    return SUCCESS;
}

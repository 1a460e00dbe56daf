/* The control file: what a test injects and changes while the program runs. Its lines:
 *
 *   fault <function> <gpu> <error>     the function or *; the GPU's index or * (calls without a GPU match *
 *                                      alone); the error by NVML's name or number. HANG: the call returns when
 *                                      the line is gone; DELAY:<ms>: it is answered so much later. The first
 *                                      line that matches is taken, after all delays.
 *   garbage <function> <gpu> <value>   what the function answers: a number, or hex:<bytes> for a text
 *   set <gpu> <fact> <value>           a fact that changes: temperature, clocks_event_reasons, link.<number>
 *                                      (0: down), …; see the calls of fact()
 *   process <gpu> <pid> <mib> <gi> <ci> <compute|mps>   gi and ci 4294967295: no MIG device; mib -1: not told
 */
#define _POSIX_C_SOURCE 200809L

#include "fake_nvml.h"

#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_LINES 512
#define MAX_BYTES 65536

enum kind { FAULT, GARBAGE, FACT, PROCESS };

struct line {
    enum kind kind;
    int gpu; /* UNKNOWN: all and none */
    char name[64]; /* of the function or fact */
    char value[224];
    nvmlReturn_t error;
    unsigned int delay_ms;
    struct process process;
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
    {22, "NVML_ERROR_VGPU_ECC_NOT_SUPPORTED", "The requested vgpu operation is not available"},
    {23, "NVML_ERROR_INSUFFICIENT_RESOURCES", "Insufficient Resources"},
    {24, "NVML_ERROR_FREQ_NOT_SUPPORTED", "The requested frequency is not supported"},
    {25, "NVML_ERROR_ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"},
    {26, "NVML_ERROR_DEPRECATED", "Deprecated"},
    {27, "NVML_ERROR_NOT_READY", "Not ready"},
    {28, "NVML_ERROR_GPU_NOT_FOUND", "GPU not found"},
    {29, "NVML_ERROR_INVALID_STATE", "Invalid state"},
    {999, "NVML_ERROR_UNKNOWN", "Unknown Error"},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct line lines[MAX_LINES];
static unsigned int line_count;
static char seen[MAX_BYTES];
static size_t seen_size;

API const char *nvmlErrorString(nvmlReturn_t code) {
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) {
        if (ERRORS[i].code == code) return ERRORS[i].text;
    }
    return "Unknown Error";
}

static void read_error(const char *name, struct line *line) {
    line->error = 999;
    if (!strcmp(name, "HANG")) line->error = HANG;
    else if (sscanf(name, "DELAY:%u", &line->delay_ms) == 1) line->error = DELAY;
    else if (isdigit((unsigned char)name[0])) line->error = (nvmlReturn_t)strtoul(name, NULL, 10);
    else {
        for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) {
            if (!strcmp(ERRORS[i].name, name)) line->error = ERRORS[i].code;
        }
    }
}

static int read_line(const char *text, struct line *line) {
    char gpu[16], kind[16];
    long long memory;
    struct process *process = &line->process;
    memset(line, 0, sizeof *line);
    if (sscanf(text, "process %15s %u %lld %u %u %15s", gpu, &process->pid, &memory, &process->gi, &process->ci,
               kind) == 6) {
        line->kind = PROCESS;
        process->gpu = atoi(gpu);
        process->memory_mib = memory < 0 ? ~0ull : (u64)memory;
        process->mps = !strcmp(kind, "mps");
    } else if (sscanf(text, "fault %63s %15s %223s", line->name, gpu, line->value) == 3) {
        line->kind = FAULT;
        read_error(line->value, line);
    } else if (sscanf(text, "garbage %63s %15s %223s", line->name, gpu, line->value) == 3) {
        line->kind = GARBAGE;
    } else if (sscanf(text, "set %15s %63s %223s", gpu, line->name, line->value) == 3) {
        line->kind = FACT;
    } else return 0;
    line->gpu = strcmp(gpu, "*") ? atoi(gpu) : UNKNOWN;
    return 1;
}

/* Compared by its bytes: two changes within a tick of the clock may leave name, size, inode and time alike. */
static void read_again(void) {
    static char bytes[MAX_BYTES];
    const char *path = getenv("FAKE_NVML_CONTROL");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t size = file < 0 ? 0 : read(file, bytes, sizeof bytes - 1);
    if (file >= 0) close(file);
    if (size < 0) size = 0;
    if ((size_t)size == seen_size && !memcmp(bytes, seen, seen_size)) return;
    memcpy(seen, bytes, (size_t)size);
    seen_size = (size_t)size;
    bytes[size] = 0;
    line_count = 0;
    char *rest = NULL;
    for (char *text = strtok_r(bytes, "\n", &rest); text; text = strtok_r(NULL, "\n", &rest)) {
        if (line_count < MAX_LINES && read_line(text, &lines[line_count])) line_count++;
        else fprintf(stderr, "fake NVML: cannot read the line of the control file: %s\n", text);
    }
}

static int concerns(const struct line *line, enum kind kind, const char *name, int gpu) {
    if (line->kind != kind) return 0;
    if (strcmp(line->name, "*") && strcmp(line->name, name)) return 0;
    return line->gpu == UNKNOWN || line->gpu == gpu;
}

static void sleep_ms(unsigned int ms) {
    struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

static nvmlReturn_t wanted(const char *function, int gpu, unsigned int *delay_ms) {
    nvmlReturn_t result = SUCCESS;
    pthread_mutex_lock(&lock);
    read_again();
    for (unsigned int i = 0; i < line_count && result == SUCCESS; i++) {
        if (!concerns(&lines[i], FAULT, function, gpu)) continue;
        if (lines[i].error == DELAY) *delay_ms += lines[i].delay_ms;
        else result = lines[i].error;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* The error that the control file asks for, or success; waits as long as it asks. */
nvmlReturn_t injected(const char *function, int gpu) {
    unsigned int delay_ms = 0, ignored;
    nvmlReturn_t result = wanted(function, gpu, &delay_ms);
    if (delay_ms) sleep_ms(delay_ms);
    while (result == HANG) {
        sleep_ms(10);
        result = wanted(function, gpu, &ignored);
    }
    return result;
}

/* The number that the control file gives for a fact of a GPU, or `otherwise`. */
u64 fact(int gpu, const char *name, u64 otherwise) {
    pthread_mutex_lock(&lock);
    read_again();
    for (unsigned int i = 0; i < line_count; i++) {
        if (concerns(&lines[i], FACT, name, gpu)) otherwise = strtoull(lines[i].value, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return otherwise;
}

/* Whether the function shall answer nonsense: a number, or bytes that are written to `text` with a final 0. */
int garbage(const char *function, int gpu, u64 *number, char *text, size_t size) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (unsigned int i = 0; i < line_count; i++) {
        const struct line *line = &lines[i];
        int hex = !strncmp(line->value, "hex:", 4);
        if (!concerns(line, GARBAGE, function, gpu) || hex != (text != NULL)) continue;
        found = 1;
        if (!text) {
            *number = (u64)strtoll(line->value, NULL, 0);
            if (line->value[0] != '-') *number = strtoull(line->value, NULL, 0);
            continue;
        }
        size_t length = 0;
        unsigned int byte;
        for (const char *hexes = line->value + 4; length + 1 < size && sscanf(hexes, "%2x", &byte) == 1; hexes += 2)
            text[length++] = (char)byte;
        text[length] = 0;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* The processes on a GPU, compute and MPS alike; returns how many there are. */
unsigned int processes(int gpu, struct process *out, unsigned int most) {
    unsigned int count = 0;
    pthread_mutex_lock(&lock);
    read_again();
    for (unsigned int i = 0; i < line_count; i++) {
        if (lines[i].kind != PROCESS || lines[i].process.gpu != gpu) continue;
        if (count < most) out[count] = lines[i].process;
        count++;
    }
    pthread_mutex_unlock(&lock);
    return count < most ? count : most;
}

/* Whether a process uses the GPU (gi and ci WHOLE), the GPU instance (ci WHOLE) or the compute instance. */
int busy(int gpu, unsigned int gi, unsigned int ci) {
    struct process all[MAX_LINES];
    unsigned int count = processes(gpu, all, MAX_LINES);
    for (unsigned int i = 0; i < count; i++) {
        if ((gi == WHOLE || all[i].gi == gi) && (ci == WHOLE || all[i].ci == ci)) return 1;
    }
    return 0;
}

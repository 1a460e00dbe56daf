/* The description of the machine: what hardware is, and never changes while a program runs. */
#define _POSIX_C_SOURCE 200809L

#include "fake_nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char driver[80];
int cuda;
unsigned int gpu_count;
unsigned int link_count;
struct gpu gpus[MAX_GPUS];
unsigned int ancestors[MAX_GPUS][MAX_GPUS];

void copy_text(char *to, size_t size, const char *from) {
    size_t length = strlen(from);
    if (length >= size) length = size - 1;
    memcpy(to, from, length);
    to[length] = 0;
}

static int read_gpu_line(const char *line) {
    unsigned int index;
    char field[32], value[512];
    if (sscanf(line, "gpu %u %31s %511[^\n]", &index, field, value) != 3 || index >= MAX_GPUS) return 0;
    struct gpu *gpu = &gpus[index];
    if (index >= gpu_count) gpu_count = index + 1;
    if (!strcmp(field, "uuid")) copy_text(gpu->uuid, sizeof gpu->uuid, value);
    else if (!strcmp(field, "name")) copy_text(gpu->name, sizeof gpu->name, value);
    else if (!strcmp(field, "bus")) copy_text(gpu->bus, sizeof gpu->bus, value);
    else if (!strcmp(field, "memory_mib")) gpu->memory_mib = strtoull(value, NULL, 10);
    else if (!strcmp(field, "numa_node")) gpu->numa_node = atoi(value);
    else if (!strcmp(field, "numa_id")) gpu->numa_id = atoi(value);
    else if (!strcmp(field, "mig")) gpu->mig = atoi(value);
    else if (!strcmp(field, "architecture")) gpu->architecture = (unsigned int)strtoul(value, NULL, 10);
    else if (!strcmp(field, "capability")) gpu->capability = atoi(value);
    else if (!strcmp(field, "events")) gpu->events = strtoull(value, NULL, 0);
    else if (!strcmp(field, "cpus")) {
        char *rest = value;
        for (int word = 0; word < MAX_CPU_WORDS && *rest; word++) gpu->cpus[word] = strtoull(rest, &rest, 16);
    } else return 0;
    return 1;
}

static int read_profile_line(const char *line) {
    unsigned int index;
    char starts[64];
    struct profile profile = {0};
    if (sscanf(line, "profile %u %u %u %u %u %u %llu %95s %63s", &index, &profile.index, &profile.id,
               &profile.slices, &profile.most, &profile.size, &profile.memory_mib, profile.name, starts) != 9)
        return 0;
    if (index >= MAX_GPUS || gpus[index].profile_count >= MAX_PROFILES) return 0;
    for (char *rest = starts; *rest && profile.placements < MAX_PLACEMENTS; rest += *rest == ',') {
        profile.starts[profile.placements++] = (unsigned int)strtoul(rest, &rest, 10);
    }
    gpus[index].profiles[gpus[index].profile_count++] = profile;
    return 1;
}

static int read_link_line(const char *line) {
    unsigned int gpu, number, type, version;
    char bus[32];
    if (sscanf(line, "link %u %u %u %u %31s", &gpu, &number, &type, &version, bus) != 5) return 0;
    if (gpu >= MAX_GPUS || number >= MAX_LINKS) return 0;
    struct link *link = &gpus[gpu].links[number];
    link->exists = 1;
    link->remote_type = type;
    link->version = version;
    copy_text(link->remote_bus, sizeof link->remote_bus, strcmp(bus, "-") ? bus : "");
    if (number >= link_count) link_count = number + 1;
    return 1;
}

static int read_line(const char *line) {
    unsigned int a, b, level;
    if (!strncmp(line, "gpu ", 4)) return read_gpu_line(line);
    if (!strncmp(line, "link ", 5)) return read_link_line(line);
    if (!strncmp(line, "profile ", 8)) return read_profile_line(line);
    if (sscanf(line, "driver %79s", driver) == 1) return 1;
    if (sscanf(line, "cuda %d", &cuda) == 1) return 1;
    if (sscanf(line, "ancestor %u %u %u", &a, &b, &level) == 3 && a < MAX_GPUS && b < MAX_GPUS) {
        ancestors[a][b] = level;
        return 1;
    }
    return 0;
}

nvmlReturn_t read_machine(void) {
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

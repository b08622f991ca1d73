/* A stand-in for libnvidia-ml.so.1 that needs no GPU: what gpuadvisor's collectors call, no more.
 *
 * The real nvidia-ml-py loads it in place of the driver's library (see tests/unit/conftest.py).
 * Structures and return codes are those of nvml.h. Environment variables set the scene:
 *
 *   FAKE_NVML_MODELS=h100,t4     the GPUs, from the table below; default: two H100
 *   FAKE_NVML_FAULTS=nvmlDeviceGetTotalEnergyConsumption=3,nvmlDeviceGetName@1=15
 *                                return codes of functions, of all GPUs or of one; 13 is what
 *                                nvidia-ml-py makes of a function that the library lacks
 *   FAKE_NVML_PIDS=71,72         processes that compute on every GPU
 *   FAKE_NVML_HANG=nvmlInitWithFlags     a function that never returns
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    INVALID_ARGUMENT = 2,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    MAX_GPUS = 16,
};

typedef struct {
    const char *key, *name;
    unsigned long long memory_bytes;
    int major, minor;
    unsigned power_limit_mw, sm_clock_max_mhz;
} Model;

static const Model MODELS[] = {
    {"h100", "NVIDIA H100 80GB HBM3", 85520809984ULL, 9, 0, 700000, 1980},
    {"a100", "NVIDIA A100-SXM4-40GB", 42949672960ULL, 8, 0, 400000, 1410},
    {"t4", "Tesla T4", 16106127360ULL, 7, 5, 70000, 1590},
};

typedef struct {
    const Model *model;
    unsigned index;
    unsigned long long energy_mj;
} Gpu;

static Gpu gpus[MAX_GPUS];
static unsigned gpu_count;

static const Model *model_called(const char *key, size_t length) {
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        if (strlen(MODELS[i].key) == length && !strncmp(MODELS[i].key, key, length))
            return &MODELS[i];
    return &MODELS[0];
}

static void populate(void) {
    const char *next = getenv("FAKE_NVML_MODELS");
    if (!next)
        next = "h100,h100";
    for (gpu_count = 0; *next && gpu_count < MAX_GPUS; gpu_count++) {
        size_t length = strcspn(next, ",");
        gpus[gpu_count] = (Gpu){model_called(next, length), gpu_count, 1000000};
        next += length + (next[length] == ',');
    }
}

/* The code in FAKE_NVML_FAULTS for a function, on a GPU or (NULL) none. */
static int fault(const char *function, const Gpu *gpu) {
    const char *hang = getenv("FAKE_NVML_HANG"), *next = getenv("FAKE_NVML_FAULTS");
    if (hang && !strcmp(hang, function))
        for (;;)
            pause();
    while (next && *next) {
        size_t length = strcspn(next, "@=");
        int matches = strlen(function) == length && !strncmp(next, function, length);
        const char *value = strchr(next, '=');
        int anywhere = next[length] == '=';
        if (value && matches && (anywhere || (gpu && (unsigned)atoi(next + length + 1) == gpu->index)))
            return atoi(value + 1);
        next += strcspn(next, ",");
        next += *next == ',';
    }
    return SUCCESS;
}

#define FAIL_IF_ASKED(gpu)                    \
    do {                                      \
        int code = fault(__func__, gpu);      \
        if (code)                             \
            return code;                      \
    } while (0)

int nvmlInitWithFlags(unsigned flags) { /* what nvidia-ml-py's nvmlInit() calls */
    (void)flags;
    FAIL_IF_ASKED(NULL);
    populate();
    return SUCCESS;
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
    (void)code;
    return "an error of the fake";
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    FAIL_IF_ASKED(NULL);
    snprintf(text, size, "580.95.05");
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    FAIL_IF_ASKED(NULL);
    *version = 13000;
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    FAIL_IF_ASKED(NULL);
    *count = gpu_count;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **gpu) {
    if (index >= gpu_count)
        return INVALID_ARGUMENT;
    FAIL_IF_ASKED(&gpus[index]);
    *gpu = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(Gpu *gpu, char *text, unsigned size) {
    FAIL_IF_ASKED(gpu);
    snprintf(text, size, "GPU-fa4e000%u-0000-4000-8000-%012u", gpu->index, gpu->index);
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Gpu **gpu) {
    char known[96];
    for (unsigned i = 0; i < gpu_count; i++) {
        if (nvmlDeviceGetUUID(&gpus[i], known, sizeof known) || strcmp(known, uuid))
            continue;
        FAIL_IF_ASKED(&gpus[i]);
        *gpu = &gpus[i];
        return SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetName(Gpu *gpu, char *text, unsigned size) {
    FAIL_IF_ASKED(gpu);
    snprintf(text, size, "%s", gpu->model->name);
    return SUCCESS;
}

typedef struct {
    unsigned long long total, free, used;
} Memory;

int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *memory) {
    FAIL_IF_ASKED(gpu);
    *memory = (Memory){gpu->model->memory_bytes, gpu->model->memory_bytes, 0};
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(Gpu *gpu, int *major, int *minor) {
    FAIL_IF_ASKED(gpu);
    *major = gpu->model->major;
    *minor = gpu->model->minor;
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(Gpu *gpu, unsigned long long *energy_mj) {
    FAIL_IF_ASKED(gpu);
    *energy_mj = gpu->energy_mj += 1500; /* 1.5 J between two readings */
    return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(Gpu *gpu, unsigned *limit_mw) {
    FAIL_IF_ASKED(gpu);
    *limit_mw = gpu->model->power_limit_mw;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(Gpu *gpu, int domain, unsigned *clock_mhz) {
    (void)domain;
    FAIL_IF_ASKED(gpu);
    *clock_mhz = 345;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(Gpu *gpu, int domain, unsigned *clock_mhz) {
    (void)domain;
    FAIL_IF_ASKED(gpu);
    *clock_mhz = gpu->model->sm_clock_max_mhz;
    return SUCCESS;
}

typedef struct {
    unsigned pid;
    unsigned long long memory_bytes;
    unsigned gpu_instance, compute_instance;
} Process;

static int list_processes(unsigned *count, Process *processes) {
    unsigned found = 0, room = processes ? *count : 0;
    const char *next = getenv("FAKE_NVML_PIDS");
    while (next && *next) {
        if (found < room)
            processes[found] = (Process){(unsigned)atoi(next), 1ULL << 30, ~0u, ~0u};
        found++;
        next += strcspn(next, ",");
        next += *next == ',';
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, unsigned *count, Process *processes) {
    FAIL_IF_ASKED(gpu);
    return list_processes(count, processes);
}

int nvmlDeviceGetComputeRunningProcesses_v2(Gpu *gpu, unsigned *count, Process *processes) {
    FAIL_IF_ASKED(gpu);
    return list_processes(count, processes); /* the two structures are alike */
}

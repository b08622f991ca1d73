/* The processes that have memory on the GPUs. */
typedef struct {
    unsigned pid;
    u64 memory_bytes;
    unsigned gpu_instance, compute_instance;
} Process;
typedef struct {
    unsigned pid;
    u64 memory_bytes;
} OldProcess;

static int list_processes(const Gpu *gpu, int which, unsigned *count, void *processes, int is_old) {
    unsigned found = 0, room = processes ? *count : 0;
    for (const char *next = settings[which]; *next;) {
        size_t end = strcspn(next, ",");
        const char *memory = memchr(next, ':', end), *place = memchr(next, '@', end);
        if (place && (unsigned)atoi(place + 1) != gpu->index) {
            next += end + (next[end] == ',');
            continue;
        }
        u64 bytes = !memory ? 1ULL << 30 : memory[1] == 'n' ? ~0ULL : strtoull(memory + 1, NULL, 10) << 20;
        if (found < room && is_old)
            ((OldProcess *)processes)[found] = (OldProcess){(unsigned)atoi(next), bytes};
        else if (found < room)
            ((Process *)processes)[found] = (Process){(unsigned)atoi(next), bytes, ~0u, ~0u};
        found++;
        next += end + (next[end] == ',');
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#define LISTER(function, which, is_old)                                  \
    int function(Gpu *gpu, unsigned *count, void *processes) {           \
        FAIL_IF_ASKED(gpu);                                              \
        return list_processes(gpu, which, count, processes, is_old);          \
    }

LISTER(nvmlDeviceGetComputeRunningProcesses_v3, PIDS, 0)
LISTER(nvmlDeviceGetComputeRunningProcesses_v2, PIDS, 0) /* the two structures are alike */
LISTER(nvmlDeviceGetComputeRunningProcesses, PIDS, 1)
LISTER(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS_PIDS, 0)
LISTER(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS_PIDS, 0)
LISTER(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS_PIDS, 1)

typedef struct {
    unsigned pid;
    u64 timestamp_us;
    unsigned sm, memory, encoder, decoder;
} ProcessUtilization;

int nvmlDeviceGetProcessUtilization(Gpu *gpu, ProcessUtilization *samples, unsigned *count, u64 since) {
    OF_WHOLE_GPUS(gpu);
    (void)since;
    unsigned found = 0, room = samples ? *count : 0;
    for (const char *next = settings[PROCESS_UTILIZATION]; *next; found++) {
        size_t end = strcspn(next, ",");
        const char *age = memchr(next, '~', end);
        double time_s = seconds() - (age ? atoi(age + 1) : 0);
        if (found < room)
            samples[found] = (ProcessUtilization){(unsigned)atoi(next), (u64)(time_s * 1e6),
                                                  (unsigned)atoi(strchr(next, '=') + 1), 0, 0, 0};
        next += end + (next[end] == ',');
    }
    *count = found;
    return !found ? NOT_FOUND : found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

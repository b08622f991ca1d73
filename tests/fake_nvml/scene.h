/* What the fake GPUs are and do, and what shall go wrong; see fake_nvml.c. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long u64;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    VERSION_MISMATCH = 25,
    MAX_GPUS = 64,
    MAX_INSTANCES = 7,
    TEXT = 4096,
};

typedef struct {
    const char *key, *name;
    u64 memory_bytes;
    int major, minor;
    unsigned power_limit_mw, sm_clock_max_mhz, memory_clock_max_mhz, pcie_generation;
} Model;

static const Model MODELS[] = {
    {"h100", "NVIDIA H100 80GB HBM3", 85520809984ULL, 9, 0, 700000, 1980, 2619, 5},
    {"a100", "NVIDIA A100-SXM4-40GB", 42949672960ULL, 8, 0, 400000, 1410, 1215, 4},
    {"t4", "Tesla T4", 16106127360ULL, 7, 5, 70000, 1590, 5001, 3},
};

typedef struct Gpu Gpu;
struct Gpu {
    const Model *model;
    unsigned serial, index, present, instance; /* instance: 1 to 7, 0 for a whole GPU */
    Gpu *parent;
    u64 energy_mj;
    long calls;
    int lost;
};

static Gpu gpus[MAX_GPUS], instances[MAX_GPUS][MAX_INSTANCES], *listed[MAX_GPUS];
static unsigned gpu_count;
static int users; /* of the library: nvmlInit less nvmlShutdown */

enum { LOAD, FAULTS, VALUES, LOST_AFTER, DELAY_US, HANG, PIDS, GRAPHICS_PIDS, PROCESS_UTILIZATION,
       XIDS, MIG, NVLINKS, MODELS_, SETTINGS };
static const char *const NAMES[SETTINGS] = {
    "LOAD", "FAULTS", "VALUES", "LOST_AFTER", "DELAY_US", "HANG", "PIDS", "GRAPHICS_PIDS",
    "PROCESS_UTILIZATION", "XIDS", "MIG", "NVLINKS", "MODELS"};
static char settings[SETTINGS][TEXT];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Whether "name=value,name@index=value" has one for `name` (or `*`) on a GPU, and which. */
static int look_up(int setting, const char *name, const Gpu *gpu, u64 *found) {
    for (const char *list = settings[setting]; *list;) {
        size_t key = strcspn(list, "@="), end = strcspn(list, ",");
        const char *value = memchr(list, '=', end);
        int named = (strlen(name) == key && !strncmp(list, name, key)) || (key == 1 && *list == '*');
        int placed = list[key] != '@' || (gpu && (unsigned)atoi(list + key + 1) == gpu->index);
        if (value && named && placed) {
            *found = strtoull(value + 1, NULL, 10);
            return 1;
        }
        list += end + (list[end] == ',');
    }
    return 0;
}

static const Model *model_called(const char *key, size_t length) {
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        if (strlen(MODELS[i].key) == length && !strncmp(MODELS[i].key, key, length))
            return &MODELS[i];
    return &MODELS[0];
}

static void populate(void) {
    const char *next = settings[MODELS_];
    for (unsigned i = 0; i < MAX_GPUS; i++)
        gpus[i].present = 0;
    for (gpu_count = 0; *next && gpu_count < MAX_GPUS; gpu_count++) {
        size_t key = strcspn(next, "#,"), end = strcspn(next, ",");
        unsigned serial = next[key] == '#' ? (unsigned)atoi(next + key + 1) : gpu_count;
        Gpu *gpu = &gpus[serial % MAX_GPUS];
        if (!gpu->energy_mj)
            gpu->energy_mj = 1000000;
        gpu->model = model_called(next, key);
        gpu->serial = serial;
        gpu->index = gpu_count;
        gpu->present = 1;
        listed[gpu_count] = gpu;
        next += end + (next[end] == ',');
    }
}

static void set(const char *control) {
    for (int i = 0; i < SETTINGS; i++) {
        char name[64], line[TEXT] = "";
        snprintf(name, sizeof name, "FAKE_NVML_%s", NAMES[i]);
        const char *value = getenv(name);
        snprintf(settings[i], TEXT, "%s", value ? value : i == MODELS_ ? "h100,h100" : "");
        FILE *file = control ? fopen(control, "r") : NULL;
        while (file && fgets(line, sizeof line, file)) {
            size_t length = strlen(NAMES[i]);
            line[strcspn(line, "\r\n")] = 0;
            if (!strncmp(line, NAMES[i], length) && line[length] == '=')
                snprintf(settings[i], TEXT, "%s", line + length + 1);
        }
        if (file)
            fclose(file);
    }
    populate();
}

static void refresh(void) { /* under the lock */
    static double looked_at_s;
    static struct stat seen;
    struct stat now = {0};
    const char *control;
    double time_s = seconds();
    if (time_s >= looked_at_s && time_s < looked_at_s + 0.02)
        return;
    control = getenv("FAKE_NVML_CONTROL");
    if (control && stat(control, &now))
        control = NULL;
    if (!looked_at_s || now.st_ino != seen.st_ino || now.st_size != seen.st_size ||
        now.st_mtim.tv_sec != seen.st_mtim.tv_sec || now.st_mtim.tv_nsec != seen.st_mtim.tv_nsec)
        set(control);
    seen = now;
    looked_at_s = time_s;
}

static void hang_if_asked(const char *function) {
    static long calls;
    size_t length = strcspn(settings[HANG], "#");
    if (!length || strlen(function) != length || strncmp(settings[HANG], function, length))
        return;
    if (settings[HANG][length] == '#' && calls++ < atol(settings[HANG] + length + 1))
        return;
    pthread_mutex_unlock(&lock);
    for (;;)
        pause();
}

/* The code that a function shall return, on a GPU or (NULL) none. */
static int fault(const char *function, Gpu *gpu, int needs_init) {
    u64 code = 0, delay_us = 0, patience;
    pthread_mutex_lock(&lock);
    refresh();
    if (*settings[HANG])
        hang_if_asked(function);
    look_up(DELAY_US, function, gpu, &delay_us);
    look_up(FAULTS, function, gpu, &code);
    if (gpu && look_up(LOST_AFTER, "*", gpu, &patience))
        gpu->lost |= (u64)++gpu->calls > patience;
    pthread_mutex_unlock(&lock);
    if (delay_us)
        usleep((unsigned)delay_us);
    if (needs_init && !users)
        return UNINITIALIZED;
    if (gpu && !(gpu->parent ? gpu->parent : gpu)->present)
        return INVALID_ARGUMENT;
    return gpu && gpu->lost ? GPU_IS_LOST : (int)code;
}

/* What FAKE_NVML_VALUES has for a function or field, else `value`. */
static u64 value_of(const char *name, const Gpu *gpu, u64 value) {
    look_up(VALUES, name, gpu, &value);
    return value;
}

#define FAIL_IF_ASKED_UNLESS(init, gpu)          \
    do {                                         \
        int code = fault(__func__, gpu, !(init)); \
        if (code)                                \
            return code;                         \
    } while (0)
#define FAIL_IF_ASKED(gpu) FAIL_IF_ASKED_UNLESS(0, gpu)

#define OF_WHOLE_GPUS(gpu)  \
    do {                    \
        FAIL_IF_ASKED(gpu); \
        if (gpu->parent)    \
            return NOT_SUPPORTED; \
    } while (0)

static double level(const Gpu *gpu) { /* 0 to 1 */
    if (!strcmp(settings[LOAD], "busy"))
        return gpu->index < 20 ? 1 - 0.05 * gpu->index : 0;
    if (strcmp(settings[LOAD], "wave"))
        return 0;
    double phase = seconds() / 20 - gpu->index / 10.0;
    phase -= (long long)phase;
    return phase < 0.5 ? 2 * phase : 2 - 2 * phase;
}

static u64 power_mw(const Gpu *gpu) {
    double idle_mw = gpu->model->power_limit_mw / 10.0;
    return (u64)(idle_mw + level(gpu) * (gpu->model->power_limit_mw - idle_mw));
}

static u64 memory_used(const Gpu *gpu) {
    double share = level(gpu);
    u64 whole = share > 0 ? (u64)((0.1 + share / 2) * gpu->model->memory_bytes) : 0;
    return whole / (gpu->parent ? 8 : 1) >> 20 << 20;
}

static u64 memory_total(const Gpu *gpu) {
    return gpu->model->memory_bytes / (gpu->parent ? 8 : 1);
}

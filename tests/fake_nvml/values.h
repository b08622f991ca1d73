/* The values of a GPU: one function each. */
#define GETTER(function, type, value)                           \
    int function(Gpu *gpu, type *result) {                       \
        OF_WHOLE_GPUS(gpu);                                      \
        *result = (type)value_of(__func__, gpu, (u64)(value));  \
        return SUCCESS;                                          \
    }

GETTER(nvmlDeviceGetPowerUsage, unsigned, power_mw(gpu))
GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned, gpu->model->power_limit_mw)
GETTER(nvmlDeviceGetCurrentClocksEventReasons, u64, level(gpu) == 0 ? 1 : level(gpu) > 0.9 ? 4 : 0)
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, u64, level(gpu) == 0 ? 1 : 0)
GETTER(nvmlDeviceGetPerformanceState, unsigned, level(gpu) == 0 ? 8 : 0)
GETTER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, level(gpu) == 0 ? 1 : gpu->model->pcie_generation)
GETTER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, gpu->model->pcie_generation)
GETTER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 16)
GETTER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 16)
GETTER(nvmlDeviceGetPcieReplayCounter, unsigned, 3)
GETTER(nvmlDeviceGetTotalEnergyConsumption, u64, gpu->energy_mj += 1500) /* 1.5 J a reading */

int nvmlDeviceGetFanSpeed(Gpu *gpu, unsigned *speed) {
    OF_WHOLE_GPUS(gpu);
    *speed = (unsigned)value_of(__func__, gpu, 30);
    return gpu->model->major == 9 ? NOT_SUPPORTED : SUCCESS; /* no fan on the module */
}

typedef struct {
    unsigned gpu, memory;
} Utilization;

int nvmlDeviceGetUtilizationRates(Gpu *gpu, Utilization *utilization) {
    OF_WHOLE_GPUS(gpu);
    unsigned busy = (unsigned)(100 * level(gpu) + 0.5);
    if (instances_of(gpu))
        return NOT_SUPPORTED; /* as the documentation has it of GPUs in MIG mode */
    *utilization = (Utilization){(unsigned)value_of(__func__, gpu, busy), busy / 2};
    return SUCCESS;
}

int nvmlDeviceGetEncoderUtilization(Gpu *gpu, unsigned *busy, unsigned *period_us) {
    OF_WHOLE_GPUS(gpu);
    *busy = (unsigned)value_of(__func__, gpu, 0);
    *period_us = 167000;
    return SUCCESS;
}

int nvmlDeviceGetDecoderUtilization(Gpu *gpu, unsigned *busy, unsigned *period_us) {
    OF_WHOLE_GPUS(gpu);
    *busy = (unsigned)value_of(__func__, gpu, 0);
    *period_us = 167000;
    return SUCCESS;
}

typedef struct {
    u64 total, free, used;
} Memory;
typedef struct {
    unsigned version;
    u64 total, reserved, free, used;
} MemoryV2;

int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *memory) {
    FAIL_IF_ASKED(gpu);
    u64 total = memory_total(gpu), used = value_of(__func__, gpu, memory_used(gpu));
    *memory = (Memory){total, total - used, used};
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(Gpu *gpu, MemoryV2 *memory) {
    FAIL_IF_ASKED(gpu);
    if (memory->version != 0x02000028)
        return VERSION_MISMATCH;
    u64 total = memory_total(gpu), used = value_of(__func__, gpu, memory_used(gpu));
    u64 reserved = 512ULL << 20;
    *memory = (MemoryV2){0x02000028, total, reserved, total - reserved - used, used};
    return SUCCESS;
}

static unsigned temperature_c(const Gpu *gpu) { return 30 + (unsigned)(45 * level(gpu)); }

int nvmlDeviceGetTemperature(Gpu *gpu, int sensor, unsigned *celsius) {
    OF_WHOLE_GPUS(gpu);
    *celsius = (unsigned)value_of(__func__, gpu, temperature_c(gpu));
    return sensor ? INVALID_ARGUMENT : SUCCESS;
}

typedef struct {
    unsigned version, sensor;
    int celsius;
} Temperature;

int nvmlDeviceGetTemperatureV(Gpu *gpu, Temperature *temperature) {
    OF_WHOLE_GPUS(gpu);
    if (temperature->version != 0x100000C)
        return VERSION_MISMATCH;
    temperature->celsius = (int)value_of(__func__, gpu, temperature_c(gpu));
    return SUCCESS;
}

int nvmlDeviceGetTemperatureThreshold(Gpu *gpu, int threshold, unsigned *celsius) {
    OF_WHOLE_GPUS(gpu);
    *celsius = (unsigned)value_of(__func__, gpu, threshold == 1 ? 90 : 95);
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(Gpu *gpu, int domain, unsigned *clock_mhz) {
    OF_WHOLE_GPUS(gpu);
    unsigned top = gpu->model->sm_clock_max_mhz, sm = 345 + (unsigned)(level(gpu) * (top - 345));
    *clock_mhz = (unsigned)value_of(__func__, gpu, domain == 2 ? gpu->model->memory_clock_max_mhz : sm);
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(Gpu *gpu, int domain, unsigned *clock_mhz) {
    OF_WHOLE_GPUS(gpu);
    *clock_mhz = domain == 2 ? gpu->model->memory_clock_max_mhz : gpu->model->sm_clock_max_mhz;
    return SUCCESS;
}

typedef struct {
    u64 reference_ns, violation_ns;
} Violation;

int nvmlDeviceGetViolationStatus(Gpu *gpu, int policy, Violation *violation) {
    OF_WHOLE_GPUS(gpu);
    u64 now_ns = (u64)(seconds() * 1e9);
    *violation = (Violation){now_ns, value_of(__func__, gpu, 1500000000ULL * (policy + 1))};
    return SUCCESS;
}

int nvmlDeviceGetPcieThroughput(Gpu *gpu, int direction, unsigned *kib_per_s) {
    OF_WHOLE_GPUS(gpu);
    *kib_per_s = (unsigned)value_of(__func__, gpu, direction ? 2000 : 1000);
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(Gpu *gpu, int uncorrected, int aggregate, u64 *errors) {
    OF_WHOLE_GPUS(gpu);
    *errors = value_of(__func__, gpu, aggregate ? 20 + uncorrected : 10 * !uncorrected);
    return SUCCESS;
}

int nvmlDeviceGetRemappedRows(Gpu *gpu, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed) {
    OF_WHOLE_GPUS(gpu);
    if (gpu->model->major < 8)
        return NOT_SUPPORTED;
    *corrected = (unsigned)value_of(__func__, gpu, 2);
    *uncorrected = 1;
    *pending = *failed = 0;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkState(Gpu *gpu, unsigned link, unsigned *up) {
    OF_WHOLE_GPUS(gpu);
    unsigned links = (unsigned)atoi(settings[NVLINKS]);
    if (!links)
        return NOT_SUPPORTED;
    *up = (unsigned)value_of(__func__, gpu, link != 1); /* the second is down */
    return link < links ? SUCCESS : INVALID_ARGUMENT;
}

typedef struct {
    unsigned field, scope;
    long long timestamp_us, latency_us;
    unsigned type, code;
    union {
        double d;
        unsigned u;
        u64 ull;
    } value;
} Field;

int nvmlDeviceGetFieldValues(Gpu *gpu, int count, Field *fields) {
    OF_WHOLE_GPUS(gpu);
    unsigned links = (unsigned)atoi(settings[NVLINKS]);
    for (Field *field = fields; field < fields + count; field++) {
        char name[16];
        double time_s = seconds();
        u64 value = 0;
        snprintf(name, sizeof name, "%u", field->field);
        field->timestamp_us = (long long)(time_s * 1e6);
        field->latency_us = 5;
        field->type = 1; /* unsigned int */
        field->code = fault(name, gpu, 1);
        switch (field->field) {
        case 82: /* MEMORY_TEMP */
            value = temperature_c(gpu) + 5;
            break;
        case 186: /* POWER_INSTANT */
            value = power_mw(gpu) + 5000;
            break;
        case 38:  /* NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL */
        case 91:  /* NVLINK_LINK_COUNT */
        case 138: /* NVLINK_THROUGHPUT_DATA_TX */
        case 139: /* NVLINK_THROUGHPUT_DATA_RX: 2 and 4 GiB/s */
            field->type = 3; /* unsigned long long */
            value = field->field == 38   ? 4
                    : field->field == 91 ? links
                                         : (u64)(time_s * (field->field - 137) * 2 * (1 << 20));
            if (!links && !field->code)
                field->code = NOT_SUPPORTED;
            break;
        default:
            if (!field->code)
                field->code = NOT_SUPPORTED;
        }
        value = value_of(name, gpu, value);
        if (field->type == 1)
            field->value.u = (unsigned)value;
        else
            field->value.ull = value;
    }
    return SUCCESS;
}

/* A stand-in for libnvidia-ml.so.1 that needs no GPU: what gpuadvisor's collectors call, no more.
 *
 * The real nvidia-ml-py loads it in place of the driver's library (see tests/conftest.py), and
 * makes FUNCTION_NOT_FOUND of what is not here. Structures and return codes are those of nvml.h.
 * Environment variables set the scene; so do the lines of the file FAKE_NVML_CONTROL, without
 * their prefix, which is read again when it changes (within 20 ms):
 *
 *   FAKE_NVML_MODELS=h100,t4     the GPUs, from the table below; default: two H100. `t4#5` is a T4
 *                                with the serial number 5, else they are numbered from 0
 *   FAKE_NVML_LOAD=busy          idle (default), busy (GPU n works at 100 - 5n %, for ever), or
 *                                wave (up and down every 20 s, each GPU 2 s after the one before)
 *   FAKE_NVML_FAULTS=nvmlDeviceGetTotalEnergyConsumption=3,nvmlDeviceGetName@1=15,*@0=15
 *                                return codes of functions (or all: *), of all GPUs or of one; 13
 *                                is what nvidia-ml-py makes of a function that the library lacks
 *   FAKE_NVML_VALUES=nvmlDeviceGetPowerUsage=4294967295,186@1=7
 *                                what functions (or field values, by number) give as first value
 *   FAKE_NVML_LOST_AFTER=*@1=40  a GPU that is lost for ever after so many calls
 *   FAKE_NVML_DELAY_US=nvmlDeviceGetPcieThroughput=21000     how long functions (or all: *) take
 *   FAKE_NVML_HANG=nvmlInitWithFlags#3   a function that never returns, after the third call
 *   FAKE_NVML_PIDS=71,72:none,73:512@1   processes that compute on every GPU or on one, and their
 *                                MiB (1024)
 *   FAKE_NVML_GRAPHICS_PIDS=73   processes that draw
 *   FAKE_NVML_PROCESS_UTILIZATION=71=40,72=5~60  in percent, and of how many seconds ago (0); none:
 *                                NOT_FOUND, as when idle
 *   FAKE_NVML_XIDS=0:31,1:79     Xid errors of GPUs, each told once; a longer list tells the rest
 *   FAKE_NVML_MIG=@0=2           GPUs in MIG mode, and how many instances they have
 *   FAKE_NVML_NVLINKS=18         links of every GPU; default: none
 *
 * Numbers that follow an `@` are positions, as nvidia-smi counts.
 */
#define _GNU_SOURCE
#include "scene.h"

int nvmlInitWithFlags(unsigned flags) { /* what nvidia-ml-py's nvmlInit() calls */
    (void)flags;
    FAIL_IF_ASKED_UNLESS(1, NULL);
    users++;
    return SUCCESS;
}

int nvmlShutdown(void) {
    FAIL_IF_ASKED(NULL);
    users--;
    return SUCCESS;
}

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
    FAIL_IF_ASKED(index < gpu_count ? listed[index] : NULL);
    if (index >= gpu_count)
        return INVALID_ARGUMENT;
    *gpu = listed[index];
    return SUCCESS;
}

static void uuid_of(const Gpu *gpu, char *text, unsigned size) {
    const char *kind = gpu->parent ? "MIG" : "GPU";
    snprintf(text, size, "%s-fa4e000%u-0000-4000-8000-%u%011u", kind, gpu->serial % 10,
             gpu->instance, gpu->serial);
}

int nvmlDeviceGetUUID(Gpu *gpu, char *text, unsigned size) {
    FAIL_IF_ASKED(gpu);
    uuid_of(gpu, text, size);
    return SUCCESS;
}

static unsigned instances_of(const Gpu *gpu) {
    u64 number = 0;
    if (!gpu->parent)
        look_up(MIG, "", gpu, &number);
    return number > MAX_INSTANCES ? MAX_INSTANCES : (unsigned)number;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Gpu **gpu) {
    char known[96];
    for (unsigned i = 0; i < gpu_count; i++) {
        for (unsigned part = 0; part <= instances_of(listed[i]); part++) {
            Gpu *one = part ? &instances[listed[i]->serial % MAX_GPUS][part - 1] : listed[i];
            uuid_of(one, known, sizeof known);
            if (strcmp(known, uuid))
                continue;
            FAIL_IF_ASKED(one);
            *gpu = one;
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

int nvmlDeviceGetName(Gpu *gpu, char *text, unsigned size) {
    FAIL_IF_ASKED(gpu);
    snprintf(text, size, "%s%s", gpu->model->name, gpu->parent ? " MIG 1g.10gb" : "");
    return SUCCESS;
}

int nvmlDeviceGetIndex(Gpu *gpu, unsigned *index) {
    FAIL_IF_ASKED(gpu);
    *index = gpu->index;
    return SUCCESS;
}

typedef struct {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} Pci;

int nvmlDeviceGetPciInfo_v3(Gpu *gpu, Pci *pci) {
    FAIL_IF_ASKED(gpu);
    *pci = (Pci){.bus = 0x10 + gpu->serial};
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(Gpu *gpu, int *major, int *minor) {
    FAIL_IF_ASKED(gpu);
    *major = gpu->model->major;
    *minor = gpu->model->minor;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *now, unsigned *pending) {
    FAIL_IF_ASKED(gpu);
    if (gpu->model->major < 8)
        return NOT_SUPPORTED;
    u64 number;
    *now = *pending = (unsigned)look_up(MIG, "", gpu, &number);
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(Gpu *gpu, unsigned *count) {
    FAIL_IF_ASKED(gpu);
    *count = gpu->model->major < 8 ? 0 : MAX_INSTANCES;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Gpu *gpu, unsigned number, Gpu **instance) {
    FAIL_IF_ASKED(gpu);
    if (number >= instances_of(gpu))
        return NOT_FOUND;
    *instance = &instances[gpu->serial % MAX_GPUS][number];
    **instance = (Gpu){gpu->model, gpu->serial, gpu->index, 1, number + 1, gpu, 0, 0, 0};
    return SUCCESS;
}

#include "events.h"
#include "gpm.h"
#include "processes.h"
#include "values.h"

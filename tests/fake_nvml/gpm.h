/* GPM: what is counted between two samples, on Hopper and later. */
typedef struct {
    Gpu *gpu;
    double time_s;
} GpmSample;
typedef struct {
    unsigned id;
    int code;
    double value;
    const char *texts[3];
} GpmMetric;
typedef struct {
    unsigned version, count;
    GpmSample *older, *newer;
    GpmMetric metrics[];
} GpmMetrics;
static int gpm_samples; /* that were not freed */

int fakeGpmSamples(void) { return gpm_samples; }

int nvmlGpmQueryDeviceSupport(Gpu *gpu, unsigned support[2]) {
    OF_WHOLE_GPUS(gpu);
    support[1] = gpu->model->major >= 9;
    return support[0] == 1 ? SUCCESS : VERSION_MISMATCH;
}

int nvmlGpmSampleAlloc(GpmSample **sample) {
    FAIL_IF_ASKED(NULL);
    *sample = calloc(1, sizeof **sample);
    gpm_samples++;
    return SUCCESS;
}

int nvmlGpmSampleFree(GpmSample *sample) {
    FAIL_IF_ASKED(NULL);
    gpm_samples--;
    free(sample);
    return SUCCESS;
}

int nvmlGpmSampleGet(Gpu *gpu, GpmSample *sample) {
    OF_WHOLE_GPUS(gpu);
    *sample = (GpmSample){gpu, seconds()};
    return gpu->model->major >= 9 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlGpmMetricsGet(GpmMetrics *get) {
    Gpu *gpu = get->older->gpu;
    OF_WHOLE_GPUS(gpu);
    if (!gpu || gpu != get->newer->gpu || get->newer->time_s <= get->older->time_s)
        return INVALID_ARGUMENT;
    for (GpmMetric *metric = get->metrics; metric < get->metrics + get->count; metric++) {
        char name[24];
        double share = level(gpu);
        snprintf(name, sizeof name, "gpm%u", metric->id);
        metric->code = fault(name, gpu, 1);
        metric->value = metric->id == 1    ? 100 * share
                        : metric->id == 2  ? 90 * share
                        : metric->id == 3  ? 50 * share
                        : metric->id == 5  ? 60 * share
                        : metric->id == 10 ? 70 * share
                        : metric->id < 20  ? (double)metric->id
                        : metric->id < 30  ? 100.0 * (metric->id - 19) /* MiB/s: 100 and 200 */
                                           : 1000.0 * (metric->id - 59);
        if (metric->id >= 60 && !atoi(settings[NVLINKS]) && !metric->code)
            metric->code = NOT_SUPPORTED;
        u64 value;
        if (look_up(VALUES, name, gpu, &value))
            metric->value = (double)value;
    }
    return SUCCESS;
}

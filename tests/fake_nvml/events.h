/* Xid errors as events. */
typedef struct {
    Gpu *gpu;
    u64 type, data;
    unsigned gpu_instance, compute_instance;
} Event;

int nvmlEventSetCreate(int **events) {
    FAIL_IF_ASKED(NULL);
    *events = calloc(1, sizeof **events);
    return SUCCESS;
}

int nvmlEventSetFree(int *events) {
    FAIL_IF_ASKED(NULL);
    free(events);
    return SUCCESS;
}

int nvmlDeviceGetSupportedEventTypes(Gpu *gpu, u64 *types) {
    FAIL_IF_ASKED(gpu);
    *types = 0x8 | 0x1 | 0x2 | 0x4;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(Gpu *gpu, u64 types, int *events) {
    FAIL_IF_ASKED(gpu);
    *events |= (int)types;
    return SUCCESS;
}

int nvmlEventSetWait_v2(int *events, Event *event, unsigned timeout_ms) {
    static unsigned told;
    double until_s = seconds() + timeout_ms / 1e3;
    do {
        FAIL_IF_ASKED(NULL);
        pthread_mutex_lock(&lock);
        const char *next = settings[XIDS];
        for (unsigned i = 0; i < told && *next; i++) {
            next += strcspn(next, ",");
            next += *next == ',';
        }
        unsigned index = (unsigned)atoi(next), xid = 0;
        if (*next && strchr(next, ':'))
            xid = (unsigned)atoi(strchr(next, ':') + 1);
        told += xid != 0;
        pthread_mutex_unlock(&lock);
        if (xid && index < gpu_count && *events & 0x8) {
            *event = (Event){listed[index], 0x8, xid, ~0u, ~0u};
            return SUCCESS;
        }
        /* Where the scene can change it is looked at often, else once: a driver sleeps, too. */
        usleep(getenv("FAKE_NVML_CONTROL") ? 5000 : 1000 * timeout_ms);
    } while (seconds() < until_s);
    return TIMEOUT;
}

/* Xid errors as events. */
#include <poll.h>
#include <sys/inotify.h>

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

/* Tells of files written beside FAKE_NVML_CONTROL. A driver sleeps until there is an event; looking
 * at the scene every few ms instead cost more than all that a sampler does. */
static int watch_scene(void) {
    const char *control = getenv("FAKE_NVML_CONTROL");
    char folder[TEXT] = ".";
    int changes = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (control && strrchr(control, '/'))
        snprintf(folder, TEXT, "%.*s/", (int)(strrchr(control, '/') - control), control);
    if (control)
        inotify_add_watch(changes, folder, IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE);
    return changes;
}

int nvmlEventSetWait_v2(int *events, Event *event, unsigned timeout_ms) {
    static unsigned told;
    double left_s, until_s = seconds() + timeout_ms / 1e3;
    struct pollfd scene = {.fd = watch_scene(), .events = POLLIN};
    int code = TIMEOUT, wait_ms = 25; /* at first: a change before is seen within 20 ms */
    do {
        char ignored[TEXT];
        while (read(scene.fd, ignored, sizeof ignored) > 0) {
        }
        if ((code = fault(__func__, NULL, 1)))
            break;
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
            break;
        }
        code = TIMEOUT;
        left_s = until_s - seconds();
        if (left_s > 0 && poll(&scene, 1, left_s * 1e3 < wait_ms ? (int)(left_s * 1e3) + 1 : wait_ms))
            usleep(25000); /* the scene is read again 20 ms after the last time */
        wait_ms = (int)timeout_ms;
    } while (left_s > 0);
    close(scene.fd);
    return code;
}

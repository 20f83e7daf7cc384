/* A stand-in for NVIDIA's libnvidia-ml.so.1, so that the real Python binding runs without a driver.
 *
 * A scenario file says what it answers: lines `key = value`, where the key is `<thing>.<name>` and the thing is `gpu.0`
 * or `gpu.0.mig.1`. A value with commas is a sequence: every use takes the next, and the last one stays. What a scenario
 * does not mention is answered NOT_SUPPORTED. A function's own name as key sets what it returns; `abort` ends the
 * process, as does everything that a careful caller never does: the blocking PCIe call, the handle of a GPU that was
 * lost, a handle from before the last initialisation.
 *
 * A second file of such lines, FAKE_NVML_LOAD, comes before the scenario and is read again whenever it was replaced: what
 * a GPU does while somebody uses it.
 *
 * Built with -DOLD_DRIVER it lacks the symbols that drivers of around 2020 lack.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
    OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT = 7, LOST = 15, MISMATCH = 25,
};

typedef unsigned long long u64;
typedef struct { char key[128]; char value[1024]; unsigned uses; } Entry;
typedef struct { char path[64]; int generation; unsigned lives; u64 stamp, read_stamp; int is_lost; } Thing;
typedef struct { u64 taken_ns; unsigned number; Thing *of; } Sample;

static Entry entries[4096], loads[512];
static int n_entries, n_loads, is_open, generation;
static unsigned n_samples;
static Thing things[256];
static int n_things;

/* Scenario */

static Entry *find(const char *path, const char *name) {
    char key[192];
    snprintf(key, sizeof key, "%s.%s", path, name);
    for (int i = 0; i < n_loads; i++)
        if (strcmp(loads[i].key, key) == 0) return &loads[i];
    for (int i = 0; i < n_entries; i++)
        if (strcmp(entries[i].key, key) == 0) return &entries[i];
    return NULL;
}

/* The next element of a value. NULL: the scenario does not mention it. */
static const char *next(const char *path, const char *name) {
    static char element[1024];
    Entry *entry = find(path, name);
    if (entry == NULL) return NULL;
    const char *at = entry->value, *comma;
    for (unsigned i = 0; i < entry->uses && (comma = strchr(at, ',')) != NULL; i++) at = comma + 1;
    entry->uses++;
    size_t length = strcspn(at, ",");
    memcpy(element, at, length);
    element[length] = 0;
    return element;
}

static int whole(const char *path, const char *name, u64 *value) {
    const char *text = next(path, name);
    if (text == NULL) return NOT_SUPPORTED;
    *value = strtoull(text, NULL, 0);
    return OK;
}

/* Read the lines of a file. Returns how many there were. */
static int parse(const char *path, Entry *into, int most) {
    FILE *file = path == NULL ? NULL : fopen(path, "rb");
    char line[2048];
    int n = 0;
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL) {
        char *equals = strstr(line, " = ");
        if (equals == NULL) continue;
        line[strcspn(line, "\n")] = 0;
        *equals = 0;
        if (n == most || strlen(line) >= sizeof into[0].key || strlen(equals + 3) >= sizeof into[0].value) abort();
        strcpy(into[n].key, line);
        strcpy(into[n].value, equals + 3);
        into[n++].uses = 0;
    }
    fclose(file);
    return n;
}

static void load(void) {
    if (n_entries == 0) n_entries = parse(getenv("FAKE_NVML_SCENARIO"), entries, sizeof entries / sizeof entries[0]);
}

/* Have the load as it is now. Whoever writes it puts a new file in its place. */
static void refresh(void) {
    static struct stat last;
    struct stat now;
    const char *path = getenv("FAKE_NVML_LOAD");
    if (path == NULL || stat(path, &now) != 0) return;
    if (now.st_ino == last.st_ino && memcmp(&now.st_mtim, &last.st_mtim, sizeof now.st_mtim) == 0) return;
    last = now;
    n_loads = parse(path, loads, sizeof loads / sizeof loads[0]);
}

static u64 now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u64)now.tv_sec * 1000000000u + (u64)now.tv_nsec;
}

static void rest(const char *path) {
    u64 ms = 0;
    if (whole(path, "sleep_ms", &ms) != OK || ms == 0) return;
    struct timespec pause = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

static int returned(const char *path, const char *function) {
    const char *text = next(path, function);
    if (text == NULL) return OK;
    if (strcmp(text, "abort") == 0) abort();
    return atoi(text);
}

/* What every call on a handle goes through. */
static int touch(Thing *thing, const char *function) {
    u64 lives = 0;
    if (!is_open) return UNINITIALIZED;
    if (thing == NULL) return INVALID;
    if (thing->generation != generation || thing->is_lost) abort();
    refresh();
    rest("all");
    thing->lives++;
    if (whole(thing->path, "calls_until_lost", &lives) == OK && thing->lives > lives) {
        u64 back = 0;
        if (whole(thing->path, "back_at_initialisation", &back) != OK || (u64)generation < back) {
            thing->is_lost = 1;
            return LOST;
        }
    }
    return returned(thing->path, function);
}

#define ENTER(thing) do { int code_ = touch((thing), __func__); if (code_ != OK) return code_; } while (0)

static int text(const char *path, const char *name, char *into, unsigned size) {
    const char *found = next(path, name);
    if (found == NULL) return NOT_SUPPORTED;
    if (strlen(found) + 1 > size) return INSUFFICIENT;
    strcpy(into, found);
    return OK;
}

static int small(Thing *thing, const char *name, unsigned *into) {
    u64 value = 0;
    int code = whole(thing->path, name, &value);
    if (code == OK) *into = (unsigned)value;
    return code;
}

/* The library and its devices */

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    load();
    rest("all");
    int code = returned("library", __func__);
    if (code != OK) return code;
    is_open = 1;
    generation++;
    return OK;
}

int nvmlShutdown(void) {
    if (!is_open) return UNINITIALIZED;
    is_open = 0;
    return OK;
}

const char *nvmlErrorString(int code) {
    (void)code;
    return "an error";
}

int nvmlSystemGetDriverVersion(char *into, unsigned size) {
    return is_open ? text("library", "driver", into, size) : UNINITIALIZED;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    u64 value = 0;
    int code = returned("library", __func__);
    if (code != OK) return code;
    whole("library", "gpus", &value);
    *count = (unsigned)value;
    return OK;
}

static int hand_out(const char *path, const char *function, Thing **handle) {
    u64 back = 0;
    if (!is_open) return UNINITIALIZED;
    int code = returned(path, function);
    if (code != OK) return code;
    for (int i = 0; i < n_things; i++) {
        if (strcmp(things[i].path, path) != 0) continue;
        if (things[i].generation == generation && !things[i].is_lost) { *handle = &things[i]; return OK; }
        if (things[i].is_lost && (whole(path, "back_at_initialisation", &back) != OK || (u64)generation < back)) return LOST;
    }
    if (n_things == sizeof things / sizeof things[0]) abort();
    Thing *thing = &things[n_things++];
    snprintf(thing->path, sizeof thing->path, "%s", path);
    thing->generation = generation;
    *handle = thing;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Thing **handle) {
    char path[64];
    snprintf(path, sizeof path, "gpu.%u", index);
    return hand_out(path, __func__, handle);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Thing **handle) {
    for (int i = 0; i < n_entries; i++) {
        char *dot = strrchr(entries[i].key, '.');
        if (strcmp(dot, ".uuid") != 0 || strcmp(entries[i].value, uuid) != 0) continue;
        char path[64];
        snprintf(path, sizeof path, "%.*s", (int)(dot - entries[i].key), entries[i].key);
        return hand_out(path, __func__, handle);
    }
    return NOT_FOUND;
}

int nvmlDeviceGetName(Thing *thing, char *into, unsigned size) {
    ENTER(thing);
    return text(thing->path, "name", into, size);
}

int nvmlDeviceGetUUID(Thing *thing, char *into, unsigned size) {
    ENTER(thing);
    return text(thing->path, "uuid", into, size);
}

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;

int nvmlDeviceGetPciInfo_v3(Thing *thing, Pci *info) {
    ENTER(thing);
    memset(info, 0, sizeof *info);
    int code = text(thing->path, "pci", info->bus_id, sizeof info->bus_id);
    if (code == OK) sscanf(info->bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    return code;
}

/* Plain numbers */

#define NUMBER(function, name) \
    int function(Thing *thing, unsigned *value) { ENTER(thing); return small(thing, name, value); }

NUMBER(nvmlDeviceGetMemoryBusWidth, "bus_bits")
NUMBER(nvmlDeviceGetPowerUsage, "power_mw")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetFanSpeed, "fan_percent")
NUMBER(nvmlDeviceGetMaxMigDeviceCount, "mig_devices")
NUMBER(nvmlDeviceGetGpuInstanceId, "gpu_instance")

/* `capability` is `major.minor`. */
int nvmlDeviceGetCudaComputeCapability(Thing *thing, int *major, int *minor) {
    ENTER(thing);
    const char *found = next(thing->path, "capability");
    if (found == NULL || sscanf(found, "%d.%d", major, minor) != 2) return NOT_SUPPORTED;
    return OK;
}

int nvmlDeviceGetTotalEnergyConsumption(Thing *thing, u64 *value) {
    ENTER(thing);
    return whole(thing->path, "energy_mj", value);
}

int nvmlDeviceGetClockInfo(Thing *thing, unsigned kind, unsigned *value) {
    ENTER(thing);
    return small(thing, kind == 1 ? "sm_clock" : "memory_clock", value);
}

int nvmlDeviceGetMaxClockInfo(Thing *thing, unsigned kind, unsigned *value) {
    ENTER(thing);
    return small(thing, kind == 2 ? "memory_clock_max" : "sm_clock_max", value);
}

int nvmlDeviceGetTemperature(Thing *thing, unsigned sensor, unsigned *value) {
    (void)sensor;
    ENTER(thing);
    return small(thing, "temperature", value);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Thing *thing, u64 *mask) {
    ENTER(thing);
    return whole(thing->path, "throttle", mask);
}

int nvmlDeviceGetMigMode(Thing *thing, unsigned *now, unsigned *pending) {
    ENTER(thing);
    int code = small(thing, "mig_mode", now);
    *pending = *now;
    return code;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Thing *thing, unsigned index, Thing **handle) {
    char path[64];
    ENTER(thing);
    snprintf(path, sizeof path, "%.40s.mig.%u", thing->path, index);
    return find(path, "uuid") == NULL ? NOT_FOUND : hand_out(path, __func__, handle);
}

/* It blocks for 20 ms, so nobody may call it. */
int nvmlDeviceGetPcieThroughput(Thing *thing, unsigned direction, unsigned *value) {
    (void)thing; (void)direction; (void)value;
    abort();
}

/* Utilisation */

int nvmlDeviceGetUtilizationRates(Thing *thing, unsigned rates[2]) {
    ENTER(thing);
    int code = small(thing, "gpu_percent", &rates[0]);
    return code == OK ? small(thing, "memory_percent", &rates[1]) : code;
}

typedef struct { u64 stamp; union { double d; unsigned ui; u64 ull; } value; } UtilisationSample;

/* `samples` are percentages between semicolons, oldest first; each look is told the next element of the sequence. */
int nvmlDeviceGetSamples(Thing *thing, unsigned kind, u64 seen, unsigned *type, unsigned *count, UtilisationSample *into) {
    ENTER(thing);
    const char *name = kind == 1 ? "gpu_samples" : "memory_samples";
    Entry *entry = find(thing->path, name);
    if (entry == NULL) return NOT_SUPPORTED;
    if (into != NULL && *count == 0) return INVALID;
    const char *found = next(thing->path, name);
    if (strcmp(found, "none") == 0) return NOT_FOUND;
    if (into == NULL) entry->uses--;
    if (into != NULL && seen > thing->stamp) abort();
    unsigned n = 0;
    for (const char *at = found; *at != 0; n++) {
        char *end;
        double value = strtod(at, &end);
        if (into != NULL) {
            thing->stamp += 1000;
            into[n].value.ui = (unsigned)value;
            into[n].stamp = thing->stamp;
        }
        at = *end == ';' ? end + 1 : end;
    }
    *type = 1;
    *count = n;
    if (into == NULL && n == 0) entry->uses++;
    return OK;
}

/* Memory, processes, fields */

int nvmlDeviceGetMemoryInfo(Thing *thing, u64 info[3]) {
    ENTER(thing);
    int code = whole(thing->path, "memory_total", &info[0]);
    if (code != OK) return code;
    info[2] = 0;
    whole(thing->path, "memory_used", &info[2]);
    info[1] = info[0] - info[2];
    return OK;
}

typedef struct { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; } Process;

/* `processes` are pid:bytes between semicolons; no bytes means that they are not told. */
static int list(Thing *thing, unsigned *count, Process *into) {
    Entry *entry = find(thing->path, "processes");
    if (entry == NULL) return NOT_SUPPORTED;
    const char *found = next(thing->path, "processes");
    if (into == NULL) entry->uses--;
    unsigned n = 0;
    for (const char *at = found; *at != 0; n++) {
        char *end;
        unsigned pid = (unsigned)strtoul(at, &end, 10);
        u64 bytes = *end == ':' ? strtoull(end + 1, &end, 10) : (u64)-1;
        if (into != NULL) into[n] = (Process){pid, bytes, (unsigned)-1, (unsigned)-1};
        at = *end == ';' ? end + 1 : end;
    }
    *count = n;
    return into == NULL && n > 0 ? INSUFFICIENT : OK;
}

int nvmlDeviceGetComputeRunningProcesses_v2(Thing *thing, unsigned *count, Process *into) {
    ENTER(thing);
    return list(thing, count, into);
}

typedef struct {
    unsigned id, scope;
    long long stamp, latency;
    unsigned type;
    int code;
    union { double d; unsigned ui; u64 ull; } value;
} Field;

int nvmlDeviceGetFieldValues(Thing *thing, int count, Field *fields) {
    ENTER(thing);
    for (int i = 0; i < count; i++) {
        char name[32];
        u64 value = 0, type = 3;
        snprintf(name, sizeof name, "field_type_%u", fields[i].id);
        whole(thing->path, name, &type);
        snprintf(name, sizeof name, "field_%u", fields[i].id);
        fields[i].code = whole(thing->path, name, &value);
        fields[i].type = (unsigned)type;
        if (type == 1) fields[i].value.ui = (unsigned)value;
        else fields[i].value.ull = value;
    }
    return OK;
}

#ifndef OLD_DRIVER

typedef struct { unsigned version, sensor; int temperature; } Temperature;

int nvmlDeviceGetTemperatureV(Thing *thing, Temperature *answer) {
    ENTER(thing);
    if (answer->version != (sizeof *answer | 1u << 24)) return MISMATCH;
    return small(thing, "temperature", (unsigned *)&answer->temperature);
}

int nvmlDeviceGetCurrentClocksEventReasons(Thing *thing, u64 *mask) {
    ENTER(thing);
    return whole(thing->path, "throttle", mask);
}

int nvmlDeviceGetComputeRunningProcesses_v3(Thing *thing, unsigned *count, Process *into) {
    ENTER(thing);
    return list(thing, count, into);
}

/* GPM: `gpm_<id>` is a metric's value, `gpm_status_<id>` its own status, `gpm_gap_ms` the least time between samples. */

typedef struct { unsigned version, is_supported; } Support;
typedef struct { unsigned id; int code; double value; const char *names[3]; } Metric;
typedef struct { unsigned version, count; Sample *older, *newer; Metric metrics[]; } Metrics;

int nvmlGpmQueryDeviceSupport(Thing *thing, Support *support) {
    ENTER(thing);
    if (support->version != 1) return MISMATCH;
    support->is_supported = 0;
    small(thing, "gpm", &support->is_supported);
    return OK;
}

int nvmlGpmSampleAlloc(Sample **sample) {
    *sample = calloc(1, sizeof **sample);
    return OK;
}

int nvmlGpmSampleFree(Sample *sample) {
    free(sample);
    return OK;
}

static int take(Thing *thing, Sample *sample) {
    sample->taken_ns = now_ns();
    sample->number = ++n_samples;
    sample->of = thing;
    return OK;
}

int nvmlGpmSampleGet(Thing *thing, Sample *sample) {
    ENTER(thing);
    return take(thing, sample);
}

int nvmlGpmMigSampleGet(Thing *thing, unsigned instance, Sample *sample) {
    ENTER(thing);
    for (int i = 0; i < n_things; i++) {
        u64 id;
        if (strncmp(things[i].path, thing->path, strlen(thing->path)) != 0 || things[i].generation != generation) continue;
        if (whole(things[i].path, "gpu_instance", &id) == OK && id == instance) {
            int code = returned(things[i].path, __func__);
            return code == OK ? take(&things[i], sample) : code;
        }
    }
    return INVALID;
}

int nvmlGpmMetricsGet(Metrics *get) {
    u64 gap_ms = 0;
    if (!is_open) return UNINITIALIZED;
    if (get->version != 1) return MISMATCH;
    if (get->older == NULL || get->newer == NULL || get->older->of != get->newer->of) return INVALID;
    if (get->older->number == 0 || get->older->number >= get->newer->number) return INVALID;
    Thing *thing = get->newer->of;
    refresh();
    if (thing->generation != generation || thing->is_lost) abort();
    int code = returned(thing->path, __func__);
    if (code != OK) return code;
    whole(thing->path, "gpm_gap_ms", &gap_ms);
    if (get->newer->taken_ns - get->older->taken_ns < gap_ms * 1000000) return INVALID;
    for (unsigned i = 0; i < get->count; i++) {
        char name[32];
        Metric *metric = &get->metrics[i];
        snprintf(name, sizeof name, "gpm_%u", metric->id);
        const char *value = next(thing->path, name);
        metric->code = value == NULL ? NOT_SUPPORTED : OK;
        if (value != NULL) metric->value = strtod(value, NULL);
        snprintf(name, sizeof name, "gpm_status_%u", metric->id);
        if (find(thing->path, name) != NULL) metric->code = returned(thing->path, name);
        memset(metric->names, 0, sizeof metric->names);
    }
    return OK;
}

#endif

/* Stands in for NVIDIA's management library: the functions that the agent asks, with the signatures and structures of
 * nvml.h as NVIDIA's NVML API reference describes them. Three cards: one that is well and held by two processes, one
 * that has fallen off the bus and still answers its name, and one that can't be opened at all. */

#include <string.h>

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_t;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } process_t;
typedef union { double d; unsigned u; unsigned long ul; unsigned long long ull; long long sll; } value_t;
typedef struct { unsigned id, scope; long long at, took; int type, result; value_t value; } field_t;

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT = 7, LOST = 15 };

static char cards[3];

static int card(void *device) { return (int)((char *)device - cards); }

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    strncpy(text, "570.158.01", length);
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = 12080;
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 3;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index > 1) return LOST;
    *device = cards + index;
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (strcmp(uuid, "GPU-a") != 0) return NOT_FOUND;
    *device = cards;
    return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *text, unsigned length) {
    (void)device;
    strncpy(text, "NVIDIA H200", length);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    strncpy(text, card(device) == 0 ? "GPU-a" : "GPU-b", length);
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *device, pci_t *pci) {
    memset(pci, 0, sizeof *pci);
    strcpy(pci->legacy, "0000:19:00.0");
    strcpy(pci->bus_id, card(device) == 0 ? "00000000:19:00.0" : "00000000:3B:00.0");
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    if (card(device) == 1) return LOST;
    *major = 9;
    *minor = 0;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, memory_t *memory) {
    if (card(device) == 1) return LOST;
    memory->total = 1000;
    memory->reserved = 60;
    memory->used = 500;
    memory->free = 440;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_t *processes) {
    if (card(device) == 1) return LOST;
    if (*count < 2) {
        *count = 2;
        return INSUFFICIENT;
    }
    *count = 2;
    memset(processes, 0, 2 * sizeof *processes);
    processes[0].pid = 11;
    processes[0].used = 400;
    processes[1].pid = 12;
    processes[1].used = ~0ULL; /* NVML_VALUE_NOT_AVAILABLE */
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *count) {
    if (card(device) == 1) return LOST;
    *count = kind == 1 && counter == 0 ? 2 : 77; /* uncorrected, volatile */
    return SUCCESS;
}

int nvmlDeviceGetFieldValues(void *device, int count, field_t *fields) {
    if (card(device) == 1) return LOST;
    for (int i = 0; i < count; i++) {
        fields[i].type = 1; /* unsigned int */
        fields[i].result = SUCCESS;
        switch (fields[i].id) {
        case 144: fields[i].value.u = 1; break; /* NVML_FI_DEV_REMAPPED_PENDING */
        case 145: fields[i].value.u = 0; break; /* NVML_FI_DEV_REMAPPED_FAILURE */
        default: fields[i].result = NOT_SUPPORTED;
        }
    }
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    if (card(device) == 1) return LOST;
    *reasons = 0x48;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *state) {
    if (card(device) == 1 || link > 1) return NOT_SUPPORTED;
    *state = link == 0;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, pci_t *pci) {
    (void)device;
    (void)link;
    memset(pci, 0, sizeof *pci);
    strcpy(pci->legacy, "0000:07:00.0");
    strcpy(pci->bus_id, "00000000:07:00.0");
    return SUCCESS;
}

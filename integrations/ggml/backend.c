/* backend: libggml-kvpager.so as ggml sees it: a back end with one device of type ACCEL, which
 * takes FLASH_ATTN_EXT of tensors that the processor reaches.
 *
 * Nothing of ggml is linked. The few functions that are needed are looked up in the library that
 * loads this one, so it works wherever that library is: in a program, beside it, or in a module of
 * Python. What the headers said when this was compiled is compared with what that library does; if
 * they differ, the back end is refused.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ggml-backend-impl.h>
#include <ggml.h>

#include "attend.h"
#include "fits.h"
#include "threads.h"

enum { OBJECT_BYTES = 32 }; /* of ggml's struct ggml_object, which is in no header */

/* Products that a thread makes in about 0.1 ms, and in an eighth of it: less is not worth waking
 * threads for that sleep, and telling threads that spin. */
enum { ASLEEP_PRODUCTS = 4 << 20, SPINNING_PRODUCTS = 1 << 19 };

struct kvpi_ggml_state {
    uint32_t n_threads;
    struct kvpi_attend attend;
};

/* What is needed of ggml; set once, before anything else is called. */
static ggml_backend_buffer_type_t (*cpu_buffer_type)(void);

/* OpenMP's, if ggml's operations run on it; else NULL. */
static kvpi_parallel parallel;

_Static_assert(sizeof(struct kvpi_feature) == sizeof(struct ggml_backend_feature) &&
                   offsetof(struct kvpi_feature, value) ==
                       offsetof(struct ggml_backend_feature, value),
               "a feature is what ggml says");

/* --------------------------------------------------------------------------------- the back end */

static const char *name_of_backend(ggml_backend_t backend)
{
    (void)backend;
    return "kvpager";
}

/* One number of threads for ggml and for us: its own where they can be had. */
static void make_team(struct kvpi_attend *attend, uint32_t n)
{
    const kvp_status status =
        parallel != NULL ? kvp_attention_team_wrap(n, kvpi_threads_run, &parallel, &attend->team)
                         : kvp_attention_team_create(n, &attend->team);
    attend->alone_products = parallel != NULL ? SPINNING_PRODUCTS : ASLEEP_PRODUCTS;
    if (status != KVP_OK)
        attend->team = NULL; /* then it is one thread */
}

static void set_threads(ggml_backend_t backend, int n_threads)
{
    struct kvpi_ggml_state *state = backend->context;
    const uint32_t n = n_threads < 1                             ? 1
                       : n_threads > (int)KVP_ATTENTION_TEAM_MAX ? KVP_ATTENTION_TEAM_MAX
                                                                 : (uint32_t)n_threads;
    if (n == state->n_threads)
        return;
    kvp_attention_team_destroy(state->attend.team);
    state->attend.team = NULL;
    state->n_threads = n;
    if (n > 1)
        make_team(&state->attend, n);
}

static void free_backend(ggml_backend_t backend)
{
    struct kvpi_ggml_state *state = backend->context;
    kvp_attention_team_destroy(state->attend.team);
    kvpi_attend_end(&state->attend);
    free(state);
    free(backend);
}

static enum ggml_status compute_graph(ggml_backend_t backend, struct ggml_cgraph *graph);

static const struct ggml_backend_i backend_calls = {
    .get_name = name_of_backend,
    .free = free_backend,
    .graph_compute = compute_graph,
};

static struct {
    struct ggml_tensor **(*nodes)(struct ggml_cgraph *graph);
    int (*n_nodes)(struct ggml_cgraph *graph);
} graphs;

static enum ggml_status compute_graph(ggml_backend_t backend, struct ggml_cgraph *graph)
{
    struct kvpi_ggml_state *state = backend->context;
    struct ggml_tensor **nodes = graphs.nodes(graph);
    const int n = graphs.n_nodes(graph);
    for (int i = 0; i < n; i++) {
        if (nodes[i]->op != GGML_OP_FLASH_ATTN_EXT ||
            (nodes[i]->flags & GGML_TENSOR_FLAG_COMPUTE) == 0)
            continue; /* views, and what is not asked for */
        const enum ggml_status status = kvpi_attend_run(&state->attend, nodes[i]);
        if (status != GGML_STATUS_SUCCESS)
            return status;
    }
    return GGML_STATUS_SUCCESS;
}

/* --------------------------------------------------------------------------------------- device */

static const char *name_of_device(ggml_backend_dev_t device)
{
    (void)device;
    return "kvpager";
}

static const char *describe_device(ggml_backend_dev_t device)
{
    (void)device;
    return "attention on the CPU by kvpager";
}

static void say_memory(ggml_backend_dev_t device, size_t *out_free, size_t *out_total)
{
    (void)device;
    *out_free = *out_total = 0;
}

static enum ggml_backend_dev_type type_of_device(ggml_backend_dev_t device)
{
    (void)device;
    return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static void say_properties(ggml_backend_dev_t device, struct ggml_backend_dev_props *out)
{
    *out = (struct ggml_backend_dev_props){.name = name_of_device(device),
                                           .description = describe_device(device),
                                           .type = type_of_device(device)};
}

static ggml_backend_t make_backend(ggml_backend_dev_t device, const char *params)
{
    static uint8_t guid[16] = {0x6b, 0x76, 0x70, 0x61, 0x67, 0x65, 0x72, 0x2d,
                               0x67, 0x67, 0x6d, 0x6c, 0x2d, 0x00, 0x00, 0x01};
    struct ggml_backend *backend = calloc(1, sizeof *backend);
    struct kvpi_ggml_state *state = calloc(1, sizeof *state);
    (void)params;
    if (backend == NULL || state == NULL) {
        free(backend);
        free(state);
        return NULL;
    }
    state->n_threads = 1;
    backend->guid = &guid;
    backend->iface = backend_calls;
    backend->device = device;
    backend->context = state;
    return backend;
}

static ggml_backend_buffer_type_t buffer_type_of(ggml_backend_dev_t device)
{
    (void)device;
    return cpu_buffer_type();
}

static bool takes_op(ggml_backend_dev_t device, const struct ggml_tensor *op)
{
    (void)device;
    return kvpi_attend_takes(op) != 0;
}

static bool takes_buffer_type(ggml_backend_dev_t device, ggml_backend_buffer_type_t type)
{
    (void)device;
    return type->iface.is_host != NULL && type->iface.is_host(type);
}

static const struct ggml_backend_device_i device_calls = {
    .get_name = name_of_device,
    .get_description = describe_device,
    .get_memory = say_memory,
    .get_type = type_of_device,
    .get_props = say_properties,
    .init_backend = make_backend,
    .get_buffer_type = buffer_type_of,
    .supports_op = takes_op,
    .supports_buft = takes_buffer_type,
};

/* ------------------------------------------------------------------------------------- registry */

static const char *name_of_registry(ggml_backend_reg_t registry)
{
    (void)registry;
    return "kvpager";
}

static size_t count_devices(ggml_backend_reg_t registry)
{
    (void)registry;
    return 1;
}

static ggml_backend_dev_t give_device(ggml_backend_reg_t registry, size_t index)
{
    static struct ggml_backend_device device;
    device = (struct ggml_backend_device){.iface = device_calls, .reg = registry};
    return index == 0 ? &device : NULL;
}

/* How often attention ran, how often lists were made, how often a mask had other numbers: for
 * tests. */
static void read_counts(ggml_backend_t backend, uint64_t out_counts[3])
{
    const struct kvpi_ggml_state *state = backend->context;
    out_counts[0] = state->attend.counts.calls;
    out_counts[1] = state->attend.counts.lists;
    out_counts[2] = state->attend.counts.others;
}

/* Functions as ISO C has no void * for them. */
union function {
    void *address;
    void (*set_threads)(ggml_backend_t backend, int n_threads);
    void (*read_counts)(ggml_backend_t backend, uint64_t out_counts[3]);
    ggml_backend_buffer_type_t (*cpu_buffer_type)(void);
    struct ggml_tensor **(*nodes)(struct ggml_cgraph *graph);
    int (*n_nodes)(struct ggml_cgraph *graph);
    size_t (*tensor_overhead)(void);
    const char *(*op_name)(int op); /* ggml's enums are passed as int */
    const char *(*type_name)(int type);
    ggml_backend_reg_t (*registry_by_name)(const char *name);
    void *(*registry_function)(ggml_backend_reg_t registry, const char *name);
    const struct kvpi_feature *(*features)(ggml_backend_reg_t registry);
    kvpi_parallel parallel;
};

static void *find_function(ggml_backend_reg_t registry, const char *name)
{
    union function found = {.address = NULL};
    (void)registry;
    if (strcmp(name, "ggml_backend_set_n_threads") == 0)
        found.set_threads = set_threads;
    else if (strcmp(name, "kvpager_counts") == 0)
        found.read_counts = read_counts;
    return found.address;
}

/* ---------------------------------------------------------------------------------------- entry */

/* The library whose code called us, or the whole program. */
static void *open_caller(const void *address)
{
    Dl_info info;
    void *library = NULL;
    if (dladdr(address, &info) != 0 && info.dli_fname != NULL)
        library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    return library != NULL ? library : dlopen(NULL, RTLD_LAZY);
}

/* OpenMP's region, if the back end of the CPU says that it uses it. */
static kvpi_parallel find_parallel(void *library)
{
    const union function by_name = {.address = dlsym(library, "ggml_backend_reg_by_name")};
    const union function function_of = {.address =
                                            dlsym(library, "ggml_backend_reg_get_proc_address")};
    union function features = {.address = NULL}, region = {.address = NULL};
    if (by_name.address == NULL || function_of.address == NULL)
        return NULL;
    ggml_backend_reg_t cpu = by_name.registry_by_name("CPU");
    if (cpu != NULL)
        features.address = function_of.registry_function(cpu, "ggml_backend_get_features");
    if (features.address == NULL || !kvpi_threads_are_openmp(features.features(cpu)))
        return NULL;
    region.address = dlsym(library, "GOMP_parallel");
    if (region.address == NULL) { /* ggml's back ends are libraries of their own */
        void *openmp = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD);
        region.address = openmp != NULL ? dlsym(openmp, "GOMP_parallel") : NULL;
    }
    return region.parallel;
}

/* Does the library that loads us count types, operations and bytes as our headers do? */
static const char *refusal_of(void *library)
{
    const struct kvpi_fits_built built = {
        .tensor_overhead = sizeof(struct ggml_tensor) + OBJECT_BYTES,
        .op = GGML_OP_FLASH_ATTN_EXT,
        .op_name = "FLASH_ATTN_EXT",
        .types = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0},
        .type_names = {"f32", "f16", "bf16", "q8_0"}};
    const union function cpu = {.address = dlsym(library, "ggml_backend_cpu_buffer_type")};
    const union function nodes = {.address = dlsym(library, "ggml_graph_nodes")};
    const union function n_nodes = {.address = dlsym(library, "ggml_graph_n_nodes")};
    const union function overhead = {.address = dlsym(library, "ggml_tensor_overhead")};
    const union function op_name = {.address = dlsym(library, "ggml_op_name")};
    const union function type_name = {.address = dlsym(library, "ggml_type_name")};
    const struct kvpi_fits_found found = {.needed = {cpu.address, nodes.address, n_nodes.address},
                                          .tensor_overhead = overhead.tensor_overhead,
                                          .op_name = op_name.op_name,
                                          .type_name = type_name.type_name};
    cpu_buffer_type = cpu.cpu_buffer_type;
    graphs.nodes = nodes.nodes;
    graphs.n_nodes = n_nodes.n_nodes;
    return kvpi_fits_refusal(&found, &built);
}

/* What ggml calls when it has loaded this library. ggml refuses another GGML_BACKEND_API_VERSION
 * itself, and says both numbers. */
__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void);

ggml_backend_reg_t ggml_backend_init(void)
{
    static struct ggml_backend_reg registry = {
        .api_version = GGML_BACKEND_API_VERSION,
        .iface = {.get_name = name_of_registry,
                  .get_device_count = count_devices,
                  .get_device = give_device,
                  .get_proc_address = find_function},
    };
    void *library = open_caller(__builtin_return_address(0));
    const char *why = library != NULL ? refusal_of(library) : "the program cannot be looked into";
    if (why != NULL) {
        (void)fprintf(stderr, "kvpager: this build of libggml-kvpager.so does not work here: %s\n",
                      why);
        return NULL;
    }
    parallel = find_parallel(library);
    (void)fputs("kvpager: attention on the CPU; it needs -fa on, because -fa auto turns flash "
                "attention off beside this library\n",
                stderr);
    return &registry;
}

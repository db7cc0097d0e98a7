/* Owns the back end of a modelled store. What goes where is the catalog's, as in every store; time
 * is this:
 *
 *   begins = max(when it was submitted, when the one before has moved its bytes)
 *   moved  = begins + bytes of the record / rate
 *   ends   = moved + latency
 *
 * So operations move their bytes one after the other, in the order of submission, and latencies
 * overlap. A header is made when a record is read: it would be the same. As in a directory,
 * each record has the room of the largest kind: of KV, or of a recurrent state.
 */
#include "tool/store/modelled.h"

#include <stdlib.h>
#include <string.h>

#include "store/catalog.h"
#include "tool/text.h"

#define SECOND_NS 1e9

struct modelled {
    struct kvpi_catalog catalog;
    kvpi_modelled *model;
    uint8_t *payloads; /* [n][payload_bytes] */
    size_t payload_bytes;
    uint32_t header_bytes;
    uint64_t moved_ns;                                /* the newest has moved its bytes */
    struct kvpi_store_op *begun[KVP_STORE_QUEUE_MAX]; /* in the order of their ends */
    uint64_t ends_ns[KVP_STORE_QUEUE_MAX];
    uint32_t n_begun;
};

/* ---------------------------------------------------------------------------------- open, close */

static void model_close(void *self)
{
    struct modelled *modelled = self;
    kvpi_index_close(&modelled->catalog.index);
    free(modelled->payloads);
    free(modelled);
}

static void note_leaving(void *context, uint32_t entry)
{
    const struct modelled *modelled = context;
    const kvpi_modelled *model = modelled->model;
    if (model->leaves != NULL)
        model->leaves(model->leaves_context, modelled->catalog.index.entries[entry].key);
}

static kvp_status model_open(const struct kvpi_backend_config *config, void **out_self,
                             char *out_why, size_t why_bytes)
{
    kvpi_modelled *model = config->store->now_context;
    const uint64_t largest =
        model->record_bytes > model->state_bytes ? model->record_bytes : model->state_bytes;
    const uint64_t n = model->options.size / largest;
    if (n == 0 || n > INT32_MAX)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                        "its size is %llu, expected 1 to 2^31-1 records of %llu bytes",
                        (unsigned long long)model->options.size, (unsigned long long)largest);
    struct modelled *modelled = calloc(1, sizeof *modelled);
    if (modelled == NULL)
        return KVP_E_NO_MEMORY;
    modelled->model = model;
    modelled->payload_bytes = (size_t)config->payload_bytes;
    modelled->header_bytes = config->header_bytes;
    modelled->catalog.slot_bytes = largest;
    modelled->catalog.now = config->store->now;
    modelled->catalog.now_context = model;
    modelled->catalog.leave = note_leaving;
    modelled->catalog.context = modelled;
    modelled->payloads = malloc((size_t)n * modelled->payload_bytes);
    if (modelled->payloads == NULL ||
        kvpi_index_open(&modelled->catalog.index, (uint32_t)n) != KVP_OK) {
        model_close(modelled);
        return KVP_E_NO_MEMORY;
    }
    kvpi_index_free(&modelled->catalog.index, (uint32_t)n);
    *out_self = modelled;
    return KVP_OK;
}

/* ----------------------------------------------------------------------------------- operations */

static uint32_t model_prepare(void *self, struct kvpi_store_op *op)
{
    struct modelled *modelled = self;
    return op->kind == KVP_STORE_SYNC ? KVP_STORE_OK : kvpi_catalog_prepare(&modelled->catalog, op);
}

static void write_payload(struct modelled *modelled, const struct kvpi_store_op *op)
{
    uint8_t *at = modelled->payloads + op->entry * modelled->payload_bytes;
    for (uint32_t i = 1; i < op->n_spans; i++) {
        memcpy(at, op->spans[i].bytes, op->spans[i].n_bytes);
        at += op->spans[i].n_bytes;
    }
}

static void read_record(struct modelled *modelled, struct kvpi_store_op *op)
{
    const uint8_t *at = modelled->payloads + op->entry * modelled->payload_bytes;
    for (uint32_t i = 1; i < op->n_spans; i++) {
        memcpy(op->spans[i].bytes, at, op->spans[i].n_bytes);
        at += op->spans[i].n_bytes;
    }
    op->io_failed = kvpi_record_write(op->identity, &op->place, op->spans + 1, op->n_spans - 1,
                                      NULL, modelled->header_bytes, op->spans[0].bytes) != KVP_OK;
}

static void note_due(struct modelled *modelled)
{
    modelled->model->due_ns = modelled->n_begun > 0 ? modelled->ends_ns[0] : KVPI_MODELLED_NEVER;
}

static uint64_t bytes_of(const kvpi_modelled *model, const struct kvpi_store_op *op)
{
    if (op->kind == KVP_STORE_SYNC)
        return 0;
    return op->identity->kind == KVP_IDENTITY_STATE ? model->state_bytes
                                                    : (op->n_spans - 1) * model->block_bytes;
}

static uint64_t time_of(const kvpi_modelled *model, const struct kvpi_store_op *op)
{
    double bytes = (double)bytes_of(model, op);
    return (uint64_t)(bytes * SECOND_NS / (double)model->options.bytes_s);
}

static void model_begin(void *self, struct kvpi_store_op *op)
{
    struct modelled *modelled = self;
    kvpi_modelled *model = modelled->model;
    if (op->kind == KVP_STORE_PUT)
        write_payload(modelled, op);
    else if (op->kind == KVP_STORE_GET)
        read_record(modelled, op);
    if (modelled->moved_ns < model->now_ns)
        modelled->moved_ns = model->now_ns;
    if (model->takes_time)
        modelled->moved_ns += time_of(model, op);
    modelled->begun[modelled->n_begun] = op;
    modelled->ends_ns[modelled->n_begun++] =
        modelled->moved_ns + (model->takes_time ? model->options.latency_ns : 0);
    note_due(modelled);
}

static uint32_t model_reap(void *self, struct kvpi_store_op **out_ops, uint32_t capacity)
{
    struct modelled *modelled = self;
    uint32_t n = 0;
    while (n < modelled->n_begun && modelled->ends_ns[n] <= modelled->model->now_ns)
        kvpi_catalog_hold(&modelled->catalog, modelled->begun[n++]);
    modelled->n_begun -= n;
    memmove(modelled->begun, modelled->begun + n, modelled->n_begun * sizeof *modelled->begun);
    memmove(modelled->ends_ns, modelled->ends_ns + n,
            modelled->n_begun * sizeof *modelled->ends_ns);
    note_due(modelled);
    return kvpi_catalog_release(&modelled->catalog, out_ops, capacity);
}

static uint32_t model_end(void *self, struct kvpi_store_op *op, uint32_t result)
{
    struct modelled *modelled = self;
    if (op->kind == KVP_STORE_SYNC)
        return result;
    const uint32_t told = kvpi_catalog_end(&modelled->catalog, op, result);
    if (told == KVP_STORE_OK && op->kind == KVP_STORE_PUT)
        modelled->model->written_bytes += bytes_of(modelled->model, op);
    else if (told == KVP_STORE_OK)
        modelled->model->read_bytes += bytes_of(modelled->model, op);
    return told;
}

static void model_have(void *self, const kvp_digest *keys, uint32_t n_keys, uint64_t *bits)
{
    const struct modelled *modelled = self;
    kvpi_catalog_have(&modelled->catalog, keys, n_keys, bits);
}

static void model_drop(void *self, const kvp_digest *keys, uint32_t n_keys)
{
    struct modelled *modelled = self;
    kvpi_catalog_drop(&modelled->catalog, keys, n_keys);
}

static void model_evict(void *self, const kvp_store_match *match)
{
    struct modelled *modelled = self;
    kvpi_catalog_evict(&modelled->catalog, match);
}

/* The store is being closed, and waits for what has begun: all of it ends now. */
static void model_wait(void *self, int wake, int timeout_ms)
{
    struct modelled *modelled = self;
    (void)wake;
    (void)timeout_ms;
    if (modelled->n_begun > 0)
        modelled->model->now_ns = modelled->ends_ns[modelled->n_begun - 1];
}

static void model_usage(const void *self, struct kvpi_backend_usage *out_usage)
{
    const struct modelled *modelled = self;
    kvpi_catalog_usage(&modelled->catalog, out_usage);
}

static void model_describe(const void *self, char *out_text, size_t text_bytes)
{
    const struct modelled *modelled = self;
    const kvpi_modelled_options *options = &modelled->model->options;
    const kvpi_text rate = kvpi_text_bytes((double)options->bytes_s);
    const kvpi_text latency = kvpi_text_duration((double)options->latency_ns);
    kvpi_why(KVP_OK, out_text, text_bytes, "a model of %s, %s a second%s%s",
             options->is_remote ? "another machine" : "a disk", rate.of,
             options->latency_ns > 0 ? ", latency " : "",
             options->latency_ns > 0 ? latency.of : "");
}

static uint64_t clock_of(void *context)
{
    const kvpi_modelled *model = context;
    return model->now_ns;
}

kvp_status kvpi_modelled_open(const kvp_store_config *config, kvpi_modelled *model,
                              kvp_store **out_store, char *out_why, size_t why_bytes)
{
    static const struct kvpi_backend backend = {
        .scheme = "model",
        .open = model_open,
        .close = model_close,
        .prepare = model_prepare,
        .begin = model_begin,
        .reap = model_reap,
        .end = model_end,
        .have = model_have,
        .drop = model_drop,
        .evict = model_evict,
        .wait = model_wait,
        .usage = model_usage,
        .describe = model_describe,
    };
    kvp_store_config own = *config;
    own.url = "model:";
    own.now = clock_of;
    own.now_context = model;
    own.threads = 0;
    model->due_ns = KVPI_MODELLED_NEVER;
    return kvpi_store_open(&own, &backend, out_store, out_why, why_bytes);
}

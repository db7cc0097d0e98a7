/* rerun: a log with calls left out, made into a true log again by running it.
 *
 * Without some of its calls, the rest of a log gives other results: the records must be made again.
 * And handles change: without the first open, the second one gets the first one's place. So each
 * handle is followed from the call that made it:
 *
 *     log       #3 open -> A      #4 open -> B      #7 commit B      #9 fork A -> C
 *     rerun     (left out)        open -> A'        commit A'        (left out: A was never made)
 *
 * Steps are followed in the same way: without the first step_begin, the second one is step 1. So
 * are loads.
 *
 * R1  handles[] and steps[] have every handle and step that a call of the log made; `now` is what
 *     the rerun's call made instead, 0 as long as there is none.
 */
#include "oplog/oplog.h"
#include "oplog/rerun.h"

#include <stdlib.h>
#include <string.h>

struct kvpi_oplog_made {
    uint64_t bits; /* in the log: a portable handle, a step or a load */
    uint64_t now;  /* in the run; 0: not made */
};

typedef struct kvpi_oplog_rerun rerun_state;

/* ------------------------------------------------------------------------------ reading the log */

static int by_bits(const void *a, const void *b)
{
    uint64_t x = ((const struct kvpi_oplog_made *)a)->bits;
    uint64_t y = ((const struct kvpi_oplog_made *)b)->bits;
    return (x > y) - (x < y);
}

/* A namespace that is opened twice gives one handle. */
static size_t without_doubles(struct kvpi_oplog_made *made, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || made[kept - 1].bits != made[i].bits)
            made[kept++] = made[i];
    return kept;
}

static int makes_a_handle(uint32_t op)
{
    return op == KVP_CALL_NS_OPEN || op == KVP_CALL_OPEN || op == KVP_CALL_FORK;
}

/* The list that what the call makes is in, or NULL; and what it made. */
static struct kvpi_oplog_list *made_by(rerun_state *r, const kvp_call *call,
                                       const kvp_outcome *outcome, uint64_t *out_bits)
{
    int makes_step = call->op == KVP_CALL_STEP_BEGIN && call->count > 0;
    int makes_load = call->op == KVP_CALL_LOAD_BEGIN && outcome->u.load.number != 0;
    if (outcome->status != KVP_OK || (!makes_step && !makes_load && !makes_a_handle(call->op)))
        return NULL;
    *out_bits = makes_step   ? outcome->number
                : makes_load ? outcome->u.load.number
                             : outcome->handle;
    return makes_step ? &r->steps : makes_load ? &r->loads : &r->handles;
}

static void *grown(void *array, size_t n, size_t *capacity, size_t entry_bytes)
{
    if (n < *capacity)
        return array;
    *capacity = *capacity < 64 ? 64 : 2 * *capacity;
    return realloc(array, *capacity * entry_bytes);
}

static kvp_status note_record(rerun_state *r, uint64_t offset, const kvp_record *record,
                              size_t *capacity)
{
    void *offsets = grown(r->offsets, r->n_records, capacity, sizeof *r->offsets);
    if (offsets == NULL)
        return KVP_E_NO_MEMORY;
    r->offsets = offsets;
    r->offsets[r->n_records++] = offset;
    uint64_t bits;
    struct kvpi_oplog_list *list =
        made_by(r, &record->call, &kvpi_oplog_results(r->log)->outcome, &bits);
    if (list == NULL)
        return KVP_OK;
    void *made = grown(list->made, list->n, &list->capacity, sizeof *list->made);
    if (made == NULL)
        return KVP_E_NO_MEMORY;
    list->made = made;
    list->made[list->n++].bits = bits;
    return KVP_OK;
}

static void sort_list(struct kvpi_oplog_list *list)
{
    if (list->n > 0)
        qsort(list->made, list->n, sizeof *list->made, by_bits);
    list->n = without_doubles(list->made, list->n);
}

kvp_status kvpi_oplog_rerun_open(rerun_state *r, kvp_oplog *log)
{
    memset(r, 0, sizeof *r);
    r->log = log;
    kvp_oplog_rewind(log);
    size_t capacity = 0;
    for (;;) {
        kvp_record record;
        int end;
        uint64_t offset = kvp_oplog_offset(log);
        kvp_status status = kvp_oplog_next(log, &record, &end);
        if (status == KVP_OK && end != 0)
            break;
        if (status == KVP_OK && r->n_records == UINT32_MAX)
            status = KVP_E_TOO_LONG;
        if (status == KVP_OK)
            status = note_record(r, offset, &record, &capacity);
        if (status != KVP_OK) {
            uint32_t n_records = r->n_records;
            kvpi_oplog_rerun_close(r);
            r->n_records = n_records;
            return status;
        }
    }
    sort_list(&r->handles);
    sort_list(&r->steps);
    sort_list(&r->loads);
    return KVP_OK;
}

void kvpi_oplog_rerun_close(rerun_state *r)
{
    free(r->offsets);
    free(r->handles.made);
    free(r->steps.made);
    free(r->loads.made);
    free(r->batch_handles.data);
    free(r->batch_counts.data);
    free(r->batch_tokens.data);
    free(r->batch_parents.data);
    free(r->batch_leaves.data);
    memset(r, 0, sizeof *r);
}

/* --------------------------------------------------------------------------- handles and steps */

static struct kvpi_oplog_made *find_handle(const struct kvpi_oplog_list *list, uint64_t bits)
{
    struct kvpi_oplog_made key = {bits, 0};
    return list->n == 0 ? NULL : bsearch(&key, list->made, list->n, sizeof *list->made, by_bits);
}

/* The handle or step in this run, or 0 when it has none; one that the log's calls never made stays
 * (also 0, which is never a handle or a step: *lost tells the two apart). */
static uint64_t translate(const struct kvpi_oplog_list *list, uint64_t bits, int *lost)
{
    const struct kvpi_oplog_made *made = find_handle(list, bits);
    *lost = made != NULL && made->now == 0;
    return made == NULL ? bits : made->now;
}

static void *make_buffer(struct kvpi_oplog_buffer *buffer, size_t n, size_t entry_bytes)
{
    size_t n_bytes = (n + 1) * entry_bytes;
    if (buffer->n_bytes < n_bytes) {
        void *data = realloc(buffer->data, n_bytes);
        if (data == NULL)
            return NULL;
        buffer->data = data;
        buffer->n_bytes = n_bytes;
    }
    return buffer->data;
}

static int has_sum(uint32_t op)
{
    return op == KVP_CALL_EXTEND_MANY || op == KVP_CALL_FILL_MANY || op == KVP_CALL_CAN_EXTEND ||
           op == KVP_CALL_EXTEND_TREE;
}

/* Copies the entries of a batch whose sequences there are. Calls without tokens have none here.
 * Parents count within their sequence's tree, and stay what they are. */
static kvp_status translate_batch(rerun_state *r, kvp_call *call)
{
    int has_tokens = call->tokens != NULL, has_parents = call->parents != NULL;
    uint64_t *handles = make_buffer(&r->batch_handles, call->n_seqs, sizeof *handles);
    uint32_t *counts = make_buffer(&r->batch_counts, call->n_seqs, sizeof *counts);
    int32_t *tokens =
        make_buffer(&r->batch_tokens, has_tokens ? call->n_tokens : 0, sizeof *tokens);
    int32_t *parents =
        make_buffer(&r->batch_parents, has_parents ? call->n_tokens : 0, sizeof *parents);
    int32_t *leaves = make_buffer(&r->batch_leaves, call->n_seqs, sizeof *leaves);
    if (handles == NULL || counts == NULL || tokens == NULL || parents == NULL || leaves == NULL)
        return KVP_E_NO_MEMORY;
    uint32_t n = 0;
    size_t from = 0, to = 0;
    for (uint32_t i = 0; i < call->n_seqs; i++) {
        int lost;
        uint32_t count = call->counts != NULL ? call->counts[i] : 1;
        handles[n] = translate(&r->handles, call->handles[i], &lost);
        counts[n] = count;
        leaves[n] = call->leaves != NULL ? call->leaves[i] : 0;
        if (has_tokens && !lost)
            memcpy(tokens + to, call->tokens + from, count * sizeof *tokens);
        if (has_parents && !lost)
            memcpy(parents + to, call->parents + from, count * sizeof *parents);
        from += count;
        to += lost ? 0 : count;
        n += lost ? 0 : 1;
    }
    call->handles = handles;
    call->n_seqs = n;
    if (call->counts != NULL)
        call->counts = counts;
    if (call->leaves != NULL)
        call->leaves = leaves;
    if (has_sum(call->op))
        call->n_tokens = to > UINT32_MAX ? UINT32_MAX : (uint32_t)to;
    if (has_tokens)
        call->tokens = tokens;
    if (has_parents)
        call->parents = parents;
    return KVP_OK;
}

static int is_batch(uint32_t op)
{
    switch (op) {
    case KVP_CALL_EXTEND_MANY:
    case KVP_CALL_FILL_MANY:
    case KVP_CALL_CAN_EXTEND:
    case KVP_CALL_EXTEND_TREE:
    case KVP_CALL_ACCEPT:
    case KVP_CALL_COMMIT_MANY:
    case KVP_CALL_STEP_COMMIT:
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_SWAP_IN:
    case KVP_CALL_CAN_SWAP_OUT:
    case KVP_CALL_CAN_SWAP_IN: return 1;
    default: return 0;
    }
}

static int names_a_step(uint32_t op)
{
    return op == KVP_CALL_STEP_COMMIT || op == KVP_CALL_STEP_DONE || op == KVP_CALL_STEP_FAILED;
}

/* Gives: skip  1 when the call has nothing left to work on. */
static kvp_status translate_call(rerun_state *r, kvp_call *call, int *skip)
{
    uint32_t n_seqs = call->n_seqs;
    *skip = 0;
    if (names_a_step(call->op))
        call->number = translate(&r->steps, call->number, skip);
    if (call->op == KVP_CALL_LOAD_DONE || call->op == KVP_CALL_LOAD_CANCEL)
        call->number = translate(&r->loads, call->number, skip);
    if (*skip)
        return KVP_OK;
    if (!is_batch(call->op)) {
        call->handle = translate(&r->handles, call->handle, skip);
        return KVP_OK;
    }
    kvp_status status = translate_batch(r, call);
    *skip = n_seqs > 0 && call->n_seqs == 0;
    return status;
}

/* -------------------------------------------------------------------------------------- the run */

static kvp_status copy_record(const struct kvpi_oplog_replay *replay, const kvp_sink *sink)
{
    const struct kvpi_oplog_memory *made = &replay->made;
    if (made->n_bytes == 0)
        return KVP_OK;
    return sink->write(sink->context, made->bytes, made->n_bytes) == 0 ? KVP_OK : KVP_E_IO;
}

static kvp_status run_item(rerun_state *r, uint32_t item, int check_level,
                           struct kvpi_oplog_replay *replay, const kvp_sink *sink)
{
    kvp_record record;
    int end, skip;
    kvpi_oplog_seek(r->log, r->offsets[item], item);
    kvp_status status = kvp_oplog_next(r->log, &record, &end);
    if (status != KVP_OK)
        return status;
    kvp_call call = record.call;
    uint64_t bits = 0, now = 0;
    struct kvpi_oplog_list *list = made_by(r, &call, &kvpi_oplog_results(r->log)->outcome, &bits);
    status = translate_call(r, &call, &skip);
    if (status != KVP_OK || skip)
        return status;
    status = kvpi_oplog_replay_call(replay, &call, check_level);
    if (status != KVP_OK && status != KVP_E_CORRUPT)
        return status;
    r->n_calls++;
    if (list != NULL && made_by(r, &call, &replay->outcome, &now) != NULL)
        find_handle(list, bits)->now = now;
    kvp_status written = copy_record(replay, sink);
    return written != KVP_OK ? written : status;
}

static void forget_list(struct kvpi_oplog_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        list->made[i].now = 0;
}

kvp_status kvpi_oplog_rerun_run(rerun_state *r, const uint32_t *items, size_t n_items,
                                int check_level, const kvp_sink *sink, size_t *n_used)
{
    struct kvpi_oplog_replay replay;
    kvp_config config;
    *n_used = 0;
    r->n_calls = 0;
    forget_list(&r->handles);
    forget_list(&r->steps);
    forget_list(&r->loads);
    kvp_status status = kvp_oplog_config(r->log, &config);
    if (status == KVP_OK)
        status = kvpi_oplog_replay_begin(&replay, &config);
    if (status != KVP_OK)
        return status;
    status = copy_record(&replay, sink); /* the header */
    while (status == KVP_OK && *n_used < n_items)
        status = run_item(r, items[(*n_used)++], check_level, &replay, sink);
    r->violation = replay.violation;
    kvpi_oplog_replay_end(&replay);
    return status;
}

/* fake: cells, as llama.cpp has them in its unified pool. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { UBATCH = 5, LOGITS_MOST = 4096 };

typedef struct cell {
    llama_pos pos; /* -1: empty */
    uint64_t kv;
    uint64_t ids[FAKE_IDS / 64];
    uint32_t n_ids;
} cell;

struct llama_memory_i {
    uint32_t n_cells;
    uint32_t head;
    uint32_t n_used;
    uint32_t most_used;
    llama_pos window; /* 0: none */
    cell *cells;
    uint64_t seen[FAKE_IDS]; /* the sum of fake_seen of the id's cells */
    uint32_t count[FAKE_IDS];
};

struct llama_context {
    struct llama_memory_i memory;
    uint32_t n_batch;
    uint32_t n_seq_max;
    const struct llama_model *model;
    ggml_abort_callback aborts;
    void *abort_data;
    int32_t fail_result;
    int32_t shift; /* of tokens, by an adapter */
    uint32_t fail_after;
    uint32_t n_out;
    int32_t out_index[LOGITS_MOST];
    uint32_t n_vocab;
    float *out; /* [LOGITS_MOST][n_vocab] */
};

void fake_broken(const char *what, int64_t a, int64_t b)
{
    fprintf(stderr, "fake llama: %s (%lld, %lld)\n", what, (long long)a, (long long)b);
    abort();
}

/* ------------------------------------------------------------------------------------- numbers */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return x ^ x >> 32;
}

uint64_t fake_kv(int32_t token, uint32_t pos, uint64_t seen)
{
    return mix(seen ^ mix((uint64_t)(uint32_t)token << 32 | pos));
}

uint64_t fake_seen(uint64_t kv, uint32_t pos)
{
    return mix(kv + pos);
}

float fake_logit(uint64_t kv, uint32_t i)
{
    return (float)(mix(kv + i + 1) >> 40);
}

/* --------------------------------------------------------------------------------------- cells */

static int has_id(const cell *c, llama_seq_id id)
{
    return c->pos >= 0 && (c->ids[id / 64] >> (id % 64) & 1) != 0;
}

static void add_id(struct llama_memory_i *memory, cell *c, llama_seq_id id)
{
    if (has_id(c, id))
        fake_broken("a cell gets an id that it has", id, c->pos);
    c->ids[id / 64] |= (uint64_t)1 << (id % 64);
    c->n_ids++;
    memory->seen[id] += fake_seen(c->kv, (uint32_t)c->pos);
    memory->count[id]++;
}

static void remove_id(struct llama_memory_i *memory, cell *c, llama_seq_id id)
{
    c->ids[id / 64] &= ~((uint64_t)1 << (id % 64));
    memory->seen[id] -= fake_seen(c->kv, (uint32_t)c->pos);
    memory->count[id]--;
    if (--c->n_ids == 0) {
        c->pos = -1;
        memory->n_used--;
    }
}

static void check_range(llama_seq_id id)
{
    if (id < 0 || id >= FAKE_IDS)
        fake_broken("an id is out of range", id, FAKE_IDS);
}

static int is_in(const cell *c, llama_pos p0, llama_pos p1)
{
    return c->pos >= (p0 < 0 ? 0 : p0) && (p1 < 0 || c->pos < p1);
}

bool llama_memory_seq_rm(llama_memory_t memory, llama_seq_id id, llama_pos p0, llama_pos p1)
{
    check_range(id);
    for (uint32_t i = 0; i < memory->n_cells && memory->count[id] > 0; i++) {
        cell *c = &memory->cells[i];
        if (!is_in(c, p0, p1) || !has_id(c, id))
            continue;
        remove_id(memory, c, id);
        if (c->pos < 0 && i < memory->head)
            memory->head = i;
    }
    return true;
}

void llama_memory_seq_cp(llama_memory_t memory, llama_seq_id from, llama_seq_id to, llama_pos p0,
                         llama_pos p1)
{
    check_range(from);
    check_range(to);
    if (from == to)
        fake_broken("an id is copied to itself", from, p0);
    uint32_t n = 0;
    for (uint32_t i = 0; i < memory->n_cells; i++)
        n += is_in(&memory->cells[i], p0, p1) && has_id(&memory->cells[i], to);
    if (n > 0) /* two cells of one position: attention would count it twice */
        fake_broken("a copy goes where the id has cells", to, p0);
    for (uint32_t i = 0; i < memory->n_cells; i++) {
        cell *c = &memory->cells[i];
        if (is_in(c, p0, p1) && has_id(c, from)) {
            add_id(memory, c, to);
            n++;
        }
    }
    if (p1 >= 0 && n != (uint32_t)(p1 - p0))
        fake_broken("a copy lacks cells", from, p0);
}

static llama_pos extreme(llama_memory_t memory, llama_seq_id id, int largest)
{
    llama_pos found = -1;
    check_range(id);
    for (uint32_t i = 0; i < memory->n_cells && memory->count[id] > 0; i++) {
        const cell *c = &memory->cells[i];
        if (has_id(c, id) && (found < 0 || (largest ? c->pos > found : c->pos < found)))
            found = c->pos;
    }
    return found;
}

llama_pos llama_memory_seq_pos_min(llama_memory_t memory, llama_seq_id id)
{
    return extreme(memory, id, 0);
}

llama_pos llama_memory_seq_pos_max(llama_memory_t memory, llama_seq_id id)
{
    return extreme(memory, id, 1);
}

void fake_plant(struct llama_context *context, llama_seq_id id, llama_pos pos)
{
    struct llama_memory_i *memory = &context->memory;
    for (uint32_t i = 0; i < memory->n_cells; i++) {
        cell *c = &memory->cells[i];
        if (c->pos != pos || !has_id(c, id))
            continue;
        const uint64_t wrong = mix(c->kv);
        for (llama_seq_id other = 0; other < FAKE_IDS; other++)
            if (has_id(c, other))
                memory->seen[other] +=
                    fake_seen(wrong, (uint32_t)pos) - fake_seen(c->kv, (uint32_t)pos);
        c->kv = wrong;
    }
}

/* -------------------------------------------------------------------------------------- decode */

static llama_pos last_of(const struct llama_memory_i *memory, llama_seq_id id)
{
    return extreme((llama_memory_t)(uintptr_t)memory, id, 1);
}

static void check_token(const struct llama_context *context, const struct llama_batch *batch,
                        int32_t i, llama_seq_id id, llama_pos *next)
{
    if (id < 0 || (uint32_t)id >= context->n_seq_max)
        fake_broken("a token of this id", id, i);
    if (next[id] == -2)
        next[id] = last_of(&context->memory, id) + 1;
    if (batch->pos[i] != next[id])
        fake_broken("positions of an id do not continue", batch->pos[i], next[id]);
    next[id]++;
    if (batch->token[i] < 0)
        fake_broken("a negative token", batch->token[i], i);
}

/* Ids of one token have the same positions. */
static void check_pair(const struct llama_memory_i *memory, const llama_seq_id *ids)
{
    const llama_memory_t m = (llama_memory_t)(uintptr_t)memory;
    if (extreme(m, ids[0], 0) != extreme(m, ids[1], 0) ||
        extreme(m, ids[0], 1) != extreme(m, ids[1], 1))
        fake_broken("two ids of a token have diverged", ids[0], ids[1]);
}

/* The batch is as llama.cpp wants it: each id continues where it ends. */
static void check_batch(const struct llama_context *context, const struct llama_batch *batch)
{
    const struct llama_memory_i *memory = &context->memory;
    llama_pos next[FAKE_IDS];
    if (batch->n_tokens <= 0 || (uint32_t)batch->n_tokens > context->n_batch)
        fake_broken("a batch of this size", batch->n_tokens, context->n_batch);
    for (llama_seq_id id = 0; id < FAKE_IDS; id++)
        next[id] = -2;
    for (int32_t i = 0; i < batch->n_tokens; i++) {
        if (batch->n_seq_id[i] != 1 && batch->n_seq_id[i] != 2)
            fake_broken("a token of so many ids", batch->n_seq_id[i], i);
        for (int32_t k = 0; k < batch->n_seq_id[i]; k++)
            check_token(context, batch, i, batch->seq_id[i][k], next);
        if (batch->n_seq_id[i] == 2)
            check_pair(memory, batch->seq_id[i]);
    }
}

/* The only id of a cell. */
static llama_seq_id id_of(const cell *c)
{
    llama_seq_id id = 0;
    while (!has_id(c, id))
        id++;
    return id;
}

static int may_take(const struct llama_memory_i *memory, const cell *c)
{
    return c->pos < 0 || (memory->window > 0 && c->n_ids == 1 &&
                          last_of(memory, id_of(c)) + 1 - c->pos >= memory->window);
}

/* A cell that can be taken is empty, and its id has lost what it had before it. */
static void take(struct llama_memory_i *memory, cell *c)
{
    if (c->pos < 0)
        return;
    const uint32_t head = memory->head;
    (void)llama_memory_seq_rm(memory, id_of(c), -1, c->pos + 1);
    memory->head = head;
}

static cell *find_cell(struct llama_memory_i *memory)
{
    for (uint32_t tested = 0; tested < memory->n_cells; tested++) {
        cell *c = &memory->cells[memory->head];
        memory->head = (memory->head + 1) % memory->n_cells;
        if (!may_take(memory, c))
            continue;
        take(memory, c);
        return c;
    }
    return NULL;
}

static uint32_t count_free(const struct llama_memory_i *memory)
{
    uint32_t n = memory->n_cells - memory->n_used;
    for (uint32_t i = 0; i < memory->n_cells && memory->window > 0; i++)
        n += memory->cells[i].pos >= 0 && may_take(memory, &memory->cells[i]);
    return n;
}

static void fill_cell(struct llama_memory_i *memory, cell *c, llama_pos pos, uint64_t kv)
{
    c->kv = kv;
    c->pos = pos;
    memset(c->ids, 0, sizeof c->ids);
    c->n_ids = 0;
    memory->n_used++;
    if (memory->most_used < memory->n_used)
        memory->most_used = memory->n_used;
}

llama_pos fake_next_cell(const struct llama_context *context, llama_seq_id id, llama_pos pos,
                         uint64_t *out_kv)
{
    const struct llama_memory_i *memory = &context->memory;
    llama_pos next = -1;
    check_range(id);
    for (uint32_t i = 0; i < memory->n_cells; i++) {
        const cell *c = &memory->cells[i];
        if (c->pos > pos && has_id(c, id) && (next < 0 || c->pos < next)) {
            next = c->pos;
            *out_kv = c->kv;
        }
    }
    return next;
}

int fake_is_left_out(const struct llama_context *context, llama_seq_id id, llama_pos pos)
{
    const struct llama_memory_i *memory = &context->memory;
    return memory->window > 0 && last_of(memory, id) - pos >= memory->window;
}

int fake_set_cell(struct llama_context *context, llama_seq_id id, llama_pos pos, uint64_t kv)
{
    struct llama_memory_i *memory = &context->memory;
    cell *c = find_cell(memory);
    check_range(id);
    if (c == NULL)
        return 0;
    fill_cell(memory, c, pos, kv);
    add_id(memory, c, id);
    return 1;
}

static void compute(struct llama_context *context, const struct llama_batch *batch, int32_t i)
{
    struct llama_memory_i *memory = &context->memory;
    const llama_seq_id id = batch->seq_id[i][0];
    cell *c = find_cell(memory);
    fill_cell(memory, c, batch->pos[i],
              fake_kv(batch->token[i] + context->shift, (uint32_t)batch->pos[i], memory->seen[id]));
    if (batch->logits[i] != 0) {
        if (context->n_out == LOGITS_MOST)
            fake_broken("so many outputs", context->n_out, i);
        float *out = &context->out[(size_t)context->n_out * context->n_vocab];
        for (uint32_t k = 0; k < context->n_vocab; k++)
            out[k] = context->model->has_text ? fake_text_logit(c->kv, batch->token[i], k)
                                              : fake_logit(c->kv, k);
        context->out_index[context->n_out++] = i;
    }
    for (int32_t k = 0; k < batch->n_seq_id[i]; k++)
        add_id(memory, c, batch->seq_id[i][k]);
}

/* Whole ubatches stay when a decode fails; of the last one llama.cpp removes what it began. */
static int32_t fail(struct llama_context *context, const struct llama_batch *batch)
{
    const int32_t result = context->fail_result;
    const uint32_t n = context->fail_after / UBATCH * UBATCH;
    for (uint32_t i = 0; i < n && i < (uint32_t)batch->n_tokens; i++)
        compute(context, batch, (int32_t)i);
    context->fail_result = 0;
    context->n_out = 0;
    return result;
}

/* Takes the time of a step; 1: it is aborted meanwhile. */
static int take_time(const struct llama_context *context)
{
    const struct timespec pause = {.tv_nsec = 500000};
    for (uint32_t us = 0; us < context->model->step_us; us += 500) {
        if (context->aborts != NULL && context->aborts(context->abort_data))
            return 1;
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

int32_t llama_decode(struct llama_context *context, struct llama_batch batch)
{
    context->n_out = 0;
    check_batch(context, &batch);
    if (count_free(&context->memory) < (uint32_t)batch.n_tokens)
        return 1;
    if (context->fail_result != 0)
        return fail(context, &batch);
    if (take_time(context))
        return 2;
    for (int32_t i = 0; i < batch.n_tokens; i++)
        compute(context, &batch, i);
    return 0;
}

float *llama_get_logits_ith(struct llama_context *context, int32_t i)
{
    for (uint32_t k = 0; k < context->n_out; k++)
        if (context->out_index[k] == i)
            return &context->out[(size_t)k * context->n_vocab];
    fake_broken("no logits of this token", i, context->n_out);
    return NULL;
}

void fake_fail(struct llama_context *context, int32_t result, uint32_t after)
{
    context->fail_result = result;
    context->fail_after = after;
}

void fake_shift_tokens(struct llama_context *context, int32_t shift)
{
    context->shift = shift;
}

uint32_t fake_used(const struct llama_context *context)
{
    return context->memory.n_used;
}

uint32_t fake_most_used(const struct llama_context *context)
{
    return context->memory.most_used;
}

/* ---------------------------------------------------------------------------- model and context */

struct llama_context_params llama_context_default_params(void)
{
    struct llama_context_params params;
    memset(&params, 0, sizeof params);
    params.n_ctx = 512;
    params.n_batch = 2048;
    params.n_ubatch = 512;
    params.n_seq_max = 1;
    params.type_k = params.type_v = GGML_TYPE_F16;
    params.offload_kqv = params.op_offload = params.swa_full = true;
    return params;
}

struct llama_context *llama_init_from_model(struct llama_model *model,
                                            struct llama_context_params params)
{
    struct llama_context *context = calloc(1, sizeof *context);
    if (context == NULL || model == NULL || params.n_ctx == 0 || params.n_seq_max > FAKE_IDS) {
        free(context);
        return NULL;
    }
    struct llama_memory_i *memory = &context->memory;
    memory->n_cells = params.n_ctx;
    memory->window = model->n_swa;
    memory->cells = calloc(params.n_ctx, sizeof *memory->cells);
    context->model = model;
    context->n_vocab = model->has_text ? FAKE_TEXT_TOKENS : FAKE_VOCABULARY;
    context->out = calloc((size_t)LOGITS_MOST * context->n_vocab, sizeof *context->out);
    if (memory->cells == NULL || context->out == NULL) {
        free(memory->cells);
        free(context->out);
        free(context);
        return NULL;
    }
    for (uint32_t i = 0; i < memory->n_cells; i++)
        memory->cells[i].pos = -1;
    context->n_batch = params.n_batch;
    context->n_seq_max = params.n_seq_max;
    return context;
}

void llama_free(struct llama_context *context)
{
    free(context->memory.cells);
    free(context->out);
    free(context);
}

void llama_set_abort_callback(struct llama_context *context, ggml_abort_callback callback,
                              void *data)
{
    context->aborts = callback;
    context->abort_data = data;
}

llama_memory_t llama_get_memory(const struct llama_context *context)
{
    return (llama_memory_t)(uintptr_t)&context->memory;
}

uint32_t llama_n_ctx(const struct llama_context *context)
{
    return context->memory.n_cells;
}

uint32_t llama_n_ctx_seq(const struct llama_context *context)
{
    return context->memory.n_cells;
}

uint32_t llama_n_batch(const struct llama_context *context)
{
    return context->n_batch;
}

int32_t llama_model_n_swa(const struct llama_model *model)
{
    return model->n_swa;
}

enum llama_rope_type llama_model_rope_type(const struct llama_model *model)
{
    return model->rope;
}

bool llama_model_is_recurrent(const struct llama_model *model)
{
    return model->is_recurrent;
}

bool llama_model_is_hybrid(const struct llama_model *model)
{
    return model->is_hybrid;
}

bool llama_model_is_diffusion(const struct llama_model *model)
{
    return model->is_diffusion;
}

bool llama_model_has_encoder(const struct llama_model *model)
{
    return model->has_encoder;
}

bool llama_model_has_decoder(const struct llama_model *model)
{
    return !model->lacks_decoder;
}

int32_t llama_model_meta_val_str(const struct llama_model *model, const char *key, char *out,
                                 size_t capacity)
{
    out[0] = '\0';
    if (model->architecture == NULL || strcmp(key, "general.architecture") != 0)
        return -1;
    return snprintf(out, capacity, "%s", model->architecture);
}

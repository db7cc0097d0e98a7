/* wire_send: the sender. What the cache says, less what the workers have, is the message.
 *
 * A message is made in three steps, so that a failure leaves everything as it was:
 *   prepare   read each named sequence from the cache and find what kind of entry it needs
 *   write     the bytes; a buffer that is too small only counts
 *   remember  what was prepared becomes what the workers have
 *
 * Values. A worker is told each value once. Whether values that it was told have been replaced
 * since (a rejected draft was rolled back, and others came) cannot be seen in the counts, so the
 * sender keeps a hash of those that may be: from `base` on, the first token whose computation was
 * not over. Older ones cannot change without the computed count falling below base.
 *
 *          0 ........ base ...... computed ...... known ...... tokens
 *            computed      in flight      to be computed   no value yet
 *                     [------- hashed -----------)
 *
 * S1  memos[i] is of the sequence with worker id i, as of the last message that named it.
 * S2  What table says is what every worker has that took the last message.
 */
#include <stdlib.h>
#include <string.h>

#include "wire_bytes.h"
#include "wire_table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { CHUNK = 256 }; /* tokens read from the cache at a time */

/* What is remembered of a sequence besides the table. */
struct memo {
    uint64_t handle;
    uint64_t hash; /* of values [base, known) */
    uint32_t base;
    uint32_t row_version;
};

/* One item of the step being made. */
struct pending {
    struct kvpi_wire_seq now;
    struct memo memo;
    const int32_t *row;
    uint32_t id;
    uint32_t kind;
    uint32_t from; /* values [from, now.known) are sent */
    uint32_t same; /* leading entries of the row that need no look */
};

struct kvp_wire_sender {
    const kvp_cache *cache;
    kvp_wire_config config;
    uint64_t number; /* of the last message */
    struct kvpi_wire_table table;
    struct memo *memos;      /* [max_seqs] */
    struct pending *pending; /* [max_seqs] */
    uint32_t owned;
};

typedef struct kvp_wire_sender sender;
typedef struct kvpi_wire_out writer;

/* ------------------------------------------------------------------------------------ creation */

struct places {
    struct kvpi_wire_table_places table;
    size_t memos;
    size_t pending;
    size_t bytes;
};

static kvp_status plan(const kvp_wire_config *config, struct places *places)
{
    struct kvpi_wire_layout layout = {0};
    if (!kvpi_wire_config_is_valid(config))
        return KVP_E_ARG;
    kvpi_wire_layout_take(&layout, 1, sizeof(sender));
    places->memos = kvpi_wire_layout_take(&layout, config->max_seqs, sizeof(struct memo));
    places->pending = kvpi_wire_layout_take(&layout, config->max_seqs, sizeof(struct pending));
    places->table = kvpi_wire_table_plan(&layout, config);
    places->bytes = layout.bytes;
    return layout.overflow ? KVP_E_TOO_LONG : KVP_OK;
}

kvp_status kvp_wire_sender_bytes(const kvp_wire_config *config, size_t *out_bytes)
{
    struct places places;
    kvp_status status = out_bytes == NULL ? KVP_E_ARG : plan(config, &places);
    if (status == KVP_OK)
        *out_bytes = places.bytes;
    return status;
}

kvp_status kvp_wire_sender_create(const kvp_wire_config *config, const kvp_cache *cache,
                                  void *memory, size_t memory_bytes, kvp_wire_sender **out_sender)
{
    struct places places;
    kvp_config cache_config;
    uint32_t owned;
    if (out_sender == NULL)
        return KVP_E_ARG;
    kvp_status status = plan(config, &places);
    if (status == KVP_OK)
        status = kvp_cache_config(cache, &cache_config);
    if (status != KVP_OK)
        return status;
    if (config->block_tokens != cache_config.block_tokens ||
        config->n_blocks < cache_config.n_blocks || config->host_blocks < cache_config.host_blocks)
        return KVP_E_ARG;
    status = kvpi_wire_memory(&memory, memory_bytes, places.bytes, &owned);
    if (status != KVP_OK)
        return status;
    sender *s = memory;
    *s = (sender){.cache = cache, .config = *config, .owned = owned};
    s->memos = (struct memo *)(void *)((char *)memory + places.memos);
    s->pending = (struct pending *)(void *)((char *)memory + places.pending);
    kvpi_wire_table_init(&s->table, config, memory, places.table);
    *out_sender = s;
    return KVP_OK;
}

void kvp_wire_sender_destroy(kvp_wire_sender *s)
{
    if (s != NULL && s->owned)
        free(s);
}

/* ------------------------------------------------------------------------------------- prepare */

/* Gives the values of positions [from, from + n), n <= CHUNK, in the caller's array or in chunk. */
static kvp_status load(const sender *s, const kvp_wire_item *item, uint32_t from, uint32_t n,
                       int32_t *chunk, const int32_t **out_values)
{
    if (item->tokens != NULL) {
        *out_values = item->tokens + from;
        return KVP_OK;
    }
    *out_values = chunk;
    return kvp_seq_tokens(s->cache, item->seq, from, n, chunk);
}

static kvp_status hash_values(const sender *s, const kvp_wire_item *item, uint32_t from,
                              uint32_t to, uint64_t *out_hash)
{
    int32_t chunk[CHUNK];
    uint64_t hash = from;
    for (uint32_t n; from < to; from += n) {
        const int32_t *values;
        n = to - from < CHUNK ? to - from : CHUNK;
        kvp_status status = load(s, item, from, n, chunk, &values);
        if (status != KVP_OK)
            return status;
        hash = XXH3_64bits_withSeed(values, n * sizeof *values, hash);
    }
    *out_hash = hash;
    return KVP_OK;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The first token whose computation is not over; those of the step are taken to be in flight, also
 * when the engine commits what it has only scheduled. */
static uint32_t base_of(const struct kvpi_wire_seq *seq)
{
    uint32_t done = least(seq->computed, seq->known);
    return done - least(done, seq->step);
}

/* Where the values begin that the worker does not have. */
static kvp_status find_from(const sender *s, const kvp_wire_item *item, struct pending *p)
{
    const struct kvpi_wire_seq *old = &s->table.seqs[p->id];
    const struct memo *memo = &s->memos[p->id];
    uint64_t hash;
    if (p->now.known >= old->known && p->now.computed >= memo->base) {
        kvp_status status = hash_values(s, item, memo->base, old->known, &hash);
        if (status != KVP_OK)
            return status;
        if (hash == memo->hash) {
            p->from = old->known;
            return KVP_OK;
        }
    }
    p->from = least(memo->base, least(p->now.computed, p->now.known));
    return KVP_OK;
}

/* Is it one token more, with its value, the one before computed, and the rest as it was? */
static int is_decode(const struct kvpi_wire_seq *old, const struct pending *p)
{
    const struct kvpi_wire_seq *now = &p->now;
    return now->status == old->status && now->tokens == old->tokens + 1 &&
           now->known == old->known + 1 && now->computed == old->computed + 1 &&
           now->cached == old->cached && now->step == old->step && p->from == old->known &&
           p->same == old->blocks;
}

static uint32_t kind_of(const sender *s, const struct pending *p, int is_new)
{
    const struct kvpi_wire_seq *old = &s->table.seqs[p->id];
    if (is_new)
        return KVPI_WIRE_NEW;
    if (is_decode(old, p) && p->now.blocks == old->blocks)
        return KVPI_WIRE_DECODE;
    if (is_decode(old, p) && p->now.blocks == old->blocks + 1)
        return KVPI_WIRE_DECODE_BLOCK;
    return KVPI_WIRE_CHANGE;
}

static kvp_status read_seq(const sender *s, const kvp_wire_item *item, struct pending *p)
{
    kvp_seq_info info;
    kvp_status status = kvp_seq_info_get(s->cache, item->seq, &info);
    if (status != KVP_OK)
        return status;
    status = kvp_seq_row(s->cache, item->seq, 0, &p->row, &p->now.blocks);
    if (status != KVP_OK)
        return status;
    if (item->status < 1 || item->status > 255 || item->step_tokens > info.tokens)
        return KVP_E_ARG;
    if (info.tier != KVP_DEVICE)
        return KVP_E_STATE;
    p->now.status = item->status;
    p->now.tokens = info.tokens;
    p->now.known = info.known_tokens;
    p->now.computed = info.computed_tokens;
    p->now.cached = info.cached_tokens;
    p->now.step = item->step_tokens;
    p->now.last = info.last_token;
    if (item->tokens != NULL && info.known_tokens > 0)
        p->now.last = item->tokens[info.known_tokens - 1];
    if (item->tokens != NULL && p->now.known > 0 && p->now.last < 0)
        return KVP_E_ARG;
    p->memo.handle = item->seq.bits;
    p->memo.row_version = info.row_version;
    return p->now.blocks > s->config.max_row_blocks ? KVP_E_TOO_SMALL : KVP_OK;
}

static kvp_status prepare_item(const sender *s, const kvp_wire_item *item, int is_new,
                               struct pending *p)
{
    const struct kvpi_wire_seq *old = &s->table.seqs[item->worker_id];
    const struct memo *memo = &s->memos[item->worker_id];
    kvp_status status = read_seq(s, item, p);
    if (status != KVP_OK)
        return status;
    p->id = item->worker_id;
    p->same = 0;
    if (is_new) {
        p->from = least(item->first_token, p->now.known);
    } else {
        if (memo->handle != item->seq.bits)
            return KVP_E_ARG;
        if (memo->row_version == p->memo.row_version)
            p->same = old->blocks;
        status = find_from(s, item, p);
    }
    if (status != KVP_OK)
        return status;
    p->kind = kind_of(s, p, is_new);
    p->memo.base = base_of(&p->now);
    return hash_values(s, item, p->memo.base, p->now.known, &p->memo.hash);
}

/* Closed ids ascend and are known; an item's id is new where it is one of them. */
static kvp_status check_closed(const sender *s, const kvp_wire_step *step)
{
    if (step->n_closed > 0 && step->closed == NULL)
        return KVP_E_ARG;
    for (uint32_t i = 0; i < step->n_closed; i++) {
        uint32_t id = step->closed[i];
        if (id >= s->config.max_seqs || s->table.seqs[id].status == 0 ||
            (i > 0 && id <= step->closed[i - 1]))
            return KVP_E_ARG;
    }
    return KVP_OK;
}

static kvp_status check_copies(const sender *s, const kvp_wire_step *step)
{
    if (step->n_copies > 0 && step->copies == NULL)
        return KVP_E_ARG;
    if (step->n_copies > s->config.max_copies)
        return KVP_E_TOO_SMALL;
    for (uint32_t i = 0; i < step->n_copies; i++) {
        const kvp_copy *copy = &step->copies[i];
        if (!kvpi_wire_is_block(&s->config, copy->src_tier, copy->src_block) ||
            !kvpi_wire_is_block(&s->config, copy->dst_tier, copy->dst_block) ||
            copy->n_tokens < 1 || copy->n_tokens > s->config.block_tokens ||
            copy->phase < (i > 0 ? step->copies[i - 1].phase : 0))
            return KVP_E_ARG;
    }
    return KVP_OK;
}

static kvp_status prepare(const sender *s, const kvp_wire_step *step, int full)
{
    uint64_t n_values = 0;
    uint32_t c = 0; /* walks along the closed ids */
    for (uint32_t i = 0; i < step->n_items; i++) {
        const kvp_wire_item *item = &step->items[i];
        uint32_t id = item->worker_id;
        if (id >= s->config.max_seqs || (i > 0 && id <= step->items[i - 1].worker_id))
            return KVP_E_ARG;
        while (c < step->n_closed && step->closed[c] < id)
            c++;
        int is_closed = c < step->n_closed && step->closed[c] == id;
        int is_new = full || is_closed || s->table.seqs[id].status == 0;
        kvp_status status = prepare_item(s, item, is_new, &s->pending[i]);
        if (status != KVP_OK)
            return status;
        n_values += s->pending[i].now.known - s->pending[i].from;
    }
    return n_values > s->config.max_step_tokens ? KVP_E_TOO_SMALL : KVP_OK;
}

/* --------------------------------------------------------------------------------------- write */

static kvp_status put_values(const sender *s, writer *out, const kvp_wire_item *item,
                             const struct pending *p)
{
    int32_t chunk[CHUNK];
    for (uint32_t at = p->from, n; at < p->now.known; at += n) {
        const int32_t *values;
        n = least(p->now.known - at, CHUNK);
        kvp_status status = load(s, item, at, n, chunk, &values);
        if (status != KVP_OK)
            return status;
        for (uint32_t i = 0; i < n; i++) {
            if (values[i] < 0)
                return KVP_E_ARG;
            kvpi_wire_put(out, (uint32_t)values[i]);
        }
    }
    return KVP_OK;
}

/* Block ids, each as the way from the one written before: neighbours in the pool cost one byte. */
static void put_blocks(writer *out, const struct pending *p, uint32_t from, uint32_t *at_block)
{
    for (uint32_t i = from; i < p->now.blocks; i++) {
        kvpi_wire_put_way(out, *at_block, (uint32_t)p->row[i]);
        *at_block = (uint32_t)p->row[i];
    }
}

static kvp_status put_new(const sender *s, writer *out, const kvp_wire_item *item,
                          const struct pending *p, uint32_t *at_block)
{
    const struct kvpi_wire_seq *now = &p->now;
    kvpi_wire_put_byte(out, now->status);
    kvpi_wire_put(out, now->tokens);
    kvpi_wire_put(out, now->computed);
    kvpi_wire_put(out, now->cached);
    kvpi_wire_put(out, now->step);
    kvpi_wire_put(out, p->from);
    kvpi_wire_put(out, now->known - p->from);
    kvp_status status = put_values(s, out, item, p);
    if (now->known == p->from)
        kvpi_wire_put(out, (uint32_t)(now->last + 1));
    kvpi_wire_put(out, now->blocks);
    put_blocks(out, p, 0, at_block);
    return status;
}

/* The entries that differ among those that both rows have; NULL: count only. */
static uint32_t put_replaced(const sender *s, writer *out, const struct pending *p,
                             uint32_t *at_block)
{
    const int32_t *old_row = kvpi_wire_row(&s->table, p->id);
    uint32_t n_both = least(s->table.seqs[p->id].blocks, p->now.blocks);
    uint32_t n = 0;
    for (uint32_t i = p->same, next = 0; i < n_both; i++) {
        if (old_row[i] == p->row[i])
            continue;
        n++;
        if (out == NULL)
            continue;
        kvpi_wire_put(out, i - next);
        kvpi_wire_put_way(out, *at_block, (uint32_t)p->row[i]);
        *at_block = (uint32_t)p->row[i];
        next = i + 1;
    }
    return n;
}

static void put_row(const sender *s, writer *out, const struct pending *p, uint32_t *at_block)
{
    uint32_t old_blocks = s->table.seqs[p->id].blocks;
    uint32_t n_both = least(old_blocks, p->now.blocks);
    kvpi_wire_put(out, old_blocks - n_both);
    kvpi_wire_put(out, put_replaced(s, NULL, p, NULL));
    put_replaced(s, out, p, at_block);
    kvpi_wire_put(out, p->now.blocks - n_both);
    put_blocks(out, p, n_both, at_block);
}

static uint32_t change_flags(const sender *s, const struct pending *p)
{
    const struct kvpi_wire_seq *old = &s->table.seqs[p->id];
    const struct kvpi_wire_seq *now = &p->now;
    uint32_t flags = 0;
    int has_values = p->from != now->known;
    flags |= now->status != old->status ? KVPI_WIRE_STATUS : 0;
    flags |= now->tokens != old->tokens ? KVPI_WIRE_TOKENS : 0;
    flags |= now->computed != old->computed ? KVPI_WIRE_COMPUTED : 0;
    flags |= now->cached != old->cached ? KVPI_WIRE_CACHED : 0;
    flags |= now->step != old->step ? KVPI_WIRE_STEP_TOKENS : 0;
    flags |= has_values || p->from != old->known ? KVPI_WIRE_VALUES : 0;
    flags |= !has_values && now->last != old->last ? KVPI_WIRE_LAST : 0;
    flags |= now->blocks != old->blocks || put_replaced(s, NULL, p, NULL) > 0 ? KVPI_WIRE_ROW : 0;
    return flags;
}

static kvp_status put_change(const sender *s, writer *out, const kvp_wire_item *item,
                             const struct pending *p, uint32_t *at_block)
{
    const struct kvpi_wire_seq *old = &s->table.seqs[p->id];
    const struct kvpi_wire_seq *now = &p->now;
    uint32_t flags = change_flags(s, p);
    kvp_status status = KVP_OK;
    kvpi_wire_put_byte(out, flags);
    if (flags & KVPI_WIRE_STATUS)
        kvpi_wire_put_byte(out, now->status);
    if (flags & KVPI_WIRE_TOKENS)
        kvpi_wire_put_way(out, old->tokens, now->tokens);
    if (flags & KVPI_WIRE_COMPUTED)
        kvpi_wire_put_way(out, old->computed, now->computed);
    if (flags & KVPI_WIRE_CACHED)
        kvpi_wire_put(out, now->cached);
    if (flags & KVPI_WIRE_STEP_TOKENS)
        kvpi_wire_put(out, now->step);
    if (flags & KVPI_WIRE_VALUES) {
        kvpi_wire_put(out, old->known - p->from);
        kvpi_wire_put(out, now->known - p->from);
        status = put_values(s, out, item, p);
    }
    if (flags & KVPI_WIRE_LAST)
        kvpi_wire_put(out, (uint32_t)(now->last + 1));
    if (flags & KVPI_WIRE_ROW)
        put_row(s, out, p, at_block);
    return status;
}

/* How many items from i on are one run: the same kind, one worker id after the other. */
static uint32_t run_length(const sender *s, uint32_t i, uint32_t n_items)
{
    const struct pending *first = &s->pending[i];
    uint32_t n = 1;
    while (i + n < n_items && s->pending[i + n].kind == first->kind &&
           s->pending[i + n].id == first->id + n)
        n++;
    return n;
}

static void put_run(writer *out, const struct pending *run, uint32_t n, uint32_t *at_block)
{
    kvpi_wire_put(out, n - 1);
    for (uint32_t i = 0; i < n; i++) {
        kvpi_wire_put(out, (uint32_t)run[i].now.last);
        if (run[i].kind == KVPI_WIRE_DECODE_BLOCK)
            put_blocks(out, &run[i], run[i].now.blocks - 1, at_block);
    }
}

static kvp_status put_items(const sender *s, writer *out, const kvp_wire_step *step)
{
    uint32_t next_id = 0;
    uint32_t at_block = 0;
    kvp_status status = KVP_OK;
    kvpi_wire_put(out, step->n_items);
    for (uint32_t i = 0, n; i < step->n_items && status == KVP_OK; i += n) {
        const struct pending *p = &s->pending[i];
        n = 1;
        kvpi_wire_put(out, (p->id - next_id) << 2 | p->kind);
        if (p->kind == KVPI_WIRE_NEW) {
            status = put_new(s, out, &step->items[i], p, &at_block);
        } else if (p->kind == KVPI_WIRE_CHANGE) {
            status = put_change(s, out, &step->items[i], p, &at_block);
        } else {
            n = run_length(s, i, step->n_items);
            put_run(out, p, n, &at_block);
        }
        next_id = p->id + n;
    }
    return status;
}

static void put_closed(writer *out, const kvp_wire_step *step)
{
    uint32_t next_id = 0;
    kvpi_wire_put(out, step->n_closed);
    for (uint32_t i = 0; i < step->n_closed; i++) {
        kvpi_wire_put(out, step->closed[i] - next_id);
        next_id = step->closed[i] + 1;
    }
}

static void put_copies(writer *out, const kvp_wire_step *step)
{
    uint32_t phase = 0;
    uint32_t at_block = 0;
    kvpi_wire_put(out, step->n_copies);
    for (uint32_t i = 0; i < step->n_copies; i++) {
        const kvp_copy *copy = &step->copies[i];
        kvpi_wire_put(out, copy->phase - phase);
        kvpi_wire_put(out, copy->group);
        kvpi_wire_put_byte(out, copy->src_tier);
        kvpi_wire_put_byte(out, copy->dst_tier);
        kvpi_wire_put_way(out, at_block, (uint32_t)copy->src_block);
        kvpi_wire_put_way(out, (uint32_t)copy->src_block, (uint32_t)copy->dst_block);
        kvpi_wire_put(out, copy->n_tokens);
        phase = copy->phase;
        at_block = (uint32_t)copy->dst_block;
    }
}

static void put_head(const sender *s, writer *out, int full)
{
    uint8_t *head = out->bytes;
    memcpy(head + KVPI_WIRE_AT_MAGIC, "kvpw", 4);
    head[KVPI_WIRE_AT_VERSION] = KVPI_WIRE_VERSION;
    head[KVPI_WIRE_AT_KIND] = full ? KVPI_WIRE_FULL_STATE : KVPI_WIRE_STEP;
    kvpi_wire_store(head + KVPI_WIRE_AT_ZERO, 0, 2);
    kvpi_wire_store(head + KVPI_WIRE_AT_LENGTH, out->n, 4);
    kvpi_wire_store(head + KVPI_WIRE_AT_BLOCK_TOKENS, s->config.block_tokens, 4);
    kvpi_wire_store(head + KVPI_WIRE_AT_EPOCH, s->config.epoch, 8);
    kvpi_wire_store(head + KVPI_WIRE_AT_NUMBER, s->number + 1, 8);
    kvpi_wire_store(head + KVPI_WIRE_AT_CHECKSUM, kvpi_wire_checksum(head, out->n), 8);
}

/* ------------------------------------------------------------------------------------ remember */

static void remember(sender *s, const kvp_wire_step *step, int full)
{
    if (full) {
        kvpi_wire_table_clear(&s->table);
    } else {
        for (uint32_t i = 0; i < step->n_closed; i++)
            kvpi_wire_table_remove(&s->table, step->closed[i]);
    }
    for (uint32_t i = 0; i < step->n_items; i++) {
        const struct pending *p = &s->pending[i];
        int32_t *row = kvpi_wire_row(&s->table, p->id);
        s->table.n_seqs += s->table.seqs[p->id].status == 0;
        if (p->now.blocks > p->same)
            memcpy(row + p->same, p->row + p->same, (p->now.blocks - p->same) * sizeof *row);
        s->table.seqs[p->id] = p->now;
        s->memos[p->id] = p->memo;
    }
    s->number++;
}

kvp_status kvp_wire_sender_encode(kvp_wire_sender *s, const kvp_wire_step *step, void *bytes,
                                  size_t capacity, size_t *out_n_bytes)
{
    if (s == NULL || step == NULL || step->struct_size != sizeof *step ||
        (step->n_items > 0 && step->items == NULL) || (bytes == NULL && capacity > 0) ||
        out_n_bytes == NULL || (step->flags | KVP_WIRE_FULL) != KVP_WIRE_FULL)
        return KVP_E_ARG;
    int full = (step->flags & KVP_WIRE_FULL) != 0 || s->number == 0;
    const kvp_wire_step none = {0};
    writer out = {bytes, capacity, KVP_WIRE_HEAD_BYTES};
    kvp_status status = check_closed(s, step);
    if (status == KVP_OK)
        status = check_copies(s, step);
    if (status == KVP_OK)
        status = prepare(s, step, full);
    if (status != KVP_OK)
        return status;
    put_closed(&out, full ? &none : step);
    put_copies(&out, step);
    status = put_items(s, &out, step);
    if (status != KVP_OK)
        return status;
    if (out.n > UINT32_MAX)
        return KVP_E_TOO_LONG;
    *out_n_bytes = out.n;
    if (out.n > capacity)
        return KVP_E_TOO_SMALL;
    put_head(s, &out, full);
    remember(s, step, full);
    return KVP_OK;
}

uint64_t kvp_wire_sender_digest(const kvp_wire_sender *s)
{
    return s == NULL ? 0 : kvpi_wire_table_digest(&s->table);
}

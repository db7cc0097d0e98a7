/* Calls. One function per kind of call; each has its share of wrong ones. */
#include "generate_parts.h"
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

static int32_t draw_token(generator *g)
{
    return (int32_t)below(g, g->alphabet);
}

/* -------------------------------------------------------------------------- streams, the making */

static void draw_keys(generator *g, generate_stream *stream)
{
    uint32_t begin = 0;

    stream->n_keys = g->o->config.max_unit_keys ? below(g, GENERATE_KEYS + 1) : 0;
    for (uint32_t i = 0; i < stream->n_keys; i++) {
        kvp_key *key = &stream->keys[i];

        begin += below(g, 3 * (uint64_t)g->o->unit);
        key->type = 1 + below(g, 2);
        key->begin = begin;
        key->end = begin + 1 + below(g, 2 * (uint64_t)g->o->unit);
        key->n_bytes = chance(g, 20) ? 0 : 1 + below(g, chance(g, 10) ? KVP_KEY_MAX_BYTES : 8);
        key->bytes = NULL;
        for (uint32_t k = 0; k < key->n_bytes; k++)
            stream->key_bytes[i][k] = (uint8_t)below(g, 2);
    }
}

static void draw_streams(generator *g)
{
    for (uint32_t i = 0; i < GENERATE_STREAMS; i++) {
        generate_stream *stream = &g->streams[i];
        uint32_t shared = 0;

        stream->tokens = oracle_allocate(g->max_tokens, sizeof *stream->tokens);
        draw_keys(g, stream);
        if (i && chance(g, 80)) {
            const generate_stream *other = &g->streams[below(g, i)];

            shared = below(g, g->max_tokens < 64 * g->o->unit ? g->max_tokens : 64 * g->o->unit);
            memcpy(stream->tokens, other->tokens, shared * sizeof *stream->tokens);
            if (chance(g, 60)) {
                memcpy(stream->keys, other->keys, sizeof stream->keys);
                memcpy(stream->key_bytes, other->key_bytes, sizeof stream->key_bytes);
                stream->n_keys = other->n_keys;
            }
        }
        for (uint32_t t = shared; t < g->max_tokens; t++)
            stream->tokens[t] = draw_token(g);
    }
}

static void draw_weights(generator *g)
{
    static const struct {
        uint32_t op, weight;
    } table[] = {
        {KVP_CALL_NS_OPEN, 6},      {KVP_CALL_NS_CLOSE, 2},     {KVP_CALL_NS_FLUSH, 2},
        {KVP_CALL_MATCH, 20},       {KVP_CALL_OPEN, 110},       {KVP_CALL_EXTEND, 110},
        {KVP_CALL_EXTEND_MANY, 60}, {KVP_CALL_FILL, 40},        {KVP_CALL_FILL_MANY, 20},
        {KVP_CALL_COMMIT, 130},     {KVP_CALL_COMMIT_MANY, 40}, {KVP_CALL_INVALIDATE, 10},
        {KVP_CALL_FORK, 30},        {KVP_CALL_TRUNCATE, 30},    {KVP_CALL_CLOSE, 70},
        {KVP_CALL_SEQ_INFO, 20},    {KVP_CALL_SEQ_TOKENS, 12},  {KVP_CALL_SEQ_BLOCK_TOKENS, 8},
        {KVP_CALL_ROW, 10},         {KVP_CALL_SLOTS, 15},       {KVP_CALL_RETAIN, 12},
        {KVP_CALL_UNCACHE, 4},      {KVP_CALL_CAN_OPEN, 20},    {KVP_CALL_CAN_EXTEND, 20},
        {KVP_CALL_PLAN_TAKE, 25},   {KVP_CALL_EVICTED, 10},     {KVP_CALL_BLOCK_INFO, 10},
        {KVP_CALL_BLOCK_TOKENS, 8}, {KVP_CALL_STATS, 8},        {KVP_CALL_SHORTAGE, 8},
        {KVP_CALL_CHECK, 2},        {KVP_CALL_CONFIG, 1},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        uint32_t weight = table[i].weight * 10;

        if (chance(g, 20))
            weight = chance(g, 50) ? weight / 4 + 1 : weight * 3;
        g->weights[table[i].op] = weight;
    }
    g->weights[KVP_CALL_RESET] = 1;
    g->weights[KVP_CALL_NS_QUOTA] = g->o->config.quotas ? 120 : 10;
    g->weights[KVP_CALL_NS_INFO] = g->o->config.quotas ? 50 : 10;
    g->weights[KVP_CALL_PROMPT_END] = g->o->policy ? 60 : 0; /* a number, for others */
    generate_tier_weights(g);
    generate_group_weights(g);
    generate_lend_weights(g);
    generate_state_weights(g);
    if (chance(g, 30)) /* plans that grow long */
        g->weights[KVP_CALL_PLAN_TAKE] = 12;
    for (uint32_t i = 0; i < GENERATE_OPS; i++)
        g->total_weight += g->weights[i];
}

generator *generator_create(uint64_t seed, uint64_t index, const oracle *o)
{
    static const uint32_t alphabets[] = {1, 2, 3, 4, 12, 100, 2000};
    generator *g = oracle_allocate(1, sizeof *g);
    uint64_t most;

    g->state = seed + index * 0xd1342543de82ef95u + 7;
    g->o = o;
    g->alphabet = alphabets[below(g, sizeof alphabets / sizeof *alphabets)];
    g->typical_blocks = 1 + below(g, o->config.n_blocks < 12 ? o->config.n_blocks : 12);
    most = (uint64_t)(g->typical_blocks + 40) * o->config.block_tokens + 64;
    g->max_tokens = (uint32_t)(most < 1u << 19 ? most : 1u << 19);
    g->stream_of = oracle_allocate(o->config.max_seqs, 1);
    draw_weights(g);
    draw_streams(g);
    return g;
}

void generator_destroy(generator *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; i < GENERATE_STREAMS; i++)
        free(g->streams[i].tokens);
    free(g->stream_of);
    free(g->tokens);
    free(g->hashes);
    free(g->parents);
    free(g);
}

/* -------------------------------------------------------------------------- handles and amounts */

uint64_t generate_bad_handle(generator *g)
{
    if (g->n_stale && chance(g, 70))
        return g->stale[below(g, g->n_stale)];
    return chance(g, 20) ? 0 : generate_random(&g->state);
}

const oracle_seq *generate_open_seq(generator *g)
{
    uint32_t k;

    if (!g->o->open_seqs)
        return NULL;
    k = below(g, g->o->open_seqs);
    for (uint32_t i = 0;; i++)
        if (g->o->seqs[i].open && k-- == 0)
            return &g->o->seqs[i];
}

/* A sequence to work on, its handle in the call; NULL: none, the handle is a bad one. */
const oracle_seq *generate_seq(generator *g, kvp_call *call)
{
    const oracle_seq *seq = rarely(g) ? NULL : generate_open_seq(g);

    /* Of those swapped out little can be asked. */
    for (uint32_t i = 0; seq && seq->tier == KVP_HOST && i < 3 && chance(g, 85); i++)
        seq = generate_open_seq(g);
    call->handle = seq ? seq->handle : generate_bad_handle(g);
    return seq;
}

static void pick_ns(generator *g, kvp_call *call)
{
    uint32_t k;

    call->handle = generate_bad_handle(g);
    if (!g->o->open_namespaces || below(g, 200) == 0)
        return;
    k = below(g, g->o->open_namespaces);
    for (uint32_t i = 0;; i++) {
        if (g->o->namespaces[i].open && k-- == 0) {
            call->handle = g->o->namespaces[i].handle;
            return;
        }
    }
}

static uint32_t draw_new(generator *g)
{
    uint32_t kind = below(g, 100);

    if (kind < 50)
        return 1;
    if (kind < 60)
        return 0;
    if (kind < 80)
        return up_to(g, g->o->unit);
    return up_to(g, (kind < 92 ? 1u : 2u) * (uint64_t)g->o->config.block_tokens);
}

uint32_t generate_reserve(generator *g)
{
    if (chance(g, 75))
        return 0;
    if (rarely(g))
        return UINT32_MAX - below(g, 3);
    return up_to(g, 2 * (uint64_t)g->o->config.block_tokens);
}

/* Space for n tokens of the call after those that are there. */
int32_t *generate_token_space(generator *g, uint32_t n)
{
    g->tokens = oracle_grow(g->tokens, &g->tokens_capacity, (uint64_t)n + 1, sizeof *g->tokens);
    return g->tokens;
}

/* What most likely comes at this position of a sequence: as in its stream. */
int32_t generate_token_at(generator *g, const oracle_seq *seq, uint32_t position)
{
    uint32_t stream = g->stream_of[seq - g->o->seqs];

    if (position >= g->max_tokens || below(g, 50) == 0)
        return draw_token(g);
    return g->streams[stream].tokens[position];
}

/* A layer group, or rarely one that there is not. */
uint32_t generate_group(generator *g)
{
    return rarely(g) ? g->o->config.n_groups + below(g, 2) : below(g, g->o->config.n_groups);
}

/* Continue a sequence: n values of positions from `from`, put at `at` of the call's tokens. */
static void put_values(generator *g, const oracle_seq *seq, uint32_t from, uint32_t at, uint32_t n)
{
    generate_token_space(g, at + n);
    for (uint32_t i = 0; i < n; i++)
        g->tokens[at + i] = generate_token_at(g, seq, from + i);
    if (n && below(g, 150) == 0)
        g->tokens[at + below(g, n)] = -1;
}

/* The stream's keys that begin in [begin, end), cut to it. Sometimes made wrong. */
static void put_keys(generator *g, kvp_call *call, uint32_t stream, uint32_t begin, uint32_t end)
{
    const generate_stream *s = &g->streams[stream];

    for (uint32_t i = 0; i < s->n_keys; i++) {
        kvp_key key = s->keys[i];

        if (key.begin < begin || key.begin >= end)
            continue;
        key.end = key.end < end ? key.end : end;
        key.bytes = key.n_bytes ? s->key_bytes[i] : NULL;
        g->keys[call->n_keys++] = key;
    }
    if (g->o->config.max_unit_keys && begin < end && below(g, 40) == 0) {
        kvp_key *key = &g->keys[call->n_keys++];

        memset(key, 0, sizeof *key);
        key->type = 9;
        key->begin = begin + below(g, end - begin);
        key->end = key->begin + below(g, 3);
        key->n_bytes = chance(g, 10) ? KVP_KEY_MAX_BYTES + 1 : 1;
        key->bytes = g->name;
    }
    call->keys = call->n_keys ? g->keys : NULL;
}

/* -------------------------------------------------------------------------------------- prompts */

static uint32_t prompt_length(generator *g)
{
    uint32_t S = g->o->config.block_tokens, blocks = up_to(g, g->typical_blocks), n;

    if (rarely(g))
        blocks = up_to(g, 40);
    n = blocks * S;
    if (chance(g, 30))
        n += below(g, S);
    else if (chance(g, 30))
        n += below(g, g->o->block_units) * g->o->unit;
    if (chance(g, 10) && n)
        n--;
    return n < g->max_tokens ? n : g->max_tokens;
}

static void put_hashes(generator *g, kvp_call *call)
{
    uint32_t n = call->n_tokens / g->o->unit, ns = oracle_find_ns(g->o, call->handle);
    kvp_hash_input input = {0};

    if (!n || ns == ORACLE_NONE)
        return;
    g->hashes = oracle_grow(g->hashes, &g->hashes_capacity, n, sizeof *g->hashes);
    input.unit_tokens = g->o->unit;
    input.n_tokens = call->n_tokens;
    input.tokens = call->tokens;
    input.n_keys = call->n_keys;
    input.keys = call->keys;
    if (kvp_hash_units(&input, &g->o->nodes[g->o->namespaces[ns].root].hash, g->hashes) != KVP_OK)
        return;
    call->hashes = g->hashes;
    call->n_hashes = n;
    if (chance(g, 8)) {
        uint32_t at = below(g, n);

        /* A lie between the ends may cost hits; nobody says how many: only in kvp_cache_match. */
        if (call->op != KVP_CALL_MATCH && at && at + 1 < n)
            return;
        for (uint32_t i = 0; i < sizeof g->hashes->bytes; i++)
            g->hashes[at].bytes[i] ^= 0x5a;
        g->lied = at && at + 2 < n;
    }
}

static void put_ranges(generator *g, kvp_call *call)
{
    call->n_ranges = 1 + below(g, 3);
    call->ranges = g->ranges;
    for (uint32_t i = 0; i < call->n_ranges; i++) {
        g->ranges[i].begin = up_to(g, call->n_tokens + (uint64_t)g->o->config.block_tokens);
        g->ranges[i].end = g->ranges[i].begin + (rarely(g) ? 0 : 1 + below(g, 3));
    }
}

static void make_prompt(generator *g, kvp_call *call)
{
    uint32_t stream = below(g, GENERATE_STREAMS), n = prompt_length(g);

    if (chance(g, 12)) { /* once more what was asked for last */
        stream = g->last_stream;
        n = g->last_length;
    }
    g->last_stream = stream;
    g->last_length = n;
    pick_ns(g, call);
    generate_token_space(g, n);
    if (n)
        memcpy(g->tokens, g->streams[stream].tokens, n * sizeof *g->tokens);
    if (n && chance(g, 15))
        g->tokens[below(g, n)] = draw_token(g);
    if (n && below(g, 150) == 0)
        g->tokens[below(g, n)] = INT32_MIN;
    call->tokens = n ? g->tokens : NULL;
    call->n_tokens = n;
    call->reserve_tokens = generate_reserve(g);
    put_keys(g, call, stream, 0, n);
    if (chance(g, 25))
        put_hashes(g, call);
    if (chance(g, 6))
        put_ranges(g, call);
    call->flags = chance(g, 4) ? KVP_OPEN_NO_MATCH : 0;
    if (chance(g, 8))
        call->flags |= KVP_OPEN_DEVICE_ONLY;
    if (chance(g, 8))
        call->flags |= KVP_OPEN_RECEIVE;
    if (below(g, 300) == 0)
        call->flags |= 1u << (3 + below(g, 29));
    call->retention = chance(g, 70) ? 0 : below(g, rarely(g) ? 10 : 8);
    call->tag = call->op == KVP_CALL_OPEN ? stream : 0;
}

/* -------------------------------------------------------------------------------------- batches */

static void make_extend(generator *g, kvp_call *call)
{
    const oracle_seq *seq = generate_seq(g, call);

    call->n_tokens = seq && seq->n_tree && chance(g, 70) ? 0 : draw_new(g);
    call->reserve_tokens = generate_reserve(g);
    if (!seq || chance(g, seq->known < seq->tokens ? 85 : 20)) {
        if (below(g, 200) == 0)
            call->n_tokens = UINT32_MAX - below(g, 3);
        return;
    }
    put_values(g, seq, seq->tokens, 0, call->n_tokens);
    call->tokens = g->tokens;
}

/* Some open sequences, each once; sometimes one twice, or a bad one. */
uint32_t generate_members(generator *g, kvp_call *call, const oracle_seq **members)
{
    uint32_t n = 0, share = 30 + below(g, 70);
    uint32_t start = below(g, g->o->config.max_seqs);

    for (uint32_t i = 0; i < g->o->config.max_seqs && n < GENERATE_MEMBERS - 2; i++) {
        const oracle_seq *seq = &g->o->seqs[(start + i) % g->o->config.max_seqs];

        if (seq->open && chance(g, seq->tier == KVP_HOST ? 1 : share))
            members[n++] = seq;
    }
    if (n > 1 && chance(g, 30)) {
        const oracle_seq *first = members[0];

        members[0] = members[n - 1];
        members[n - 1] = first;
    }
    if (n && below(g, 100) == 0) {
        members[n] = members[below(g, n)];
        n++;
    } else if (below(g, 100) == 0) {
        members[n++] = NULL;
    }
    for (uint32_t i = 0; i < n; i++)
        g->handles[i] = members[i] ? members[i]->handle : generate_bad_handle(g);
    call->handles = g->handles;
    call->n_seqs = n;
    call->flags = chance(g, 30) && call->op != KVP_CALL_CAN_EXTEND ? KVP_BATCH_EACH : 0;
    if (n && call->op != KVP_CALL_CAN_EXTEND && below(g, 300) == 0)
        call->flags = 2u << below(g, 31);
    return n;
}

static uint32_t draw_fill(generator *g, const oracle_seq *seq)
{
    uint32_t unknown = seq->tokens - seq->known;

    if (chance(g, 50))
        return unknown < g->max_tokens ? unknown : 0;
    return up_to(g, unknown < 1000 ? unknown : 1000) + rarely(g);
}

static void make_many(generator *g, kvp_call *call)
{
    const oracle_seq *members[GENERATE_MEMBERS];
    uint32_t n = generate_members(g, call, members);
    bool fill = call->op == KVP_CALL_FILL_MANY;
    bool values = fill || (call->op == KVP_CALL_EXTEND_MANY && chance(g, 70));
    bool ones = !fill && chance(g, 40), rings = generate_rings(g, call, members, &n);

    ones &= !rings;
    for (uint32_t i = 0; i < n; i++) {
        const oracle_seq *seq = members[i];

        g->counts[i] = ones || !seq ? 1
                       : rings      ? below(g, 7)
                       : fill       ? draw_fill(g, seq)
                                    : draw_new(g);
        if (values && seq)
            put_values(g, seq, fill ? seq->known : seq->tokens, call->n_tokens, g->counts[i]);
        else if (values)
            generate_token_space(g, call->n_tokens + 1)[call->n_tokens] = 1;
        call->n_tokens += g->counts[i];
    }
    generate_token_space(g, 1);
    call->counts = ones && chance(g, 50) ? NULL : g->counts;
    call->tokens = values ? g->tokens : NULL;
    call->reserve_tokens = fill ? n < 2 && below(g, 60) == 0 : generate_reserve(g);
    if (n == 1 && members[0] && values && !members[0]->unkept &&
        (fill || members[0]->known == members[0]->tokens)) {
        uint32_t from = fill ? members[0]->known : members[0]->tokens;

        put_keys(g, call, g->stream_of[members[0] - g->o->seqs], from, from + g->counts[0]);
    }
}

static void make_fill(generator *g, kvp_call *call)
{
    const oracle_seq *seq = generate_seq(g, call);

    for (uint32_t tries = 0; seq && seq->known == seq->tokens && tries < 4; tries++)
        seq = generate_seq(g, call);
    call->n_tokens = seq ? draw_fill(g, seq) : 1;
    if (seq)
        put_values(g, seq, seq->known, 0, call->n_tokens);
    else
        generate_token_space(g, 1)[0] = 0;
    call->tokens = g->tokens;
}

uint32_t generate_commit(generator *g, const oracle_seq *seq)
{
    if (!seq || chance(g, 60))
        return seq ? generate_step_end(g, seq, seq->tokens) : 1;
    if (rarely(g))
        return seq->tokens + 1 + below(g, 3);
    return generate_step_end(g, seq, seq->computed + up_to(g, seq->tokens - seq->computed));
}

static void make_commit_many(generator *g, kvp_call *call)
{
    const oracle_seq *members[GENERATE_MEMBERS];
    uint32_t n = generate_members(g, call, members);

    call->flags = 0;
    call->counts = g->counts;
    for (uint32_t i = 0; i < n; i++)
        g->counts[i] = generate_commit(g, members[i]);
}

/* ------------------------------------------------------------------------- the rest, one by one */

/* A position of the sequence, its edges and the edges of units and blocks preferred. */
static uint32_t draw_position(generator *g, const oracle_seq *seq)
{
    uint32_t at = seq ? up_to(g, seq->tokens) : 0;

    if (!seq)
        return at;
    at = generate_kept_place(g, seq, at);
    switch (below(g, 8)) {
    case 0: return seq->tokens;
    case 1: return seq->computed;
    case 2: return at - at % g->o->unit;
    case 3: return at - at % g->o->config.block_tokens;
    case 4: return seq->tokens ? seq->tokens - 1 : 0;
    case 5: return rarely(g) ? seq->tokens + 1 : at;
    default: return at;
    }
}

static void make_prompt_end(generator *g, kvp_call *call)
{
    const oracle_seq *seq = generate_seq(g, call);

    call->position = draw_position(g, seq) + (seq && chance(g, 10) ? seq->tokens + 1 : 0);
}

static void make_range(generator *g, kvp_call *call)
{
    const oracle_seq *seq = generate_seq(g, call);
    uint32_t most = !seq ? 4 : seq->tokens > seq->writable ? seq->tokens : seq->writable;

    call->range.begin = up_to(g, most);
    if (call->op == KVP_CALL_UNCACHE) {
        call->range.begin += below(g, g->o->config.block_tokens);
        call->range.end = call->range.begin + (rarely(g) ? 0 : 1);
        return;
    }
    call->range.end = call->range.begin + up_to(g, most - call->range.begin) + rarely(g);
    call->retention = below(g, rarely(g) ? 10 : 8);
}

static void make_ns(generator *g, kvp_call *call)
{
    if (call->op != KVP_CALL_NS_OPEN) {
        pick_ns(g, call);
        return;
    }
    call->name = g->name;
    call->name_bytes = rarely(g) ? KVP_NAME_MAX_BYTES + (uint32_t)chance(g, 50) : below(g, 4);
    for (uint32_t i = 0; i < call->name_bytes; i++)
        g->name[i] = 'a';
    if (call->name_bytes && call->name_bytes < 4)
        g->name[0] = (uint8_t)('a' + below(g, 2));
}

/* Quotas: none, tiny, or a part of the tier, or of the slots. */
static void make_quota(generator *g, kvp_call *call)
{
    uint32_t n;

    pick_ns(g, call);
    call->tier = rarely(g) ? 2 : g->o->config.host_blocks ? chance(g, 50) : rarely(g);
    if (g->o->config.state_slots && chance(g, 40))
        call->tier = rarely(g) ? KVP_HOST_STATE_SLOTS : KVP_STATE_SLOTS;
    n = call->tier == KVP_HOST          ? g->o->config.host_blocks
        : call->tier == KVP_STATE_SLOTS ? g->o->config.state_slots
                                        : g->o->config.n_blocks;
    call->count = chance(g, 20)                                        ? KVP_NO_QUOTA
                  : chance(g, call->tier == KVP_STATE_SLOTS ? 80 : 30) ? below(g, 3)
                                                                       : up_to(g, n);
}

static void make_fork(generator *g, kvp_call *call)
{
    const oracle_seq *seq = generate_seq(g, call);
    bool tree = seq && g->o->config.max_tree_tokens && chance(g, 30);

    if (tree) { /* what shares a block with nodes */
        seq = generate_seq_with_tree(g);
        call->handle = seq->handle;
    }
    call->position = chance(g, 30) ? KVP_END : draw_position(g, seq);
    if (seq && call->position != KVP_END && call->position > seq->computed && chance(g, 80))
        call->position = seq->computed;
    if (seq && (g->beams || tree) && chance(g, 80))
        call->position = seq->computed;
    if (seq && rarely(g))
        call->position = seq->tokens + 1;
    call->tag = below(g, 3);
}

static void make_invalidate(generator *g, kvp_call *call)
{
    const oracle_seq *seq = generate_seq(g, call);

    call->position = draw_position(g, seq);
    call->no_report = chance(g, 20);
    if (!call->no_report)
        call->count = chance(g, 80) ? g->o->config.max_seqs : below(g, 3);
}

static void make_read(generator *g, kvp_call *call)
{
    const oracle_seq *seq = generate_seq(g, call);
    uint32_t most = !seq ? 4 : seq->tokens > seq->writable ? seq->tokens : seq->writable;

    if (call->op == KVP_CALL_ROW || call->op == KVP_CALL_SLOTS)
        call->group = generate_group(g);
    if (call->op == KVP_CALL_SEQ_BLOCK_TOKENS)
        call->position = up_to(g, seq ? seq->n_row[0] : 1);
    if (call->op != KVP_CALL_SEQ_TOKENS && call->op != KVP_CALL_SLOTS)
        return;
    if (seq && call->op == KVP_CALL_SEQ_TOKENS && chance(g, 70))
        most = oracle_kept_tokens(g->o, seq);
    if (seq && call->op == KVP_CALL_SLOTS && chance(g, 70))
        most = seq->writable;
    call->position = up_to(g, most);
    call->count = up_to(g, most - call->position) + rarely(g);
    if (rarely(g))
        call->count = UINT32_MAX - below(g, 4);
}

static void make_block_read(generator *g, kvp_call *call)
{
    call->group = generate_group(g);
    call->tier = rarely(g) ? 2 : chance(g, 35);
    call->block = (int32_t)up_to(g, call->tier == KVP_HOST ? g->o->config.host_blocks
                                                           : g->o->config.n_blocks);
    if (rarely(g))
        call->block = -1;
}

static uint32_t draw_op(generator *g)
{
    uint32_t at, op = 0;

    if (!g->o->open_namespaces && chance(g, 60))
        return KVP_CALL_NS_OPEN;
    if (!g->o->open_seqs && g->o->open_namespaces && chance(g, 70))
        return KVP_CALL_OPEN;
    for (at = below(g, g->total_weight); at >= g->weights[op]; op++)
        at -= g->weights[op];
    /* Without room for more, somebody has to go. */
    if (op == KVP_CALL_OPEN && g->o->open_seqs == g->o->config.max_seqs && chance(g, 80))
        op = KVP_CALL_CLOSE;
    if (g->o->n_plan == g->o->config.max_copies && chance(g, 5))
        op = oracle_overlapped(g->o) ? KVP_CALL_STEP_BEGIN : KVP_CALL_PLAN_TAKE;
    return generate_instead_of_tree(g, generate_instead(g, op));
}

void generator_next(generator *g, kvp_call *call)
{
    memset(call, 0, sizeof *call);
    g->lied = false;
    if (generate_following(g, call))
        return;
    call->op = draw_op(g);
    switch (call->op) {
    case KVP_CALL_NS_OPEN:
    case KVP_CALL_NS_CLOSE:
    case KVP_CALL_NS_FLUSH:
    case KVP_CALL_NS_INFO: make_ns(g, call); break;
    case KVP_CALL_NS_QUOTA: make_quota(g, call); break;
    case KVP_CALL_MATCH:
    case KVP_CALL_OPEN:
    case KVP_CALL_CAN_OPEN: make_prompt(g, call); break;
    case KVP_CALL_EXTEND: make_extend(g, call); break;
    case KVP_CALL_EXTEND_MANY:
    case KVP_CALL_CAN_EXTEND:
    case KVP_CALL_FILL_MANY: make_many(g, call); break;
    case KVP_CALL_FILL: make_fill(g, call); break;
    case KVP_CALL_COMMIT: call->position = generate_commit(g, generate_seq(g, call)); break;
    case KVP_CALL_COMMIT_MANY: make_commit_many(g, call); break;
    case KVP_CALL_INVALIDATE: make_invalidate(g, call); break;
    case KVP_CALL_FORK: make_fork(g, call); break;
    case KVP_CALL_PROMPT_END: make_prompt_end(g, call); break;
    case KVP_CALL_TRUNCATE: call->position = draw_position(g, generate_seq(g, call)); break;
    case KVP_CALL_CHECKPOINT: generate_checkpoint(g, call); break;
    case KVP_CALL_STATE_GET:
    case KVP_CALL_CLOSE: generate_seq(g, call); break;
    case KVP_CALL_RETAIN:
    case KVP_CALL_UNCACHE: make_range(g, call); break;
    case KVP_CALL_PLAN_TAKE:
        call->count = chance(g, 70) ? g->o->config.max_copies : below(g, 3);
        break;
    case KVP_CALL_BLOCK_INFO:
    case KVP_CALL_BLOCK_TOKENS: make_block_read(g, call); break;
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_SWAP_IN:
    case KVP_CALL_CAN_SWAP_OUT:
    case KVP_CALL_CAN_SWAP_IN: generate_swap(g, call); break;
    case KVP_CALL_STEP_BEGIN:
    case KVP_CALL_STEP_COMMIT:
    case KVP_CALL_STEP_DONE:
    case KVP_CALL_STEP_FAILED: generate_step(g, call); break;
    case KVP_CALL_EVENTS_READ:
    case KVP_CALL_EVENTS_SNAPSHOT: generate_events(g, call); break;
    case KVP_CALL_WINDOW:
    case KVP_CALL_WINDOW_GET: generate_window_call(g, call); break;
    case KVP_CALL_EXTEND_TREE:
    case KVP_CALL_ACCEPT:
    case KVP_CALL_TREE: generate_tree_call(g, call); break;
    case KVP_CALL_LOAD_BEGIN:
        make_prompt(g, call);
        generate_lend(g, call);
        break;
    case KVP_CALL_PLAN_DONE:
    case KVP_CALL_MIRROR:
    case KVP_CALL_BLOCKS_LEND:
    case KVP_CALL_BLOCKS_RETURN:
    case KVP_CALL_LOAD_DONE:
    case KVP_CALL_LOAD_CANCEL:
    case KVP_CALL_DROP:
    case KVP_CALL_RECLAIM:
    case KVP_CALL_COLD_END:
    case KVP_CALL_BLOCK_ORIGIN:
    case KVP_CALL_BLOCK_PREFIX: generate_lend(g, call); break;
    case KVP_CALL_CHECK: call->position = 1 + below(g, 3); break;
    case KVP_CALL_SEQ_INFO:
    case KVP_CALL_SEQ_TOKENS:
    case KVP_CALL_SEQ_BLOCK_TOKENS:
    case KVP_CALL_ROW:
    case KVP_CALL_SLOTS: make_read(g, call); break;
    default: break;
    }
}

void generator_saw(generator *g, const kvp_call *call, const kvp_outcome *outcome)
{
    uint32_t place;

    generate_follow(g, call, outcome);
    if (outcome->status != KVP_OK)
        return;
    if (call->op == KVP_CALL_CLOSE || call->op == KVP_CALL_NS_CLOSE)
        g->stale[g->n_stale < GENERATE_STALE ? g->n_stale++ : below(g, GENERATE_STALE)] =
            call->handle;
    if (call->op != KVP_CALL_OPEN && call->op != KVP_CALL_FORK)
        return;
    place = oracle_find_seq(g->o, outcome->handle);
    if (place == ORACLE_NONE)
        return;
    g->stream_of[place] =
        (uint8_t)(call->op == KVP_CALL_OPEN ? call->tag : below(g, GENERATE_STREAMS));
}

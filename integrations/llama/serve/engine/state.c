/* state: blocks, the prefix tree in chains, and requests.
 *
 * The tree's nodes are what kvp_events_snapshot lists: units whose KV can be found. A chain is a
 * run of nodes without branches that the same number of rows refer to; the page draws chains. */
#include "state.h"

#include "loop.h"

#include <jansson.h>
#include <kvpager/events.h>
#include <kvpager/hash.h>
#include <stdlib.h>
#include <string.h>

enum { CHAINS_MOST = 400, PREVIEW_BYTES = 64, NONE = -1 };

typedef struct node {
    const kvp_event *event;
    int32_t parent;
    int32_t chain;
    int32_t next; /* node of the same chain */
    uint32_t n_children;
    uint32_t refs;   /* rows that refer to its block */
    uint32_t tenant; /* UINT32_MAX: its namespace is gone */
} node;

typedef struct chain {
    int32_t parent; /* chain */
    uint32_t first; /* node */
    uint32_t n_blocks;
    json_t *users; /* ids of requests that run through it */
} chain;

typedef struct view {
    const kvpi_loop *loop;
    uint32_t block_tokens;
    uint32_t n_blocks; /* null block included */
    kvp_event *events; /* [n_nodes] */
    int32_t *tokens;   /* [n_nodes x block_tokens] */
    node *nodes;       /* [n_nodes] in the order of events: parents first */
    uint32_t *sorted;  /* [n_nodes] by hash */
    uint32_t n_nodes;
    chain *chains;
    uint32_t n_chains;
    uint32_t *tenants; /* [n_blocks] */
} view;

const char *kvpi_state_stop_name(unsigned stop)
{
    static const char *const names[KVPI_STOP_KINDS] = {"end", "miss",     "no_kv",  "uncached",
                                                       "off", "full_hit", "no_room"};
    return stop < KVPI_STOP_KINDS ? names[stop] : "unknown";
}

/* ------------------------------------------------------------------------------------- the tree */

static const kvp_event *sort_events; /* of the engine's thread, which is the only one here */

static int by_hash(const void *a, const void *b)
{
    return memcmp(&sort_events[*(const uint32_t *)a].hash, &sort_events[*(const uint32_t *)b].hash,
                  sizeof(kvp_hash));
}

static int32_t find(const view *v, const kvp_hash *hash)
{
    uint32_t low = 0, high = v->n_nodes;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = memcmp(&v->events[v->sorted[middle]].hash, hash, sizeof *hash);
        if (order == 0)
            return (int32_t)v->sorted[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NONE;
}

static uint32_t tenant_of(const view *v, const kvp_hash *root)
{
    const kvpi_tenants *tenants = &v->loop->tenants;
    for (uint32_t i = 0; i < tenants->n; i++) {
        kvp_hash hash;
        if (tenants->places[i].used > 0 &&
            kvp_hash_root(v->block_tokens, 0, tenants->places[i].salt,
                          tenants->places[i].salt_bytes, &hash) == KVP_OK &&
            memcmp(&hash, root, sizeof hash) == 0)
            return i;
    }
    return UINT32_MAX;
}

static int read_nodes(view *v)
{
    uint64_t number;
    kvp_cache *cache = v->loop->cache;
    if (kvp_events_snapshot(cache, NULL, 0, NULL, &v->n_nodes, &number) != KVP_OK)
        return -1;
    const uint32_t n = v->n_nodes + 1;
    v->events = calloc(n, sizeof *v->events);
    v->tokens = calloc((size_t)n * v->block_tokens, sizeof *v->tokens);
    v->nodes = calloc(n, sizeof *v->nodes);
    v->sorted = calloc(n, sizeof *v->sorted);
    v->chains = calloc(CHAINS_MOST, sizeof *v->chains);
    v->tenants = calloc(v->n_blocks, sizeof *v->tenants);
    if (v->events == NULL || v->tokens == NULL || v->nodes == NULL || v->sorted == NULL ||
        v->chains == NULL || v->tenants == NULL ||
        kvp_events_snapshot(cache, v->events, n, v->tokens, &v->n_nodes, &number) != KVP_OK)
        return -1;
    for (uint32_t i = 0; i < v->n_nodes; i++)
        v->sorted[i] = i;
    sort_events = v->events;
    qsort(v->sorted, v->n_nodes, sizeof *v->sorted, by_hash);
    for (uint32_t i = 0; i < v->n_nodes; i++) {
        node *at = &v->nodes[i];
        at->event = &v->events[i];
        at->parent = find(v, &at->event->parent);
        at->tenant = at->parent >= 0 ? v->nodes[at->parent].tenant : tenant_of(v, &at->event->root);
        at->chain = at->next = NONE;
        if (at->parent >= 0)
            v->nodes[at->parent].n_children++;
    }
    return 0;
}

static void make_chains(view *v)
{
    for (uint32_t i = 0; i < v->n_nodes; i++) {
        node *at = &v->nodes[i];
        node *parent = at->parent >= 0 ? &v->nodes[at->parent] : NULL;
        if (parent != NULL && parent->n_children == 1 && parent->refs == at->refs) {
            at->chain = parent->chain;
            parent->next = (int32_t)i;
        } else if (v->n_chains < CHAINS_MOST) {
            at->chain = (int32_t)v->n_chains++;
            v->chains[at->chain] = (chain){
                .parent = parent != NULL ? parent->chain : NONE, .first = i, .users = json_array()};
        }
        if (at->chain >= 0)
            v->chains[at->chain].n_blocks++;
    }
}

static void put_block(const view *v, uint32_t of, kvpi_text *text)
{
    static const kvpi_stops none;
    char bytes[256];
    const int32_t *tokens = &v->tokens[(size_t)of * v->block_tokens];
    for (uint32_t i = 0; i < v->events[of].n_tokens && text->n < PREVIEW_BYTES; i++) {
        const int32_t n =
            llama_token_to_piece(v->loop->vocab, tokens[i], bytes, sizeof bytes, 0, true);
        if (n > 0)
            (void)kvpi_text_put(text, bytes, (size_t)n, &none);
    }
}

/* The first tokens of a chain as text. */
static json_t *preview(const view *v, const chain *of)
{
    kvpi_text text = {0};
    for (int32_t at = (int32_t)of->first; at != NONE && text.n < PREVIEW_BYTES;
         at = v->nodes[at].next)
        put_block(v, (uint32_t)at, &text);
    json_t *made = json_stringn(text.bytes != NULL ? text.bytes : "", text.n);
    kvpi_text_free(&text);
    return made;
}

/* --------------------------------------------------------------------------------- the requests */

/* The row of a sample: its blocks are of this tenant, and its chains have one user more. */
static int32_t read_row(view *v, const kvpi_job *job, kvp_seq seq)
{
    const int32_t *row;
    uint32_t n;
    int32_t chain_idx = NONE;
    kvp_block_info block;
    if (kvp_seq_row(v->loop->cache, seq, 0, &row, &n) != KVP_OK)
        return NONE;
    for (uint32_t i = 0; i < n; i++) {
        v->tenants[row[i]] = job->tenant;
        if (kvp_block_info_get(v->loop->cache, 0, KVP_DEVICE, row[i], &block) != KVP_OK ||
            block.sealed_units == 0)
            continue;
        const int32_t at = find(v, &block.hash);
        const int32_t next = at >= 0 ? v->nodes[at].chain : NONE;
        if (next >= 0 && next != chain_idx) {
            json_t *users = v->chains[next].users;
            const size_t n_users = json_array_size(users);
            if (n_users == 0 ||
                json_integer_value(json_array_get(users, n_users - 1)) != (json_int_t)job->id)
                (void)json_array_append_new(users, json_integer((json_int_t)job->id));
        }
        chain_idx = next >= 0 ? next : chain_idx;
    }
    return chain_idx;
}

static const char *state_name(uint32_t state)
{
    return state == KVP_REQUEST_RUNNING ? "running" : "waiting";
}

static json_t *request_json(view *v, kvpi_job *job)
{
    kvp_request_info info;
    int32_t last = NONE;
    uint32_t new_tokens = 0;
    if (kvp_request_info_get(v->loop->sched, job->request, &info) != KVP_OK)
        return NULL;
    for (uint32_t i = 0; i < job->n_samples; i++) {
        kvp_sample_info sample;
        if (kvp_request_sample(v->loop->sched, job->request, i, &sample) != KVP_OK)
            continue;
        const int32_t at = sample.seq.bits != 0 ? read_row(v, job, sample.seq) : NONE;
        last = at >= 0 ? at : last;
        new_tokens += job->samples[i].n_tokens;
    }
    return json_pack("{s:I, s:i, s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:i}", "id",
                     (json_int_t)job->id, "tenant", (int)job->tenant, "state",
                     state_name(info.state), "prompt_tokens", (int)job->n_tokens, "cached_tokens",
                     (int)job->cached_tokens, "new_tokens", (int)new_tokens, "samples",
                     (int)job->n_samples, "preemptions", (int)info.preemptions, "stop",
                     job->was_admitted ? kvpi_state_stop_name(job->stop) : "", "chain", (int)last);
}

static json_t *requests_json(view *v)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < v->loop->options->max_queue; i++)
        if (v->loop->jobs[i] != NULL)
            (void)json_array_append_new(list, request_json(v, v->loop->jobs[i]));
    for (const kvpi_job *job = v->loop->waiting; job != NULL; job = job->next)
        (void)json_array_append_new(list,
                                    json_pack("{s:I, s:s, s:i}", "id", (json_int_t)job->id, "state",
                                              "queued", "prompt_tokens", (int)job->n_tokens));
    return list;
}

static json_t *recent_json(const kvpi_loop *loop)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < KVPI_RECENT_MOST && i < loop->n_recent; i++) {
        const kvpi_recent *r = &loop->recent[(loop->n_recent - 1 - i) % KVPI_RECENT_MOST];
        (void)json_array_append_new(
            list, json_pack("{s:I, s:i, s:i, s:i, s:i, s:s, s:b, s:f}", "id", (json_int_t)r->id,
                            "tenant", (int)r->tenant, "prompt_tokens", (int)r->prompt_tokens,
                            "cached_tokens", (int)r->cached_tokens, "new_tokens",
                            (int)r->new_tokens, "stop", kvpi_state_stop_name(r->stop), "aborted",
                            (int)r->is_aborted, "seconds", r->seconds));
    }
    return list;
}

/* ----------------------------------------------------------------------------------- the blocks */

/* Of each block: how it is (0 free, 1 cached, 2 held by one row, 3 by several), and its tenant. */
static void read_blocks(view *v, char *out_states)
{
    kvp_block_info block;
    for (uint32_t b = 1; b < v->n_blocks; b++) {
        v->tenants[b] = UINT32_MAX;
        out_states[b - 1] = '0';
        if (kvp_block_info_get(v->loop->cache, 0, KVP_DEVICE, (int32_t)b, &block) != KVP_OK)
            continue;
        if (block.state == KVP_BLOCK_CACHED)
            out_states[b - 1] = '1';
        else if (block.state == KVP_BLOCK_HELD)
            out_states[b - 1] = block.ref_count > 1 ? '3' : '2';
        const int32_t at = block.sealed_units > 0 ? find(v, &block.hash) : NONE;
        if (at < 0)
            continue;
        v->nodes[at].refs = block.ref_count;
        v->tenants[b] = v->nodes[at].tenant;
    }
    out_states[v->n_blocks - 1] = '\0';
}

/* A letter for each block: A is shared by all, B to Y tenants, Z the others; - none. */
static void write_tenants(const view *v, char *out_letters)
{
    for (uint32_t b = 1; b < v->n_blocks; b++)
        out_letters[b - 1] = v->tenants[b] == UINT32_MAX ? '-'
                             : v->tenants[b] < 25        ? (char)('A' + v->tenants[b])
                                                         : 'Z';
    out_letters[v->n_blocks - 1] = '\0';
}

static json_t *chains_json(const view *v)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < v->n_chains; i++) {
        const chain *of = &v->chains[i];
        const node *first = &v->nodes[of->first];
        json_t *text = first->tenant == 0 ? preview(v, of) : json_null();
        (void)json_array_append_new(
            list, json_pack("{s:i, s:i, s:i, s:i, s:O, s:o}", "parent", (int)of->parent, "tenant",
                            (int)first->tenant, "blocks", (int)of->n_blocks, "refs",
                            (int)first->refs, "users", of->users, "text", text));
    }
    return list;
}

static json_t *figures_json(const kvpi_loop *loop)
{
    const kvpi_figures *f = &loop->counts;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "new_tokens",
                     (json_int_t)f->new_tokens, "prompt_tokens", (json_int_t)f->prompt_tokens,
                     "cached_tokens", (json_int_t)f->cached_tokens, "decoded_tokens",
                     (json_int_t)f->llama.decoded_tokens, "preemptions",
                     (json_int_t)f->sched.preemptions, "evicted_blocks",
                     (json_int_t)f->cache.evicted_blocks, "over", (json_int_t)f->over, "aborted",
                     (json_int_t)f->aborted, "steps", (json_int_t)f->sched.steps);
}

static json_t *make(view *v)
{
    char *states = calloc(v->n_blocks, 1), *letters = calloc(v->n_blocks, 1);
    json_t *all = NULL;
    if (states != NULL && letters != NULL && read_nodes(v) == 0) {
        read_blocks(v, states);
        make_chains(v);
        json_t *requests = requests_json(v);
        write_tenants(v, letters);
        all = json_pack("{s:f, s:i, s:i, s:s, s:s, s:o, s:o, s:o, s:o}", "seconds",
                        (double)kvpi_job_now_ns() / 1e9, "block_tokens", (int)v->block_tokens,
                        "cells", (int)((v->n_blocks - 1) * v->block_tokens), "blocks", states,
                        "tenants", letters, "chains", chains_json(v), "requests", requests,
                        "recent", recent_json(v->loop), "figures", figures_json(v->loop));
    }
    free(states);
    free(letters);
    return all;
}

char *kvpi_state_json(const kvpi_loop *loop)
{
    kvp_config config;
    view v = {.loop = loop};
    if (kvp_cache_config_get(loop->cache, &config) != KVP_OK)
        return NULL;
    v.block_tokens = config.block_tokens;
    v.n_blocks = config.n_blocks;
    json_t *all = make(&v);
    char *text = all != NULL ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    for (uint32_t i = 0; i < v.n_chains; i++)
        json_decref(v.chains[i].users);
    free(v.events);
    free(v.tokens);
    free(v.nodes);
    free(v.sorted);
    free(v.chains);
    free(v.tenants);
    return text;
}

/* Owns the way from tokens to block references.
 *
 *   request --(request_tokens.c)--> tokens --(kvp_hash_units)--> hashes --(table)--> contents
 *
 * The content of a block is its tokens and everything before them, and its name is the chained
 * hash. 96 bits of it decide here, where the cache compares tokens: two contents of a trace with
 * 2^32 of them are taken for one with a probability of 2^-33. That is the only thing in which a
 * curve could differ from a replay.
 *
 * Sampling takes a content when 64 other bits of its hash are below a threshold: always or never,
 * wherever it appears (Waldspurger et al., SHARDS, FAST 2015). The block that a request leaves
 * partly filled has no content; its request's number stands for it.
 *
 * The table is open, linear, at most half full.
 */
#include "tool/mrc/refs.h"

#include <kvpager/hash.h>
#include <kvpager/all.h>
#include <stdlib.h>
#include <string.h>

#include "tool/progress.h"
#include "tool/tool.h"

#define MILLION         UINT64_C(1000000)
#define MIN_TABLE_SLOTS 1024u
#define NO_CONTENT      UINT32_MAX

typedef struct table_slot {
    uint64_t name;
    uint32_t more; /* of the name */
    uint32_t content;
} table_slot;

typedef struct maker {
    const kvpi_mrc_options *options;
    kvpi_mrc_refs refs;
    uint64_t refs_capacity;
    size_t groups_capacity;
    table_slot *slots; /* [n_slots] a power of two */
    size_t n_slots;
    int32_t *tokens;  /* [max_tokens] */
    kvp_hash *hashes; /* [max_tokens / S] */
    uint64_t max_tokens;
    uint64_t threshold; /* a content with a smaller place is in the sample */
} maker;

/* The finalizer of splitmix64. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t read_u64(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | bytes[i];
    return value;
}

/* A number that decides about the sample; not one that the table uses. */
static uint64_t place_of(const kvp_hash *hash)
{
    return mix(read_u64(hash->bytes + 8));
}

static bool takes_all(const maker *make)
{
    return make->options->sample_millionths == MILLION;
}

/* ------------------------------------------------------------------------------- the table */

static size_t home_of(const maker *make, uint64_t name)
{
    return (size_t)name & (make->n_slots - 1);
}

static table_slot *find_slot(const maker *make, uint64_t name, uint32_t more)
{
    size_t at = home_of(make, name);
    while (make->slots[at].content != NO_CONTENT &&
           (make->slots[at].name != name || make->slots[at].more != more))
        at = (at + 1) & (make->n_slots - 1);
    return &make->slots[at];
}

static bool grow_table(maker *make)
{
    table_slot *old = make->slots;
    size_t n_old = make->n_slots;
    make->n_slots = n_old == 0 ? MIN_TABLE_SLOTS : n_old * 2;
    make->slots = malloc(make->n_slots * sizeof *make->slots);
    if (make->slots == NULL) {
        make->slots = old;
        make->n_slots = n_old;
        return false;
    }
    memset(make->slots, 0xff, make->n_slots * sizeof *make->slots); /* NO_CONTENT everywhere */
    for (size_t i = 0; i < n_old; i++)
        if (old[i].content != NO_CONTENT)
            *find_slot(make, old[i].name, old[i].more) = old[i];
    free(old);
    return true;
}

static bool note_group(maker *make, uint64_t place)
{
    kvpi_mrc_refs *refs = &make->refs;
    if (refs->n_contents == make->groups_capacity) {
        size_t wanted = make->groups_capacity == 0 ? 4096 : make->groups_capacity * 2;
        uint8_t *grown = realloc(refs->groups, wanted);
        if (grown == NULL)
            return false;
        refs->groups = grown;
        make->groups_capacity = wanted;
    }
    refs->groups[refs->n_contents] = (uint8_t)(mix(place) % KVPI_MRC_GROUPS);
    return true;
}

/* Gives NO_CONTENT when memory is short. */
static uint32_t content_of(maker *make, const kvp_hash *hash)
{
    uint64_t name = read_u64(hash->bytes);
    uint32_t more = (uint32_t)read_u64(hash->bytes + 8);
    if ((size_t)make->refs.n_contents * 2 >= make->n_slots && !grow_table(make))
        return NO_CONTENT;
    table_slot *slot = find_slot(make, name, more);
    if (slot->content == NO_CONTENT) {
        if (make->refs.n_contents == NO_CONTENT - 1 || !note_group(make, place_of(hash)))
            return NO_CONTENT;
        *slot = (table_slot){name, more, make->refs.n_contents++};
    }
    return slot->content;
}

static bool append(maker *make, uint32_t content)
{
    kvpi_mrc_refs *refs = &make->refs;
    if (refs->n_refs == make->refs_capacity) {
        uint64_t wanted = make->refs_capacity == 0 ? 4096 : make->refs_capacity * 2;
        uint32_t *grown = realloc(refs->contents, (size_t)wanted * sizeof *grown);
        if (grown == NULL)
            return false;
        refs->contents = grown;
        make->refs_capacity = wanted;
    }
    refs->contents[refs->n_refs++] = content;
    return true;
}

/* ------------------------------------------------------------------------------- a request */

static void hash_request(maker *make, const kvpi_request *request, uint32_t n_tokens)
{
    static const char name[] = "replay"; /* of tool/replay/cache.c; any name would do */
    const kvpi_trace_args *trace = &make->options->trace;
    const uint32_t unit = (uint32_t)make->options->block_tokens;
    const kvp_hash_input input = {
        .unit_tokens = unit, .n_tokens = n_tokens, .tokens = make->tokens};
    kvp_hash root;
    kvpi_requests_input(request, &trace->key, make->tokens);
    if (trace->output)
        kvpi_requests_output(request, &trace->key, make->tokens + request->input_length);
    (void)kvp_hash_root(unit, 0, name, sizeof name - 1, &root);
    (void)kvp_hash_units(&input, &root, make->hashes); /* the arguments are right */
}

/* Take those of its full blocks that are in the sample. */
static bool take_blocks(maker *make, uint32_t n_prompt, uint32_t n_full, uint32_t last_tokens,
                        kvpi_mrc_request *out)
{
    out->first = make->refs.n_refs;
    out->last_tokens = (uint32_t)make->options->block_tokens;
    for (uint32_t i = 0; i < n_full; i++) {
        if (!takes_all(make) && place_of(&make->hashes[i]) >= make->threshold)
            continue;
        uint32_t content = content_of(make, &make->hashes[i]);
        if (content == NO_CONTENT || !append(make, content))
            return false;
        out->n_full++;
        if (i < n_prompt)
            out->n_prompt++;
        if (i + 1 == n_prompt)
            out->last_tokens = last_tokens;
    }
    return true;
}

static bool add_request(maker *make, const kvpi_request *request, kvpi_mrc_request *out)
{
    const uint64_t size = make->options->block_tokens;
    uint64_t input = (uint64_t)request->input_length;
    uint64_t output = make->options->trace.output ? (uint64_t)request->output_length : 0;
    uint64_t n_prompt = input / size, n_full = (input + output) / size;
    bool partly = (input + output) % size != 0;
    /* Of a prompt that is all there, the last token is computed all the same. */
    uint32_t last_tokens = (uint32_t)(n_prompt > 0 && input % size == 0 ? size - 1 : size);
    kvpi_mrc_refs *refs = &make->refs;
    hash_request(make, request, (uint32_t)(input + output));
    *out = (kvpi_mrc_request){.input_tokens = (uint32_t)input, .output_tokens = (uint32_t)output};
    if (!take_blocks(make, (uint32_t)n_prompt, (uint32_t)n_full, last_tokens, out))
        return false;
    bool counts = partly && (takes_all(make) || mix(request->number) < make->threshold);
    out->n_blocks = out->n_full + counts;
    /* The block after the prompt's full ones exists from the open on when the prompt reaches into
     * it; which block of the sample that is does not matter, only that there is one. */
    out->n_opened = out->n_prompt + (input % size != 0 && out->n_blocks > out->n_prompt);
    refs->input_tokens += input;
    refs->output_tokens += output;
    refs->looked_up_blocks += n_prompt;
    refs->looked_up_tokens += n_prompt == 0 ? 0 : (n_prompt - 1) * size + last_tokens;
    if (n_full + partly > refs->min_blocks)
        refs->min_blocks = n_full + partly;
    return true;
}

/* ------------------------------------------------------------------------------------- all */

static uint64_t longest(const kvpi_requests *requests, const maker *make)
{
    uint64_t most = 1;
    for (size_t i = 0; i < make->refs.n_requests; i++) {
        const kvpi_request *request = kvpi_requests_get(requests, i);
        uint64_t tokens = (uint64_t)request->input_length +
                          (make->options->trace.output ? (uint64_t)request->output_length : 0);
        most = tokens > most ? tokens : most;
    }
    return most;
}

static bool prepare(maker *make, const kvpi_requests *requests)
{
    size_t n = kvpi_requests_count(requests);
    make->refs.n_requests = n < make->options->trace.limit ? n : (size_t)make->options->trace.limit;
    make->refs.block_tokens = make->options->block_tokens;
    make->refs.rate = (double)make->options->sample_millionths / (double)MILLION;
    make->threshold = UINT64_MAX / MILLION * make->options->sample_millionths;
    make->max_tokens = longest(requests, make);
    size_t n_hashes = (size_t)(make->max_tokens / make->options->block_tokens) + 1;
    make->tokens = malloc((size_t)make->max_tokens * sizeof *make->tokens);
    make->hashes = malloc(n_hashes * sizeof *make->hashes);
    make->refs.requests = calloc(make->refs.n_requests, sizeof *make->refs.requests);
    return make->tokens != NULL && make->hashes != NULL && make->refs.requests != NULL &&
           grow_table(make);
}

static bool add_all(maker *make, const kvpi_requests *requests)
{
    kvpi_progress progress;
    bool fine = true;
    kvpi_progress_start(&progress, "hashing requests", make->refs.n_requests);
    for (size_t i = 0; i < make->refs.n_requests && fine; i++) {
        fine = add_request(make, kvpi_requests_get(requests, i), &make->refs.requests[i]);
        kvpi_progress_update(&progress, i + 1);
    }
    kvpi_progress_end(&progress);
    return fine;
}

int kvpi_mrc_refs_make(const kvpi_requests *requests, const kvpi_mrc_options *options,
                       kvpi_mrc_refs *out)
{
    maker make = {.options = options};
    bool fine = prepare(&make, requests) && add_all(&make, requests);
    free(make.slots);
    free(make.tokens);
    free(make.hashes);
    if (fine) {
        *out = make.refs;
        return TOOL_OK;
    }
    kvpi_mrc_refs_free(&make.refs);
    return kvpi_tool_fail(
        options->command,
        "out of memory for the blocks of the trace (--sample takes a part of them)");
}

void kvpi_mrc_refs_free(kvpi_mrc_refs *refs)
{
    free(refs->requests);
    free(refs->contents);
    free(refs->groups);
    *refs = (kvpi_mrc_refs){0};
}

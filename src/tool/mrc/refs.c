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
 * A prompt mostly begins with the prompt before it in its session and that one's answer. What they
 * have in common is not hashed again: a request goes on from the last full block of the newest one
 * of its session that it begins with as a whole, and takes over its contents.
 *
 * The table is open, linear, at most three quarters full. It has numbers of contents only: what
 * they are called lies by number, so that a prefix that was seen before is read in a row.
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
#define AHEAD           8u /* so many blocks ahead their places in the table are asked for */

typedef struct content_name {
    uint32_t parts[3];
} content_name;

/* What later requests go on from. */
typedef struct start {
    kvp_hash last;   /* of its last full block */
    uint32_t n_full; /* in the sample or not */
    bool extends;    /* the one before it in its session, with all full blocks of that one */
} start;

typedef struct maker {
    const kvpi_request *first; /* in replay order: the others stand behind it */
    start *starts;             /* [n_requests] */
    const kvpi_mrc_options *options;
    kvpi_mrc_refs refs;
    uint64_t refs_capacity;
    size_t contents_capacity;
    content_name *names; /* [n_contents] */
    uint32_t *slots;     /* [n_slots] contents; a power of two */
    uint8_t *tags;       /* [n_slots] of their names; 0: there is none */
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

static bool takes(const maker *make, const kvp_hash *hash)
{
    return takes_all(make) || place_of(hash) < make->threshold;
}

/* ------------------------------------------------------------------------------- the table */

static content_name name_of(const kvp_hash *hash)
{
    content_name made;
    memcpy(made.parts, hash->bytes, sizeof made.parts);
    return made;
}

static bool is_equal(const content_name *a, const content_name *b)
{
    return a->parts[0] == b->parts[0] && a->parts[1] == b->parts[1] && a->parts[2] == b->parts[2];
}

static size_t home_of(const maker *make, const content_name *of)
{
    return (size_t)of->parts[0] & (make->n_slots - 1);
}

static uint8_t tag_of(const content_name *of)
{
    return (uint8_t)(of->parts[1] | 1); /* 0: an empty slot */
}

/* Where the name is, or would be. */
static size_t find_slot(const maker *make, const content_name *of)
{
    size_t at = home_of(make, of);
    const uint8_t tag = tag_of(of);
    while (make->tags[at] != 0 &&
           (make->tags[at] != tag || !is_equal(&make->names[make->slots[at]], of)))
        at = (at + 1) & (make->n_slots - 1);
    return at;
}

/* Have the lines where it would be fetched. */
static void ask_for(const maker *make, const content_name *of)
{
    const size_t home = home_of(make, of);
    __builtin_prefetch(&make->tags[home]);
    __builtin_prefetch(&make->slots[home]);
}

static void put(maker *make, size_t at, uint32_t content)
{
    make->tags[at] = tag_of(&make->names[content]);
    make->slots[at] = content;
}

static bool grow_table(maker *make)
{
    free(make->slots);
    free(make->tags);
    make->n_slots = make->n_slots == 0 ? MIN_TABLE_SLOTS : make->n_slots * 2;
    make->slots = malloc(make->n_slots * sizeof *make->slots);
    make->tags = calloc(make->n_slots, sizeof *make->tags);
    if (make->slots == NULL || make->tags == NULL)
        return false;
    for (uint32_t i = 0; i < make->refs.n_contents; i++) {
        if (i + AHEAD < make->refs.n_contents)
            ask_for(make, &make->names[i + AHEAD]);
        put(make, find_slot(make, &make->names[i]), i);
    }
    return true;
}

/* Room for one more content, with a name and a group. */
static bool grow_contents(maker *make)
{
    size_t wanted = make->contents_capacity == 0 ? 4096 : make->contents_capacity * 2;
    if (make->refs.n_contents < make->contents_capacity)
        return true;
    uint8_t *groups = realloc(make->refs.groups, wanted);
    if (groups == NULL)
        return false;
    make->refs.groups = groups;
    content_name *names = realloc(make->names, wanted * sizeof *names);
    if (names == NULL)
        return false;
    make->names = names;
    make->contents_capacity = wanted;
    return true;
}

/* `before`: the content in front of it, NO_CONTENT: none. What follows it was mostly seen next, so
 * the number is known without a look at the table. Gives NO_CONTENT when memory is short. */
static uint32_t content_of(maker *make, const kvp_hash *hash, uint32_t before)
{
    kvpi_mrc_refs *refs = &make->refs;
    const content_name of = name_of(hash);
    const uint32_t next = before + 1; /* 0 for none */
    if (next < refs->n_contents && is_equal(&make->names[next], &of))
        return next;
    if ((size_t)refs->n_contents * 4 >= make->n_slots * 3 && !grow_table(make))
        return NO_CONTENT;
    size_t slot = find_slot(make, &of);
    if (make->tags[slot] == 0) {
        if (refs->n_contents == NO_CONTENT - 1 || !grow_contents(make))
            return NO_CONTENT;
        make->names[refs->n_contents] = of;
        refs->groups[refs->n_contents] = (uint8_t)(mix(place_of(hash)) % KVPI_MRC_GROUPS);
        put(make, slot, refs->n_contents++);
    }
    return make->slots[slot];
}

/* Room for n more references. */
static bool reserve(maker *make, uint32_t n)
{
    kvpi_mrc_refs *refs = &make->refs;
    if (make->refs_capacity - refs->n_refs >= n)
        return true;
    const uint64_t wanted = 4096 + make->refs_capacity * 2 + n;
    uint32_t *grown = realloc(refs->contents, (size_t)wanted * sizeof *grown);
    if (grown == NULL)
        return false;
    refs->contents = grown;
    make->refs_capacity = wanted;
    return true;
}

/* ------------------------------------------------------------------------------- a request */

/* The request that this one, at `place`, goes on from: all full blocks of that one are the first
 * ones of this one. Gives its place, or this one's when there is none. */
static size_t start_of(maker *make, const kvpi_request *request, size_t place)
{
    const uint64_t S = make->options->block_tokens;
    size_t at = request->before == NULL ? place : (size_t)(request->before - make->first);
    if (at >= place)
        return place;
    const uint32_t n = (uint32_t)(kvpi_requests_common(request, &make->options->trace.key) / S);
    make->starts[place].extends = n >= make->starts[at].n_full;
    while (make->starts[at].n_full > n && make->starts[at].extends)
        at = (size_t)(make->first[at].before - make->first);
    return make->starts[at].n_full <= n ? at : place;
}

/* A request while its references are made. */
typedef struct making {
    const kvpi_request *request;
    uint32_t n_tokens; /* of the output, too, if there is one */
    uint32_t n_prompt; /* full blocks */
    uint32_t n_full;
    uint32_t last_tokens; /* that a hit of the last of n_prompt spares */
    uint32_t begin;       /* full blocks that are taken over from the one it goes on from */
    kvp_hash last;        /* of the last of them; of the root */
} making;

/* Hash the full blocks that are not taken over. */
static void hash_rest(maker *make, const making *of)
{
    const kvpi_trace_args *trace = &make->options->trace;
    const uint32_t unit = (uint32_t)make->options->block_tokens, begin = of->begin * unit;
    const kvp_hash_input input = {
        .unit_tokens = unit, .n_tokens = of->n_tokens - begin, .tokens = make->tokens + begin};
    kvpi_requests_input(of->request, &trace->key, begin, make->tokens);
    if (trace->output)
        kvpi_requests_output(of->request, &trace->key, make->tokens + of->request->input_length);
    (void)kvp_hash_units(&input, &of->last, make->hashes + of->begin); /* the arguments are right */
}

/* Take over what the request at `from` has: blocks of the prompt. */
static bool take_start(maker *make, size_t from, making *of, kvpi_mrc_request *out)
{
    kvpi_mrc_refs *refs = &make->refs;
    const kvpi_mrc_request *before = &refs->requests[from];
    if (!reserve(make, before->n_full))
        return false;
    if (before->n_full > 0)
        memcpy(refs->contents + refs->n_refs, refs->contents + before->first,
               before->n_full * sizeof *refs->contents);
    refs->n_refs += before->n_full;
    of->begin = make->starts[from].n_full;
    of->last = make->starts[from].last;
    out->n_full = out->n_prompt = before->n_full;
    if (of->begin > 0 && of->begin == of->n_prompt && takes(make, &of->last))
        out->last_tokens = of->last_tokens;
    return true;
}

/* Take those of its other full blocks that are in the sample. */
static bool take_rest(maker *make, const making *of, kvpi_mrc_request *out)
{
    kvpi_mrc_refs *refs = &make->refs;
    uint32_t before = out->n_full > 0 ? refs->contents[refs->n_refs - 1] : NO_CONTENT;
    for (uint32_t i = of->begin; i < of->n_full; i++) {
        if (!takes(make, &make->hashes[i]))
            continue;
        if (i + AHEAD < of->n_full) {
            const content_name ahead = name_of(&make->hashes[i + AHEAD]);
            ask_for(make, &ahead);
        }
        before = content_of(make, &make->hashes[i], before);
        if (before == NO_CONTENT || !reserve(make, 1))
            return false;
        refs->contents[refs->n_refs++] = before;
        out->n_full++;
        if (i < of->n_prompt)
            out->n_prompt++;
        if (i + 1 == of->n_prompt)
            out->last_tokens = of->last_tokens;
    }
    return true;
}

static bool take_blocks(maker *make, size_t place, making *of, kvpi_mrc_request *out)
{
    static const char name[] = "replay"; /* of tool/replay/cache.c; any name would do */
    const uint32_t size = (uint32_t)make->options->block_tokens;
    const size_t from = start_of(make, of->request, place);
    out->first = make->refs.n_refs;
    out->last_tokens = size;
    (void)kvp_hash_root(size, 0, name, sizeof name - 1, &of->last);
    if (from != place && !take_start(make, from, of, out))
        return false;
    hash_rest(make, of);
    if (!take_rest(make, of, out))
        return false;
    make->starts[place].last = of->n_full > of->begin ? make->hashes[of->n_full - 1] : of->last;
    make->starts[place].n_full = of->n_full;
    return true;
}

static bool add_request(maker *make, size_t place, kvpi_mrc_request *out)
{
    const kvpi_request *request = &make->first[place];
    const uint64_t size = make->options->block_tokens;
    uint64_t input = (uint64_t)request->input_length;
    uint64_t output = make->options->trace.output ? (uint64_t)request->output_length : 0;
    const uint64_t n_prompt = input / size, n_full = (input + output) / size;
    bool partly = (input + output) % size != 0;
    /* Of a prompt that is all there, the last token is computed all the same. */
    uint32_t last_tokens = (uint32_t)(n_prompt > 0 && input % size == 0 ? size - 1 : size);
    kvpi_mrc_refs *refs = &make->refs;
    making of = {.request = request,
                 .n_tokens = (uint32_t)(input + output),
                 .n_prompt = (uint32_t)n_prompt,
                 .n_full = (uint32_t)n_full,
                 .last_tokens = last_tokens};
    *out = (kvpi_mrc_request){.input_tokens = (uint32_t)input, .output_tokens = (uint32_t)output};
    if (!take_blocks(make, place, &of, out))
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
    make->first = kvpi_requests_get(requests, 0);
    make->starts = calloc(make->refs.n_requests, sizeof *make->starts);
    return make->tokens != NULL && make->hashes != NULL && make->refs.requests != NULL &&
           make->starts != NULL && grow_table(make);
}

static bool add_all(maker *make)
{
    kvpi_progress progress;
    bool fine = true;
    kvpi_progress_start(&progress, "hashing requests", make->refs.n_requests);
    for (size_t i = 0; i < make->refs.n_requests && fine; i++) {
        fine = add_request(make, i, &make->refs.requests[i]);
        kvpi_progress_update(&progress, i + 1);
    }
    kvpi_progress_end(&progress);
    return fine;
}

int kvpi_mrc_refs_make(const kvpi_requests *requests, const kvpi_mrc_options *options,
                       kvpi_mrc_refs *out)
{
    maker make = {.options = options};
    bool fine = prepare(&make, requests) && add_all(&make);
    free(make.slots);
    free(make.tags);
    free(make.names);
    free(make.tokens);
    free(make.hashes);
    free(make.starts);
    if (fine) {
        *out = make.refs;
        return TOOL_OK;
    }
    kvpi_mrc_refs_free(&make.refs);
    return options->command == NULL
               ? TOOL_FAILED
               : kvpi_tool_fail(
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

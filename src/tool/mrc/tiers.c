/* Owns the simulation of a sequential replay with a host tier, and of one with a store behind it.
 * Block ids do not matter, only which contents each tier has, and in which order they go:
 *
 *   load    what the store has of the prompt, and neither device nor host, comes to the host
 *   open    the longest run of leading contents that device or host have is hit. What only the
 *           host has is copied to a block of the device, and goes to the end of the host's queue,
 *           the last first
 *   take    a free block of the device; else its oldest content goes, to the end of the host's
 *           queue. If the host does not have it, the host's oldest content goes
 *   close   contents become cached on the device, the last block's first
 *   write   records of the request go to the store, as far as they are not there, by the host
 *
 * All but load and write is what kvp_cache does (swap.h); docs/COMMAND.md has the store's rules.
 *
 * A record is R contents in a row, from a place in the prompt that R divides. It has the number of
 * its last content, which stands for all before it. Records are in one queue. When one is used, all
 * before it in the prompt are used after it, so a record is never older than one that needs it, and
 * the oldest has none that do.
 */
#include "tool/mrc/tiers.h"

#include <stdlib.h>
#include <string.h>

#include "tool/tool.h"

#define NOBODY UINT32_MAX

/* Contents, or records, from the oldest to the one that was used last. */
typedef struct queue {
    uint32_t *older, *newer; /* [n_contents] */
    uint8_t *has;            /* [n_contents] */
    uint32_t oldest, newest;
    uint64_t n;
    uint64_t n_free; /* places */
} queue;

struct kvpi_mrc_tiers {
    const kvpi_mrc_refs *refs;
    queue device, host, store;
    uint8_t *source; /* [n_contents] held on the host: it is copied to the device */
    kvpi_mrc_tiers_size size;
    kvpi_mrc_tiers_hits hits;
};

/* ----------------------------------------------------------------------------------- the queues */

static void enqueue(queue *to, uint32_t content)
{
    to->has[content] = 1;
    to->newer[content] = NOBODY;
    to->older[content] = to->newest;
    if (to->newest == NOBODY)
        to->oldest = content;
    else
        to->newer[to->newest] = content;
    to->newest = content;
    to->n++;
}

static void dequeue(queue *from, uint32_t content)
{
    uint32_t newer = from->newer[content], older = from->older[content];
    if (older == NOBODY)
        from->oldest = newer;
    else
        from->newer[older] = newer;
    if (newer == NOBODY)
        from->newest = older;
    else
        from->older[newer] = older;
    from->has[content] = 0;
    from->n--;
}

static void enqueue_anew(queue *in, uint32_t content)
{
    dequeue(in, content);
    enqueue(in, content);
}

/* Take a place. Gives what had to go for it, or NOBODY. There is a place that can be taken. */
static uint32_t take_place(queue *from)
{
    if (from->n_free > 0) {
        from->n_free--;
        return NOBODY;
    }
    uint32_t gone = from->oldest;
    dequeue(from, gone);
    return gone;
}

/* ------------------------------------------------------------------------------ device and host */

static void take_device_block(kvpi_mrc_tiers *t)
{
    uint32_t evicted = take_place(&t->device);
    if (evicted == NOBODY || t->source[evicted] || t->host.n + t->host.n_free == 0)
        return;
    if (t->host.has[evicted])
        dequeue(&t->host, evicted);
    else
        take_place(&t->host);
    enqueue(&t->host, evicted);
}

/* What is hit on the host is not taken meanwhile. */
static uint32_t hold_hits(kvpi_mrc_tiers *t, const kvpi_mrc_request *request)
{
    const uint32_t *contents = t->refs->contents + request->first;
    uint32_t n_hits = 0;
    for (; n_hits < request->n_prompt; n_hits++) {
        uint32_t content = contents[n_hits];
        if (t->device.has[content]) {
            dequeue(&t->device, content);
        } else if (t->host.has[content]) {
            dequeue(&t->host, content);
            t->source[content] = 1;
        } else {
            break;
        }
    }
    return n_hits;
}

/* Gives how many contents are hit. */
static uint32_t open_in_tiers(kvpi_mrc_tiers *t, const kvpi_mrc_request *request)
{
    const uint32_t *contents = t->refs->contents + request->first;
    uint32_t n_hits = hold_hits(t, request);
    for (uint32_t i = 0; i < request->n_opened; i++)
        if (i >= n_hits || t->source[contents[i]])
            take_device_block(t);
    for (uint32_t i = n_hits; i-- > 0;)
        if (t->source[contents[i]]) {
            t->source[contents[i]] = 0;
            enqueue(&t->host, contents[i]);
            t->hits.host_tokens += t->refs->block_tokens;
        }
    return n_hits;
}

/* A block that is computed though the device has its content is free again. */
static void compute_rest(kvpi_mrc_tiers *t, const kvpi_mrc_request *request, uint32_t n_hits)
{
    const uint32_t *contents = t->refs->contents + request->first;
    for (uint32_t i = n_hits; i < request->n_blocks; i++) {
        if (i >= request->n_opened)
            take_device_block(t);
        if (i < request->n_full && t->device.has[contents[i]]) {
            t->device.n_free++;
            dequeue(&t->device, contents[i]);
        }
    }
}

static void close_in_tiers(kvpi_mrc_tiers *t, const kvpi_mrc_request *request)
{
    const uint32_t *contents = t->refs->contents + request->first;
    t->device.n_free += request->n_blocks - request->n_full;
    for (uint32_t i = request->n_full; i-- > 0;)
        enqueue(&t->device, contents[i]);
}

/* ------------------------------------------------------------------------------------ the store */

/* Of the host, at most, to the store: the default of kvp_config.lent_blocks. */
static uint64_t lent_blocks(const kvpi_mrc_tiers *t)
{
    return t->size.host > 2 ? t->size.host / 2 : t->size.host > 0;
}

/* The number of the record that has content i of a row. */
static uint32_t record_of(const kvpi_mrc_tiers *t, const uint32_t *contents, uint32_t i)
{
    uint32_t n = t->size.record_blocks;
    return contents[i / n * n + n - 1];
}

/* Use the record that ends before content `end` of a row, and all before it. */
static void use_records(kvpi_mrc_tiers *t, const uint32_t *contents, uint32_t end)
{
    for (uint32_t n = t->size.record_blocks; end >= n; end -= n)
        enqueue_anew(&t->store, contents[end - 1]);
}

/* A prefix to be loaded. */
typedef struct prefix {
    uint32_t end;     /* contents that device, host and store have together, in whole records */
    uint32_t n_loads; /* of these, those that only the store has */
    uint32_t loaded;  /* up to the end of the last record with one of them */
} prefix;

/* The longest one. At most so many contents are loaded as may be lent to the store, half of the
 * host. */
static prefix find_prefix(const kvpi_mrc_tiers *t, const kvpi_mrc_request *request)
{
    const uint32_t *contents = t->refs->contents + request->first;
    uint32_t in_records = request->n_prompt - request->n_prompt % t->size.record_blocks;
    uint64_t on_host = 0;
    prefix found = {0};
    for (uint32_t i = 0, n = 0; i < in_records; i++) {
        bool is_here = t->device.has[contents[i]] || t->host.has[contents[i]];
        on_host += t->host.has[contents[i]];
        n += !is_here;
        if ((!is_here && !t->store.has[record_of(t, contents, i)]) || n > lent_blocks(t) ||
            on_host + n > t->size.host)
            break;
        if ((i + 1) % t->size.record_blocks != 0)
            continue;
        found.loaded = n > found.n_loads ? i + 1 : found.loaded;
        found.n_loads = n;
        found.end = i + 1;
    }
    return found;
}

/* The host's contents of the prefix are queued again and not taken; then what is loaded is queued.
 * Of both the last one goes first. */
static void load(kvpi_mrc_tiers *t, const kvpi_mrc_request *request)
{
    const uint32_t *contents = t->refs->contents + request->first;
    const prefix found = find_prefix(t, request);
    if (found.n_loads == 0)
        return;
    for (uint32_t i = found.end; i-- > 0;)
        if (t->host.has[contents[i]])
            enqueue_anew(&t->host, contents[i]);
    use_records(t, contents, found.loaded);
    for (uint32_t i = 0; i < found.n_loads; i++)
        take_place(&t->host);
    for (uint32_t i = found.end; i-- > 0;)
        if (!t->device.has[contents[i]] && !t->host.has[contents[i]])
            enqueue(&t->host, contents[i]);
    t->hits.store_tokens += found.n_loads * t->refs->block_tokens;
}

/* A record's blocks are copied to the host, where they are not there yet, and lent to the store;
 * given back, they are queued again, the last one first. */
static void lend_record(kvpi_mrc_tiers *t, const uint32_t *contents)
{
    uint32_t n = t->size.record_blocks, n_missing = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (t->host.has[contents[i]])
            dequeue(&t->host, contents[i]);
        else
            n_missing++;
    }
    for (uint32_t i = 0; i < n_missing; i++)
        take_place(&t->host);
    for (uint32_t i = n; i-- > 0;)
        enqueue(&t->host, contents[i]);
}

/* Write what is sealed or, with KVPI_MRC_SECOND, what was hit: from the first record on, until one
 * would put out the one before it. */
static void write_records(kvpi_mrc_tiers *t, const kvpi_mrc_request *request, uint32_t n_hits)
{
    const uint32_t *contents = t->refs->contents + request->first;
    uint32_t n = t->size.record_blocks, before = NOBODY;
    uint32_t n_worth = t->size.writes == KVPI_MRC_THROUGH ? request->n_full : n_hits;
    for (uint32_t at = 0; at + n <= n_worth; at += n) {
        uint32_t record = contents[at + n - 1];
        if (!t->store.has[record]) {
            if (t->store.n_free == 0 && t->store.oldest == before)
                return;
            lend_record(t, contents + at);
            take_place(&t->store);
            enqueue(&t->store, record);
            t->hits.written_blocks += n;
            use_records(t, contents, at);
        }
        before = record;
    }
}

/* -------------------------------------------------------------------------------------- public */

static bool make_queue(queue *to, size_t n)
{
    to->older = malloc(n * sizeof *to->older);
    to->newer = malloc(n * sizeof *to->newer);
    to->has = malloc(n);
    return to->older != NULL && to->newer != NULL && to->has != NULL;
}

static void free_queue(queue *of)
{
    free(of->older);
    free(of->newer);
    free(of->has);
}

int kvpi_mrc_tiers_make(const kvpi_mrc_refs *refs, const char *command, kvpi_mrc_tiers **out)
{
    size_t n = (size_t)refs->n_contents + 1;
    kvpi_mrc_tiers *t = calloc(1, sizeof *t);
    bool fine = t != NULL;
    if (fine) {
        t->refs = refs;
        t->source = malloc(n);
        fine = make_queue(&t->device, n) && make_queue(&t->host, n) && make_queue(&t->store, n) &&
               t->source != NULL;
    }
    if (!fine) {
        kvpi_mrc_tiers_free(t);
        return kvpi_tool_fail(command, "out of memory for the tiers");
    }
    *out = t;
    return TOOL_OK;
}

void kvpi_mrc_tiers_free(kvpi_mrc_tiers *t)
{
    if (t == NULL)
        return;
    free_queue(&t->device);
    free_queue(&t->host);
    free_queue(&t->store);
    free(t->source);
    free(t);
}

static void clear_queue(queue *of, uint64_t places, size_t n_contents)
{
    memset(of->has, 0, n_contents);
    of->oldest = of->newest = NOBODY;
    of->n = 0;
    of->n_free = places;
}

static void begin_tiers(kvpi_mrc_tiers *t, const kvpi_mrc_tiers_size *size)
{
    size_t n = t->refs->n_contents;
    t->size = *size;
    t->hits = (kvpi_mrc_tiers_hits){0};
    clear_queue(&t->device, size->device, n);
    clear_queue(&t->host, size->host, n);
    clear_queue(&t->store, size->store / size->record_blocks, n);
    memset(t->source, 0, n);
}

static void count_tokens(kvpi_mrc_tiers *t, const kvpi_mrc_request *request, uint32_t n_hits)
{
    t->hits.tokens += n_hits * t->refs->block_tokens;
    if (n_hits > 0 && n_hits == request->n_prompt)
        t->hits.tokens -= t->refs->block_tokens - request->last_tokens;
}

kvpi_mrc_tiers_hits kvpi_mrc_tiers_run(kvpi_mrc_tiers *t, const kvpi_mrc_tiers_size *size)
{
    begin_tiers(t, size);
    bool has_store = size->store >= size->record_blocks && lent_blocks(t) >= size->record_blocks;
    for (size_t r = 0; r < t->refs->n_requests; r++) {
        const kvpi_mrc_request *request = &t->refs->requests[r];
        if (has_store)
            load(t, request);
        uint32_t n_hits = open_in_tiers(t, request);
        compute_rest(t, request, n_hits);
        close_in_tiers(t, request);
        count_tokens(t, request, n_hits);
        if (has_store)
            write_records(t, request, n_hits);
    }
    t->hits.host_tokens -= t->hits.store_tokens;
    return t->hits;
}

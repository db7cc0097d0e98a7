/* See lookups.h.
 *
 * Invariants:
 * 1. An open request is in the list of its bucket, by its last block, and in that of all, in the
 *    order of their last blocks.
 * 2. What counters have is what is accounted for, what was written as unseen, and what is still to
 *    come. A request that is lost is accounted for no more.
 */
#include "tool/record/lookups.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tool/record/evicted.h"

#define MAX_OPEN  16384u
#define N_BUCKETS 32768u /* a power of two */
#define NONE      UINT32_MAX
#define QUIET_US  (KVPI_LOOKUPS_QUIET_SECONDS * INT64_C(1000000))

typedef struct open {
    uint64_t last; /* block */
    uint64_t batch;
    int64_t began_us, last_us;
    uint32_t n_hit, n_prompt, n_blocks; /* n_prompt: of these, surely the prompt's */
    bool is_over;                       /* a token of the prompt at least is behind n_prompt */
    bool is_reported;                   /* and nothing came behind the report yet */
    bool is_mute;   /* it began before the recording, or behind what is not known: not recorded */
    uint32_t began; /* the last eviction before it */
    uint32_t n_again;
    kvpi_recording_again *again; /* [n_again] */
    uint32_t next_in_bucket, before, next;
} open;

typedef struct agains {
    kvpi_recording_again *of; /* [capacity] */
    uint32_t n, capacity;
} agains;

/* When an event comes. */
typedef struct moment {
    int64_t us;
    uint64_t batch;
    uint32_t evicted; /* the last eviction before those that make room for it */
    bool is_old;
} moment;

struct kvpi_lookups {
    kvpi_recorder *recorder;
    bool reports; /* the engine reports look-ups */
    int64_t block_tokens;
    kvpi_recent chains;
    kvpi_evicted evicted;
    uint32_t stored;    /* the last eviction before the last event that stored */
    agains again, sure; /* of an event */
    uint64_t epoch;
    uint32_t buckets[N_BUCKETS];
    open of[MAX_OPEN];
    uint32_t free, first, last; /* free ones; open ones, the quietest first */
    uint8_t *names;             /* [capacity][8] */
    size_t capacity;
    bool has_counters, has_restarted; /* since the call before, as batches say */
    bool has_fallen;
    kvpi_counters at, total, before; /* as they came; since the start; as of the call before */
    kvpi_counters accounted, unseen;
};

/* ------------------------------------------------------------------------------- open requests */

static uint32_t *bucket_of(kvpi_lookups *lookups, uint64_t hash)
{
    return &lookups->buckets[(hash * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (N_BUCKETS - 1)];
}

/* The one that was opened first; of those whose hits were just reported, if there is one. */
static open *find_open(kvpi_lookups *lookups, uint64_t last)
{
    open *found = NULL;
    for (uint32_t at = *bucket_of(lookups, last); at != NONE; at = lookups->of[at].next_in_bucket) {
        open *of = &lookups->of[at];
        if (of->last == last && (found == NULL || (of->is_reported && !found->is_reported)))
            found = of;
    }
    return found;
}

/* At the end of its bucket and of all. */
static void link_open(kvpi_lookups *lookups, open *of)
{
    const uint32_t number = (uint32_t)(of - lookups->of);
    uint32_t *at = bucket_of(lookups, of->last);
    while (*at != NONE)
        at = &lookups->of[*at].next_in_bucket;
    *at = number;
    of->next_in_bucket = NONE;
    of->before = lookups->last;
    of->next = NONE;
    *(of->before == NONE ? &lookups->first : &lookups->of[of->before].next) = number;
    lookups->last = number;
}

static void unlink_open(kvpi_lookups *lookups, open *of)
{
    const uint32_t number = (uint32_t)(of - lookups->of);
    uint32_t *at = bucket_of(lookups, of->last);
    while (*at != number)
        at = &lookups->of[*at].next_in_bucket;
    *at = of->next_in_bucket;
    *(of->before == NONE ? &lookups->first : &lookups->of[of->before].next) = of->next;
    *(of->next == NONE ? &lookups->last : &lookups->of[of->next].before) = of->before;
}

/* ----------------------------------------------------------------------------------- recording */

/* The names of its blocks, the first one first. False: they are forgotten, or no memory. */
static bool name_blocks(kvpi_lookups *lookups, const open *of)
{
    if (lookups->capacity < of->n_blocks) {
        uint8_t *grown = realloc(lookups->names, (size_t)of->n_blocks * 2 * 8);
        if (grown == NULL)
            return false;
        lookups->names = grown;
        lookups->capacity = (size_t)of->n_blocks * 2;
    }
    uint64_t hash = of->last;
    for (uint32_t i = of->n_blocks; i-- > 0;) {
        const kvpi_known *found = kvpi_recent_find(&lookups->chains, hash);
        if (found == NULL || found->n_blocks != i + 1)
            return false;
        memcpy(lookups->names + 8 * (size_t)i, &hash, 8);
        hash = found->parent;
    }
    return true;
}

/* Its tokens are among those of requests that were not seen. */
static void lose(kvpi_lookups *lookups, const open *of)
{
    kvpi_recorder_lost(lookups->recorder, 1);
    lookups->accounted.queries -=
        (uint64_t)(of->n_prompt * lookups->block_tokens + (int64_t)of->is_over);
    lookups->accounted.hits -= (uint64_t)(of->n_hit * lookups->block_tokens);
}

static int close_first(kvpi_lookups *lookups, kvpi_recording_error *error)
{
    open *of = &lookups->of[lookups->first];
    kvpi_recorded request = {.time_us = of->began_us,
                             .cached_tokens = of->n_hit * lookups->block_tokens,
                             .first_us = KVPI_RECORDED_UNKNOWN,
                             .last_us = of->last_us - of->began_us,
                             .again = of->again,
                             .n_again =
                                 of->n_again < 2 * of->n_blocks ? of->n_again : 2 * of->n_blocks};
    request.input_tokens = of->n_prompt * lookups->block_tokens + of->is_over;
    const int64_t behind = of->n_blocks * lookups->block_tokens - request.input_tokens;
    request.output_tokens = behind > 0 ? behind : 0;
    unlink_open(lookups, of);
    of->next = lookups->free;
    lookups->free = (uint32_t)(of - lookups->of);
    int result = 0;
    if (!of->is_mute && name_blocks(lookups, of))
        result = kvpi_recorder_add_hashes(lookups->recorder, &request, lookups->names, of->n_blocks,
                                          8, error);
    else if (!of->is_mute)
        lose(lookups, of);
    free(of->again);
    of->again = NULL;
    return result;
}

static int close_quiet(kvpi_lookups *lookups, int64_t now_us, kvpi_recording_error *error)
{
    while (lookups->first != NONE && now_us - lookups->of[lookups->first].last_us > QUIET_US)
        if (close_first(lookups, error) != 0)
            return -1;
    return 0;
}

/* -------------------------------------------------------------------------------------- events */

/* What of an event is looked at. */
typedef struct stored {
    uint64_t parent, last;
    uint32_t n, n_before; /* blocks; of the chain before them, as far as it is known */
    bool is_there;        /* all of them are in the cache already */
    bool is_lost;         /* what stands before them is not known */
} stored;

/* Of another start, or behind a reset, equal hashes are no equal blocks. */
static uint64_t name_of(const kvpi_lookups *lookups, uint64_t hash)
{
    return hash + lookups->epoch * UINT64_C(0xD1342543DE82EF95);
}

static bool add_again(agains *to, uint32_t depth, bool is_sure)
{
    kvpi_recording_again *last = to->n > 0 ? &to->of[to->n - 1] : NULL;
    if (last != NULL && last->is_sure == is_sure && last->depth + last->n == depth) {
        last->n++;
        return true;
    }
    if (to->n == to->capacity) {
        const uint32_t wanted = to->capacity == 0 ? 16 : 2 * to->capacity;
        kvpi_recording_again *grown = realloc(to->of, wanted * sizeof *grown);
        if (grown == NULL)
            return false;
        to->of = grown;
        to->capacity = wanted;
    }
    to->of[to->n++] = (kvpi_recording_again){depth, 1, is_sure};
    return true;
}

/* How the event stands to what was seen before. */
static stored look(kvpi_lookups *lookups, const kvpi_event *event)
{
    stored out = {.parent = name_of(lookups, event->parent), .n = (uint32_t)event->n_hashes};
    const kvpi_known *found =
        event->has_parent ? kvpi_recent_find(&lookups->chains, out.parent) : NULL;
    out.n_before = found == NULL ? 0 : found->n_blocks;
    out.is_lost = event->has_parent && found == NULL;
    out.is_there = true;
    for (size_t i = 0; i < event->n_hashes && out.is_there; i++) {
        found = kvpi_recent_find(&lookups->chains, name_of(lookups, event->hashes[i]));
        out.is_there = found != NULL && found->evicted == 0;
    }
    return out;
}

/* How many were evicted after each block that comes back, as the look-up found it: `began` is the
 * last eviction before its request. That a larger cache would have hit it is sure as long as it
 * would have hit those before it, but of the last one, which vLLM computes anyway. */
static bool measure(kvpi_lookups *lookups, const kvpi_event *event, bool is_prompt, uint32_t began)
{
    const kvpi_evicted *evicted = &lookups->evicted;
    uint32_t deepest = 0;
    lookups->again.n = lookups->sure.n = 0;
    for (size_t i = 0; i < event->n_hashes; i++) {
        const kvpi_known *found =
            kvpi_recent_find(&lookups->chains, name_of(lookups, event->hashes[i]));
        const uint32_t number = found == NULL ? 0 : found->evicted;
        is_prompt = is_prompt && i + 1 < event->n_hashes && number != 0;
        if (number != 0 &&
            !add_again(&lookups->again, kvpi_evicted_after(evicted, number, began), false))
            return false;
        if (!is_prompt)
            continue;
        const uint32_t depth = kvpi_evicted_after(evicted, number, evicted->last);
        deepest = depth > deepest ? depth : deepest;
        if (!add_again(&lookups->sure, deepest, true))
            return false;
    }
    return true;
}

static int learn(kvpi_lookups *lookups, const kvpi_event *event, stored *out,
                 kvpi_recording_error *error)
{
    uint64_t before = out->parent;
    uint32_t n_blocks = out->n_before;
    for (size_t i = 0; i < event->n_hashes; i++) {
        const uint64_t hash = name_of(lookups, event->hashes[i]);
        const kvpi_known fresh = {.hash = hash, .parent = before, .n_blocks = n_blocks + 1};
        kvpi_known *found = kvpi_recent_get(&lookups->chains, &fresh);
        if (found == NULL)
            return kvpi_recording_fail(error, "out of memory for the chains of blocks");
        if (found->evicted != 0) {
            kvpi_evicted_remove(&lookups->evicted, found->evicted);
            found->evicted = 0;
        }
        n_blocks = found->n_blocks;
        before = hash;
    }
    lookups->stored = lookups->evicted.last;
    out->last = before;
    /* What was known may have had another beginning. */
    out->n_before = n_blocks > out->n ? n_blocks - out->n : 0;
    out->n = n_blocks - out->n_before;
    return 0;
}

/* What came back with an event belongs to its request. */
static int keep_again(kvpi_lookups *lookups, open *of, kvpi_recording_error *error)
{
    const agains *const both[] = {&lookups->sure, &lookups->again};
    const uint32_t n = lookups->sure.n + lookups->again.n;
    if (n == 0 || of->is_mute || lookups->reports)
        return 0;
    kvpi_recording_again *grown = realloc(of->again, (of->n_again + n) * sizeof *grown);
    if (grown == NULL)
        return kvpi_recording_fail(error, "out of memory for what came back");
    of->again = grown;
    for (size_t i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < both[i]->n; k++)
            of->again[of->n_again++] = both[i]->of[k];
    }
    return 0;
}

static int begin(kvpi_lookups *lookups, const open *made, kvpi_recording_error *error)
{
    if (lookups->free == NONE && close_first(lookups, error) != 0)
        return -1;
    open *of = &lookups->of[lookups->free];
    lookups->free = of->next;
    *of = *made;
    link_open(lookups, of);
    if (of->is_mute)
        return 0;
    lookups->accounted.queries +=
        (uint64_t)(of->n_prompt * lookups->block_tokens + (int64_t)of->is_over);
    lookups->accounted.hits += (uint64_t)(of->n_hit * lookups->block_tokens);
    return keep_again(lookups, of, error);
}

static bool is_too_long(const kvpi_lookups *lookups, uint64_t n_blocks)
{
    return n_blocks > KVPI_RECORDING_MAX_BLOCKS ||
           n_blocks >= (uint64_t)(KVPI_RECORDING_MAX_TOKENS / lookups->block_tokens);
}

/* Blocks behind the last one of an open request. */
static int go_on(kvpi_lookups *lookups, open *of, const stored *event, const moment *now,
                 kvpi_recording_error *error)
{
    if (event->n_before != of->n_blocks && !of->is_mute) { /* its beginning is forgotten */
        of->is_mute = true;
        lose(lookups, of);
    }
    const bool is_prompt = of->is_reported && event->n > 1 && !of->is_mute;
    unlink_open(lookups, of);
    of->last = event->last;
    of->last_us = now->us;
    of->batch = now->batch;
    of->n_blocks = event->n_before + event->n;
    of->is_reported = false;
    if (is_prompt) {
        lookups->accounted.queries += (uint64_t)(event->n * lookups->block_tokens - of->is_over);
        of->n_prompt = of->n_blocks;
        of->is_over = false;
    }
    link_open(lookups, of);
    return keep_again(lookups, of, error);
}

static int begin_stored(kvpi_lookups *lookups, const stored *of, bool is_report, const moment *now,
                        kvpi_recording_error *error)
{
    open made = {.last = of->last,
                 .batch = now->batch,
                 .began_us = now->us,
                 .last_us = now->us,
                 .began = now->evicted,
                 .n_hit = is_report ? of->n : of->n_before,
                 .n_blocks = of->n_before + of->n,
                 .is_over = is_report || of->n == 1,
                 .is_reported = is_report,
                 .is_mute = now->is_old || of->is_lost};
    made.n_prompt = made.is_over ? made.n_hit : made.n_blocks;
    return begin(lookups, &made, error);
}

static int take_stored(kvpi_lookups *lookups, const kvpi_event *event, const moment *now,
                       kvpi_recording_error *error)
{
    if (event->block_tokens != (uint64_t)lookups->block_tokens)
        return kvpi_recording_fail(error,
                                   "the engine's blocks have %" PRIu64 " tokens, expected %" PRId64
                                   " (--block-tokens)",
                                   event->block_tokens, lookups->block_tokens);
    stored of = look(lookups, event);
    const bool is_report = lookups->reports && !event->has_parent && of.is_there;
    const uint64_t last = name_of(lookups, event->hashes[event->n_hashes - 1]);
    open *known = is_report           ? find_open(lookups, last)
                  : event->has_parent ? find_open(lookups, of.parent)
                                      : NULL;
    if (is_report && known != NULL && known->is_reported && now->batch - known->batch <= 1) {
        known->batch = now->batch; /* it waits for room, and looks up again */
        return 0;
    }
    const bool goes_on = known != NULL && !is_report;
    if (!measure(lookups, event, !goes_on && of.n > 1, goes_on ? known->began : now->evicted))
        return kvpi_recording_fail(error, "out of memory for what came back");
    if (learn(lookups, event, &of, error) != 0)
        return -1;
    if (is_too_long(lookups, (uint64_t)of.n_before + of.n)) {
        kvpi_recorder_lost(lookups->recorder, 1);
        return 0;
    }
    return goes_on ? go_on(lookups, known, &of, now, error)
                   : begin_stored(lookups, &of, is_report, now, error);
}

/* Number an eviction. Returns: 0: no memory */
static uint32_t number_evicted(kvpi_lookups *lookups)
{
    const bool is_full = kvpi_evicted_is_full(&lookups->evicted);
    const uint32_t number = kvpi_evicted_add(&lookups->evicted, &lookups->chains);
    if (number == 0 || !is_full)
        return number;
    lookups->stored = kvpi_evicted_now(&lookups->evicted, lookups->stored);
    for (uint32_t at = lookups->first; at != NONE; at = lookups->of[at].next)
        lookups->of[at].began = kvpi_evicted_now(&lookups->evicted, lookups->of[at].began);
    return number;
}

static int take_removed(kvpi_lookups *lookups, const kvpi_event *event, kvpi_recording_error *error)
{
    for (size_t i = 0; i < event->n_hashes; i++) {
        const uint64_t hash = name_of(lookups, event->hashes[i]);
        kvpi_known *found = kvpi_recent_find(&lookups->chains, hash);
        if (found != NULL && found->evicted != 0) {
            kvpi_evicted_remove(&lookups->evicted, found->evicted);
            found->evicted = 0;
        }
        const uint32_t number = number_evicted(lookups);
        if (number == 0)
            return kvpi_recording_fail(error, "out of memory for what was evicted");
        if (found != NULL)
            found->evicted = number;
    }
    return 0;
}

int kvpi_lookups_event(kvpi_lookups *lookups, const kvpi_event *event, int64_t now_us,
                       uint64_t batch, bool is_old, kvpi_recording_error *error)
{
    const moment now = {now_us, batch, lookups->stored, is_old};
    lookups->has_fallen = false;
    if (close_quiet(lookups, now_us, error) != 0)
        return -1;
    if (event->kind == KVPI_EVENT_CLEARED)
        lookups->epoch++;
    if (!event->is_device)
        return 0;
    return event->kind == KVPI_EVENT_STORED    ? take_stored(lookups, event, &now, error)
           : event->kind == KVPI_EVENT_REMOVED ? take_removed(lookups, event, error)
                                               : 0;
}

static uint64_t most_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What the engine counted since the last look is not known: at least what events told of. */
static void restart(kvpi_lookups *lookups)
{
    const kvpi_counters *accounted = &lookups->accounted, *unseen = &lookups->unseen;
    kvpi_counters *total = &lookups->total;
    lookups->epoch++;
    total->queries = most_of(total->queries, accounted->queries + unseen->queries);
    total->hits = most_of(total->hits, accounted->hits + unseen->hits);
}

void kvpi_lookups_restarted(kvpi_lookups *lookups)
{
    restart(lookups);
    lookups->has_restarted = true;
    lookups->has_fallen = false;
}

bool kvpi_lookups_has_fallen(const kvpi_lookups *lookups)
{
    return lookups->has_fallen;
}

/* ------------------------------------------------------------------------------------ counters */

/* What is new since the call before; counters that fell began at 0 again. */
static void add_counters(kvpi_lookups *lookups, const kvpi_counters *now)
{
    const bool fell = now->queries < lookups->at.queries || now->hits < lookups->at.hits;
    const kvpi_counters from = fell ? (kvpi_counters){0, 0} : lookups->at;
    if (fell && !lookups->has_restarted) { /* no batch has said it */
        restart(lookups);
        lookups->has_fallen = true;
    }
    lookups->has_restarted = false;
    if (lookups->has_counters) {
        lookups->total.queries += now->queries - from.queries;
        lookups->total.hits += now->hits - from.hits;
    }
    lookups->at = *now;
    lookups->has_counters = true;
}

static uint64_t lacks(uint64_t wanted, uint64_t has)
{
    return wanted > has ? wanted - has : 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int kvpi_lookups_count(kvpi_lookups *lookups, const kvpi_counters *counters, int64_t now_us,
                       bool is_last, kvpi_recording_error *error)
{
    lookups->before = lookups->total;
    add_counters(lookups, counters);
    const kvpi_counters *to = is_last ? &lookups->total : &lookups->before;
    uint64_t n = lacks(to->queries, lookups->accounted.queries + lookups->unseen.queries);
    uint64_t hits = least(n, lacks(to->hits, lookups->accounted.hits + lookups->unseen.hits));
    while (n > 0) {
        const uint64_t piece = least(n, KVPI_RECORDING_MAX_TOKENS), hit = least(hits, piece);
        const kvpi_recorded request = {.time_us = now_us,
                                       .is_unseen = true,
                                       .input_tokens = (int64_t)piece,
                                       .cached_tokens = (int64_t)hit,
                                       .first_us = KVPI_RECORDED_UNKNOWN,
                                       .last_us = KVPI_RECORDED_UNKNOWN};
        if (kvpi_recorder_add_hashes(lookups->recorder, &request, NULL, 0, 8, error) != 0)
            return -1;
        lookups->unseen.queries += piece;
        lookups->unseen.hits += hit;
        n -= piece;
        hits -= hit;
    }
    return close_quiet(lookups, now_us, error);
}

int kvpi_lookups_end(kvpi_lookups *lookups, kvpi_recording_error *error)
{
    while (lookups->first != NONE)
        if (close_first(lookups, error) != 0)
            return -1;
    return 0;
}

/* ----------------------------------------------------------------------------------- beginning */

kvpi_lookups *kvpi_lookups_new(kvpi_recorder *recorder, const kvpi_recording_about *about)
{
    kvpi_lookups *lookups = calloc(1, sizeof *lookups);
    if (lookups == NULL)
        return NULL;
    lookups->recorder = recorder;
    lookups->reports = about->source == KVPI_RECORDING_LOOKUPS;
    lookups->block_tokens = about->block_tokens;
    lookups->chains.max = about->max_contents;
    lookups->first = lookups->last = NONE;
    memset(lookups->buckets, 0xff, sizeof lookups->buckets);
    for (uint32_t i = 0; i < MAX_OPEN; i++)
        lookups->of[i].next = i + 1 < MAX_OPEN ? i + 1 : NONE;
    return lookups;
}

void kvpi_lookups_free(kvpi_lookups *lookups)
{
    if (lookups == NULL)
        return;
    for (uint32_t at = lookups->first; at != NONE; at = lookups->of[at].next)
        free(lookups->of[at].again);
    kvpi_recent_free(&lookups->chains);
    kvpi_evicted_free(&lookups->evicted);
    free(lookups->again.of);
    free(lookups->sure.of);
    free(lookups->names);
    free(lookups);
}

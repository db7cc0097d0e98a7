/* Owns what is known of each content: when it was stored and used, how often it was hit, and what
 * stands before it.
 *
 *   admissions  the prompt's blocks are walked by their hashes, whether they are hit or not
 *   events      of the cache: a block's content can be found from now on, or no longer; of the
 *               first layer group, which keeps the most, on the device and on the host
 *
 * Contents are named by 64 bits of their hash; two of 10 million share a name with a probability of
 * 3 in a million, and would blur a bar of a histogram. 64 bytes each, and 8 to 16 of the table.
 */
#include "tool/watch/watch.h"

#include <kvpager/events.h>
#include <kvpager/hash.h>
#include <stdlib.h>
#include <string.h>

#include "tool/tool.h"

#define NONE            UINT32_MAX
#define EVENTS_AT_ONCE  4096u
#define MAX_EVENTS      (1u << 21)
#define MIN_TABLE_SLOTS 1024u

typedef struct content {
    uint64_t name;
    uint64_t stored_at;
    uint64_t used_at; /* stored, or hit, or looked up in vain */
    uint64_t gone_at; /* from the last tier that had it */
    const char *first_file;
    uint64_t first_line;
    uint32_t first_of_line;
    uint32_t parent; /* NONE: a first block */
    uint32_t depth;  /* blocks, itself included */
    uint32_t hits;
    bool is_stored; /* on the device */
    bool is_on_host;
    bool is_loaded; /* it came to the host from a store, and was not hit since */
    bool was_stored;
    bool was_seen_going; /* gone_at and gone_from are known */
    uint8_t gone_from;
    bool was_hit; /* since it was stored */
    bool goes_on; /* some child was hit as often */
} content;

struct kvpi_watch_state {
    kvpi_watch_cache cache;
    kvp_hash root;
    content *contents; /* [n] */
    uint32_t n, capacity;
    uint32_t *slots; /* [n_slots] contents, NONE: empty */
    size_t n_slots;
    kvp_hash *hashes; /* [n_hashes] of one prompt */
    size_t n_hashes;
    kvp_event *events; /* [EVENTS_AT_ONCE] */
    uint64_t next_event;
};

/* ------------------------------------------------------------------------------------ the bins */

uint64_t kvpi_bins_first(size_t i)
{
    static const uint64_t steps[3] = {1, 2, 5};
    uint64_t first = i == 0 ? 0 : steps[(i - 1) % 3];
    for (size_t k = 3; k < i; k += 3)
        first *= 10;
    return first;
}

void kvpi_bins_add(kvpi_bins *bins, uint64_t value)
{
    size_t i = 0;
    while (i + 1 < KVPI_BINS && kvpi_bins_first(i + 1) <= value)
        i++;
    bins->counts[i]++;
    bins->n++;
}

/* ----------------------------------------------------------------------------------- contents */

static uint64_t name_of(const kvp_hash *hash)
{
    uint64_t name;
    memcpy(&name, hash->bytes, sizeof name);
    return name;
}

static size_t slot_of(const struct kvpi_watch_state *state, uint64_t name)
{
    size_t at = (size_t)(name ^ name >> 32) & (state->n_slots - 1);
    while (state->slots[at] != NONE && state->contents[state->slots[at]].name != name)
        at = (at + 1) & (state->n_slots - 1);
    return at;
}

static bool grow_table(struct kvpi_watch_state *state)
{
    size_t wanted = state->n_slots == 0 ? MIN_TABLE_SLOTS : state->n_slots * 2;
    uint32_t *slots = malloc(wanted * sizeof *slots);
    if (slots == NULL)
        return false;
    free(state->slots);
    state->slots = slots;
    state->n_slots = wanted;
    memset(slots, 0xff, wanted * sizeof *slots);
    for (uint32_t i = 0; i < state->n; i++)
        slots[slot_of(state, state->contents[i].name)] = i;
    return true;
}

static bool grow_contents(struct kvpi_watch_state *state)
{
    uint32_t wanted = state->capacity == 0 ? MIN_TABLE_SLOTS / 2 : state->capacity * 2;
    content *grown = wanted > NONE / 2 ? NULL : realloc(state->contents, wanted * sizeof *grown);
    if (grown == NULL)
        return false;
    state->contents = grown;
    state->capacity = wanted;
    return true;
}

static uint32_t find(const struct kvpi_watch_state *state, const kvp_hash *hash)
{
    return state->slots[slot_of(state, name_of(hash))];
}

/* Gives NONE when memory is short. */
static uint32_t find_or_add(struct kvpi_watch_state *state, const kvp_hash *hash, uint32_t parent,
                            const kvpi_watch_prompt *prompt)
{
    uint32_t found = find(state, hash);
    if (found != NONE)
        return found;
    uint32_t depth = parent == NONE ? 1 : state->contents[parent].depth + 1;
    if (state->n == state->capacity && !grow_contents(state))
        return NONE;
    if ((size_t)state->n * 2 >= state->n_slots && !grow_table(state))
        return NONE;
    state->contents[state->n] = (content){.name = name_of(hash), .parent = parent, .depth = depth};
    if (prompt != NULL) {
        state->contents[state->n].first_file = prompt->file;
        state->contents[state->n].first_line = prompt->line;
        state->contents[state->n].first_of_line = prompt->of_line;
    }
    state->slots[slot_of(state, name_of(hash))] = state->n;
    return state->n++;
}

static int out_of_memory(void)
{
    return kvpi_tool_fail("replay", "out of memory for the report's view of the blocks");
}

/* ---------------------------------------------------------------------------------- admissions */

/* What a store has of unit i. */
static kvpi_watch_record record_of(const struct kvpi_watch_state *state,
                                   const kvpi_watch_store *store, uint32_t i)
{
    const uint32_t at =
        store->record_tokens == 0 ? 0 : i / (store->record_tokens / state->cache.unit_tokens);
    return store->record_tokens > 0 && at < store->n_records ? store->records[at]
                                                             : (kvpi_watch_record){0};
}

static kvpi_reason part_of(const content *at, const kvpi_watch_record *record, bool is_hit,
                           bool is_new)
{
    if (is_hit)
        return KVPI_REASON_HIT;
    if (at->is_stored || at->is_on_host || record->is_there)
        return KVPI_REASON_RESIDENT;
    if (is_new)
        return KVPI_REASON_NEW;
    return at->was_stored || record->was_there ? KVPI_REASON_EVICTED : KVPI_REASON_IN_FLIGHT;
}

/* One full block of a prompt: when it was used. */
static void look_up(kvpi_watch *watch, content *at, kvpi_reason part, uint64_t now)
{
    if (part == KVPI_REASON_HIT) {
        kvpi_bins_add(&watch->gap_hit, now - at->used_at);
        at->hits++;
        at->was_hit = true;
    } else if (part == KVPI_REASON_EVICTED) {
        kvpi_bins_add(&watch->gap_lost, now - at->used_at);
    }
    at->used_at = now;
}

static int hash_prompt(struct kvpi_watch_state *state, const kvpi_watch_prompt *prompt)
{
    size_t n = prompt->n_tokens / state->cache.unit_tokens;
    const kvp_hash_input input = {.unit_tokens = state->cache.unit_tokens,
                                  .n_tokens = prompt->n_tokens,
                                  .tokens = prompt->tokens};
    if (n > state->n_hashes) {
        kvp_hash *grown = realloc(state->hashes, n * sizeof *grown);
        if (grown == NULL)
            return out_of_memory();
        state->hashes = grown;
        state->n_hashes = n;
    }
    if (n > 0)
        (void)kvp_hash_units(&input, &state->root, state->hashes); /* the arguments are right */
    return TOOL_OK;
}

/* Why what is there was not brought back. */
static const char *kept_back(const struct kvpi_watch_state *state, const kvpi_watch_prompt *prompt,
                             const content *at)
{
    if (!at->is_stored && !at->is_on_host)
        return prompt->store.kept_back;
    switch (prompt->stop) {
    case KVP_STOP_NO_KV:
        return prompt->stop_group == state->cache.n_groups ? "no state"
               : prompt->stop_group >= state->cache.n_full ? "a window"
                                                           : "not on the device";
    case KVP_STOP_NO_ROOM: return "no room";
    case KVP_STOP_END: /* with recurrent state */
    case KVP_STOP_FULL_HIT: return "the last block is computed again";
    case KVP_STOP_OFF: return "no hits are taken";
    default: return "not found";
    }
}

/* Where a hit unit was: what is loaded for a prompt is seen on the host later, or was. Else copies
 * tell: a unit may have left the device, or come back to it, earlier in the same step. */
static kvpi_tier hit_tier(const content *at, const kvpi_watch_store *store, bool is_copied)
{
    const bool was_there = at->is_stored || (at->is_on_host && !at->is_loaded);
    if (store->record_tokens > 0 && !was_there)
        return KVPI_TIER_STORE;
    return is_copied ? KVPI_TIER_HOST : KVPI_TIER_DEVICE;
}

/* Which tier the unit left last, and how long ago. */
static void note_gone(const content *at, const kvpi_watch_record *record, uint64_t now,
                      kvpi_reasons_line *line)
{
    const bool had_store = record->was_there && !record->is_there;
    if (had_store && (!at->was_seen_going || !record->is_dated || record->gone_at >= at->gone_at)) {
        line->evicted_from = KVPI_TIER_STORE;
        line->has_age = record->is_dated;
        line->evicted_ago = record->is_dated ? now - record->gone_at : 0;
    } else if (at->was_seen_going) {
        line->evicted_from = at->gone_from == KVP_HOST ? KVPI_TIER_HOST : KVPI_TIER_DEVICE;
        line->has_age = true;
        line->evicted_ago = now - at->gone_at;
    }
}

/* A prompt while it is cut. */
typedef struct cutting {
    const kvpi_watch_prompt *prompt;
    uint64_t now;
    kvpi_reason cut;      /* of the unit before */
    kvpi_tier tier;       /* and where it was, if it was hit */
    uint32_t n_on_device; /* first hit units that are not copied from the host */
    kvpi_reasons_line line;
} cutting;

/* A unit behind those that are in the line already. Its part is never one before theirs. */
static void cut_unit(kvpi_watch *watch, cutting *c, uint32_t i, content *at, bool is_hit,
                     bool is_new)
{
    const struct kvpi_watch_state *state = watch->state;
    const kvpi_watch_record record = record_of(state, &c->prompt->store, i);
    const kvpi_reason alone = part_of(at, &record, is_hit, is_new);
    const kvpi_reason part = alone > c->cut ? alone : c->cut;
    kvpi_reasons_line *line = &c->line;
    look_up(watch, at, alone, c->now);
    c->tier = hit_tier(at, &c->prompt->store, i >= c->n_on_device);
    if (part == KVPI_REASON_HIT)
        line->hit_tokens[c->tier] += state->cache.unit_tokens;
    if (part == KVPI_REASON_RESIDENT && line->kept_back == NULL)
        line->kept_back = kept_back(state, c->prompt, at);
    if (part == KVPI_REASON_EVICTED && line->tokens[part] == 0)
        note_gone(at, &record, c->now, line);
    if (part == KVPI_REASON_EVICTED && c->prompt->enough != NULL) {
        line->enough_blocks = c->prompt->enough[i];
        const uint32_t last = (i + 1) * state->cache.unit_tokens == c->prompt->n_tokens;
        kvpi_reasons_kept_by(&watch->why, c->prompt->enough[i], state->cache.unit_tokens - last);
    }
    if (part < KVPI_REASON_NEW && !is_new) {
        line->known_file = at->first_file;
        line->known_line = at->first_line;
        line->known_of_line = at->first_of_line;
    }
    line->tokens[part] += state->cache.unit_tokens;
    c->cut = part;
}

/* The last token, and what is behind the last full unit. */
static void cut_rest(cutting *c, uint32_t n_rest)
{
    kvpi_reasons_line *line = &c->line;
    if (line->n_tokens == 0)
        return;
    line->tokens[KVPI_REASON_LAST] = 1;
    if (n_rest > 0) {
        line->tokens[c->cut < KVPI_REASON_NEW ? KVPI_REASON_GRID : KVPI_REASON_NEW] += n_rest - 1;
        return;
    }
    line->tokens[c->cut]--;
    if (c->cut == KVPI_REASON_HIT)
        line->hit_tokens[c->tier]--;
}

int kvpi_watch_admit(kvpi_watch *watch, const kvpi_watch_prompt *prompt, uint64_t now)
{
    struct kvpi_watch_state *state = watch->state;
    uint32_t size = state->cache.unit_tokens, n_full = prompt->n_tokens / size, parent = NONE;
    bool whole = prompt->cached_tokens + 1 == prompt->n_tokens && prompt->n_tokens % size == 0;
    uint32_t n_hit = (prompt->cached_tokens + whole) / size;
    const uint32_t n_copied = (prompt->host_tokens + size - 1) / size;
    cutting c = {.prompt = prompt,
                 .now = now,
                 .cut = KVPI_REASON_HIT,
                 .n_on_device = n_hit > n_copied ? n_hit - n_copied : 0};
    c.line = (kvpi_reasons_line){.file = prompt->file,
                                 .line = prompt->line,
                                 .of_line = prompt->of_line,
                                 .n_tokens = prompt->n_tokens};
    if (hash_prompt(state, prompt) != TOOL_OK)
        return TOOL_FAILED;
    for (uint32_t i = 0; i < n_full; i++) {
        uint32_t n_before = state->n;
        uint32_t at = find_or_add(state, &state->hashes[i], parent, prompt);
        if (at == NONE)
            return out_of_memory();
        cut_unit(watch, &c, i, &state->contents[at], i<n_hit, state->n> n_before);
        parent = at;
    }
    cut_rest(&c, prompt->n_tokens - n_full * size);
    kvpi_reasons_add(&watch->why, &c.line);
    return TOOL_OK;
}

/* -------------------------------------------------------------------------------------- events */

static bool note_stored(struct kvpi_watch_state *state, const kvp_event *event, uint64_t now)
{
    uint32_t parent = event->position == 0 ? NONE : find(state, &event->parent);
    uint32_t at = find_or_add(state, &event->hash, parent, NULL);
    if (at == NONE)
        return false;
    content *stored = &state->contents[at];
    stored->was_stored = true;
    if (event->tier != KVP_DEVICE) {
        stored->is_on_host = true;
        stored->is_loaded = !stored->is_stored;
        return true;
    }
    stored->is_stored = true;
    stored->is_loaded = false;
    stored->was_hit = false;
    stored->stored_at = stored->used_at = now;
    return true;
}

static void note_removed(kvpi_watch *watch, const kvp_event *event, uint64_t now)
{
    uint32_t at = find(watch->state, &event->hash);
    content *gone = at == NONE ? NULL : &watch->state->contents[at];
    if (gone == NULL || !(event->tier == KVP_DEVICE ? gone->is_stored : gone->is_on_host))
        return;
    gone->was_seen_going = true;
    gone->gone_at = now;
    gone->gone_from = (uint8_t)event->tier;
    if (event->tier != KVP_DEVICE) {
        gone->is_on_host = false;
        return;
    }
    gone->is_stored = false;
    watch->evicted++;
    watch->evicted_unused += !gone->was_hit;
    kvpi_bins_add(&watch->idle, now - gone->used_at);
    kvpi_bins_add(&watch->lifetime, now - gone->stored_at);
}

/* The log of the events was overrun: begin again behind its newest one. */
static int skip_events(kvpi_watch *watch, kvp_cache *cache)
{
    uint32_t n = 0;
    uint64_t newest = 0;
    kvp_status status = kvp_events_snapshot(cache, NULL, 0, NULL, &n, &newest);
    if (status != KVP_OK)
        return kvpi_tool_fail("replay", "reading events: %s", kvp_status_text(status));
    watch->missed_events += newest + 1 - watch->state->next_event;
    watch->state->next_event = newest + 1;
    return TOOL_OK;
}

int kvpi_watch_look(kvpi_watch *watch, kvp_cache *cache, uint64_t now)
{
    struct kvpi_watch_state *state = watch->state;
    for (;;) {
        uint32_t n = 0;
        kvp_status status =
            kvp_events_read(cache, state->next_event, state->events, EVENTS_AT_ONCE, NULL, &n);
        if (status == KVP_E_BEHIND)
            return skip_events(watch, cache);
        if (status != KVP_OK)
            return kvpi_tool_fail("replay", "reading events: %s", kvp_status_text(status));
        for (uint32_t i = 0; i < n; i++) {
            const kvp_event *event = &state->events[i];
            if (event->group != 0)
                continue;
            if (event->kind == KVP_EVENT_REMOVED)
                note_removed(watch, event, now);
            else if (event->kind == KVP_EVENT_STORED && !note_stored(state, event, now))
                return out_of_memory();
        }
        state->next_event += n;
        if (n < EVENTS_AT_ONCE)
            return TOOL_OK;
    }
}

/* ------------------------------------------------------------------------------- the prefixes */

static void insert(kvpi_watch *watch, const kvpi_watch_prefix *prefix)
{
    size_t at = watch->n_prefixes;
    if (at == KVPI_WATCH_PREFIXES) {
        if (prefix->saved_tokens <= watch->prefixes[at - 1].saved_tokens)
            return;
        at--;
    } else {
        watch->n_prefixes++;
    }
    for (; at > 0 && watch->prefixes[at - 1].saved_tokens < prefix->saved_tokens; at--)
        watch->prefixes[at] = watch->prefixes[at - 1];
    watch->prefixes[at] = *prefix;
}

/* A run ends where no block goes on that was hit as often, and begins behind what was hit more
 * often. So each hit block is in one run, and the runs' saved tokens sum to all that was saved. */
void kvpi_watch_end(kvpi_watch *watch)
{
    struct kvpi_watch_state *state = watch->state;
    content *all = state->contents;
    for (uint32_t i = 0; i < state->n; i++)
        if (all[i].hits > 0 && all[i].parent != NONE && all[all[i].parent].hits == all[i].hits)
            all[all[i].parent].goes_on = true;
    for (uint32_t i = 0; i < state->n; i++) {
        uint32_t first = i, blocks = 1;
        if (all[i].hits == 0 || all[i].goes_on)
            continue;
        for (; all[first].parent != NONE && all[all[first].parent].hits == all[i].hits; blocks++)
            first = all[first].parent;
        uint64_t run = (uint64_t)blocks * state->cache.unit_tokens;
        const kvpi_watch_prefix prefix = {.end_tokens =
                                              (uint64_t)all[i].depth * state->cache.unit_tokens,
                                          .run_tokens = run,
                                          .hits = all[i].hits,
                                          .first_file = all[i].first_file,
                                          .first_line = all[i].first_line,
                                          .first_of_line = all[i].first_of_line,
                                          .saved_tokens = run * all[i].hits};
        insert(watch, &prefix);
    }
}

/* --------------------------------------------------------------------------------- life */

void kvpi_watch_configure(kvp_config *config)
{
    uint64_t blocks = (uint64_t)config->n_blocks + config->host_blocks;
    uint64_t units = config->unit_tokens == 0 ? 1 : config->block_tokens / config->unit_tokens;
    uint64_t wanted = 4 * blocks * units + 4096;
    config->max_events = wanted < MAX_EVENTS ? (uint32_t)wanted : MAX_EVENTS;
}

int kvpi_watch_begin(kvpi_watch *watch, const kvpi_watch_cache *cache)
{
    *watch = (kvpi_watch){.why = watch->why};
    watch->state = calloc(1, sizeof *watch->state);
    if (watch->state == NULL)
        return out_of_memory();
    watch->state->cache = *cache;
    watch->state->next_event = 1;
    watch->state->events = malloc(EVENTS_AT_ONCE * sizeof *watch->state->events);
    if (watch->state->events == NULL || !grow_table(watch->state) ||
        kvp_hash_root(cache->unit_tokens, 0, cache->name, strlen(cache->name),
                      &watch->state->root) != KVP_OK) {
        kvpi_watch_free(watch);
        return out_of_memory();
    }
    return TOOL_OK;
}

void kvpi_watch_free(kvpi_watch *watch)
{
    if (watch->state == NULL)
        return;
    free(watch->state->contents);
    free(watch->state->slots);
    free(watch->state->hashes);
    free(watch->state->events);
    free(watch->state);
    watch->state = NULL;
}

/* reads: host blocks are taken, records are read into them, and what is whole is given to the
 * cache.
 *
 * A record may have blocks that are there already, or that another load brings: the store reads
 * those into scratch memory. Records are read from the first one on, so that what has come when one
 * fails is a prefix; those behind it are not read any more.
 *
 * A state is the last record of its prefix. Its load ends behind those of the KV, also those of
 * other asks: the cache drops a state whose KV it does not have.
 */
#include "spill/load/spill_load.h"

#include <string.h>

static int32_t *blocks_of(const kvp_spill *spill, const struct kvpi_spill_ask *ask, uint32_t group,
                          uint32_t entry)
{
    return ask->blocks + (size_t)group * spill->max_entries + entry;
}

static uint8_t *whole_of(const kvp_spill *spill, const struct kvpi_spill_ask *ask, uint32_t group,
                         uint32_t entry)
{
    return ask->whole + (size_t)group * spill->max_entries + entry;
}

/* The entry that the first piece of a record is. */
static uint32_t first_entry(const kvp_spill *spill, uint32_t group, uint32_t record)
{
    return (record + 1) * kvpi_spill_entries(spill, group) - spill->pieces[group];
}

/* Blocks of a record that this ask loads. */
static uint32_t count_to_read(const kvp_spill *spill, const struct kvpi_spill_ask *ask,
                              uint32_t group, uint32_t record)
{
    const int32_t *blocks = blocks_of(spill, ask, group, first_entry(spill, group, record));
    uint32_t n = 0;
    for (uint32_t i = 0; i < spill->pieces[group]; i++) {
        n += blocks[i] != KVP_NULL_BLOCK;
    }
    return n;
}

/* ---------------------------------------------------------------------------------------- begin */

/* Does another ask load some of this one's records? All digests of a prefix stand in the digest of
 * its end: the first record of the other is one of ours, or none is. */
static int is_shared(const struct kvpi_spill_ask *ask, const struct kvpi_spill_ask *other,
                     uint32_t n_records)
{
    return other != ask && other->state == KVPI_ASK_LOADING && other->space == ask->space &&
           other->start < n_records &&
           memcmp(&other->digests[other->start], &ask->digests[other->start], sizeof(kvp_digest)) ==
               0;
}

static int is_any_shared(const kvp_spill *spill, const struct kvpi_spill_ask *ask,
                         uint32_t n_records)
{
    for (uint32_t i = 0; i < spill->n_queue; i++) {
        if (is_shared(ask, &spill->asks[spill->queue[i]], n_records)) {
            return 1;
        }
    }
    return 0;
}

/* Is there a host slot for a state, if one is loaded? */
static int has_slot(const kvp_spill *spill)
{
    kvp_state_stats stats = {0};
    return !kvpi_spill_has_states(spill) ||
           (kvp_cache_state_stats_get(spill->config.cache, &stats) == KVP_OK &&
            stats.host_free_slots > 0);
}

/* Is there room for the loads? Asking the cache would evict, and a load that finds no room for the
 * next group would have evicted for nothing. */
static int has_room(const kvp_spill *spill, const struct kvpi_spill_ask *ask, uint32_t n_tokens)
{
    kvp_stats stats = {0};
    /* Units that were hit have nodes, and live at least until this call is over. */
    const uint32_t n_missing = n_tokens > ask->found_tokens ? n_tokens - ask->found_tokens : 0;
    (void)kvp_cache_stats_get(spill->config.cache, &stats);
    return has_slot(spill) &&
           stats.host_lent_blocks + ask->need_blocks <= spill->cache.lent_blocks &&
           stats.host_free_blocks + stats.host_cached_blocks >=
               ask->need_blocks + spill->config.spare_blocks &&
           stats.open_loads + spill->n_loads <= spill->cache.max_loads &&
           stats.nodes_total - stats.nodes_used >= n_missing / spill->cache.unit_tokens;
}

static void cancel_loads(kvp_spill *spill, struct kvpi_spill_ask *ask)
{
    while (ask->n_loads > 0) {
        (void)kvp_load_cancel(spill->config.cache, ask->loads[--ask->n_loads].number);
    }
}

static kvp_status begin_range(kvp_spill *spill, struct kvpi_spill_ask *ask, uint32_t group,
                              kvp_range entries, uint32_t *n_elsewhere)
{
    kvp_load load = {.struct_size = sizeof(load),
                     .group = group,
                     .entries = entries,
                     .spare_blocks =
                         kvpi_spill_is_state(spill, group) ? 0 : spill->config.spare_blocks,
                     .blocks = blocks_of(spill, ask, group, entries.begin)};
    if (entries.begin == entries.end) {
        return KVP_OK;
    }
    const kvp_status status = kvp_load_begin(spill->config.cache, ask->ns, &ask->prompt, &load);
    if (status != KVP_OK) {
        return status;
    }
    *n_elsewhere += load.n_elsewhere;
    if (load.number > 0) {
        ask->loads[ask->n_loads++] =
            (struct kvpi_spill_load){.number = load.number, .entries = entries, .group = group};
        ask->after = load.after > ask->after ? load.after : ask->after;
    }
    return KVP_OK;
}

static kvp_status begin_group(kvp_spill *spill, struct kvpi_spill_ask *ask, uint32_t group,
                              uint32_t n_tokens, uint32_t *n_elsewhere)
{
    const struct kvpi_kept kept = kvpi_records_kept(spill, group, n_tokens, ask->n_tokens);
    memset(blocks_of(spill, ask, group, 0), 0, kept.n * sizeof(*ask->blocks));
    memset(whole_of(spill, ask, group, 0), 0, kept.n);
    const kvp_status status =
        begin_range(spill, ask, group, (kvp_range){0, kept.sinks}, n_elsewhere);
    return status != KVP_OK
               ? status
               : begin_range(spill, ask, group, (kvp_range){kept.recent, kept.n}, n_elsewhere);
}

/* The state after the last entry. */
static kvp_status begin_state(kvp_spill *spill, struct kvpi_spill_ask *ask, uint32_t n_tokens,
                              uint32_t *n_elsewhere)
{
    const uint32_t group = spill->cache.n_groups;
    const uint32_t n = n_tokens / kvpi_spill_block_tokens(spill, group);
    memset(blocks_of(spill, ask, group, 0), 0, n * sizeof(*ask->blocks));
    memset(whole_of(spill, ask, group, 0), 0, n);
    return begin_range(spill, ask, group, (kvp_range){n - 1, n}, n_elsewhere);
}

/* The ask waits for the loads of others that bring some of its records. */
static void note_shared(kvp_spill *spill, struct kvpi_spill_ask *ask, uint32_t n_records)
{
    for (uint32_t i = 0; i < spill->n_queue; i++) {
        const uint32_t number = spill->queue[i];
        if (is_shared(ask, &spill->asks[number], n_records)) {
            ask->on[number / 64] |= UINT64_C(1) << number % 64;
            ask->n_shared++;
        }
    }
    spill->stats.shared += ask->n_shared > 0;
}

/* What has to be read. */
static void measure_reads(kvp_spill *spill, struct kvpi_spill_ask *ask, uint32_t n_records)
{
    const uint32_t n_kinds = spill->n_kinds;
    ask->cursor = ask->end = n_records * n_kinds;
    ask->start = n_records;
    for (uint32_t at = ask->end; at > 0; at--) {
        if (count_to_read(spill, ask, (at - 1) % n_kinds, (at - 1) / n_kinds) > 0) {
            ask->left_bytes += spill->record_bytes[(at - 1) % n_kinds];
            ask->cursor = at - 1;
            ask->start = ask->cursor / n_kinds;
        }
    }
    spill->queued_bytes += ask->left_bytes;
}

kvp_status kvpi_reads_begin(kvp_spill *spill, struct kvpi_spill_ask *ask, uint32_t n_tokens)
{
    const uint32_t n_records = n_tokens / spill->record_tokens;
    uint32_t n_elsewhere = 0;
    /* An ask that shares a load may need fewer blocks: it has to be tried. */
    const int may_try = is_any_shared(spill, ask, n_records) || has_room(spill, ask, n_tokens);
    kvp_status status = may_try ? KVP_OK : KVP_E_AGAIN;
    ask->n_loads = 0;
    ask->after = ask->left_bytes = 0;
    for (uint32_t g = 0; g < spill->cache.n_groups && status == KVP_OK; g++) {
        status = begin_group(spill, ask, g, n_tokens, &n_elsewhere);
    }
    if (status == KVP_OK && kvpi_spill_has_states(spill)) {
        status = begin_state(spill, ask, n_tokens, &n_elsewhere);
    }
    if (status != KVP_OK) {
        cancel_loads(spill, ask);
        return status == KVP_E_NO_BLOCKS ? KVP_E_AGAIN : status;
    }
    measure_reads(spill, ask, n_records);
    if (n_elsewhere > 0) {
        note_shared(spill, ask, n_records);
    }
    ask->state = KVPI_ASK_LOADING;
    return KVP_OK;
}

/* ----------------------------------------------------------------------------------------- gets */

static uint32_t take_scratch(kvp_spill *spill)
{
    for (uint32_t i = 0; i < spill->config.n_scratch; i++) {
        if (!spill->scratch_used[i]) {
            spill->scratch_used[i] = 1;
            return i;
        }
    }
    return KVPI_SPILL_NONE;
}

static struct kvpi_spill_get *take_get(kvp_spill *spill, uint64_t n_bytes)
{
    if (spill->n_gets > 0 && spill->get_bytes + n_bytes > spill->config.get_bytes) {
        return NULL;
    }
    for (uint32_t i = 0; i < spill->config.max_gets; i++) {
        if (spill->gets[i].ask == KVPI_SPILL_NONE) {
            return &spill->gets[i];
        }
    }
    return NULL;
}

static void free_get(kvp_spill *spill, struct kvpi_spill_get *get)
{
    if (get->scratch != KVPI_SPILL_NONE) {
        spill->scratch_used[get->scratch] = 0;
    }
    get->tag = 0;
    get->ask = KVPI_SPILL_NONE;
}

/* Where the blocks of the record go. */
static void fill_addresses(const kvp_spill *spill, const struct kvpi_spill_ask *ask,
                           struct kvpi_spill_get *get)
{
    const int32_t *blocks =
        blocks_of(spill, ask, get->group, first_entry(spill, get->group, get->record));
    const uint32_t n_pieces = spill->config.take != NULL ? 1 : spill->pieces[get->group];
    for (uint32_t i = 0; i < n_pieces; i++) {
        get->addresses[i] = spill->config.take == NULL && blocks[i] != KVP_NULL_BLOCK
                                ? kvpi_records_address(spill, get->group, blocks[i])
                                : spill->scratch + (size_t)get->scratch * spill->scratch_bytes +
                                      (size_t)i * spill->config.block_bytes[get->group];
    }
}

/* An engine whose blocks have no addresses takes the bytes. 0: it refuses them. */
static int give_bytes(const kvp_spill *spill, const struct kvpi_spill_ask *ask,
                      const struct kvpi_spill_get *get)
{
    const uint32_t entry = first_entry(spill, get->group, get->record);
    const uint32_t begin = get->record * spill->record_tokens;
    const kvp_spill_record taken = {.tokens = {begin, begin + spill->record_tokens},
                                    .group = get->group,
                                    .bytes = get->addresses[0],
                                    .blocks = blocks_of(spill, ask, get->group, entry)};
    return spill->config.take == NULL || ask->is_void ||
           spill->config.take(spill->config.engine, &taken);
}

static kvp_status find_parent(kvp_spill *spill, const struct kvpi_spill_ask *ask,
                              struct kvpi_spill_get *get)
{
    const uint32_t group = kvpi_records_before(spill, get->group, get->record);
    const uint32_t record = get->record - (group == get->group);
    return group == KVPI_SPILL_NONE
               ? KVP_OK
               : kvpi_records_key(spill, &ask->digests[record], group, &get->identity.parent);
}

static kvp_status submit_get(kvp_spill *spill, struct kvpi_spill_ask *ask,
                             struct kvpi_spill_get *get)
{
    const struct kvpi_spill_space *space = kvpi_epochs_serial(spill, ask->space);
    const uint32_t begin = get->record * spill->record_tokens;
    get->identity = kvpi_records_identity(spill, space, get->group, get->record);
    get->identity.digest = ask->digests[get->record];
    get->identity.tokens = ask->tokens + begin;
    get->identity.keys = get->keys;
    get->identity.n_keys = kvpi_records_keys(ask->prompt.keys, ask->prompt.n_keys, begin,
                                             begin + spill->record_tokens, get->keys);
    const kvp_status status = find_parent(spill, ask, get);
    if (status != KVP_OK) {
        return status;
    }
    fill_addresses(spill, ask, get);
    get->tag = kvpi_spill_tag(spill, KVPI_OP_GET, (uint32_t)(get - spill->gets));
    return kvp_store_get(spill->config.store, &get->identity, get->addresses, get->tag);
}

/* The record at the ask's cursor. KVP_E_AGAIN: not now. */
static kvp_status read_record(kvp_spill *spill, struct kvpi_spill_ask *ask, uint32_t n_to_read)
{
    const uint32_t group = ask->cursor % spill->n_kinds;
    const uint32_t n_pieces = spill->pieces[group];
    struct kvpi_spill_get *get = take_get(spill, spill->record_bytes[group]);
    if (get == NULL) {
        return KVP_E_AGAIN;
    }
    const int needs_scratch = n_to_read < n_pieces || spill->config.take != NULL;
    get->scratch = needs_scratch ? take_scratch(spill) : KVPI_SPILL_NONE;
    if (needs_scratch && get->scratch == KVPI_SPILL_NONE) {
        return KVP_E_AGAIN;
    }
    get->group = group;
    get->record = ask->cursor / spill->n_kinds;
    const kvp_status status = submit_get(spill, ask, get);
    if (status != KVP_OK) {
        free_get(spill, get);
        return status;
    }
    get->ask = (uint32_t)(ask - spill->asks);
    ask->n_gets_out++;
    spill->n_gets++;
    spill->n_ops++;
    spill->get_bytes += spill->record_bytes[group];
    return KVP_OK;
}

static void fail_reads(kvp_spill *spill, struct kvpi_spill_ask *ask)
{
    ask->cursor = ask->end;
    spill->stats.load_failed++;
}

/* 0: no more gets can be submitted now. */
static int read_ask(kvp_spill *spill, struct kvpi_spill_ask *ask)
{
    if (ask->after > spill->plans_done) {
        return 1;
    }
    while (ask->cursor < ask->end) {
        const uint32_t n =
            count_to_read(spill, ask, ask->cursor % spill->n_kinds, ask->cursor / spill->n_kinds);
        const kvp_status status = n == 0 ? KVP_OK : read_record(spill, ask, n);
        if (status == KVP_E_AGAIN) {
            return 0;
        }
        if (status == KVP_OK) {
            ask->cursor++;
        } else {
            fail_reads(spill, ask);
        }
    }
    return 1;
}

static void note_whole(kvp_spill *spill, struct kvpi_spill_ask *ask,
                       const struct kvpi_spill_get *get)
{
    const uint32_t entry = first_entry(spill, get->group, get->record);
    const uint32_t n_pieces = spill->pieces[get->group];
    const uint32_t n = count_to_read(spill, ask, get->group, get->record);
    const uint64_t n_bytes = spill->record_bytes[get->group];
    memset(whole_of(spill, ask, get->group, entry), 1, n_pieces);
    spill->stats.loaded++;
    spill->stats.states_loaded += (uint64_t)kvpi_spill_is_state(spill, get->group);
    spill->stats.loaded_bytes += n_bytes;
    spill->stats.scratch_bytes += (n_pieces - n) * n_bytes / n_pieces;
    spill->meter.bytes += n_bytes;
}

void kvpi_reads_got(kvp_spill *spill, uint32_t number, uint32_t result)
{
    struct kvpi_spill_get *get = &spill->gets[number];
    struct kvpi_spill_ask *ask = &spill->asks[get->ask];
    const uint64_t n_bytes = spill->record_bytes[get->group];
    if (result == KVP_STORE_OK && give_bytes(spill, ask, get)) {
        note_whole(spill, ask, get);
    } else {
        fail_reads(spill, ask);
        kvpi_records_forget_from(spill, ask, get->group, get->record);
    }
    ask->left_bytes -= n_bytes;
    spill->queued_bytes -= n_bytes;
    spill->get_bytes -= n_bytes;
    ask->n_gets_out--;
    spill->n_gets--;
    free_get(spill, get);
}

/* ------------------------------------------------------------------------------------------ end */

static void end_load(kvp_spill *spill, const struct kvpi_spill_ask *ask,
                     const struct kvpi_spill_load *load)
{
    uint32_t n = 0;
    for (uint32_t i = load->entries.begin; i < load->entries.end; i++) {
        if (*blocks_of(spill, ask, load->group, i) != KVP_NULL_BLOCK) {
            spill->whole[n++] = !ask->is_void && *whole_of(spill, ask, load->group, i);
        }
    }
    const kvp_status status =
        ask->after > spill->plans_done
            ? kvp_load_cancel(spill->config.cache, load->number)
            : kvp_load_done(spill->config.cache, load->number, spill->whole, n, NULL);
    spill->is_broken |= status != KVP_OK;
}

static void end_reads(kvp_spill *spill, struct kvpi_spill_ask *ask)
{
    for (uint32_t i = 0; i < ask->n_loads; i++) {
        end_load(spill, ask, &ask->loads[i]);
    }
    ask->n_loads = 0;
    spill->queued_bytes -= ask->left_bytes;
    ask->left_bytes = 0;
    kvpi_answers_loaded(spill, ask);
}

/* All that it wanted has come, or not. */
static void answer_loaded(kvp_spill *spill, struct kvpi_spill_ask *ask)
{
    spill->n_looks--;
    kvpi_answers_give(spill, ask, KVP_SPILL_LOADED);
}

void kvpi_reads_work(kvp_spill *spill)
{
    int may_read = 1;
    for (uint32_t i = 0; i < spill->n_queue; i++) {
        struct kvpi_spill_ask *ask = &spill->asks[spill->queue[i]];
        if (ask->state != KVPI_ASK_LOADING) {
            continue;
        }
        if (!ask->waits && !kvpi_answers_is_shared(spill, ask)) {
            ask->cursor = ask->end;
        }
        if (may_read) {
            may_read = read_ask(spill, ask);
        }
        if (ask->cursor == ask->end && ask->n_gets_out == 0 &&
            (ask->n_shared == 0 || !kvpi_spill_has_states(spill))) {
            end_reads(spill, ask);
        }
    }
    for (uint32_t i = 0; i < spill->n_queue && spill->n_looks > 0; i++) {
        struct kvpi_spill_ask *ask = &spill->asks[spill->queue[i]];
        if (ask->state == KVPI_ASK_LOADED && ask->waits && ask->n_shared == 0) {
            answer_loaded(spill, ask);
        }
    }
}

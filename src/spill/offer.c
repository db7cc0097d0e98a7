/* offer: which records of a prefix are going to be written.
 *
 * Everything is decided when the sequence is reported, because its rows say where the blocks are.
 * What is on the device is mirrored at once; the put waits for the copy.
 */
#include "spill/spill_state.h"

#include <string.h>

/* One layer group of a prefix that is offered. */
struct offer {
    struct kvpi_spill_prefix *prefix;
    uint32_t group;    /* of the records */
    uint32_t kv_group; /* of the rows: of a state another one */
    uint32_t n_records;
    uint32_t next;     /* gives: records before this one are done */
    kvp_digest before; /* key of the record before; zero */
};

/* What a record is known by. */
struct known {
    kvp_digest digest; /* of its last block */
    kvp_digest key;
};

static const int32_t *row_of(const kvp_spill *spill, const struct offer *offer, uint32_t record)
{
    return spill->rows + (size_t)offer->kv_group * spill->max_entries +
           (size_t)record * kvpi_spill_entries(spill, offer->kv_group);
}

/* --------------------------------------------------------------------------------------- blocks */

/* Is the block's content that of the entry, all of it, and can a match find it? */
static int is_entry(const kvp_spill *spill, const struct offer *offer, int32_t block,
                    uint32_t entry, kvp_block_origin *out)
{
    return kvp_block_origin_get(spill->config.cache, offer->prefix->tier, block, out) == KVP_OK &&
           out->ns.bits == offer->prefix->space->ns.bits && out->group == offer->kv_group &&
           out->n_tokens == (entry + 1) * kvpi_spill_block_tokens(spill, offer->kv_group);
}

/* Host blocks with the content of these blocks. A mirrored block of an overlapped step has no
 * content yet; its generation is that of the content to come. */
static int mirror_record(kvp_spill *spill, const int32_t *blocks, struct kvpi_spill_put *put)
{
    kvp_mirrored mirrored;
    if (kvp_cache_mirror(spill->config.cache, blocks, put->n_blocks, spill->config.spare_blocks,
                         put->blocks, &mirrored) != KVP_OK) {
        return 0;
    }
    for (uint32_t i = 0; i < put->n_blocks; i++) {
        if (put->blocks[i] == KVP_NULL_BLOCK) {
            return 0;
        }
    }
    return 1;
}

/* What the put's blocks are when it is made. */
static int note_content(kvp_spill *spill, struct kvpi_spill_put *put)
{
    put->after = 0;
    for (uint32_t i = 0; i < put->n_blocks; i++) {
        kvp_block_origin origin;
        if (kvp_block_origin_get(spill->config.cache, KVP_HOST, put->blocks[i], &origin) !=
            KVP_OK) {
            return 0;
        }
        put->generations[i] = origin.generation;
        put->after = origin.after > put->after ? origin.after : put->after;
    }
    return 1;
}

/* The engine gives the bytes: they are the record, whatever its blocks become. */
static int take_bytes(kvp_spill *spill, const struct offer *offer, uint32_t record,
                      struct kvpi_spill_put *put)
{
    const uint32_t begin = record * spill->record_tokens;
    const kvp_spill_record given = {.seq = offer->prefix->seq,
                                    .tokens = {begin, begin + spill->record_tokens},
                                    .group = offer->group,
                                    .bytes = put->given};
    put->addresses[0] = put->given;
    put->after = put->n_blocks = 0;
    return spill->config.give(spill->config.engine, &given);
}

/* Find the host blocks of the put's last entries, up to the end of a record, or copy to some. */
static int find_blocks(kvp_spill *spill, const struct offer *offer, uint32_t record,
                       struct kvpi_spill_put *put)
{
    const uint32_t n_entries = kvpi_spill_entries(spill, offer->kv_group);
    const uint32_t first = (record + 1) * n_entries - put->n_blocks;
    const int32_t *row = row_of(spill, offer, record) + n_entries - put->n_blocks;
    for (uint32_t i = 0; i < put->n_blocks; i++) {
        kvp_block_origin origin;
        if (row[i] == KVP_NULL_BLOCK || !is_entry(spill, offer, row[i], first + i, &origin)) {
            return 0;
        }
        if (put->given == NULL) {
            put->hashes[i] = origin.hash;
        }
        if (offer->prefix->is_unproven &&
            !kvpi_prove_block(spill, offer->prefix, row[i], origin.n_tokens)) {
            return 0;
        }
    }
    if (put->given != NULL) {
        return take_bytes(spill, offer, record, put);
    }
    if (put->n_blocks > spill->cache.lent_blocks) {
        return 0; /* it would wait for ever, and the others behind it */
    }
    if (offer->prefix->tier == KVP_HOST) {
        memcpy(put->blocks, row, put->n_blocks * sizeof(*row));
    } else if (!mirror_record(spill, row, put)) {
        return 0;
    }
    return note_content(spill, put);
}

/* ------------------------------------------------------------------------------------- a record */

/* Tokens and keys are copied: the record outlives the sequence. */
static int copy_tokens(kvp_spill *spill, const struct offer *offer, uint32_t record,
                       struct kvpi_spill_put *put)
{
    const uint32_t begin = record * spill->record_tokens;
    if (record < offer->prefix->base) {
        return kvp_seq_tokens(spill->config.cache, offer->prefix->seq, begin, spill->record_tokens,
                              put->tokens) == KVP_OK;
    }
    memcpy(put->tokens, spill->tokens + begin, spill->record_tokens * sizeof(*put->tokens));
    return 1;
}

static int has_parent(const kvp_spill *spill, const struct offer *offer, uint32_t record)
{
    return kvpi_records_before(spill, offer->group, record) != KVPI_SPILL_NONE;
}

static void fill_identity(kvp_spill *spill, const struct offer *offer, uint32_t record,
                          const kvp_digest *digest, struct kvpi_spill_put *put)
{
    const uint32_t begin = record * spill->record_tokens;
    put->identity = kvpi_records_identity(spill, offer->prefix->space, offer->group, record);
    put->identity.digest = *digest;
    if (has_parent(spill, offer, record)) {
        put->identity.parent = offer->before;
    }
    put->identity.tokens = put->tokens;
    put->identity.keys = put->keys;
    put->identity.n_keys = kvpi_records_keys(spill->keys, offer->prefix->n_keys, begin,
                                             begin + spill->record_tokens, put->keys);
    kvpi_records_keep_keys(put->keys, put->identity.n_keys, put->key_bytes);
}

static void add_put(kvp_spill *spill, const struct offer *offer, uint32_t record,
                    const struct known *known, struct kvpi_spill_put *put)
{
    fill_identity(spill, offer, record, &known->digest, put);
    struct kvpi_spill_put *parent =
        has_parent(spill, offer, record) ? kvpi_puts_find(spill, &offer->before) : NULL;
    put->parent = parent == NULL ? KVPI_SPILL_NONE : (uint32_t)(parent - spill->puts);
    put->parent_order = parent == NULL ? 0 : parent->order;
    put->n_children = 0;
    if (parent != NULL) {
        parent->n_children++;
    }
    put->state = KVPI_PUT_COPYING;
    put->is_doomed = 0;
    put->order = ++spill->order;
    put->space = offer->prefix->space->serial;
    put->bytes = spill->record_bytes[offer->group];
    put->key = known->key;
    kvpi_rates_put(spill, put->bytes);
    kvpi_puts_add(spill, put);
}

/* A put of this offer, of a record or of a state: the blocks that are lent for it. */
static struct kvpi_spill_put *begin_put(kvp_spill *spill, const struct offer *offer)
{
    struct kvpi_spill_put *put = kvpi_puts_free(spill);
    if (put != NULL) {
        put->slot = (struct kvpi_spill_slot){.place = KVPI_SPILL_NONE, .is_told = 1};
        put->kv_group = offer->kv_group;
        put->n_blocks = spill->pieces[offer->group];
    }
    return put;
}

/* NULL: the record is on its way. Else what counts those that are left out: this one and, in a
 * group without a window, those behind it. */
static uint64_t *offer_record(kvp_spill *spill, const struct offer *offer, uint32_t record,
                              const struct known *known)
{
    struct kvpi_spill_put *put = begin_put(spill, offer);
    if (put == NULL) {
        return &spill->stats.no_place;
    }
    if (!kvpi_rates_may_put(spill, spill->record_bytes[offer->group])) {
        return &spill->stats.over_budget;
    }
    if (!find_blocks(spill, offer, record, put) || !copy_tokens(spill, offer, record, put)) {
        return &spill->stats.no_block;
    }
    add_put(spill, offer, record, known, put);
    return NULL;
}

int kvpi_offer_has_place(kvp_spill *spill)
{
    uint64_t least = spill->record_bytes[0];
    for (uint32_t g = 1; g < spill->n_kinds; g++) {
        least = spill->record_bytes[g] < least ? spill->record_bytes[g] : least;
    }
    return kvpi_puts_free(spill) != NULL && kvpi_rates_may_put(spill, least);
}

/* -------------------------------------------------------------------------------------- a group */

/* Digests of records from `base` on, and marks of them. */
static kvp_status make_digests(kvp_spill *spill, struct kvpi_spill_prefix *prefix)
{
    const uint32_t begin = prefix->base * spill->record_tokens;
    const kvp_hash_input input = {.unit_tokens = spill->part_tokens,
                                  .first_position = begin,
                                  .n_tokens = prefix->n_tokens - begin,
                                  .tokens = spill->tokens + begin,
                                  .keys = prefix->n_keys > 0 ? spill->keys : NULL,
                                  .n_keys = prefix->n_keys};
    const struct kvpi_spill_mark *mark =
        prefix->base > 0 ? kvpi_records_recall(spill, prefix, prefix->base - 1) : NULL;
    const kvp_status status = kvp_digest_blocks(
        spill->digester, &input, mark != NULL ? &mark->digest : &prefix->space->root,
        spill->digests + (size_t)prefix->base * spill->n_parts);
    for (uint32_t r = prefix->base; r < prefix->n_tokens / spill->record_tokens && status == KVP_OK;
         r++) {
        kvpi_records_mark(spill, prefix, r, kvpi_spill_digest(spill, r), 0);
    }
    return status;
}

/* A mark is missing: all tokens are read, and all digests made. */
static kvp_status begin_anew(kvp_spill *spill, struct kvpi_spill_prefix *prefix)
{
    prefix->base = 0;
    const kvp_status status =
        kvp_seq_tokens(spill->config.cache, prefix->seq, 0, prefix->n_tokens, spill->tokens);
    return status == KVP_OK ? make_digests(spill, prefix) : status;
}

static kvp_status know(kvp_spill *spill, const struct offer *offer, uint32_t record,
                       struct known *out)
{
    const struct kvpi_spill_mark *mark = NULL;
    if (record < offer->prefix->base) {
        mark = kvpi_records_recall(spill, offer->prefix, record);
        const kvp_status status = mark != NULL ? KVP_OK : begin_anew(spill, offer->prefix);
        if (status != KVP_OK) {
            return status;
        }
    }
    out->digest = mark != NULL ? mark->digest : *kvpi_spill_digest(spill, record);
    return kvpi_records_key(spill, &out->digest, offer->group, &out->key);
}

/* Is the record stored, or on its way? */
static int is_done(kvp_spill *spill, const kvp_digest *key)
{
    return kvpi_records_is_known(spill, key) || kvpi_puts_find(spill, key) != NULL;
}

/* Is the record before this one done? */
static kvp_status ask_before(kvp_spill *spill, struct offer *offer, uint32_t record, int *out_is)
{
    struct known known;
    const kvp_status status = know(spill, offer, record - 1, &known);
    *out_is = status == KVP_OK && is_done(spill, &known.key);
    if (*out_is) {
        offer->before = known.key;
        offer->next = record;
    }
    return status;
}

/* Go behind the last record that is done: where the last offer came to, if that still holds. */
static kvp_status find_first(kvp_spill *spill, struct offer *offer)
{
    int is_found = 0;
    kvp_status status = KVP_OK;
    if (offer->prefix->next > 0) {
        status = ask_before(spill, offer, offer->prefix->next, &is_found);
    }
    for (uint32_t r = offer->n_records; r > 0 && !is_found && status == KVP_OK; r--) {
        status = ask_before(spill, offer, r, &is_found);
    }
    return status;
}

static kvp_status offer_chain(kvp_spill *spill, struct offer *offer)
{
    kvp_status status = find_first(spill, offer);
    while (offer->next < offer->n_records && status == KVP_OK) {
        struct known known;
        status = know(spill, offer, offer->next, &known);
        if (status != KVP_OK) {
            break;
        }
        if (!is_done(spill, &known.key)) {
            uint64_t *left_out = offer_record(spill, offer, offer->next, &known);
            const uint32_t n = left_out != NULL ? offer->n_records - offer->next : 1;
            spill->stats.offered += n;
            if (left_out != NULL) {
                *left_out += n;
                break;
            }
        }
        offer->before = known.key;
        offer->next++;
    }
    return status;
}

static int has_entries(const kvp_spill *spill, const struct offer *offer, uint32_t record)
{
    const int32_t *end = row_of(spill, offer, record + 1);
    for (uint32_t i = 1; i <= spill->pieces[offer->group]; i++) {
        if (end[-(int32_t)i] == KVP_NULL_BLOCK) {
            return 0;
        }
    }
    return 1;
}

/* Of a group with a window: what is in the row, each record for itself. */
static kvp_status offer_window(kvp_spill *spill, struct offer *offer)
{
    kvp_status status = KVP_OK;
    offer->next = offer->n_records;
    for (uint32_t r = offer->prefix->next; r < offer->n_records && status == KVP_OK; r++) {
        struct known known;
        if (!has_entries(spill, offer, r)) {
            continue;
        }
        status = know(spill, offer, r, &known);
        if (status == KVP_OK && !is_done(spill, &known.key)) {
            uint64_t *left_out = offer_record(spill, offer, r, &known);
            if (left_out != NULL) {
                (*left_out)++;
                offer->next = kvpi_spill_min(offer->next, r);
            }
            spill->stats.offered++;
        }
    }
    return status;
}

kvp_status kvpi_offer_prefix(kvp_spill *spill, struct kvpi_spill_prefix *prefix)
{
    const uint32_t n_records = prefix->n_tokens / spill->record_tokens;
    uint32_t next = n_records;
    kvp_status status = prefix->base < n_records ? make_digests(spill, prefix) : KVP_OK;
    for (uint32_t g = 0; g < spill->cache.n_groups && status == KVP_OK; g++) {
        struct offer offer = {.prefix = prefix, .group = g, .kv_group = g, .n_records = n_records};
        status = kvpi_records_is_full(spill, g) ? offer_chain(spill, &offer)
                                                : offer_window(spill, &offer);
        next = kvpi_spill_min(next, offer.next);
    }
    struct kvpi_spill_mark *mark =
        status == KVP_OK ? kvpi_records_recall(spill, prefix, n_records - 1) : NULL;
    if (mark != NULL) {
        mark->next = next;
    }
    return status;
}

/* ------------------------------------------------------------------------------------- a state */

/* As offer_record. KVP_E_DROPPED: there is no state. */
static kvp_status offer_slot(kvp_spill *spill, const struct offer *offer, const struct known *known,
                             uint64_t **out_left_out)
{
    const uint32_t record = offer->n_records - 1;
    struct kvpi_spill_put *put = begin_put(spill, offer);
    *out_left_out = NULL;
    if (put == NULL) {
        *out_left_out = &spill->stats.no_place;
        return KVP_OK;
    }
    if (!kvpi_rates_may_put(spill, spill->record_bytes[offer->group])) {
        *out_left_out = &spill->stats.over_budget;
        return KVP_OK;
    }
    const kvp_status status = kvpi_slots_hold(spill, offer->prefix, put);
    if (status == KVP_E_DROPPED) {
        return status;
    }
    if (status != KVP_OK) { /* what others of these states hold, they will release */
        *out_left_out = spill->n_slots > 0 ? &spill->stats.no_place : &spill->stats.no_block;
    } else if (!find_blocks(spill, offer, record, put) || !copy_tokens(spill, offer, record, put)) {
        kvpi_slots_end(spill, put);
        *out_left_out = &spill->stats.no_block;
    } else {
        add_put(spill, offer, record, known, put);
    }
    return KVP_OK;
}

/* Is the record before the state done? A state without it is of no use. */
static kvp_status ask_kv(kvp_spill *spill, struct offer *offer, const struct known *known,
                         int *out_is)
{
    *out_is = 1;
    if (kvpi_records_before(spill, offer->group, 0) == KVPI_SPILL_NONE) {
        return KVP_OK;
    }
    const kvp_status status =
        kvpi_records_key(spill, &known->digest, offer->kv_group, &offer->before);
    *out_is = status == KVP_OK && is_done(spill, &offer->before);
    return status;
}

kvp_status kvpi_offer_state(kvp_spill *spill, struct kvpi_spill_prefix *prefix)
{
    const uint32_t before = kvpi_records_before(spill, spill->cache.n_groups, 0);
    struct offer offer = {.prefix = prefix,
                          .group = spill->cache.n_groups,
                          .kv_group = before != KVPI_SPILL_NONE ? before : 0,
                          .n_records = prefix->n_tokens / spill->record_tokens};
    struct known known;
    uint64_t *left_out = &spill->stats.no_block;
    int is_kv_done = 0;
    kvp_status status = know(spill, &offer, offer.n_records - 1, &known);
    if (status != KVP_OK || is_done(spill, &known.key)) {
        return status;
    }
    status = ask_kv(spill, &offer, &known, &is_kv_done);
    if (status == KVP_OK && is_kv_done) {
        status = offer_slot(spill, &offer, &known, &left_out);
    }
    if (status != KVP_OK) {
        return status == KVP_E_DROPPED ? KVP_OK : status;
    }
    spill->stats.offered++;
    if (left_out != NULL) {
        (*left_out)++;
        spill->stats.states_left_out++;
    }
    return KVP_OK;
}

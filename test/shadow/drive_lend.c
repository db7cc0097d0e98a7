/* What a store does beside the engine (lend.h): it writes into host blocks of loads, and reads host
 * blocks that are lent to it, at any time, between any two moves of the device.
 *
 * A load's blocks are poisoned when it may begin to write, and then written slot by slot: with what
 * is right for their entries, or, now and then, with something else; that one is not reported
 * whole. A lent block is compared with what it is said to hold, when it is lent and until it is
 * given back. What loads brought is audited and read like everything else.
 */
#include "drive.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint32_t below(drive *d, uint64_t n)
{
    return n == 0 ? 0 : random_below(&d->random, n);
}

static bool percent(drive *d, uint32_t p)
{
    return random_percent(&d->random, p);
}

static void write_slot(drive *d, int32_t block, uint32_t offset, shadow_slot what)
{
    for (uint32_t m = 0; m < SHADOW_MEMORIES; m++) {
        shadow_slot *slot = shadow_at(d->w->memory, m, KVP_HOST, block, offset);
        if (slot != NULL)
            *slot = what;
    }
}

/* Plans that the cache knows to be over. The ordered engine reports them. */
static uint64_t plans_over(drive *d)
{
    if (!d->w->overlapped && percent(d, 70)) {
        const kvp_status status = kvp_plan_done(d->w->cache, watch_plans_run(d->w));
        (void)drive_went(d, "kvp_plan_done", status, NULL, 0);
    }
    return watch_stats(d->w).plans_done;
}

/* ---------------------------------------------------------------------------------------- loads */

static void end_load(drive_load *load)
{
    free(load->blocks);
    free(load->tags);
    free(load->written);
    free(load->spoilt);
    memset(load, 0, sizeof(*load));
}

void drive_lend_forget(drive *d)
{
    for (uint32_t i = 0; i < DRIVE_LOADS; i++)
        end_load(&d->loads[i]);
    d->n_lent = 0;
}

/* The line of the prompt: its units are known from now on. */
static void begin_line(drive *d, const kvp_prompt *prompt, uint32_t space, truth_line *line)
{
    truth_line_begin(&d->w->truth, line, drive_space_name(space), d->w->config.max_seq_tokens);
    for (uint32_t i = 0; i < prompt->n_keys; i++) {
        truth_key *key = &line->keys[line->n_keys++];
        *key = (truth_key){.type = prompt->keys[i].type,
                           .begin = prompt->keys[i].begin,
                           .end = prompt->keys[i].end,
                           .n_bytes = prompt->keys[i].n_bytes};
        if (key->n_bytes > 0)
            memcpy(key->bytes, prompt->keys[i].bytes, key->n_bytes);
    }
    for (uint32_t p = 0; p < prompt->n_tokens; p++)
        truth_line_add(&d->w->truth, line, prompt->tokens[p]);
}

static void note_load(drive *d, const kvp_load *begun, const truth_line *line)
{
    const uint32_t S = watch_block_tokens(d->w, begun->group);
    drive_load *load = d->loads;
    uint32_t n = 0;
    while (load->number != 0)
        load++;
    *load = (drive_load){.number = begun->number, .after = begun->after, .n = begun->n_blocks};
    load->group = begun->group;
    load->blocks = random_allocate(load->n, sizeof(*load->blocks));
    load->written = random_allocate(load->n, sizeof(*load->written));
    load->spoilt = random_allocate(load->n, sizeof(*load->spoilt));
    load->tags = random_allocate((size_t)load->n * S, sizeof(*load->tags));
    for (uint32_t i = begun->entries.begin; i < begun->entries.end; i++) {
        const int32_t block = begun->blocks[i - begun->entries.begin];
        if (block == KVP_NULL_BLOCK)
            continue;
        for (uint32_t k = 0; n < load->n && k < S; k++)
            load->tags[n * S + k] = truth_in_group(line->tags[i * S + k], load->group);
        if (n < load->n) {
            load->blocks[n] = block;
            watch_forget_drop(d->w, block, load->after);
        }
        n++;
    }
    if (n != load->n)
        verdict_bad(d->verdict, "a load of %" PRIu32 " blocks gave %" PRIu32, load->n, n);
}

static void begin_load(drive *d)
{
    kvp_key keys[TRUTH_KEYS];
    kvp_prompt prompt;
    uint32_t space;
    truth_line line;
    if (!drive_draw_prompt(d, &prompt, keys, &space))
        return;
    uint64_t random = d->random; /* no draw: seeds that have found something stay */
    const uint32_t group = random_below(&random, d->w->config.n_groups);
    const uint32_t S = watch_block_tokens(d->w, group);
    if (prompt.n_tokens < S)
        return;
    const uint32_t end = 1 + below(d, prompt.n_tokens / S);
    const uint32_t begin = percent(d, 60) ? 0 : below(d, end);
    int32_t *blocks = random_allocate(end - begin, sizeof(*blocks));
    (void)below(d, d->w->config.n_groups);
    kvp_load load = {.struct_size = sizeof(load),
                     .group = group,
                     .entries = {begin, end},
                     .spare_blocks = percent(d, 20) ? below(d, 4) : 0,
                     .blocks = blocks};
    const kvp_status also[] = {KVP_E_NO_BLOCKS, KVP_E_NEVER, KVP_E_TOO_LONG, KVP_E_AGAIN,
                               KVP_E_STATE};
    const kvp_status status = kvp_load_begin(d->w->cache, d->spaces[space], &prompt, &load);
    if (drive_went(d, "kvp_load_begin", status, also, 5) && load.number != 0) {
        begin_line(d, &prompt, space, &line);
        note_load(d, &load, &line);
        truth_line_end(&line);
        d->seen->points[COVER_loads_waited] += load.after > 0;
        drive_trace(d, "load %" PRIu64 ": %" PRIu32 " blocks after plan %" PRIu64, load.number,
                    load.n_blocks, load.after);
    }
    free(blocks);
}

/* Some slots of one block. */
static void write_load(drive *d, drive_load *load)
{
    const uint32_t S = watch_block_tokens(d->w, load->group);
    const uint32_t i = below(d, load->n);
    if (!load->is_started) {
        for (uint32_t k = 0; k < load->n * S; k++)
            write_slot(d, load->blocks[k / S], k % S, (shadow_slot){.tag = SHADOW_POISON});
        load->is_started = true;
    }
    if (percent(d, 6)) {
        load->spoilt[i] = true;
        write_slot(d, load->blocks[i], below(d, S), (shadow_slot){.tag = SHADOW_POISON});
        return;
    }
    for (uint32_t n = 1 + below(d, S); n > 0 && load->written[i] < S; n--) {
        const uint32_t k = load->written[i]++;
        write_slot(
            d, load->blocks[i], k,
            (shadow_slot){.tag = load->tags[i * S + k], .position = k, .group = load->group});
    }
}

static void finish_load(drive *d, drive_load *load)
{
    uint8_t *whole = random_allocate(load->n, sizeof(*whole));
    kvp_loaded loaded = {0};
    const bool torn = d->options.planted == PLANT_TORN_LOAD && percent(d, 50);
    for (uint32_t i = 0; i < load->n; i++) {
        const bool is =
            load->written[i] == watch_block_tokens(d->w, load->group) && !load->spoilt[i];
        whole[i] = is || torn;
        d->w->device.n_planted += torn && !is;
        d->seen->points[COVER_loads_torn] += !whole[i];
    }
    const kvp_status status = kvp_load_done(d->w->cache, load->number, whole, load->n, &loaded);
    const kvp_status also[] = {KVP_E_IN_FLIGHT};
    const bool may_wait = !load->is_started || d->options.planted == PLANT_EARLY_LOAD;
    if (drive_went(d, "kvp_load_done", status, also, may_wait)) {
        drive_trace(d, "load %" PRIu64 " done: %" PRIu32 " cached, %" PRIu32 " dropped",
                    load->number, loaded.cached, loaded.dropped);
        d->seen->points[COVER_loaded] += loaded.cached;
        d->seen->points[COVER_loads_dropped] += loaded.dropped;
        end_load(load);
    }
    free(whole);
}

static bool is_written(const drive *d, const drive_load *load)
{
    for (uint32_t i = 0; i < load->n; i++)
        if (load->written[i] < watch_block_tokens(d->w, load->group))
            return false;
    return true;
}

static void go_on_with_load(drive *d, drive_load *load)
{
    const bool early = d->options.planted == PLANT_EARLY_LOAD && load->after > 0;
    const bool may_write = load->after <= plans_over(d);
    if (percent(d, 3)) {
        const kvp_status status = kvp_load_cancel(d->w->cache, load->number);
        if (drive_went(d, "kvp_load_cancel", status, NULL, 0))
            end_load(load);
    } else if (!may_write && percent(d, 10)) {
        finish_load(d, load); /* refused */
    } else if (may_write && (is_written(d, load) || percent(d, 5))) {
        finish_load(d, load);
    } else if (may_write || early) {
        d->w->device.n_planted += !may_write;
        write_load(d, load);
    }
}

/* ----------------------------------------------------------------------------------------- lent */

/* Does the block hold, slot by slot, what its origin says? */
static void check_lent(drive *d, const drive_lent *lent)
{
    const uint32_t U = d->w->config.unit_tokens;
    const truth_unit *unit = truth_find(&d->w->truth, &lent->origin.hash);
    for (uint32_t end = lent->origin.n_tokens - lent->origin.first; end > 0; end -= U) {
        for (uint32_t i = 0; i < U && unit != NULL; i++) {
            const shadow_slot *slot =
                shadow_at(d->w->memory, SHADOW_IN_ORDER, KVP_HOST, lent->block, end - U + i);
            const uint64_t tag =
                truth_in_group(truth_tags(&d->w->truth, unit)[i], lent->origin.group);
            if (slot->tag == SHADOW_GARBAGE && !d->w->overlapped)
                return; /* it will be invalidated */
            if (slot->tag != tag) {
                char text[128];
                shadow_describe(slot, text, sizeof(text));
                verdict_bad(d->verdict, "lent host block %" PRId32 ", slot %" PRIu32 " holds %s",
                            lent->block, end - U + i, text);
                return;
            }
        }
        unit = unit == NULL || unit->parent == UINT32_MAX ? NULL : &d->w->truth.units[unit->parent];
    }
}

/* Tokens and keys of a block's prefix must give its hash: so a record's identity can be made of
 * them. */
static void check_identity(drive *d, const drive_lent *lent)
{
    const kvp_block_origin *origin = &lent->origin;
    kvp_key keys[TRUTH_KEYS];
    kvp_hash_input input = {.unit_tokens = d->w->config.unit_tokens, .tokens = d->tokens};
    if (kvp_block_prefix(d->w->cache, KVP_HOST, lent->block, d->tokens, d->w->config.max_seq_tokens,
                         &input.n_tokens) != KVP_OK ||
        kvp_block_keys(d->w->cache, KVP_HOST, lent->block, keys, TRUTH_KEYS, &input.n_keys) !=
            KVP_OK ||
        input.n_tokens != origin->n_tokens || input.n_keys != origin->n_keys) {
        verdict_bad(d->verdict, "host block %" PRId32 ": its prefix cannot be read", lent->block);
        return;
    }
    input.keys = input.n_keys > 0 ? keys : NULL;
    const uint32_t n_units = input.n_tokens / input.unit_tokens;
    const uint32_t before = origin->first / input.unit_tokens;
    if (kvp_hash_units(&input, &origin->root, d->hashes) != KVP_OK ||
        memcmp(&d->hashes[n_units - 1], &origin->hash, sizeof(kvp_hash)) != 0 ||
        memcmp(before == 0 ? &origin->root : &d->hashes[before - 1], &origin->parent,
               sizeof(kvp_hash)) != 0)
        verdict_bad(d->verdict, "host block %" PRId32 ": its prefix has another hash", lent->block);
    d->seen->points[COVER_lent_with_keys] += input.n_keys > 0;
}

static void lend_block(drive *d)
{
    kvp_cold_cursor cursor = {0};
    kvp_cold cold[4];
    drive_lent *lent = &d->lent[d->n_lent];
    uint32_t n = 0;
    if (d->n_lent == DRIVE_LENT ||
        kvp_cache_cold_end(d->w->cache, KVP_HOST, &cursor, cold, 4, &n) != KVP_OK || n == 0)
        return;
    lent->block = percent(d, 70) ? cold[below(d, n)].block
                                 : (int32_t)(1 + below(d, d->w->config.host_blocks - 1));
    if (kvp_block_origin_get(d->w->cache, KVP_HOST, lent->block, &lent->origin) != KVP_OK)
        verdict_bad(d->verdict, "kvp_block_origin_get failed");
    const kvp_status also[] = {KVP_E_STATE, KVP_E_AGAIN, KVP_E_IN_FLIGHT};
    const kvp_status status = kvp_cache_lend(d->w->cache, &lent->block, 1);
    if (!drive_went(d, "kvp_cache_lend", status, also, 3)) {
        if (status == KVP_E_IN_FLIGHT && lent->origin.written)
            verdict_bad(d->verdict, "host block %" PRId32 " is written, and is not", lent->block);
        return;
    }
    drive_trace(d, "lent h%" PRId32, lent->block);
    d->seen->points[COVER_lent]++;
    check_lent(d, lent);
    check_identity(d, lent);
    d->n_lent++;
}

static void return_block(drive *d)
{
    const uint32_t i = below(d, d->n_lent);
    kvp_block_origin now = {0};
    if (d->n_lent == 0)
        return;
    if (kvp_block_origin_get(d->w->cache, KVP_HOST, d->lent[i].block, &now) != KVP_OK)
        verdict_bad(d->verdict, "kvp_block_origin_get failed");
    if (now.generation == d->lent[i].origin.generation)
        check_lent(d, &d->lent[i]);
    d->seen->points[COVER_lent_and_lost] += now.generation != d->lent[i].origin.generation;
    if (percent(d, 60)) {
        const kvp_status status = kvp_cache_give_back(d->w->cache, &d->lent[i].block, 1);
        (void)drive_went(d, "kvp_cache_give_back", status, NULL, 0);
        d->lent[i] = d->lent[--d->n_lent];
    }
}

static void mirror_blocks(drive *d)
{
    int32_t blocks[4], host[4];
    kvp_mirrored mirrored = {0};
    for (uint32_t i = 0; i < 4; i++)
        blocks[i] = (int32_t)(1 + below(d, d->w->config.n_blocks - 1));
    const kvp_status status = kvp_cache_mirror(d->w->cache, blocks, 1 + below(d, 4),
                                               percent(d, 30) ? below(d, 4) : 0, host, &mirrored);
    (void)drive_went(d, "kvp_cache_mirror", status, NULL, 0);
    d->seen->points[COVER_mirrored] += mirrored.copied;
}

/* Blocks of either tier, held or not. */
void drive_drop_op(drive *d)
{
    const uint32_t tier = d->w->config.host_blocks > 0 && percent(d, 50) ? KVP_HOST : KVP_DEVICE;
    const uint32_t n = tier == KVP_HOST ? d->w->config.host_blocks : d->w->config.n_blocks;
    int32_t blocks[4];
    uint32_t n_dropped = 0;
    for (uint32_t i = 0; i < 4; i++)
        blocks[i] = (int32_t)(1 + below(d, n - 1));
    drive_trace(d, "drop %s%" PRId32 " and 3 more", tier == KVP_HOST ? "h" : "d", blocks[0]);
    const kvp_status status = kvp_cache_drop(d->w->cache, tier, blocks, 4, &n_dropped);
    (void)drive_went(d, "kvp_cache_drop", status, NULL, 0);
    d->seen->points[COVER_dropped] += n_dropped;
}

void drive_reclaim_op(drive *d)
{
    kvp_stats stats;
    uint32_t n_reclaimed = 0;
    (void)kvp_cache_stats_get(d->w->cache, &stats);
    const uint32_t n = (uint32_t)stats.free_blocks + below(d, 4);
    drive_trace(d, "reclaim %" PRIu32, n);
    const kvp_status status = kvp_cache_reclaim(d->w->cache, n, &n_reclaimed);
    (void)drive_went(d, "kvp_cache_reclaim", status, NULL, 0);
    d->seen->points[COVER_reclaimed] += n_reclaimed;
}

void drive_lend_op(drive *d)
{
    const uint32_t i = below(d, DRIVE_LOADS);
    if (d->w->config.host_blocks > 0 && percent(d, 12)) {
        mirror_blocks(d);
        return;
    }
    if (d->w->config.max_loads == 0)
        return;
    if (d->loads[i].number != 0)
        go_on_with_load(d, &d->loads[i]);
    else if (percent(d, 25))
        percent(d, 50) ? lend_block(d) : return_block(d);
    else
        begin_load(d);
}

/* host: see host.h. */
#include "host.h"
#include "keepers.h"

#include <kvpager/drop.h>

#include <llama.h>
#include <stdlib.h>
#include <string.h>

void kvpi_host_end(kvpi_host *host)
{
    for (uint32_t i = 0; host->stretches != NULL && i < host->n_stretches; i++)
        kvpi_state_free(&host->stretches[i].bytes);
    free(host->stretches);
    free(host->places);
    free(host->items);
    free(host->order);
    free(host->on_device);
    free(host->on_host);
}

kvp_status kvpi_host_init(kvpi_host *host, kvpi_ids *ids, const kvpi_host_sizes *sizes)
{
    host->ids = ids;
    host->host_blocks = sizes->host_blocks;
    host->most_blocks = sizes->most_blocks;
    host->n_stretches = sizes->host_blocks + sizes->max_copies; /* a plan's items have them, too */
    host->stretches = calloc(host->n_stretches, sizeof *host->stretches);
    host->places = calloc(sizes->host_blocks, sizeof *host->places);
    host->items = calloc(sizes->max_copies, sizeof *host->items);
    host->order = calloc(sizes->max_copies, sizeof *host->order);
    host->on_device = calloc(ids->pool_blocks, sizeof *host->on_device);
    host->on_host = calloc(sizes->host_blocks, sizeof *host->on_host);
    if (host->stretches == NULL || host->places == NULL || host->items == NULL ||
        host->order == NULL || host->on_device == NULL || host->on_host == NULL)
        return KVP_E_NO_MEMORY;
    for (uint32_t i = 0; i < host->n_stretches; i++)
        host->stretches[i].next = i + 1 < host->n_stretches ? i + 1 : KVPI_NO_STRETCH;
    for (uint32_t block = 0; block < host->host_blocks; block++)
        host->places[block].stretch = KVPI_NO_STRETCH;
    return KVP_OK;
}

/* ----------------------------------------------------------------------------------- stretches */

static void hold(kvpi_host *host, uint32_t stretch)
{
    host->stretches[stretch].n_refs++;
}

static void release(kvpi_host *host, uint32_t stretch)
{
    kvpi_stretch *s = &host->stretches[stretch];
    if (--s->n_refs > 0)
        return;
    kvpi_state_free(&s->bytes);
    s->next = host->free_stretch;
    host->free_stretch = stretch;
}

/* What the place has is replaced next. */
static void leave_stretch(kvpi_host *host, const kvpi_host_place *place)
{
    if (place->stretch != KVPI_NO_STRETCH)
        release(host, place->stretch);
}

/* A new stretch, held once. */
static uint32_t take_stretch(kvpi_host *host)
{
    const uint32_t stretch = host->free_stretch;
    kvpi_stretch *s = &host->stretches[stretch];
    host->free_stretch = s->next;
    memset(s, 0, sizeof *s);
    s->n_refs = 1;
    return stretch;
}

/* -------------------------------------------------------------------- 1: who gets which content */

/* Cells of a device block, as they are before the plan. 0: there are none. */
static int find_cells(const kvpi_host *host, int32_t block, kvpi_item *item)
{
    const kvpi_ids *ids = host->ids;
    const kvpi_place *place = &ids->places[block];
    if (place->id == KVPI_NO_ID || kvpi_ids_row(ids, place->id)[place->idx] != block)
        return 0;
    item->id = place->id;
    item->idx = place->idx;
    return 1;
}

static int find_content(kvpi_host *host, const kvp_copy *copy, uint32_t i)
{
    kvpi_item *item = &host->items[i];
    const int from_host = copy->src_tier == KVP_HOST;
    const uint32_t writer =
        from_host ? host->on_host[copy->src_block] : host->on_device[copy->src_block];
    *item = (kvpi_item){.root = i,
                        .id = KVPI_NO_ID,
                        .stretch = KVPI_NO_STRETCH,
                        .n_tokens = copy->n_tokens,
                        .was_host = (uint32_t)from_host};
    if (writer > 0) {
        item->root = host->items[writer - 1].root;
        host->items[item->root].n_followers++;
        return 1;
    }
    if (!from_host) /* copies on write need no cells: ids.c */
        return find_cells(host, copy->src_block, item) || copy->dst_tier == KVP_DEVICE;
    const kvpi_host_place *place = &host->places[copy->src_block];
    if (place->stretch == KVPI_NO_STRETCH)
        return 0;
    item->stretch = place->stretch;
    item->idx = place->idx;
    hold(host, place->stretch);
    return 1;
}

static kvp_status find_contents(kvpi_host *host, const kvp_copy *copies, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const kvp_copy *copy = &copies[i];
        if (!find_content(host, copy, i))
            return KVP_E_CORRUPT;
        if (copy->dst_tier == KVP_HOST)
            host->on_host[copy->dst_block] = i + 1;
        else
            host->on_device[copy->dst_block] = i + 1;
    }
    return KVP_OK;
}

/* --------------------------------------------------------------------- 2: what goes to the host */

/* Items in `order` by where their content is: the id, or the stretch, and the block index. */
static int is_before(const kvpi_host *host, uint32_t a, uint32_t b)
{
    const kvpi_item *x = &host->items[host->items[a].root], *y = &host->items[host->items[b].root];
    if (x->id != y->id)
        return x->id < y->id;
    if (x->id == KVPI_NO_ID && x->stretch != y->stretch)
        return x->stretch < y->stretch;
    return x->idx != y->idx ? x->idx < y->idx : a < b;
}

static void sift(kvpi_host *host, uint32_t from, uint32_t n)
{
    uint32_t *order = host->order;
    for (uint32_t child; (child = 2 * from + 1) < n; from = child) {
        child += child + 1 < n && is_before(host, order[child], order[child + 1]);
        if (!is_before(host, order[from], order[child]))
            return;
        const uint32_t other = order[from];
        order[from] = order[child];
        order[child] = other;
    }
}

static void sort(kvpi_host *host, uint32_t n)
{
    uint32_t *order = host->order;
    for (uint32_t i = n / 2; i > 0; i--)
        sift(host, i - 1, n);
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t last = order[i - 1];
        order[i - 1] = order[0];
        order[0] = last;
        sift(host, 0, i - 1);
    }
}

/* Length of the stretch that begins at `order[at]`. */
static uint32_t count_neighbours(const kvpi_host *host, uint32_t at, uint32_t n)
{
    uint32_t length = 1;
    while (at + length < n && length < host->most_blocks) {
        const kvpi_item *last = &host->items[host->order[at + length - 1]];
        const kvpi_item *next = &host->items[host->order[at + length]];
        if (next->id != last->id || next->idx != last->idx + 1 ||
            last->n_tokens != host->ids->block_tokens)
            break;
        length++;
    }
    return length;
}

static kvp_status read_stretch(kvpi_host *host, const uint32_t *order, uint32_t length)
{
    kvpi_ids *ids = host->ids;
    const kvpi_item *first = &host->items[order[0]], *last = &host->items[order[length - 1]];
    const uint32_t begin = first->idx * ids->block_tokens;
    const uint32_t stretch = take_stretch(host);
    kvpi_stretch *s = &host->stretches[stretch];
    s->first_idx = first->idx;
    s->n_blocks = length;
    s->n_tokens = (length - 1) * ids->block_tokens + last->n_tokens;
    const kvp_status status = kvpi_state_get(ids, first->id, begin, begin + s->n_tokens, &s->bytes);
    for (uint32_t i = 0; i < length && status == KVP_OK; i++) {
        host->items[order[i]].stretch = stretch;
        hold(host, stretch);
    }
    release(host, stretch);
    host->stretches_out++;
    return status;
}

/* Is the item's content cached on the host, and nowhere else needed from there? Then it may as well
 * be dropped. */
static int may_drop(const kvpi_host *host, const kvp_copy *copies, uint32_t i)
{
    kvp_block_info info;
    return host->items[i].n_followers == 0 && copies[i].dst_tier == KVP_HOST &&
           host->on_host[copies[i].dst_block] == i + 1 &&
           kvp_block_info_get(host->ids->cache, 0, KVP_HOST, copies[i].dst_block, &info) ==
               KVP_OK &&
           info.state == KVP_BLOCK_CACHED;
}

static int drop_slow(kvpi_host *host, const kvp_copy *copies, const uint32_t *order,
                     uint32_t length)
{
    for (uint32_t i = 0; i < length; i++)
        if (!may_drop(host, copies, order[i]))
            return 0;
    if (kvpi_rates_ask(&host->rates, length))
        return 0;
    for (uint32_t i = 0; i < length; i++)
        if (kvp_cache_drop(host->ids->cache, KVP_HOST, &copies[order[i]].dst_block, 1, NULL) ==
            KVP_OK)
            host->slow_blocks++;
    return 1;
}

static kvp_status read_cells(kvpi_host *host, const kvp_copy *copies, uint32_t n)
{
    uint32_t n_read = 0;
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t root = host->items[i].root;
        if (copies[i].dst_tier == KVP_HOST && host->items[root].id != KVPI_NO_ID &&
            !host->items[root].is_read) {
            host->items[root].is_read = 1;
            host->order[n_read++] = root;
        }
    }
    sort(host, n_read);
    for (uint32_t at = 0; at < n_read && status == KVP_OK;) {
        const uint32_t length = count_neighbours(host, at, n_read);
        if (!drop_slow(host, copies, &host->order[at], length))
            status = read_stretch(host, &host->order[at], length);
        at += length;
    }
    return status;
}

/* Host blocks get their places. */
static kvp_status set_places(kvpi_host *host, const kvp_copy *copies, uint32_t n)
{
    kvp_block_info info;
    for (uint32_t i = 0; i < n; i++) {
        const kvpi_item *root = &host->items[host->items[i].root];
        const int32_t block = copies[i].dst_block;
        if (copies[i].dst_tier != KVP_HOST || host->on_host[block] != i + 1)
            continue;
        kvpi_host_place *place = &host->places[block];
        leave_stretch(host, place);
        place->stretch = root->stretch;
        place->idx = root->idx;
        if (kvp_block_info_get(host->ids->cache, 0, KVP_HOST, block, &info) != KVP_OK)
            return KVP_E_CORRUPT;
        place->generation = info.generation;
        if (place->stretch != KVPI_NO_STRETCH)
            hold(host, place->stretch);
    }
    return KVP_OK;
}

/* --------------------------------------------------------------------------- 4: what comes back */

/* Cells of what the block had before go first: they are the ones that come back in other ids. */
static kvp_status empty_block(kvpi_host *host, int32_t block)
{
    kvpi_ids *ids = host->ids;
    const kvpi_place *place = &ids->places[block];
    if (place->id == KVPI_NO_ID || kvpi_ids_row(ids, place->id)[place->idx] != block)
        return KVP_OK;
    if (ids->ids[place->id].state != KVPI_ID_KEEPER)
        return KVP_E_CORRUPT;
    kvpi_keepers_remove(ids, place->id, place->idx);
    return KVP_OK;
}

static kvp_status put_stretch(kvpi_host *host, const kvp_copy *copies, const uint32_t *order,
                              uint32_t length)
{
    kvpi_ids *ids = host->ids;
    const uint32_t stretch = host->items[host->items[order[0]].root].stretch;
    const kvpi_stretch *s = &host->stretches[stretch];
    const uint32_t begin = s->first_idx * ids->block_tokens;
    const uint64_t start = kvpi_rates_now(&host->rates);
    if (!kvpi_state_open(ids, s->bytes.data, s->bytes.n, begin, begin + s->n_tokens))
        return KVP_E_CORRUPT;
    for (uint32_t i = 0; i < length; i++) {
        const kvpi_item *item = &host->items[order[i]];
        const kvpi_kept kept = {copies[order[i]].dst_block, host->items[item->root].idx,
                                item->n_tokens};
        if (!kvpi_keepers_put(ids, kvpi_state_spare(ids), &kept))
            return KVP_E_CORRUPT;
    }
    kvpi_state_close(ids);
    llama_synchronize(ids->moves.context);
    kvpi_rates_brought(&host->rates, start, s->n_blocks, length * ids->block_tokens);
    host->stretches_in++;
    return KVP_OK;
}

/* A device block that was freed again, before the plan was taken, gets nothing. */
static uint32_t list_returning(kvpi_host *host, const kvp_copy *copies, uint32_t n)
{
    kvp_block_info info;
    uint32_t n_back = 0;
    for (uint32_t i = 0; i < n; i++)
        if (copies[i].dst_tier == KVP_DEVICE && host->items[i].was_host &&
            host->on_device[copies[i].dst_block] == i + 1 &&
            kvp_block_info_get(host->ids->cache, 0, KVP_DEVICE, copies[i].dst_block, &info) ==
                KVP_OK &&
            info.state != KVP_BLOCK_FREE)
            host->order[n_back++] = i;
    return n_back;
}

static kvp_status put_cells(kvpi_host *host, const kvp_copy *copies, uint32_t n_back)
{
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; i < n_back && status == KVP_OK; i++)
        status = empty_block(host, copies[host->order[i]].dst_block);
    /* Contents are in stretches now; ids are what they were read from. */
    for (uint32_t i = 0; i < n_back; i++)
        host->items[host->items[host->order[i]].root].id = KVPI_NO_ID;
    sort(host, n_back);
    for (uint32_t at = 0; at < n_back && status == KVP_OK;) {
        const uint32_t stretch = host->items[host->items[host->order[at]].root].stretch;
        uint32_t length = 1;
        while (at + length < n_back &&
               host->items[host->items[host->order[at + length]].root].stretch == stretch)
            length++;
        status = put_stretch(host, copies, &host->order[at], length);
        at += length;
    }
    return status;
}

/* What came back too slowly is not wanted a second time. */
static void forget_slow(kvpi_host *host)
{
    kvp_block_info info;
    for (int32_t block = 1; block < (int32_t)host->host_blocks; block++) {
        kvpi_host_place *place = &host->places[block];
        if (place->stretch == KVPI_NO_STRETCH ||
            !kvpi_rates_is_slow(&host->rates, host->stretches[place->stretch].n_blocks) ||
            kvp_block_info_get(host->ids->cache, 0, KVP_HOST, block, &info) != KVP_OK ||
            info.state == KVP_BLOCK_HELD)
            continue;
        if (info.state == KVP_BLOCK_CACHED &&
            kvp_cache_drop(host->ids->cache, KVP_HOST, &block, 1, NULL) == KVP_OK)
            host->slow_blocks++;
        release(host, place->stretch);
        place->stretch = KVPI_NO_STRETCH;
    }
}

static kvp_status bring_back(kvpi_host *host, const kvp_copy *copies, uint32_t n)
{
    kvpi_ids *ids = host->ids;
    kvp_status status = KVP_OK;
    if (list_returning(host, copies, n) == 0)
        return KVP_OK;
    status = kvpi_keepers_retire(ids);
    if (status == KVP_OK)
        status = kvpi_ids_refresh(ids);
    if (status == KVP_OK)
        status = kvpi_keepers_limit(ids);
    if (status == KVP_OK) /* listed again: a keeper that was emptied may have freed one */
        status = put_cells(host, copies, list_returning(host, copies, n));
    if (status == KVP_OK)
        forget_slow(host);
    return status;
}

/* --------------------------------------------------------------------------------------- a plan */

static void end_plan(kvpi_host *host, const kvp_copy *copies, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (host->items[i].root == i && host->items[i].stretch != KVPI_NO_STRETCH)
            release(host, host->items[i].stretch);
        if (copies[i].dst_tier == KVP_HOST)
            host->on_host[copies[i].dst_block] = 0;
        else
            host->on_device[copies[i].dst_block] = 0;
    }
}

kvp_status kvpi_host_run(kvpi_host *host, const kvp_copy *copies, uint32_t n_copies)
{
    if (host->host_blocks == 0 || n_copies == 0)
        return KVP_OK;
    kvp_status status = find_contents(host, copies, n_copies);
    if (status == KVP_OK)
        status = read_cells(host, copies, n_copies);
    if (status == KVP_OK)
        status = set_places(host, copies, n_copies);
    if (status == KVP_OK)
        status = bring_back(host, copies, n_copies);
    if (status == KVP_OK)
        end_plan(host, copies, n_copies);
    return status;
}

/* ------------------------------------------------------------------------------ from a disk */

uint32_t kvpi_host_adopt(kvpi_host *host, const kvpi_host_record *record, const int32_t *blocks)
{
    kvp_block_info info;
    uint32_t n = 0;
    const uint32_t stretch = take_stretch(host);
    kvpi_stretch *s = &host->stretches[stretch];
    s->bytes = record->bytes;
    s->first_idx = record->first_idx;
    s->n_blocks = record->n_blocks;
    s->n_tokens = record->n_blocks * host->ids->block_tokens;
    for (uint32_t i = 0; i < record->n_blocks; i++) {
        if (blocks[i] == KVP_NULL_BLOCK ||
            kvp_block_info_get(host->ids->cache, 0, KVP_HOST, blocks[i], &info) != KVP_OK)
            continue;
        kvpi_host_place *place = &host->places[blocks[i]];
        leave_stretch(host, place);
        *place = (kvpi_host_place){stretch, record->first_idx + i, info.generation};
        hold(host, stretch);
        n++;
    }
    release(host, stretch);
    return n;
}

/* ---------------------------------------------------------------------------- what can be asked */

void kvpi_host_count(const kvpi_host *host, uint64_t *out_bytes, uint64_t *out_dead)
{
    *out_bytes = *out_dead = 0;
    for (uint32_t i = 0; i < host->n_stretches; i++) {
        const kvpi_stretch *s = &host->stretches[i];
        if (s->n_refs == 0)
            continue;
        *out_bytes += s->bytes.n;
        if (s->n_refs < s->n_blocks)
            *out_dead += s->bytes.n / s->n_blocks * (s->n_blocks - s->n_refs);
    }
}

static uint32_t count_places(const kvpi_host *host, uint32_t stretch)
{
    uint32_t n = 0;
    for (uint32_t block = 0; block < host->host_blocks; block++)
        n += host->places[block].stretch == stretch;
    return n;
}

const char *kvpi_host_audit(const kvpi_host *host, uint64_t *out_object)
{
    kvp_block_info info;
    kvp_stats stats;
    if (host->host_blocks > 0 && kvp_cache_stats_get(host->ids->cache, &stats) != KVP_OK)
        return "the cache has no statistics";
    for (uint32_t block = 1; block < host->host_blocks; block++) {
        const kvpi_host_place *place = &host->places[block];
        *out_object = block;
        if (kvp_block_info_get(host->ids->cache, 0, KVP_HOST, (int32_t)block, &info) != KVP_OK)
            return "the cache does not have a host block";
        /* Until it is loaded, a block is held without sealed content. */
        if (info.state != KVP_BLOCK_FREE && (info.sealed_units > 0 || stats.open_loads == 0) &&
            (place->stretch == KVPI_NO_STRETCH || place->generation != info.generation))
            return "a host block has content, and no stretch has it";
    }
    for (uint32_t i = 0; i < host->n_stretches; i++) {
        *out_object = i;
        if (host->stretches[i].n_refs > 0 && host->stretches[i].n_refs != count_places(host, i))
            return "a stretch is held by others than host blocks";
    }
    return NULL;
}

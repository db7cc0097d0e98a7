/* disk_gets: waiting requests are held while records of their prompts are read.
 *
 *   looking ---- the store has none ---------------------------------> released
 *      |  \----- another ask reads the first of them ---> behind -----> looking again
 *      v
 *   reading ---- host blocks are taken, each record has bytes of its own
 *      v
 *    read ------ the plan before is over: the cache gets what is whole, from the first record up to
 *                the first that is not, and each record becomes a stretch -----> released */
#include "disk.h"

#include "../keepers.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, AT_ONCE = 64 };

/* ------------------------------------------------------------------------------------- the end */

static void count(uint64_t *outcome, kvpi_disk *disk, kvpi_ask *ask)
{
    (*outcome)++;
    ask->state = KVPI_ASK_FREE;
    disk->n_asking--;
}

/* The request goes on. */
static void release_request(kvp_llama *engine, kvpi_disk *disk, kvpi_ask *ask, uint64_t *outcome)
{
    if (ask->is_late)
        outcome = &disk->stats.late;
    else if (kvp_sched_release(engine->sched, ask->request) != KVP_OK)
        outcome = &disk->stats.aborted;
    count(outcome, disk, ask);
}

void kvpi_disk_gets_expired(kvpi_disk *disk, const kvp_sched_expired *expired)
{
    for (uint32_t i = 0; i < expired->n_requests; i++)
        for (uint32_t k = 0; k < disk->n_asks; k++)
            if (disk->asks[k].state != KVPI_ASK_FREE &&
                disk->asks[k].request.bits == expired->requests[i].bits)
                disk->asks[k].is_late = 1;
}

static void free_gets(kvpi_ask *ask)
{
    for (uint32_t i = 0; i < ask->n; i++) {
        free(ask->gets[i].block);
        ask->gets[i].block = NULL;
    }
}

static void set_loading(kvpi_host *host, const kvpi_disk *disk, const kvpi_ask *ask,
                        uint8_t is_loading)
{
    for (uint32_t i = 0; i < ask->n * disk->record_blocks; i++)
        host->loading[ask->blocks[i]] = is_loading; /* that of the null block is not read */
}

/* --------------------------------------------------------------------------------- rates */

/* Reading and putting back together must be faster than computing. */
static void learn_computing(const kvp_llama *engine, kvpi_disk *disk)
{
    enum { LEAST = 1 };
    const double computing = engine->host.rates.computing.ns;
    const double back = kvpi_rates_back_ns(&engine->host.rates, disk->record_blocks);
    disk->rates.computing.ns = computing == 0             ? 0
                               : computing > back + LEAST ? computing - back
                                                          : LEAST;
}

/* ------------------------------------------------------------------------------------ looking */

/* Does another ask look for, or read, the first record that this one lacks? */
static uint32_t find_before(const kvpi_disk *disk, const kvpi_ask *ask)
{
    const kvp_digest *key = &ask->keys[ask->first];
    for (uint32_t i = 0; i < disk->n_asks; i++) {
        const kvpi_ask *other = &disk->asks[i];
        if (other != ask && other->state != KVPI_ASK_FREE && other->state != KVPI_ASK_BEHIND &&
            other->first <= ask->first && ask->first < other->first + other->n &&
            memcmp(&other->keys[ask->first], key, sizeof *key) == 0)
            return i;
    }
    return UINT32_MAX;
}

/* Which records of the prompt does the cache lack? Those are n from `first` on. */
static void find_missing(kvp_llama *engine, const kvpi_disk *disk, kvpi_ask *ask)
{
    kvp_open_info info;
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = ask->tokens, .n_tokens = ask->n_tokens};
    const uint32_t n = ask->n_tokens / disk->record_tokens;
    ask->first = ask->n = 0;
    if (kvp_match(engine->cache, ask->ns, &prompt, &info) != KVP_OK)
        return;
    ask->first = info.hit_tokens / disk->record_tokens;
    ask->n = n > ask->first ? n - ask->first : 0;
}

static int look(kvp_llama *engine, kvpi_disk *disk, kvpi_ask *ask)
{
    find_missing(engine, disk, ask);
    if (ask->n == 0)
        return 0;
    ask->behind = find_before(disk, ask);
    if (ask->behind != UINT32_MAX) {
        ask->state = KVPI_ASK_BEHIND;
        return 1;
    }
    if (ask->n > KVP_STORE_KEYS_MAX)
        ask->n = KVP_STORE_KEYS_MAX;
    const uint64_t number = (uint64_t)(ask - disk->asks);
    if (kvp_store_have(disk->store, &ask->keys[ask->first], ask->n, ask->bits,
                       (uint64_t)KVPI_TAG_HAVE << 56 | number << 32) != KVP_OK)
        return 0;
    ask->n_out = 1;
    ask->state = KVPI_ASK_LOOKING;
    return 1;
}

/* --------------------------------------------------------------------------------- reading */

/* 0: nothing of it is to be read. */
static int begin_load(kvp_llama *engine, kvpi_disk *disk, kvpi_ask *ask)
{
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = ask->tokens, .n_tokens = ask->n_tokens};
    kvp_load load = {.struct_size = sizeof load, .blocks = ask->blocks};
    kvp_status status = KVP_E_NO_BLOCKS;
    for (; ask->n > 0; ask->n /= 2) { /* a part, if there is no room for all */
        load.entries = (kvp_range){ask->first * disk->record_blocks,
                                   (ask->first + ask->n) * disk->record_blocks};
        memset(ask->blocks, 0, (size_t)ask->n * disk->record_blocks * sizeof *ask->blocks);
        status = kvp_load_begin(engine->cache, ask->ns, &prompt, &load);
        if (status != KVP_E_NO_BLOCKS && status != KVP_E_NEVER && status != KVP_E_AGAIN)
            break;
    }
    if (status != KVP_OK || load.number == 0)
        return 0;
    ask->load = load.number;
    ask->n_load_blocks = load.n_blocks;
    set_loading(&engine->host, disk, ask, 1);
    return 1;
}

/* A record of which every block is there, or comes otherwise, is not read. */
static int is_wanted(const kvpi_disk *disk, const kvpi_ask *ask, uint32_t record)
{
    const int32_t *blocks = &ask->blocks[record * disk->record_blocks];
    for (uint32_t i = 0; i < disk->record_blocks; i++)
        if (blocks[i] != KVP_NULL_BLOCK)
            return 1;
    return 0;
}

static void prepare_gets(kvpi_disk *disk, kvpi_ask *ask)
{
    const kvpi_space *space = kvpi_disk_names_find(disk, ask->ns);
    for (uint32_t i = 0; i < ask->n; i++) {
        kvpi_get *get = &ask->gets[i];
        const uint32_t number = ask->first + i;
        get->state = is_wanted(disk, ask, i) ? KVPI_GET_LATER : KVPI_GET_GOOD;
        if (get->state == KVPI_GET_GOOD)
            continue;
        get->block = space != NULL ? aligned_alloc(PAGE, disk->block_bytes) : NULL;
        if (get->block == NULL) {
            get->state = KVPI_GET_BAD;
            continue;
        }
        get->identity = kvpi_disk_names_identity(
            disk, space, number, ask->tokens + (size_t)number * disk->record_tokens);
        get->identity.digest = ask->digests[number];
        if (number > 0)
            get->identity.parent = ask->keys[number - 1];
    }
}

/* Submits what the store takes now. */
static void submit_gets(kvpi_disk *disk, kvpi_ask *ask)
{
    const uint64_t number = (uint64_t)(ask - disk->asks);
    for (uint32_t i = 0; i < ask->n; i++) {
        kvpi_get *get = &ask->gets[i];
        if (get->state == KVPI_GET_BAD)
            return; /* what follows is worth nothing */
        if (get->state != KVPI_GET_LATER)
            continue;
        const kvp_status status = kvp_store_get(disk->store, &get->identity, &get->block,
                                                (uint64_t)KVPI_TAG_GET << 56 | number << 32 | i);
        if (status == KVP_E_AGAIN)
            return;
        get->state = status == KVP_OK ? KVPI_GET_OUT : KVPI_GET_BAD;
        ask->n_out += status == KVP_OK;
    }
}

static void start_reading(kvp_llama *engine, kvpi_disk *disk, kvpi_ask *ask)
{
    uint32_t n = 0;
    while (n < ask->n && (ask->bits[n / 64] >> n % 64 & 1) != 0)
        n++;
    ask->n = n;
    if (n == 0) {
        release_request(engine, disk, ask, &disk->stats.nothing);
        return;
    }
    learn_computing(engine, disk);
    if (!kvpi_rates_ask(&disk->rates, n)) {
        release_request(engine, disk, ask, &disk->stats.slow);
        return;
    }
    if (!begin_load(engine, disk, ask)) {
        release_request(engine, disk, ask, &disk->stats.no_room);
        return;
    }
    ask->state = KVPI_ASK_READING;
    prepare_gets(disk, ask);
    submit_gets(disk, ask);
}

void kvpi_disk_gets_looked(kvp_llama *engine, kvpi_disk *disk, uint32_t number, uint32_t result)
{
    kvpi_ask *ask = &disk->asks[number];
    ask->n_out = 0;
    if (result == KVP_STORE_OK)
        start_reading(engine, disk, ask);
    else
        release_request(engine, disk, ask, &disk->stats.failed);
}

void kvpi_disk_gets_ended(kvpi_disk *disk, uint32_t number, uint32_t record, uint32_t result)
{
    kvpi_ask *ask = &disk->asks[number];
    ask->n_out--;
    ask->gets[record].state = result == KVP_STORE_OK ? KVPI_GET_GOOD : KVPI_GET_BAD;
    if (result == KVP_STORE_OK)
        kvpi_disk_names_note(disk, &ask->keys[ask->first + record]);
    else
        kvpi_disk_names_forget(disk, &ask->keys[ask->first + record]);
}

/* ---------------------------------------------------------------------------------- what came */

/* The first record of this process is tried: libllama may have changed in a way that nothing tells.
 */
static int is_taken(kvp_llama *engine, kvpi_disk *disk, const kvpi_ask *ask, uint32_t record)
{
    const uint32_t begin = (ask->first + record) * disk->record_tokens;
    if (disk->was_tried)
        return 1;
    if (!kvpi_state_open(&engine->ids, ask->gets[record].block, disk->state_bytes, begin,
                         begin + disk->record_tokens)) {
        disk->stats.is_off = 1;
        return 0;
    }
    kvpi_state_close(&engine->ids);
    disk->was_tried = 1;
    return 1;
}

/* Records before the first one that is not whole. */
static uint32_t count_whole(kvp_llama *engine, kvpi_disk *disk, const kvpi_ask *ask)
{
    uint32_t n = 0;
    while (n < ask->n && ask->gets[n].state == KVPI_GET_GOOD &&
           (ask->gets[n].block == NULL || is_taken(engine, disk, ask, n)))
        n++;
    return n;
}

/* Which of the load's blocks are whole, in its order. */
static void list_whole(const kvpi_disk *disk, kvpi_ask *ask, uint32_t n_whole)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ask->n * disk->record_blocks; i++)
        if (ask->blocks[i] != KVP_NULL_BLOCK)
            ask->whole[n++] = i < n_whole * disk->record_blocks;
}

/* A whole record's bytes become a stretch of the blocks that the cache took. */
static void place_record(kvp_llama *engine, kvpi_disk *disk, kvpi_ask *ask, uint32_t record)
{
    const kvpi_host_record whole = {.bytes = {.data = ask->gets[record].block,
                                              .n = disk->state_bytes,
                                              .room = disk->block_bytes},
                                    .first_idx = (ask->first + record) * disk->record_blocks,
                                    .n_blocks = disk->record_blocks};
    ask->gets[record].block = NULL;
    const uint32_t n =
        kvpi_host_adopt(&engine->host, &whole, &ask->blocks[record * disk->record_blocks]);
    disk->stats.loaded_tokens += n * engine->ids.block_tokens;
}

/* 0: the plan before the load is not over. */
static int end_load(kvp_llama *engine, kvpi_disk *disk, kvpi_ask *ask)
{
    kvp_loaded loaded;
    const uint32_t n_whole = count_whole(engine, disk, ask);
    list_whole(disk, ask, n_whole);
    const kvp_status status =
        kvp_load_done(engine->cache, ask->load, ask->whole, ask->n_load_blocks, &loaded);
    if (status == KVP_E_IN_FLIGHT)
        return 0;
    set_loading(&engine->host, disk, ask, 0);
    for (uint32_t i = 0; i < n_whole && status == KVP_OK; i++)
        if (ask->gets[i].block != NULL)
            place_record(engine, disk, ask, i);
    if (n_whole > 0) {
        disk->stats.load_ns += kvpi_rates_now(&disk->rates) - ask->begin_ns;
        kvpi_rates_brought(&disk->rates, ask->begin_ns, n_whole, n_whole * disk->record_tokens);
    }
    free_gets(ask);
    release_request(engine, disk, ask, n_whole > 0 ? &disk->stats.loaded : &disk->stats.failed);
    return 1;
}

static int is_held(const kvp_llama *engine, kvp_request request)
{
    kvp_request_info info;
    return kvp_request_info_get(engine->sched, request, &info) == KVP_OK &&
           info.state == KVP_REQUEST_LOADING;
}

static void work_on(kvp_llama *engine, kvpi_disk *disk, kvpi_ask *ask)
{
    if (ask->state == KVPI_ASK_READING) {
        submit_gets(disk, ask);
        if (ask->n_out > 0)
            return;
        ask->state = KVPI_ASK_READ;
    }
    if (ask->state == KVPI_ASK_READ)
        (void)end_load(engine, disk, ask);
    if (ask->state == KVPI_ASK_BEHIND && disk->asks[ask->behind].state == KVPI_ASK_FREE &&
        (!is_held(engine, ask->request) || !look(engine, disk, ask)))
        release_request(engine, disk, ask, &disk->stats.nothing);
}

void kvpi_disk_gets_work(kvp_llama *engine, kvpi_disk *disk)
{
    for (uint32_t i = 0; i < disk->n_asks; i++)
        work_on(engine, disk, &disk->asks[i]);
}

void kvpi_disk_gets_end(kvp_llama *engine, kvpi_disk *disk)
{
    for (uint32_t i = 0; i < disk->n_asks; i++) {
        kvpi_ask *ask = &disk->asks[i];
        if (ask->state == KVPI_ASK_READING || ask->state == KVPI_ASK_READ) {
            (void)kvp_load_cancel(engine->cache, ask->load);
            set_loading(&engine->host, disk, ask, 0);
            free_gets(ask);
        }
        ask->state = KVPI_ASK_FREE;
    }
}

/* ------------------------------------------------------------------------------- who is asked for
 * */

static kvpi_ask *free_ask(kvpi_disk *disk)
{
    for (uint32_t i = 0; i < disk->n_asks; i++)
        if (disk->asks[i].state == KVPI_ASK_FREE)
            return &disk->asks[i];
    return NULL;
}

/* Digests and keys of the prompt's records. */
static int name_records(kvpi_disk *disk, kvpi_ask *ask, const kvpi_space *space)
{
    const kvp_hash_input input = {
        .unit_tokens = disk->record_tokens, .n_tokens = ask->n_tokens, .tokens = ask->tokens};
    const uint32_t n = ask->n_tokens / disk->record_tokens;
    int is_right = kvp_digest_blocks(disk->digester, &input, &space->root, ask->digests) == KVP_OK;
    for (uint32_t i = 0; i < n && is_right; i++)
        is_right = kvpi_disk_names_key(disk, &ask->digests[i], &ask->keys[i]) == KVP_OK;
    return is_right;
}

/* 0: the request is not worth a question. */
static int begin_ask(kvp_llama *engine, kvpi_disk *disk, kvp_request request)
{
    kvp_request_info info;
    kvp_sample_info sample;
    if (kvp_request_info_get(engine->sched, request, &info) != KVP_OK ||
        kvp_request_sample(engine->sched, request, 0, &sample) != KVP_OK ||
        sample.n_tokens < disk->record_tokens || sample.n_tokens > disk->max_seq_tokens)
        return 0;
    const kvpi_space *space = kvpi_disk_names_find(disk, info.ns);
    if (space == NULL)
        return 0;
    kvpi_ask *ask = free_ask(disk);
    if (ask == NULL) {
        disk->stats.busy++;
        return 0;
    }
    const kvp_range range = {0, sample.n_tokens};
    ask->request = request;
    ask->is_late = 0;
    ask->ns = info.ns;
    ask->n_tokens = sample.n_tokens;
    ask->begin_ns = kvpi_rates_now(&disk->rates);
    if (kvp_request_tokens(engine->sched, request, 0, range, ask->tokens) != KVP_OK)
        return 0;
    find_missing(engine, disk, ask);
    if (ask->n == 0 || !name_records(disk, ask, space) ||
        kvp_sched_hold(engine->sched, request, ask->begin_ns + disk->max_wait_ns) != KVP_OK)
        return 0;
    disk->stats.asked++;
    disk->n_asking++;
    if (!look(engine, disk, ask))
        release_request(engine, disk, ask, &disk->stats.failed);
    return 1;
}

void kvpi_disk_gets_ask(kvp_llama *engine, kvpi_disk *disk)
{
    kvp_request requests[AT_ONCE];
    uint32_t n = 0;
    do {
        if (kvp_sched_loadable(engine->sched, AT_ONCE, requests, &n) != KVP_OK)
            return;
        for (uint32_t i = 0; i < n; i++)
            if (!begin_ask(engine, disk, requests[i]))
                (void)kvp_sched_skip_load(engine->sched, requests[i]);
    } while (n > 0);
}

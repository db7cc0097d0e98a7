/* store_file: the back end that keeps records in a directory. Decides by its catalog, lets the
 * engine read and write slots, and writes down in the log what is there.
 *
 *   put    catalog finds a slot -> engine writes header and payload -> log: PUT -> it is there
 *   drop   log: DROP -> the slot is free
 *
 * Killed at any point: what the log says is there, or the header in the slot tells that it is not.
 * After a loss of power too; what was put before the last sync is there. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/file/store_file.h"
#include "store/file/home.h"
#include "store/file/peers.h"
#include "store/file/recover.h"
#include "store/catalog.h"
#include "store/patience.h"

enum {
    ENGINE_THREADS = 4,
    LOG_SPARE = 4,  /* entries more than two for each slot */
    LOG_AHEAD = 64, /* entries that the log grows by while a sync is out */
    LOG_SHARE = 256 /* bytes of both logs that go with a slot */
};

struct file_store {
    const struct kvpi_disk *disk;
    uint64_t (*now)(void *context);
    void *now_context;
    struct kvpi_catalog catalog;
    struct kvpi_home home;
    struct kvpi_log log;
    struct kvpi_log next_log; /* an empty file with room, which the log moves to; file -1: none */
    uint64_t n_compacted;     /* entries of the log when it was rewritten */
    uint32_t n_writing;       /* puts that have begun: each has an entry to come */
    struct kvpi_patience log_patience;
    struct kvpi_slabs slabs;
    struct kvpi_patience slab_patience;
    _Atomic uint64_t full_since_ns; /* the disk has no room for another slot; 0: it may have */
    _Atomic uint64_t was_full_ns;   /* how long that was the last time */
    struct kvpi_peers peers;
    struct kvpi_engine engine;
    int engine_open;
    uint64_t n_damaged;
    uint64_t last_id;
    uint8_t log_buffer[KVPI_LOG_BUFFER];
    uint32_t n_syncing; /* syncs that are out: the log stays where it is */
    int is_recovered;   /* the index has what the log has */
};

static uint64_t now_ns(const struct file_store *store)
{
    return store->now(store->now_context);
}

/* -------------------------------------------------------------------------------------- the log */

static int append(struct file_store *store, struct kvpi_log *log, uint32_t kind, uint32_t entry)
{
    const struct kvpi_entry *e = &store->catalog.index.entries[entry];
    struct kvpi_log_entry line = {.kind = kind,
                                  .slot = entry,
                                  .generation = e->generation,
                                  .parent = e->parent,
                                  .written = e->written};
    if (e->state == KVPI_ENTRY_READY || e->state == KVPI_ENTRY_WRITING)
        line.space = kvpi_index_space(&store->catalog.index, entry);
    if (kvpi_index_parent(&store->catalog.index, entry) != KVPI_INDEX_NONE)
        line.parent_generation = store->catalog.index.entries[e->parent].generation;
    memcpy(line.key, e->key, sizeof line.key);
    return kvpi_log_append(log, &line);
}

static void name_next(const struct file_store *store, char out_path[KVPI_PATH_BYTES])
{
    kvpi_path_join(out_path, store->home.path, "log.new");
}

/* A log with more entries than this is rewritten. */
static uint64_t log_limit(const struct file_store *store, uint32_t n_slots)
{
    return 2 * (n_slots > store->n_compacted ? n_slots : store->n_compacted);
}

/* Set room aside for the log of so many slots and for the one after it: so a full disk stops
 * neither. 0 or an errno. */
static int reserve_logs(struct file_store *store, uint32_t n_slots)
{
    const uint64_t n = log_limit(store, n_slots) + LOG_SPARE;
    const int error = kvpi_log_reserve(&store->log, n);
    if (error)
        return error;
    if (store->next_log.file >= 0)
        return kvpi_log_reserve(&store->next_log, n);
    char path[KVPI_PATH_BYTES];
    name_next(store, path);
    return kvpi_log_prepare(&store->next_log, store->disk, path, n);
}

/* Write a new log in the place of the old one: the generations of slots that have nothing, then
 * what is there, coldest first. 0: that failed, and changed nothing. */
static int compact(struct file_store *store)
{
    char path[KVPI_PATH_BYTES];
    char fresh[KVPI_PATH_BYTES];
    kvpi_path_join(path, store->home.path, "log");
    name_next(store, fresh);
    const uint64_t now = now_ns(store);
    const uint64_t id = now > store->last_id ? now : store->last_id + 1;
    const struct kvpi_disk *disk = store->disk;
    /* Without room that is set aside there may be enough all the same. */
    if (store->next_log.file < 0 && kvpi_log_prepare(&store->next_log, disk, fresh, 0) != 0)
        return 0;
    struct kvpi_log log = store->next_log;
    store->next_log.file = -1;
    int error = kvpi_log_begin(&log, &store->log.form, id);
    const struct kvpi_index *index = &store->catalog.index;
    log.buffer = store->log_buffer;
    for (uint32_t e = 0; e < index->n && !error; e++)
        if (index->entries[e].state != KVPI_ENTRY_READY && index->entries[e].generation > 0)
            error = append(store, &log, KVPI_LOG_DROP, e);
    for (uint32_t e = index->cold; e != KVPI_INDEX_NONE && !error; e = index->entries[e].hotter)
        if (index->entries[e].state == KVPI_ENTRY_READY)
            error = append(store, &log, KVPI_LOG_PUT, e);
    if (!error)
        error = kvpi_log_flush(&log);
    log.buffer = NULL;
    if (!error)
        error = disk->sync(disk->context, log.file);
    if (!error)
        error = disk->rename(disk->context, fresh, path);
    if (error) {
        kvpi_log_close(&log);
        disk->remove(disk->context, fresh, 0);
        return 0;
    }
    (void)kvpi_home_sync(&store->home);
    kvpi_log_close(&store->log);
    store->log = log;
    store->last_id = id;
    store->n_compacted = log.n_entries;
    return 1;
}

/* While a sync is out the log grows, else it moves. On a full disk both may fail, and take long. */
static void make_log_room(struct file_store *store, uint64_t n_entries)
{
    if (!kvpi_patience_due(&store->log_patience, now_ns(store)))
        return;
    int made;
    if (store->n_syncing > 0) {
        made = kvpi_log_reserve(&store->log, n_entries + LOG_AHEAD) == 0;
    } else {
        made = compact(store);
        made &= reserve_logs(store, kvpi_slabs_slots(&store->slabs)) == 0;
    }
    if (made)
        kvpi_patience_end(&store->log_patience);
    else
        kvpi_patience_lose(&store->log_patience, now_ns(store), KVPI_PATIENCE_MAX_NS);
}

/* The log and the next one have room for 2 x 2 x 52 bytes a slot, and a few entries: less than the
 * home counts for them (home.c). */
static void compact_if_long(struct file_store *store)
{
    if (store->n_syncing == 0 &&
        store->log.n_entries > log_limit(store, kvpi_slabs_slots(&store->slabs)))
        make_log_room(store, 0);
}

/* Room for n entries besides those of the puts that have begun. */
static int has_log_room(struct file_store *store, uint64_t n)
{
    n += store->n_writing;
    const struct kvpi_log *log = &store->log;
    if (log->n_reserved < log->n_entries + n)
        make_log_room(store, log->n_entries + n);
    return log->n_reserved >= log->n_entries + n;
}

/* ---------------------------------------------------------------------------------- the catalog */

/* Said in words by describe, once when it begins and once when it ends. */
static void note_full(struct file_store *store, int is_full)
{
    const uint64_t now = now_ns(store);
    const uint64_t since = atomic_load_explicit(&store->full_since_ns, memory_order_relaxed);
    if (is_full == (since != 0))
        return;
    atomic_store_explicit(&store->was_full_ns, is_full || now < since ? 0 : now - since + 1,
                          memory_order_relaxed);
    atomic_store_explicit(&store->full_since_ns, is_full ? now : 0, memory_order_relaxed);
}

/* Up to n slots, with room for their entries: as many as the disk has room for. 0 or an errno. */
static int add_slots(struct file_store *store, uint32_t n)
{
    const uint32_t n_slots = kvpi_slabs_slots(&store->slabs);
    int error = ENOSPC;
    for (; n > 0 && kvpi_disk_is_full(error); n /= 2) {
        error = reserve_logs(store, n_slots + n);
        if (!error)
            error = kvpi_slabs_grow(&store->slabs, n);
    }
    return error;
}

/* 0 or an errno; EFBIG: `size` has no room for so many. */
static int try_to_grow(struct file_store *store, uint32_t n)
{
    const uint32_t n_slabs = store->slabs.n_slabs;
    if (!kvpi_home_begin(&store->home, n * (store->slabs.slot_bytes + LOG_SHARE)))
        return EFBIG;
    const int error = add_slots(store, n);
    kvpi_home_end(&store->home);
    if (store->slabs.n_slabs > n_slabs)
        (void)kvpi_home_sync(&store->home);
    return error;
}

static int grow(void *context)
{
    struct file_store *store = context;
    const struct kvpi_slabs *slabs = &store->slabs;
    uint32_t n = kvpi_slabs_left(slabs);
    if (n == 0 || !kvpi_patience_due(&store->slab_patience, now_ns(store)))
        return 0;
    const uint64_t room = store->disk->room(store->disk->context, store->home.path);
    const uint64_t fits = room / (slabs->slot_bytes + LOG_SHARE);
    n = fits < n ? (uint32_t)fits : n;
    const int error = n > 0 ? try_to_grow(store, n) : ENOSPC;
    note_full(store, kvpi_disk_is_full(error));
    if (error) {
        /* To ask for room costs nothing; to try for it may take long. */
        kvpi_patience_lose(&store->slab_patience, now_ns(store),
                           n > 0 ? KVPI_PATIENCE_MAX_NS : KVPI_PATIENCE_FIRST_NS);
        return 0;
    }
    kvpi_patience_end(&store->slab_patience);
    kvpi_index_free(&store->catalog.index, kvpi_slabs_slots(slabs));
    return store->catalog.index.free != KVPI_INDEX_NONE;
}

/* If this is not written down, a start may find the record again: its slot's header then tells
 * whether it is still there. The last place in the log is left for the put that it goes for. */
static void leave(void *context, uint32_t entry)
{
    struct file_store *store = context;
    if (store->catalog.index.entries[entry].state == KVPI_ENTRY_READY && has_log_room(store, 2))
        (void)append(store, &store->log, KVPI_LOG_DROP, entry);
}

/* The key is a hint: what is behind it proves itself by its digest, as any record does. */
static int outside(void *context, const kvp_identity *identity)
{
    struct file_store *store = context;
    struct kvpi_peers_seen seen;
    kvpi_peers_follow(&store->peers, now_ns(store));
    return kvpi_peers_have(&store->peers, &identity->parent, &seen) &&
           seen.space == identity->space && !kvpi_catalog_too_old(&store->catalog, seen.written);
}

/* ---------------------------------------------------------------------------------- open, close */

static void file_close(void *self)
{
    struct file_store *store = self;
    if (store->engine_open)
        kvpi_engine_close(&store->engine);
    if (store->is_recovered)
        (void)compact(store); /* it takes the spare log, or removes it */
    kvpi_peers_close(&store->peers);
    kvpi_slabs_close(&store->slabs);
    if (store->log.disk)
        kvpi_log_close(&store->log);
    kvpi_home_close(&store->home);
    kvpi_index_close(&store->catalog.index);
    free(store);
}

static kvp_status read_engine(const struct kvpi_backend_config *config, uint32_t *choice,
                              char *out_why, size_t why_bytes)
{
    static const char *const names[] = {"auto", "io_uring", "threads"};
    const char *value = kvpi_url_option(config->url, "engine");
    if (!value)
        return KVP_OK;
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(value, names[i]) == 0) {
            *choice = i;
            return KVP_OK;
        }
    }
    return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                    "engine is \"%s\", expected auto, io_uring or threads", value);
}

static kvp_status read_options(const struct kvpi_backend_config *config, uint64_t *out_size,
                               uint64_t slot_bytes, char *out_why, size_t why_bytes)
{
    kvp_status status = kvpi_url_size(config->url, "size", out_size, out_why, why_bytes);
    if (status != KVP_OK)
        return status;
    if (!*config->url->path)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                        "\"file:\" needs a directory: file:PATH?size=BYTES");
    if (*out_size == 0)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                        "size is missing: how much of the disk may be used, file:%s?size=BYTES",
                        config->url->path);
    const uint64_t n = *out_size / (slot_bytes + 256);
    if (n == 0 || n > INT32_MAX)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                        "size is %llu, expected room for 1 to 2^31-1 records of %llu bytes",
                        (unsigned long long)*out_size, (unsigned long long)slot_bytes);
    return KVP_OK;
}

static kvp_status recover(struct file_store *store, char *out_why, size_t why_bytes)
{
    const int error =
        kvpi_slabs_open(&store->slabs, store->disk, store->home.path, &store->log.form, 1);
    if (error)
        return kvpi_why(KVP_E_IO, out_why, why_bytes, "the slabs in \"%s\": %s", store->home.path,
                        strerror(error));
    kvp_status status = kvpi_index_open(&store->catalog.index, store->log.form.n_slots);
    store->catalog.index.has_quota = store->catalog.quota_slots > 0;
    if (status == KVP_OK)
        status = kvpi_recover(&store->log, &store->catalog.index, kvpi_slabs_slots(&store->slabs),
                              &store->n_damaged);
    if (status != KVP_OK)
        return kvpi_why(status, out_why, why_bytes, "\"%s/log\": %s", store->home.path,
                        kvp_status_text(status));
    kvpi_index_free(&store->catalog.index, kvpi_slabs_slots(&store->slabs));
    store->is_recovered = 1;
    return KVP_OK;
}

static kvp_status open_engine(struct file_store *store, const struct kvpi_engine_config *engine,
                              char *out_why, size_t why_bytes)
{
    const int error = kvpi_engine_open(&store->engine, &store->slabs, engine);
    store->engine_open = error == 0;
    if (!error)
        return KVP_OK;
    if (store->engine.no_queue)
        return kvpi_why(KVP_E_IO, out_why, why_bytes,
                        "engine=io_uring: %s; with engine=auto the store goes on without",
                        kvpi_engine_why(error));
    return kvpi_why(KVP_E_NO_MEMORY, out_why, why_bytes, "the engine: %s", strerror(error));
}

static kvp_status open_store(struct file_store *store, const struct kvpi_backend_config *config,
                             const struct kvpi_engine_config *engine, char *out_why,
                             size_t why_bytes)
{
    struct kvpi_engine_config chosen = *engine;
    uint64_t slot_bytes = config->header_bytes + config->payload_bytes;
    slot_bytes = (slot_bytes + KVPI_RECORD_PAGE - 1) / KVPI_RECORD_PAGE * KVPI_RECORD_PAGE;
    uint64_t size = 0;
    kvp_status status = read_options(config, &size, slot_bytes, out_why, why_bytes);
    if (status == KVP_OK)
        status = read_engine(config, &chosen.choice, out_why, why_bytes);
    if (status != KVP_OK)
        return status;
    struct kvpi_log_form form = {.slot_bytes = slot_bytes,
                                 .header_bytes = config->header_bytes,
                                 .record_blocks = config->record_blocks,
                                 .block_tokens = config->store->block_tokens,
                                 .n_slots = (uint32_t)(size / (slot_bytes + 256))};
    form.slab_slots = kvpi_slab_slots(slot_bytes, form.n_slots);
    form.n_slots = form.n_slots / form.slab_slots * form.slab_slots;
    store->now = config->store->now;
    store->now_context = config->store->now_context;
    store->catalog.slot_bytes = slot_bytes;
    store->catalog.context = store;
    store->catalog.grow = grow;
    store->catalog.leave = leave;
    store->catalog.outside = outside;
    status = kvpi_catalog_limit(&store->catalog, config, out_why, why_bytes);
    if (status != KVP_OK)
        return status;
    status =
        kvpi_home_open(&store->home, store->disk, config->url->path, &config->store->fingerprint,
                       size, &form, now_ns(store), &store->log, out_why, why_bytes);
    if (status == KVP_OK)
        status = recover(store, out_why, why_bytes);
    if (status != KVP_OK)
        return status;
    if (kvpi_home_begin(&store->home, 0))
        kvpi_home_end(&store->home);
    store->last_id = store->log.id;
    reserve_logs(store, kvpi_slabs_slots(&store->slabs));
    kvpi_catalog_trim(&store->catalog);
    if (store->n_damaged > 0)
        make_log_room(store, 0);
    status = open_engine(store, &chosen, out_why, why_bytes);
    if (status != KVP_OK)
        return status;
    kvpi_peers_open(&store->peers, store->disk, store->home.parent, store->home.path,
                    &store->log.form);
    return KVP_OK;
}

kvp_status kvpi_file_open(const struct kvpi_backend_config *config, const struct kvpi_disk *disk,
                          const struct kvpi_engine_config *engine, void **out_self, char *out_why,
                          size_t why_bytes)
{
    struct file_store *store = calloc(1, sizeof *store);
    if (!store)
        return kvpi_why(KVP_E_NO_MEMORY, out_why, why_bytes, "the system gave no memory");
    store->disk = disk;
    store->home.lock = -1;
    store->log.file = store->next_log.file = -1;
    const kvp_status status = open_store(store, config, engine, out_why, why_bytes);
    if (status == KVP_OK)
        *out_self = store;
    else
        file_close(store);
    return status;
}

static kvp_status file_open(const struct kvpi_backend_config *config, void **out_self,
                            char *out_why, size_t why_bytes)
{
    const struct kvpi_engine_config engine = {.n_threads = ENGINE_THREADS, .queue = &kvpi_uring};
    return kvpi_file_open(config, &kvpi_system_disk, &engine, out_self, out_why, why_bytes);
}

/* ----------------------------------------------------------------------------------- operations */

static uint32_t file_prepare(void *self, struct kvpi_store_op *op)
{
    struct file_store *store = self;
    op->place_in = NULL;
    if (op->kind == KVP_STORE_SYNC)
        return KVP_STORE_OK;
    /* What the log has no room for cannot be kept; what is known needs none. */
    if (op->kind == KVP_STORE_PUT &&
        kvpi_index_find(&store->catalog.index, &op->key) == KVPI_INDEX_NONE &&
        !has_log_room(store, 1))
        return KVP_STORE_NO_ROOM;
    const uint32_t result = kvpi_catalog_prepare(&store->catalog, op);
    store->n_writing += op->kind == KVP_STORE_PUT && result == KVP_STORE_OK;
    if (op->kind != KVP_STORE_GET || result != KVP_STORE_ABSENT)
        return result;
    kvpi_peers_follow(&store->peers, now_ns(store));
    uint32_t written;
    if (!kvpi_peers_find(&store->peers, op, &written))
        return KVP_STORE_ABSENT;
    return kvpi_catalog_too_old(&store->catalog, written) ? KVP_STORE_ABSENT : KVP_STORE_OK;
}

static void file_begin(void *self, struct kvpi_store_op *op)
{
    struct file_store *store = self;
    store->n_syncing += op->kind == KVP_STORE_SYNC;
    kvpi_engine_submit(&store->engine, op);
}

static uint32_t file_reap(void *self, struct kvpi_store_op **out_ops, uint32_t capacity)
{
    struct file_store *store = self;
    struct kvpi_store_op *ops[64];
    uint32_t n;
    while ((n = kvpi_engine_reap(&store->engine, ops, sizeof ops / sizeof *ops)) > 0)
        for (uint32_t i = 0; i < n; i++)
            kvpi_catalog_hold(&store->catalog, ops[i]);
    return kvpi_catalog_release(&store->catalog, out_ops, capacity);
}

static uint32_t end_sync(struct file_store *store, uint32_t result)
{
    store->n_syncing--;
    if (result == KVP_STORE_OK && (store->disk->sync(store->disk->context, store->log.file) != 0 ||
                                   (store->home.is_unsynced && kvpi_home_sync(&store->home) != 0)))
        result = KVP_STORE_FAILED;
    if (store->n_syncing == 0)
        kvpi_patience_end(&store->log_patience); /* the log may move: it need not grow */
    compact_if_long(store);
    return result;
}

static uint32_t file_end(void *self, struct kvpi_store_op *op, uint32_t result)
{
    struct file_store *store = self;
    if (op->kind == KVP_STORE_SYNC)
        return end_sync(store, result);
    store->n_writing -= op->kind == KVP_STORE_PUT;
    /* A peer's record that is another one by now went while it was read. */
    if (op->place_in)
        return result == KVP_STORE_BAD ? KVP_STORE_RACED : result;
    /* A record that is not in the log would be forgotten by the next start, and its slot's place
     * would be another one's: it is not there. */
    if (op->kind == KVP_STORE_PUT && result == KVP_STORE_OK &&
        store->catalog.index.entries[op->entry].state == KVPI_ENTRY_WRITING &&
        append(store, &store->log, KVPI_LOG_PUT, op->entry) != 0)
        result = KVP_STORE_FAILED;
    result = kvpi_catalog_end(&store->catalog, op, result);
    compact_if_long(store);
    return result;
}

static void file_have(void *self, const kvp_digest *keys, uint32_t n_keys, uint64_t *bits)
{
    struct file_store *store = self;
    kvpi_catalog_have(&store->catalog, keys, n_keys, bits);
    kvpi_peers_follow(&store->peers, now_ns(store));
    struct kvpi_peers_seen seen;
    for (uint32_t i = 0; i < n_keys && store->peers.n > 0; i++)
        if (kvpi_peers_have(&store->peers, &keys[i], &seen) &&
            !kvpi_catalog_too_old(&store->catalog, seen.written))
            bits[i / 64] |= UINT64_C(1) << i % 64;
}

static void file_drop(void *self, const kvp_digest *keys, uint32_t n_keys)
{
    struct file_store *store = self;
    kvpi_catalog_drop(&store->catalog, keys, n_keys);
    compact_if_long(store);
}

static void file_evict(void *self, const kvp_store_match *match)
{
    struct file_store *store = self;
    kvpi_catalog_evict(&store->catalog, match);
    compact_if_long(store);
}

static void file_wait(void *self, int wake, int timeout_ms)
{
    struct file_store *store = self;
    if (store->peers.is_behind) { /* this time is spare */
        kvpi_peers_follow(&store->peers, now_ns(store));
        timeout_ms = 0;
    }
    kvpi_engine_wait(&store->engine, wake, timeout_ms);
}

static void file_usage(const void *self, struct kvpi_backend_usage *out_usage)
{
    const struct file_store *store = self;
    kvpi_catalog_usage(&store->catalog, out_usage);
    out_usage->staged = atomic_load_explicit(&store->engine.n_staged, memory_order_relaxed);
}

static void file_describe(const void *self, char *out_text, size_t text_bytes)
{
    const struct file_store *store = self;
    const uint64_t since = atomic_load_explicit(&store->full_since_ns, memory_order_relaxed);
    const uint64_t was = atomic_load_explicit(&store->was_full_ns, memory_order_relaxed);
    const uint64_t second = UINT64_C(1000000000);
    const uint64_t now = now_ns(store);
    kvpi_engine_describe(&store->engine, out_text, text_bytes);
    const size_t n = strlen(out_text);
    if (since > 0)
        snprintf(out_text + n, text_bytes - n,
                 "; the disk is full, since %llu s: puts evict until it has room again",
                 (unsigned long long)(now > since ? (now - since) / second : 0));
    else if (was > 0)
        snprintf(out_text + n, text_bytes - n, "; the disk was full for %llu s, and has room again",
                 (unsigned long long)(was / second));
}

const struct kvpi_backend kvpi_file_backend = {
    .scheme = "file",
    .open = file_open,
    .close = file_close,
    .prepare = file_prepare,
    .begin = file_begin,
    .reap = file_reap,
    .end = file_end,
    .have = file_have,
    .drop = file_drop,
    .evict = file_evict,
    .wait = file_wait,
    .usage = file_usage,
    .describe = file_describe,
};

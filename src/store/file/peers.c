/* peers: followed and asked. */
#include "store/file/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/file/home.h"

/* Often enough that what one engine has stored another finds in its next step but one, seldom
 * enough to cost nothing. */
#define LOOK_NS UINT64_C(20000000)
#define LIST_NS UINT64_C(1000000000)

void kvpi_peers_open(struct kvpi_peers *peers, const struct kvpi_disk *disk, const char *parent,
                     const char *own, const struct kvpi_log_form *form)
{
    *peers = (struct kvpi_peers){.disk = disk, .parent = parent, .own = own, .form = *form};
}

static void forget(struct kvpi_peer *peer)
{
    peer->is_behind = 0;
    if (!peer->there)
        return;
    kvpi_index_close(&peer->index);
    peer->there = 0;
}

void kvpi_peers_close(struct kvpi_peers *peers)
{
    for (uint32_t i = 0; i < peers->n; i++) {
        forget(peers->peers[i]);
        if (peers->peers[i]->slabs.disk)
            kvpi_slabs_close(&peers->peers[i]->slabs);
        free(peers->peers[i]);
    }
    peers->n = 0;
}

/* -------------------------------------------------------------------------------- the directory */

static void take_directory(void *context, const char *name, int is_directory)
{
    struct kvpi_peers *peers = context;
    char path[KVPI_PATH_BYTES];
    kvpi_path_join(path, peers->parent, name);
    if (!is_directory || name[0] != 'w' || peers->n == KVPI_PEERS_MAX ||
        strcmp(path, peers->own) == 0)
        return;
    for (uint32_t i = 0; i < peers->n; i++)
        if (strcmp(peers->peers[i]->path, path) == 0)
            return;
    struct kvpi_peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return;
    kvpi_path_copy(peer->path, path);
    peers->peers[peers->n++] = peer;
}

/* ---------------------------------------------------------------------------------------- a log */

static void take_entry(void *context, const struct kvpi_log_entry *entry)
{
    struct kvpi_peer *peer = context;
    if (entry->slot >= peer->index.n)
        return;
    struct kvpi_entry *e = &peer->index.entries[entry->slot];
    if (entry->generation < e->generation)
        return;
    if (e->state == KVPI_ENTRY_READY)
        kvpi_index_remove(&peer->index, entry->slot);
    e->generation = entry->generation;
    struct kvpi_index_record record = {.parent = KVPI_INDEX_NONE,
                                       .generation = entry->generation,
                                       .written = entry->written,
                                       .space = entry->space};
    memcpy(record.key, entry->key, sizeof record.key);
    if (entry->kind == KVPI_LOG_PUT)
        kvpi_index_restore(&peer->index, entry->slot, &record);
}

static int fits(const struct kvpi_peers *peers, const struct kvpi_log *log)
{
    return log->form.slot_bytes == peers->form.slot_bytes &&
           log->form.header_bytes == peers->form.header_bytes &&
           log->form.record_blocks == peers->form.record_blocks &&
           log->form.block_tokens == peers->form.block_tokens;
}

/* The log is another one than the last time: everything is read again. Slabs that operations may be
 * reading stay open; a writer's slabs keep their form for as long as its directory is there. */
static int begin_anew(struct kvpi_peers *peers, struct kvpi_peer *peer, const struct kvpi_log *log)
{
    forget(peer);
    uint32_t n_slabs = log->form.n_slots / log->form.slab_slots;
    if (n_slabs > KVPI_SLABS_READ)
        n_slabs = KVPI_SLABS_READ;
    if (peer->slabs.disk &&
        (peer->slabs.slab_slots != log->form.slab_slots || peer->slabs.n_max < n_slabs))
        return 0; /* the directory is another one by now: seen again by the next process */
    if (!peer->slabs.disk &&
        kvpi_slabs_open(&peer->slabs, peers->disk, peer->path, &log->form, 0) != 0)
        return 0;
    if (kvpi_index_open(&peer->index, kvpi_log_slots(log)) != KVP_OK)
        return 0;
    peer->there = 1;
    peer->id = log->id;
    peer->next = 0;
    return 1;
}

static void follow(struct kvpi_peers *peers, struct kvpi_peer *peer)
{
    char path[KVPI_PATH_BYTES];
    struct kvpi_log log;
    kvpi_path_join(path, peer->path, "log");
    if (kvpi_log_open(&log, peers->disk, path, 0) != KVP_OK) {
        forget(peer);
        return;
    }
    /* An index that is too small by now is made again, half as large again or more. */
    const int fits_index = peer->index.n == log.form.n_slots || log.n_entries < peer->index.n;
    const int same = peer->there && peer->id == log.id && fits_index;
    if (fits(peers, &log) && (same || begin_anew(peers, peer, &log))) {
        uint64_t n_damaged = 0;
        kvpi_slabs_follow(&peer->slabs);
        const int error = kvpi_log_read(&log, peer->next, KVPI_PEERS_PIECE, take_entry, peer,
                                        &peer->next, &n_damaged);
        peer->is_behind = !error && peer->next < log.n_entries;
    } else {
        forget(peer);
    }
    kvpi_log_close(&log);
}

void kvpi_peers_follow(struct kvpi_peers *peers, uint64_t now_ns)
{
    if (now_ns - peers->looked_ns < LOOK_NS && !peers->is_behind)
        return;
    peers->looked_ns = now_ns;
    peers->is_behind = 0;
    if (now_ns - peers->listed_ns >= LIST_NS) {
        peers->listed_ns = now_ns;
        peers->disk->list(peers->disk->context, peers->parent, take_directory, peers);
    }
    for (uint32_t i = 0; i < peers->n; i++) {
        follow(peers, peers->peers[i]);
        peers->is_behind |= peers->peers[i]->is_behind;
    }
}

/* ---------------------------------------------------------------------------------------- asked */

static uint32_t find_in(const struct kvpi_peer *peer, const kvp_digest *key)
{
    return peer->there ? kvpi_index_find(&peer->index, key) : KVPI_INDEX_NONE;
}

int kvpi_peers_find(struct kvpi_peers *peers, struct kvpi_store_op *op, uint32_t *out_written)
{
    for (uint32_t i = 0; i < peers->n; i++) {
        struct kvpi_peer *peer = peers->peers[i];
        const uint32_t entry = find_in(peer, &op->key);
        if (entry == KVPI_INDEX_NONE || !kvpi_slabs_has(&peer->slabs, entry))
            continue;
        op->place.slot = entry;
        op->place.generation = peer->index.entries[entry].generation;
        op->place_in = &peer->slabs;
        *out_written = peer->index.entries[entry].written;
        return 1;
    }
    return 0;
}

int kvpi_peers_have(const struct kvpi_peers *peers, const kvp_digest *key,
                    struct kvpi_peers_seen *out_seen)
{
    for (uint32_t i = 0; i < peers->n; i++) {
        const struct kvpi_index *index = &peers->peers[i]->index;
        const uint32_t entry = find_in(peers->peers[i], key);
        if (entry == KVPI_INDEX_NONE)
            continue;
        out_seen->written = index->entries[entry].written;
        out_seen->space = kvpi_index_space(index, entry);
        return 1;
    }
    return 0;
}

/* slabs: opened, added, read and written. */
#include "store/file/slabs.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/file/stage.h"

enum { SLAB_BYTES = 64 << 20, SLABS = 256 };

uint32_t kvpi_slab_slots(uint64_t slot_bytes, uint32_t n_slots)
{
    uint32_t n = slot_bytes < SLAB_BYTES ? (uint32_t)(SLAB_BYTES / slot_bytes) : 1;
    if (n < n_slots / SLABS)
        n = n_slots / SLABS;
    if (n > n_slots / 8)
        n = n_slots / 8;
    return n > 0 ? n : 1;
}

static void slab_path(const struct kvpi_slabs *slabs, uint32_t number, char out[KVPI_PATH_BYTES])
{
    const int n = snprintf(out, KVPI_PATH_BYTES, "%s/slab-%06u", slabs->path, (unsigned)number);
    if (n < 0 || n >= KVPI_PATH_BYTES)
        *out = 0;
}

/* Past the page cache, or through it where the file system refuses: it says EINVAL. */
static int open_file(struct kvpi_slabs *slabs, const char *path, unsigned flags,
                     struct kvpi_slab *out_slab)
{
    const struct kvpi_disk *disk = slabs->disk;
    int error = disk->open(disk->context, path, flags | KVPI_DISK_DIRECT, &out_slab->file);
    atomic_store_explicit(&out_slab->direct, !error, memory_order_relaxed);
    if (error == EINVAL) {
        error = disk->open(disk->context, path, flags, &out_slab->file);
        atomic_store_explicit(&slabs->refused, 1, memory_order_relaxed);
    }
    return error;
}

/* Open slab n_slabs. ENOENT: it is not there, unless flags create it; or it was not finished, and a
 * full disk has no room for it now. */
static int open_slab(struct kvpi_slabs *slabs, unsigned flags)
{
    char path[KVPI_PATH_BYTES];
    slab_path(slabs, slabs->n_slabs, path);
    const struct kvpi_disk *disk = slabs->disk;
    struct kvpi_slab *slab = &slabs->slabs[slabs->n_slabs];
    if (slabs->writable)
        flags |= KVPI_DISK_WRITE;
    int error = open_file(slabs, path, flags, slab);
    if (error)
        return error;
    if (slabs->writable)
        error = disk->lock(disk->context, slab->file, KVPI_LOCK_NOW);
    const uint64_t bytes = slabs->slab_slots * slabs->slot_bytes;
    uint64_t has = 0;
    if (!error)
        error = disk->size(disk->context, slab->file, &has);
    if (!error && has < bytes)
        error = slabs->writable ? disk->allot(disk->context, slab->file, bytes) : ENOENT;
    if (error) {
        disk->close(disk->context, slab->file);
        return error == ENOSPC && !(flags & KVPI_DISK_CREATE) ? ENOENT : error;
    }
    atomic_store_explicit(&slab->dirty, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&slabs->n_slabs, 1, memory_order_release);
    return 0;
}

int kvpi_slabs_follow(struct kvpi_slabs *slabs)
{
    int error = 0;
    while (!error && slabs->n_slabs < slabs->n_max)
        error = open_slab(slabs, 0);
    return error == ENOENT ? 0 : error;
}

/* What a larger size left. */
static void remove_rest(struct kvpi_slabs *slabs)
{
    int error = 0;
    for (uint32_t number = slabs->n_max; !error; number++) {
        char path[KVPI_PATH_BYTES];
        slab_path(slabs, number, path);
        error = slabs->disk->remove(slabs->disk->context, path, 0);
    }
}

int kvpi_slabs_open(struct kvpi_slabs *slabs, const struct kvpi_disk *disk, const char *path,
                    const struct kvpi_log_form *form, int writable)
{
    *slabs = (struct kvpi_slabs){.disk = disk,
                                 .slot_bytes = form->slot_bytes,
                                 .slab_slots = form->slab_slots,
                                 .n_max = form->n_slots / form->slab_slots,
                                 .writable = writable};
    if (!writable && slabs->n_max > KVPI_SLABS_READ)
        slabs->n_max = KVPI_SLABS_READ;
    snprintf(slabs->path, sizeof slabs->path, "%s", path);
    slabs->slabs = calloc(slabs->n_max, sizeof *slabs->slabs);
    const int error = slabs->slabs ? kvpi_slabs_follow(slabs) : ENOMEM;
    if (error)
        kvpi_slabs_close(slabs);
    else if (writable)
        remove_rest(slabs);
    return error;
}

void kvpi_slabs_close(struct kvpi_slabs *slabs)
{
    for (uint32_t i = 0; i < slabs->n_slabs; i++)
        slabs->disk->close(slabs->disk->context, slabs->slabs[i].file);
    free(slabs->slabs);
    *slabs = (struct kvpi_slabs){0};
}

int kvpi_slabs_grow(struct kvpi_slabs *slabs)
{
    if (slabs->n_slabs == slabs->n_max)
        return ENOSPC;
    const uint32_t number = slabs->n_slabs;
    const int error = open_slab(slabs, KVPI_DISK_CREATE);
    if (error) {
        char path[KVPI_PATH_BYTES];
        slab_path(slabs, number, path);
        slabs->disk->remove(slabs->disk->context, path, 0);
    }
    return error;
}

uint32_t kvpi_slabs_slots(const struct kvpi_slabs *slabs)
{
    return slabs->n_slabs * slabs->slab_slots;
}

/* ------------------------------------------------------------------------------------ transfers */

int kvpi_slabs_find(struct kvpi_slabs *slabs, uint32_t slot, struct kvpi_extent *out_extent)
{
    const uint32_t number = slot / slabs->slab_slots;
    if (number >= slabs->n_slabs)
        return ENOENT;
    out_extent->slab = &slabs->slabs[number];
    out_extent->offset = slot % slabs->slab_slots * slabs->slot_bytes;
    return 0;
}

void kvpi_slab_mark(struct kvpi_slab *slab)
{
    atomic_store_explicit(&slab->dirty, 1, memory_order_release);
}

int kvpi_slabs_buffer(struct kvpi_slabs *slabs, struct kvpi_slab *slab, int was_direct)
{
    if (!was_direct || slabs->disk->buffer(slabs->disk->context, slab->file) != 0)
        return 0;
    atomic_store_explicit(&slab->direct, 0, memory_order_relaxed);
    atomic_store_explicit(&slabs->refused, 1, memory_order_relaxed);
    return 1;
}

/* Through the stage if there must be one. */
static int move(const struct kvpi_disk *disk, int write, const struct kvpi_extent *extent,
                const struct kvpi_span *spans, uint32_t n_spans, uint8_t *stage)
{
    const struct kvpi_span all = {stage, (size_t)kvpi_stage_bytes(spans, n_spans)};
    const int file = extent->slab->file;
    if (write && stage)
        kvpi_stage_gather(spans, n_spans, stage);
    if (write)
        return disk->write(disk->context, file, stage ? &all : spans, stage ? 1 : n_spans,
                           extent->offset);
    const int error =
        disk->read(disk->context, file, stage ? &all : spans, stage ? 1 : n_spans, extent->offset);
    if (!error && stage)
        kvpi_stage_scatter(stage, spans, n_spans);
    return error;
}

int kvpi_slabs_transfer(struct kvpi_slabs *slabs, int write, uint32_t slot,
                        const struct kvpi_span *spans, uint32_t n_spans, uint8_t *stage,
                        int *out_staged)
{
    struct kvpi_extent extent;
    int error = kvpi_slabs_find(slabs, slot, &extent);
    if (error)
        return error;
    int direct;
    do {
        direct = atomic_load_explicit(&extent.slab->direct, memory_order_relaxed);
        *out_staged = direct && !kvpi_stage_aligned(spans, n_spans);
        error = move(slabs->disk, write, &extent, spans, n_spans, *out_staged ? stage : NULL);
    } while (error == EINVAL && kvpi_slabs_buffer(slabs, extent.slab, direct));
    if (write)
        kvpi_slab_mark(extent.slab);
    return error;
}

/* A slab that could not be synced stays dirty. */
int kvpi_slabs_sync(struct kvpi_slabs *slabs)
{
    for (uint32_t i = 0; i < slabs->n_slabs; i++) {
        struct kvpi_slab *slab = &slabs->slabs[i];
        if (!atomic_exchange_explicit(&slab->dirty, 0, memory_order_acquire))
            continue;
        const int error = slabs->disk->sync(slabs->disk->context, slab->file);
        if (error) {
            atomic_store_explicit(&slab->dirty, 1, memory_order_relaxed);
            return error;
        }
    }
    return 0;
}

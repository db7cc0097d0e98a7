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

static uint32_t slots_of(const struct kvpi_slabs *slabs, uint64_t bytes)
{
    const uint64_t n = bytes / slabs->slot_bytes;
    return n < slabs->slab_slots ? (uint32_t)n : slabs->slab_slots;
}

/* Make room in a slab for n slots. A disk that becomes full meanwhile may have given some: then
 * these are taken. 0 or an errno: it has none more. */
static int widen(const struct kvpi_slabs *slabs, struct kvpi_slab *slab, uint32_t n)
{
    const struct kvpi_disk *disk = slabs->disk;
    uint64_t has = n * slabs->slot_bytes;
    const int error = disk->allot(disk->context, slab->file, has);
    if (error && disk->size(disk->context, slab->file, &has) != 0)
        return error;
    if (slots_of(slabs, has) <= slab->n_slots)
        return error;
    slab->n_slots = slots_of(slabs, has);
    return 0;
}

/* A slab that another one follows has its full length. */
static int fill_last(const struct kvpi_slabs *slabs)
{
    if (!slabs->writable || slabs->n_slabs == 0)
        return 0;
    struct kvpi_slab *last = &slabs->slabs[slabs->n_slabs - 1];
    int error = 0;
    while (!error && last->n_slots < slabs->slab_slots)
        error = widen(slabs, last, slabs->slab_slots);
    return error;
}

/* What a file that was opened as slab n_slabs has; n_slots: that it is to have. */
static int measure(const struct kvpi_slabs *slabs, struct kvpi_slab *slab, uint32_t n_slots)
{
    const struct kvpi_disk *disk = slabs->disk;
    uint64_t has = 0;
    int error = 0;
    if (slabs->writable)
        error = disk->lock(disk->context, slab->file, KVPI_LOCK_NOW);
    if (!error)
        error = disk->size(disk->context, slab->file, &has);
    if (error)
        return error;
    slab->n_slots = slots_of(slabs, has);
    if (slab->n_slots < n_slots)
        return widen(slabs, slab, n_slots);
    return slab->n_slots > 0 || slabs->writable ? 0 : ENOENT;
}

/* Open slab n_slabs. ENOENT: it is not there; for a reader, not one slot of it is; for a writer, a
 * full disk has no room for what the slab before it lacks. n_slots: what it is to have, if it is
 * to be made. */
static int open_slab(struct kvpi_slabs *slabs, uint32_t n_slots)
{
    char path[KVPI_PATH_BYTES];
    slab_path(slabs, slabs->n_slabs, path);
    const struct kvpi_disk *disk = slabs->disk;
    struct kvpi_slab *slab = &slabs->slabs[slabs->n_slabs];
    const unsigned flags =
        (slabs->writable ? KVPI_DISK_WRITE : 0u) | (n_slots > 0 ? KVPI_DISK_CREATE : 0u);
    int error = open_file(slabs, path, flags, slab);
    if (error)
        return error;
    atomic_store_explicit(&slab->dirty, 0, memory_order_relaxed);
    error = measure(slabs, slab, n_slots);
    if (!error)
        error = fill_last(slabs);
    if (error) {
        disk->close(disk->context, slab->file);
        return kvpi_disk_is_full(error) && n_slots == 0 ? ENOENT : error;
    }
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

int kvpi_slabs_has(struct kvpi_slabs *slabs, uint32_t slot)
{
    const struct kvpi_disk *disk = slabs->disk;
    const uint32_t number = slot / slabs->slab_slots;
    const uint32_t place = slot % slabs->slab_slots;
    uint64_t has = 0;
    if (number >= slabs->n_slabs)
        return 0;
    struct kvpi_slab *slab = &slabs->slabs[number];
    if (place >= slab->n_slots && disk->size(disk->context, slab->file, &has) == 0)
        slab->n_slots = slots_of(slabs, has);
    return place < slab->n_slots;
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

static uint32_t lacks(const struct kvpi_slabs *slabs)
{
    return slabs->n_slabs == 0 ? 0 : slabs->slab_slots - slabs->slabs[slabs->n_slabs - 1].n_slots;
}

uint32_t kvpi_slabs_left(const struct kvpi_slabs *slabs)
{
    const uint32_t n = lacks(slabs);
    return n > 0 || slabs->n_slabs == slabs->n_max ? n : slabs->slab_slots;
}

int kvpi_slabs_grow(struct kvpi_slabs *slabs, uint32_t n_slots)
{
    const uint32_t number = slabs->n_slabs;
    if (lacks(slabs) > 0) {
        struct kvpi_slab *last = &slabs->slabs[number - 1];
        return widen(slabs, last, last->n_slots + n_slots);
    }
    if (number == slabs->n_max)
        return ENOSPC;
    const int error = open_slab(slabs, n_slots);
    if (error) {
        char path[KVPI_PATH_BYTES];
        slab_path(slabs, number, path);
        slabs->disk->remove(slabs->disk->context, path, 0);
    }
    return error;
}

uint32_t kvpi_slabs_slots(const struct kvpi_slabs *slabs)
{
    return slabs->n_slabs * slabs->slab_slots - lacks(slabs);
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

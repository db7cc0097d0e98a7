/* slabs: the files that hold a directory's slots, made one after the other as they are needed.
 *
 *   slab k has slots k * slab_slots .. (k + 1) * slab_slots - 1; slot s lies at byte
 *   s % slab_slots * slot_bytes of slab s / slab_slots
 *
 * Each slab is open once, past the page cache where the file system can, and locked on the
 * descriptor that transfers use. So the lock of a killed writer is held until the last of its
 * writes has landed. A slot has room on the disk before it is used, so a write into it never meets
 * a full disk. On a disk with less room than a slab takes, the last one is shorter, and grows
 * before another is added. */
#ifndef KVPI_STORE_SLABS_H
#define KVPI_STORE_SLABS_H

#include "store/file/log.h"

enum { KVPI_PATH_BYTES = 4096 };

struct kvpi_slab {
    int file;
    uint32_t n_slots;   /* that it has room for */
    _Atomic int direct; /* past the page cache: transfers by 4096 only */
    _Atomic int dirty;  /* written since the last sync */
};

/* Where a slot lies. */
struct kvpi_extent {
    struct kvpi_slab *slab;
    uint64_t offset;
};

struct kvpi_slabs {
    const struct kvpi_disk *disk;
    char path[KVPI_PATH_BYTES]; /* of the directory */
    uint64_t slot_bytes;
    uint32_t slab_slots;
    _Atomic uint32_t n_slabs; /* rises while other threads read and write */
    uint32_t n_max;
    struct kvpi_slab *slabs; /* [n_max] */
    int writable;
    _Atomic int refused; /* a file system refused to go past its page cache */
};

/* How many slots a slab should have: about 64 MiB, or more, so that there are not many more than
 * 256 slabs: each takes descriptors, and time to open. At least one, at most an eighth of n_slots.
 */
uint32_t kvpi_slab_slots(uint64_t slot_bytes, uint32_t n_slots);

/* How many slabs a reader opens at most. A slab is a file, but a log may claim any number. */
enum { KVPI_SLABS_READ = 65536 };

/* Open the slabs that are there. form: of the directory's log. A writer locks each: EWOULDBLOCK if
 * another process has one; gives each but the last its full length; and removes those beyond
 * form->n_slots. 0 or an errno. */
int kvpi_slabs_open(struct kvpi_slabs *slabs, const struct kvpi_disk *disk, const char *path,
                    const struct kvpi_log_form *form, int writable);
void kvpi_slabs_close(struct kvpi_slabs *slabs);

/* Open what another process added since. */
int kvpi_slabs_follow(struct kvpi_slabs *slabs);

/* The most slots that one call of kvpi_slabs_grow can add: what the last slab lacks, or one more
 * slab; 0: there are as many as there may be. */
uint32_t kvpi_slabs_left(const struct kvpi_slabs *slabs);

/* Add up to n_slots slots, at most kvpi_slabs_left. 0: at least one was added; or an errno. */
int kvpi_slabs_grow(struct kvpi_slabs *slabs, uint32_t n_slots);

/* Whether a slot of another process's slabs is there now: a loss of power may have cut what their
 * log lists. From the thread that opened them. */
int kvpi_slabs_has(struct kvpi_slabs *slabs, uint32_t slot);

/* Slots of the slabs that are open. A writer's. */
uint32_t kvpi_slabs_slots(const struct kvpi_slabs *slabs);

/* 0; ENOENT: the slot's slab is not there. The next four may be called from several threads. */
int kvpi_slabs_find(struct kvpi_slabs *slabs, uint32_t slot, struct kvpi_extent *out_extent);

/* Something of it was written. */
void kvpi_slab_mark(struct kvpi_slab *slab);

/* The system says EINVAL to a transfer past the page cache: from now on through it. 1: the transfer
 * can be tried again; 0: it was not that. was_direct: what the transfer was. */
int kvpi_slabs_buffer(struct kvpi_slabs *slabs, struct kvpi_slab *slab, int was_direct);

/* Read or write a slot from its start. 0 or an errno.
 * stage: for spans that do not lie by 4096; out_staged: was used */
int kvpi_slabs_transfer(struct kvpi_slabs *slabs, int write, uint32_t slot,
                        const struct kvpi_span *spans, uint32_t n_spans, uint8_t *stage,
                        int *out_staged);

int kvpi_slabs_sync(struct kvpi_slabs *slabs);

#endif

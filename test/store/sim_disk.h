/* sim_disk: a disk in memory that can stop at any operation, and then either keeps all that was
 * written (the process was killed) or what a loss of power leaves.
 *
 * A loss of power keeps what was synced. Of the writes since then it keeps any grains (512 or 4,096
 * bytes, each whole), of the sizes of files since then any, and of the names that were made, moved
 * or removed the first so many: a journal keeps their order. */
#ifndef KVP_TEST_SIM_DISK_H
#define KVP_TEST_SIM_DISK_H

#include "store/file/disk.h"

struct sim_disk;

struct sim_disk *sim_disk_create(uint64_t seed);
void sim_disk_destroy(struct sim_disk *sim);
struct kvpi_disk sim_disk_interface(struct sim_disk *sim);

/* From the n-th operation on, counted from now, every one fails; UINT64_MAX: never. */
void sim_disk_stop_after(struct sim_disk *sim, uint64_t n);

/* Operations since the beginning. */
uint64_t sim_disk_count(const struct sim_disk *sim);

/* What the next start finds. Open files are closed, locks are gone, operations work again. */
void sim_disk_kill(struct sim_disk *sim);
void sim_disk_power_off(struct sim_disk *sim);

/* What a disk writes whole: 512 (at first) or 4,096 bytes. */
void sim_disk_grain(struct sim_disk *sim, uint32_t n_bytes);

/* How many grains have been changed since they were synced: a loss of power loses any of them. */
uint32_t sim_disk_unsynced(const struct sim_disk *sim);

/* Lose the power and keep exactly these: bit i of the i-th such grain. The rest is drawn. */
void sim_disk_power_off_but(struct sim_disk *sim, uint64_t kept);

/* Files that are open, each as often as it is. */
uint32_t sim_disk_handles(const struct sim_disk *sim);

int sim_disk_has(struct sim_disk *sim, const char *path);

/* Bytes of all files now, with what is set aside for them. */
uint64_t sim_disk_bytes(const struct sim_disk *sim);

/* The disk has this much room for all files; UINT64_MAX: there is no end. What would take more gets
 * ENOSPC. */
void sim_disk_limit(struct sim_disk *sim, uint64_t room);

/* It sets no room aside: ENOTSUP. */
void sim_disk_refuse_reserve(struct sim_disk *sim);

/* It does not say how much room it has: one has to try. */
void sim_disk_tell_no_room(struct sim_disk *sim);

/* The n-th write from now on fails once, with this errno. */
void sim_disk_fail_write(struct sim_disk *sim, uint64_t n, int error);

/* Change bytes of a file behind everybody's back. 0: there is no such file, or it is too short. */
int sim_disk_poke(struct sim_disk *sim, const char *path, uint64_t offset, const void *bytes,
                  size_t n_bytes);
/* A file loses what is behind its first n bytes. */
void sim_disk_cut(struct sim_disk *sim, const char *path, uint64_t n_bytes);
int sim_disk_peek(struct sim_disk *sim, const char *path, uint64_t offset, void *out_bytes,
                  size_t n_bytes);

#endif

/* What puts and gets cost in a file store whose disk is full, beside one at its own limit.
 *
 *   store_full_put   puts, each of which evicts
 *   store_full_get   gets of what these put
 *
 * Two file systems (ext4, on files in the working directory): on one the store has a limit of
 * LIMIT, the other has room for that much and not more. Operations are one after the
 * other. Only root can mount; elsewhere the rows are left out. */
#define _GNU_SOURCE /* unshare */

#include "bench.h"

#ifdef KVP_BENCH_STORE

#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include "store_records.h"

enum {
    TURNS = 200,
    BLOCK_BYTES = 8192,
    SLOT_BYTES = 4096 + RECORD_BLOCKS * BLOCK_BYTES,
    LIMIT = 96 << 20
};

typedef struct site {
    kvp_store *store;
    uint64_t number; /* of the next record */
    char directory[64];
} site;

typedef struct full_state {
    site full;
    site at_limit;
    uint8_t *blocks; /* [RECORD_BLOCKS][BLOCK_BYTES] */
    char directory[32];
} full_state;

static uint32_t run(const full_state *s, const site *place, bool put, uint64_t number)
{
    const kvp_identity identity = record_of(number);
    void *blocks[RECORD_BLOCKS];
    list_blocks(s->blocks, BLOCK_BYTES, blocks);
    REQUIRE_OK(put ? kvp_store_put(place->store, &identity, blocks, number)
                   : kvp_store_get(place->store, &identity, blocks, number));
    return wait_for(place->store);
}

static bool mount_place(const full_state *s, site *place, const char *name)
{
    char command[512];
    snprintf(place->directory, sizeof place->directory, "%s/%s", s->directory, name);
    snprintf(command, sizeof command,
             "{ mkdir %s && truncate -s 256M %s.image && mkfs.ext4 -q -m 0 %s.image && "
             "mount -o loop %s.image %s; } >/dev/null 2>&1",
             place->directory, place->directory, place->directory, place->directory,
             place->directory);
    return system(command) == 0;
}

static void open_place(const full_state *s, site *place, uint64_t size)
{
    char url[128];
    snprintf(url, sizeof url, "file:%s?size=%llu", place->directory, (unsigned long long)size);
    place->store = open_records(url, BLOCK_BYTES);
    kvp_store_stats stats = {0};
    while (stats.evicted == 0) {
        REQUIRE(run(s, place, true, place->number++) == KVP_STORE_OK);
        REQUIRE_OK(kvp_store_stats_get(place->store, &stats));
    }
    REQUIRE(stats.records > LIMIT / SLOT_BYTES * 9 / 10);
}

static void tear_down(void *state)
{
    full_state *s = state;
    char command[128];
    kvp_store_close(s->full.store);
    kvp_store_close(s->at_limit.store);
    (void)umount(s->full.directory);
    (void)umount(s->at_limit.directory);
    snprintf(command, sizeof command, "rm -rf %s", s->directory);
    REQUIRE(system(command) == 0);
    free(s->blocks);
    free(s);
}

static void *set_up(const bench_options *options)
{
    full_state *s = allocate(sizeof *s);
    char command[256];
    (void)options;
    snprintf(s->directory, sizeof s->directory, "kvp_bench_full_XXXXXX");
    REQUIRE(mkdtemp(s->directory) != NULL);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        !mount_place(s, &s->full, "full") || !mount_place(s, &s->at_limit, "limit")) {
        fprintf(stderr, "kvp_bench: store_full is left out: no loop device can be mounted here\n");
        tear_down(s);
        return NULL;
    }
    snprintf(command, sizeof command,
             "f=$(df -k --output=avail %s | tail -1); fallocate -l $((f - %u))k %s/other",
             s->full.directory, (unsigned)(LIMIT >> 10), s->full.directory);
    REQUIRE(system(command) == 0);
    s->blocks = make_blocks(BLOCK_BYTES);
    open_place(s, &s->full, (uint64_t)LIMIT * 8);
    open_place(s, &s->at_limit, LIMIT);
    return s;
}

static double time_turns(full_state *s, site *place, bool put)
{
    if (put)
        place->number += TURNS;
    const uint64_t start = now_ns();
    for (uint64_t i = place->number - TURNS; i < place->number; i++)
        REQUIRE(run(s, place, put, i) == KVP_STORE_OK);
    return (double)TURNS * 1e6 / (double)(now_ns() - start);
}

static double put_full(void *state)
{
    full_state *s = state;
    return time_turns(s, &s->full, true);
}

static double put_at_limit(void *state)
{
    full_state *s = state;
    return time_turns(s, &s->at_limit, true);
}

static double get_full(void *state)
{
    full_state *s = state;
    return time_turns(s, &s->full, false);
}

static double get_at_limit(void *state)
{
    full_state *s = state;
    return time_turns(s, &s->at_limit, false);
}

static const measurement rows[] = {
    {"store_full_put", "k/s", 0.67, 51, put_full, put_at_limit, "64 KiB on a full disk"},
    {"store_full_get", "k/s", 0.67, 51, get_full, get_at_limit, "yardstick: at its own limit"},
};

const group store_full_group = {rows, 2, set_up, tear_down};

#else

const group store_full_group = {NULL, 0, NULL, NULL}; /* libkvpager_store is not built here */

#endif

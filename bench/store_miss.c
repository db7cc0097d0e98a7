/* What a miss costs in a file store, from the call to the answer, by the store's thread.
 *
 *   store_miss_absent  a get of a record that is not there
 *   store_miss_have    the question whether it is there, and the get all the same
 *   store_miss_bad     a get of a record whose KV was damaged on disk: it is read twice
 *
 * Records have 512 KiB of KV. Each sample is the mean of 50, one after the other. */
#define _XOPEN_SOURCE 700 /* nftw, pwrite */

#include "bench.h"

#ifdef KVP_BENCH_STORE

#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store_records.h"

enum {
    MISSES = 50,
    BLOCK_BYTES = 65536,
    HEADER_BYTES = 4096,
    SLOT_BYTES = HEADER_BYTES + RECORD_BLOCKS * BLOCK_BYTES,
    SLOTS = 1024
};

typedef struct miss_state {
    kvp_store *store;
    uint64_t number; /* of the next record */
    uint8_t *blocks; /* [RECORD_BLOCKS][BLOCK_BYTES] */
    kvp_digester *digester;
    char directory[64];
} miss_state;

static uint32_t get(const miss_state *s, uint64_t number)
{
    void *blocks[RECORD_BLOCKS];
    const kvp_identity identity = record_of(number);
    list_blocks(s->blocks, BLOCK_BYTES, blocks);
    REQUIRE_OK(kvp_store_get(s->store, &identity, blocks, number));
    return wait_for(s->store);
}

static void *set_up(const bench_options *options)
{
    miss_state *s = allocate(sizeof *s);
    char url[128];
    (void)options;
    snprintf(s->directory, sizeof s->directory, "kvp_bench_miss.%ld", (long)getpid());
    snprintf(url, sizeof url, "file:%s?size=%llu", s->directory,
             (unsigned long long)SLOTS * (SLOT_BYTES + 256));
    s->store = open_records(url, BLOCK_BYTES);
    REQUIRE_OK(kvp_digester_create(&s->digester));
    s->blocks = make_blocks(BLOCK_BYTES);
    return s;
}

static int remove_entry(const char *path, const struct stat *stat, int kind, struct FTW *ftw)
{
    (void)stat;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void tear_down(void *state)
{
    miss_state *s = state;
    kvp_store_close(s->store);
    (void)nftw(s->directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    kvp_digester_destroy(s->digester);
    free(s->blocks);
    free(s);
}

static double absent(void *state)
{
    miss_state *s = state;
    const uint64_t start = now_ns();
    for (int i = 0; i < MISSES; i++)
        REQUIRE(get(s, s->number++) == KVP_STORE_ABSENT);
    return (double)(now_ns() - start) / (MISSES * 1000.0);
}

static double have(void *state)
{
    miss_state *s = state;
    const uint64_t start = now_ns();
    for (int i = 0; i < MISSES; i++) {
        const kvp_identity identity = record_of(s->number);
        kvp_digest key;
        uint64_t bits = 1;
        REQUIRE_OK(kvp_record_key(s->digester, &identity.digest, 0, &identity.slice, &key));
        REQUIRE_OK(kvp_store_have(s->store, &key, 1, &bits, 0));
        REQUIRE(wait_for(s->store) == KVP_STORE_OK && bits == 0);
        REQUIRE(get(s, s->number++) == KVP_STORE_ABSENT);
    }
    return (double)(now_ns() - start) / (MISSES * 1000.0);
}

/* One byte of the KV of every slot. */
static void damage_all(const miss_state *s)
{
    for (uint32_t slab = 0;; slab++) {
        char path[128];
        struct stat stat;
        snprintf(path, sizeof path, "%s/0707070707070707/w0/slab-%06u", s->directory,
                 (unsigned)slab);
        const int file = open(path, O_RDWR);
        if (file < 0)
            return;
        REQUIRE(fstat(file, &stat) == 0);
        for (off_t at = HEADER_BYTES + 100; at < stat.st_size; at += SLOT_BYTES)
            REQUIRE(pwrite(file, "!", 1, at) == 1);
        REQUIRE(fdatasync(file) == 0);
        close(file);
    }
}

static double bad(void *state)
{
    miss_state *s = state;
    void *blocks[RECORD_BLOCKS];
    const uint64_t first = s->number;
    list_blocks(s->blocks, BLOCK_BYTES, blocks);
    memset(s->blocks, 0x5A, (size_t)RECORD_BLOCKS * BLOCK_BYTES);
    for (int i = 0; i < MISSES; i++) {
        const kvp_identity identity = record_of(s->number++);
        REQUIRE_OK(kvp_store_put(s->store, &identity, blocks, 0));
        REQUIRE(wait_for(s->store) == KVP_STORE_OK);
    }
    damage_all(s);
    const uint64_t start = now_ns();
    for (uint64_t number = first; number < s->number; number++)
        REQUIRE(get(s, number) == KVP_STORE_BAD);
    return (double)(now_ns() - start) / (MISSES * 1000.0);
}

static const measurement rows[] = {
    {"store_miss_absent", "us", 1000, 21, absent, NULL, "a get of what is not there"},
    {"store_miss_have", "us", 1000, 21, have, NULL, "asked, and got all the same"},
    {"store_miss_bad", "us", 1000, 21, bad, NULL, "KV was damaged: read twice, 512 KiB"},
};

const group store_miss_group = {rows, 3, set_up, tear_down};

#else

const group store_miss_group = {NULL, 0, NULL, NULL}; /* libkvpager_store is not built here */

#endif

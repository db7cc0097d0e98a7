/* Records into and out of a file store, beside fio on the same files: GB in a second, headers
 * included, verification on, DEPTH records at a time.
 *
 *   store_file_new_*     into slabs that are allotted on the way
 *   store_file_write_*   into slots that were written before; what they held goes
 *   store_file_read_*    all records, in random order
 *
 * The yardstick moves each slot of the same slabs (for new_*: of new files of that size, allotted
 * before) once, in the same or a random order, as many at a time, by io_uring too. Where there is
 * no fio, or the store goes without io_uring, there is none. The slabs are in the working
 * directory: what is measured is its disk. */
#define _XOPEN_SOURCE 700 /* nftw, popen, posix_fallocate */

#include "bench.h"

#ifdef KVP_BENCH_STORE

#include <fcntl.h>
#include <ftw.h>
#include <kvpager/store.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BLOCK_BYTES = 65536,
    HEADER_BYTES = 4096,
    DEPTH = 16,
    TOKENS = 1, /* of a block: tokens are not what is measured */
    BLOCKS_MAX = 32,
    SAMPLES = 7,
    PATH_BYTES = 256
};

#define SAMPLE_BYTES (UINT64_C(256) << 20)
#define QUICK_BYTES  (UINT64_C(8) << 20)
#define SLAB_BYTES   (UINT64_C(64) << 20)

typedef struct store_state {
    uint32_t record_blocks;
    uint32_t n_records;
    uint32_t slab_slots;
    uint64_t slot_bytes;
    uint64_t generation; /* of the records: each is another one than before */
    kvp_store *store;
    bool exact;               /* it has room for n_records and no more */
    kvp_identity *identities; /* [n_records] */
    uint32_t *order;          /* [n_records] of the reads */
    uint8_t *blocks;          /* [DEPTH][record_blocks][BLOCK_BYTES] */
    int32_t tokens[BLOCKS_MAX * TOKENS];
    char directory[PATH_BYTES / 4];
    char slabs[PATH_BYTES]; /* directory of the slabs that the yardstick uses */
} store_state;

/* -------------------------------------------------------------------------------------- records */

static void name_records(store_state *s)
{
    s->generation++;
    for (uint32_t r = 0; r < s->n_records; r++) {
        kvp_identity *identity = &s->identities[r];
        *identity = (kvp_identity){.kind = KVP_IDENTITY_TOKENS,
                                   .slice = {.n_layers = 1, .n_heads = 1},
                                   .block_tokens = TOKENS,
                                   .n_blocks = s->record_blocks,
                                   .tokens = s->tokens};
        memset(identity->fingerprint.bytes, 7, sizeof identity->fingerprint.bytes);
        memcpy(identity->digest.bytes, &r, sizeof r);
        memcpy(identity->digest.bytes + 8, &s->generation, sizeof s->generation);
    }
}

static uint8_t *block_of(const store_state *s, uint32_t place, uint32_t block)
{
    return s->blocks + ((size_t)place * s->record_blocks + block) * BLOCK_BYTES;
}

static void stamp(const store_state *s, uint32_t place, uint32_t record)
{
    for (uint32_t b = 0; b < s->record_blocks; b++)
        memcpy(block_of(s, place, b), &record, sizeof record);
}

static void check_stamp(const store_state *s, uint32_t place, uint32_t record)
{
    for (uint32_t b = 0; b < s->record_blocks; b++)
        REQUIRE(memcmp(block_of(s, place, b), &record, sizeof record) == 0);
}

static void begin(const store_state *s, bool write, uint32_t place, uint32_t record)
{
    void *blocks[BLOCKS_MAX];
    for (uint32_t b = 0; b < s->record_blocks; b++)
        blocks[b] = block_of(s, place, b);
    const kvp_identity *identity = &s->identities[record];
    const uint64_t tag = (uint64_t)record * DEPTH + place;
    if (write)
        stamp(s, place, record);
    REQUIRE_OK(write ? kvp_store_put(s->store, identity, blocks, tag)
                     : kvp_store_get(s->store, identity, blocks, tag));
}

/* All records, DEPTH at a time. Gives GB in a second. */
static double move_all(const store_state *s, bool write)
{
    kvp_store_done done[DEPTH];
    uint32_t n_begun = 0;
    uint32_t n_ended = 0;
    const uint64_t start = now_ns();
    for (; n_begun < DEPTH && n_begun < s->n_records; n_begun++)
        begin(s, write, n_begun, write ? n_begun : s->order[n_begun]);
    while (n_ended < s->n_records) {
        uint32_t n;
        (void)kvp_store_wait(s->store, UINT64_C(10000000000));
        REQUIRE_OK(kvp_store_poll(s->store, done, DEPTH, &n));
        for (uint32_t i = 0; i < n; i++, n_ended++) {
            const uint32_t place = (uint32_t)(done[i].tag % DEPTH);
            REQUIRE(done[i].result == KVP_STORE_OK);
            if (!write)
                check_stamp(s, place, (uint32_t)(done[i].tag / DEPTH));
            if (n_begun == s->n_records)
                continue;
            begin(s, write, place, write ? n_begun : s->order[n_begun]);
            n_begun++;
        }
    }
    const uint64_t ns = now_ns() - start;
    return (double)(s->n_records * s->slot_bytes) / (double)ns;
}

/* ------------------------------------------------------------------------------------ the group */

static int remove_entry(const char *path, const struct stat *stat, int kind, struct FTW *ftw)
{
    (void)stat;
    (void)kind;
    (void)ftw;
    return remove(path);
}

/* exact: so that each put takes the place of another record. Else there are slabs of the size that
 * all but very small stores have. */
static void open_store(store_state *s, bool exact)
{
    char url[PATH_BYTES + 64];
    char why[300];
    const uint32_t large = (uint32_t)(SLAB_BYTES / s->slot_bytes); /* as src/store/file/slabs.c */
    const uint32_t n = exact || s->n_records < large ? s->n_records : 8 * large;
    s->exact = exact;
    s->slab_slots = n / 8 < large ? n / 8 : large;
    snprintf(url, sizeof url, "file:%s?size=%llu", s->directory,
             (unsigned long long)(n * (s->slot_bytes + 256)));
    kvp_store_config config;
    kvp_store_config_init(&config);
    config.url = url;
    memset(config.fingerprint.bytes, 7, sizeof config.fingerprint.bytes);
    config.block_tokens = TOKENS;
    config.block_bytes[0] = BLOCK_BYTES;
    config.record_blocks = s->record_blocks;
    config.key_bytes = 0;
    config.max_ops = DEPTH;
    if (kvp_store_open(&config, &s->store, why, sizeof why) != KVP_OK) {
        fprintf(stderr, "kvp_bench: %s\n", why);
        exit(1);
    }
}

static void close_store(store_state *s)
{
    kvp_store_close(s->store);
    s->store = NULL;
    (void)nftw(s->directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void shuffle(store_state *s)
{
    uint64_t random = 1;
    for (uint32_t i = 0; i < s->n_records; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        const uint32_t at = (uint32_t)(random >> 33) % (i + 1);
        s->order[i] = s->order[at];
        s->order[at] = i;
    }
}

static void *set_up(const bench_options *options, uint32_t record_blocks)
{
    store_state *s = allocate(sizeof *s);
    s->record_blocks = record_blocks;
    s->slot_bytes = HEADER_BYTES + (uint64_t)record_blocks * BLOCK_BYTES;
    s->n_records = (uint32_t)((options->quick ? QUICK_BYTES : SAMPLE_BYTES) / s->slot_bytes);
    s->n_records = (s->n_records < 8 ? 8 : s->n_records) / 8 * 8; /* whole slabs */
    s->identities = allocate(s->n_records * sizeof *s->identities);
    s->order = allocate(s->n_records * sizeof *s->order);
    s->blocks = aligned_alloc(4096, (size_t)DEPTH * record_blocks * BLOCK_BYTES);
    REQUIRE(s->blocks != NULL);
    memset(s->blocks, 0x5A, (size_t)DEPTH * record_blocks * BLOCK_BYTES);
    shuffle(s);
    snprintf(s->directory, sizeof s->directory, "kvp_bench_store.%ld", (long)getpid());
    return s;
}

static void tear_down(void *state)
{
    store_state *s = state;
    if (s->store)
        close_store(s);
    free(s->identities);
    free(s->order);
    free(s->blocks);
    free(s);
}

static void *set_up_64k(const bench_options *options)
{
    return set_up(options, 1);
}

static void *set_up_512k(const bench_options *options)
{
    return set_up(options, 8);
}

static void *set_up_2m(const bench_options *options)
{
    return set_up(options, 32);
}

/* ---------------------------------------------------------------------------------------- ours */

static double write_new(void *state)
{
    store_state *s = state;
    if (s->store)
        close_store(s);
    open_store(s, false);
    name_records(s);
    return move_all(s, true);
}

static double write_again(void *state)
{
    store_state *s = state;
    if (s->store && !s->exact)
        close_store(s);
    if (!s->store) {
        open_store(s, true);
        name_records(s);
        (void)move_all(s, true);
    }
    name_records(s);
    return move_all(s, true);
}

static double read_all(void *state)
{
    store_state *s = state;
    kvp_store_stats stats = {0};
    if (s->store)
        REQUIRE_OK(kvp_store_stats_get(s->store, &stats));
    if (stats.hits == 0)
        (void)write_again(s); /* fio has written what is no record */
    return move_all(s, false);
}

/* ----------------------------------------------------------------------------------------- fio */

/* There is one, and the store's engine is one of its own. */
static bool has_fio(const store_state *s)
{
    static int has = -1;
    char text[300];
    if (has < 0)
        has = system("fio --version >/dev/null 2>&1") == 0;
    REQUIRE_OK(kvp_store_describe(s->store, text, sizeof text));
    return has && strncmp(text, "io_uring", 8) == 0;
}

static uint32_t n_slabs(const store_state *s)
{
    return (s->n_records + s->slab_slots - 1) / s->slab_slots;
}

/* The last slab is used up to here. */
static uint64_t last_bytes(const store_state *s)
{
    return (s->n_records - (n_slabs(s) - 1) * s->slab_slots) * s->slot_bytes;
}

static void slab_path(const store_state *s, uint32_t slab, char out[PATH_BYTES + 32])
{
    snprintf(out, PATH_BYTES + 32, "%s/slab-%06u", s->slabs, (unsigned)slab);
}

/* The slabs, as fio takes names of files. */
static void list_slabs(const store_state *s, char *out, size_t n_bytes)
{
    size_t at = 0;
    for (uint32_t i = 0; i < n_slabs(s); i++) {
        char slab[PATH_BYTES + 32];
        slab_path(s, i, slab);
        const int n = snprintf(out + at, n_bytes - at, "%s%s", i > 0 ? ":" : "", slab);
        REQUIRE(n > 0 && (size_t)n < n_bytes - at);
        at += (size_t)n;
    }
}

/* GB in a second, of terse output: fields 6 and 9 are KiB and ms of reads, 47 and 50 of writes. */
static double run_fio(const store_state *s, bool write)
{
    char slabs[8192];
    char command[sizeof slabs + 512];
    char output[8192] = "";
    list_slabs(s, slabs, sizeof slabs);
    snprintf(command, sizeof command,
             "fio --name=yardstick --filename=%s --rw=%s --bs=%llu --iodepth=%d "
             "--file_service_type=%s --ioengine=io_uring --direct=1 --thread --fallocate=none "
             "--minimal --terse-version=3 2>&1",
             slabs, write ? "write" : "randread", (unsigned long long)s->slot_bytes, DEPTH,
             write ? "sequential" : "random");
    FILE *fio = popen(command, "r");
    REQUIRE(fio != NULL);
    const size_t n = fread(output, 1, sizeof output - 1, fio);
    output[n] = 0;
    REQUIRE(pclose(fio) == 0);
    double fields[60] = {0};
    uint32_t n_fields = 0;
    for (const char *at = output; at && n_fields < 60; n_fields++) {
        fields[n_fields] = strtod(at, NULL);
        at = strchr(at, ';');
        at = at ? at + 1 : NULL;
    }
    const double kib = fields[write ? 46 : 5];
    const double ms = fields[write ? 49 : 8];
    REQUIRE(kib * 1024 == (double)(s->n_records * s->slot_bytes) && ms > 0);
    return kib * 1024 / (ms * 1e6);
}

static void use_store_slabs(store_state *s)
{
    snprintf(s->slabs, sizeof s->slabs, "%s/0707070707070707/w0", s->directory);
}

static double fio_again(void *state)
{
    if (!has_fio(state))
        return -1;
    use_store_slabs(state);
    return run_fio(state, true);
}

static double fio_read(void *state)
{
    if (!has_fio(state))
        return -1;
    use_store_slabs(state);
    return run_fio(state, false);
}

static double fio_new(void *state)
{
    if (!has_fio(state))
        return -1;
    store_state *s = state;
    snprintf(s->slabs, sizeof s->slabs, "%s.fio", s->directory);
    REQUIRE(mkdir(s->slabs, 0700) == 0);
    for (uint32_t i = 0; i < n_slabs(s); i++) {
        char path[PATH_BYTES + 32];
        slab_path(s, i, path);
        const int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
        REQUIRE(file >= 0);
        const uint64_t bytes = i + 1 < n_slabs(s) ? s->slab_slots * s->slot_bytes : last_bytes(s);
        REQUIRE(posix_fallocate(file, 0, (off_t)bytes) == 0);
        REQUIRE(close(file) == 0);
    }
    const double rate = run_fio(s, true);
    REQUIRE(nftw(s->slabs, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0);
    return rate;
}

#define ROW(name, ours, yardstick, note)                                                           \
    {                                                                                              \
        name, "GB/s", 0.9, SAMPLES, ours, yardstick, note                                          \
    }
#define ROWS(size)                                                                                 \
    {                                                                                              \
        ROW("store_file_new_" size, write_new, fio_new, "into fresh space; yardstick: fio"),       \
            ROW("store_file_write_" size, write_again, fio_again, "over older records"),           \
            ROW("store_file_read_" size, read_all, fio_read, "in random order"),                   \
    }

static const measurement rows_64k[] = ROWS("64k");
static const measurement rows_512k[] = ROWS("512k");
static const measurement rows_2m[] = ROWS("2m");

const group store_64k_group = {rows_64k, 3, set_up_64k, tear_down};
const group store_512k_group = {rows_512k, 3, set_up_512k, tear_down};
const group store_2m_group = {rows_2m, 3, set_up_2m, tear_down};

#else

const group store_64k_group = {NULL, 0, NULL, NULL}; /* libkvpager_store is not built here */
const group store_512k_group = {NULL, 0, NULL, NULL};
const group store_2m_group = {NULL, 0, NULL, NULL};

#endif

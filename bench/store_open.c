/* Opening a file store whose log is not in memory, and asking it for keys.
 *
 *   store_open_1m          a million records, the log as a close leaves it, in a cold page cache
 *   store_open_1m_killed   the log as a kill leaves it at its longest: two entries for each slot
 *   store_open_50k         50,000 records
 *   store_close_1m         the close after it, which writes the log anew
 *   store_have_8192        8,192 keys, drawn from a million records, half of them absent
 *   store_digest_8192      digests of 8,192 blocks of 16 tokens
 *
 * Logs are written with the library's own calls; slabs are holes of the right size, 512 KiB of KV
 * for each record: what is in them is not read. All lies in the working directory. Before each
 * opening the log is written out and dropped from the page cache. */
#define _XOPEN_SOURCE 700 /* nftw, posix_fadvise */

#include "bench.h"

#ifdef KVP_BENCH_STORE

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <kvpager/store.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/file/log.h"
#include "store/file/slabs.h"

enum {
    MILLION = 1000000,
    FEW = 50000,
    QUICK_FACTOR = 20,
    CHAIN = 16,
    SPACES = 100,
    TOKENS = 16,
    KEYS = 8192,
    HEADER_BYTES = 4096,
    PAYLOAD_BYTES = 512 * 1024,
    SLOT_BYTES = HEADER_BYTES + PAYLOAD_BYTES
};

typedef struct store_open_state {
    uint32_t n;
    char directory[64];
    char home[128];
    kvp_store *store; /* for have */
    kvp_digest keys[KEYS];
    uint64_t bits[KEYS / 64];
    uint64_t expected[KEYS / 64];
    kvp_digester *digester;
    int32_t *tokens;     /* [KEYS * TOKENS] */
    kvp_digest *digests; /* [KEYS] */
    double close_ns;     /* of the last opening */
} store_open_state;

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static kvp_digest key_of(uint64_t record)
{
    kvp_digest key = {{0}};
    for (unsigned i = 0; i < 4; i++) {
        const uint64_t word = mix(record * 4 + i + 1);
        memcpy(key.bytes + 8 * i, &word, 8);
    }
    return key;
}

/* ----------------------------------------------------------------------------------- the files */

static void append(struct kvpi_log *log, uint32_t kind, uint32_t slot, uint32_t generation)
{
    const kvp_digest key = key_of(slot + (uint64_t)generation * MILLION * 8);
    struct kvpi_log_entry entry = {.kind = kind,
                                   .slot = slot,
                                   .generation = generation,
                                   .parent = slot % CHAIN == 0 ? KVPI_INDEX_NONE : slot - 1,
                                   .parent_generation = slot % CHAIN == 0 ? 0 : generation,
                                   .written = 29000000,
                                   .space = slot / CHAIN % SPACES};
    memcpy(entry.key, key.bytes, sizeof entry.key);
    REQUIRE(kvpi_log_append(log, &entry) == 0);
}

/* killed: half of the slots were dropped and used again since the log was begun. */
static void write_log(const char *path, const struct kvpi_log_form *form, uint32_t n, bool killed)
{
    struct kvpi_log log;
    REQUIRE(kvpi_log_create(&log, &kvpi_system_disk, path, form, 12345) == 0);
    for (uint32_t slot = 0; slot < n; slot++)
        append(&log, KVPI_LOG_PUT, slot, 1);
    for (uint32_t slot = 0; slot < n / 2 / CHAIN * CHAIN && killed; slot++)
        append(&log, KVPI_LOG_DROP, slot, 1);
    for (uint32_t slot = 0; slot < n / 2 / CHAIN * CHAIN && killed; slot++)
        append(&log, KVPI_LOG_PUT, slot, 2);
    kvpi_log_close(&log);
}

static void make_slabs(const store_open_state *s, const struct kvpi_log_form *form)
{
    for (uint32_t k = 0; k * (uint64_t)form->slab_slots < form->n_slots; k++) {
        char path[256];
        snprintf(path, sizeof path, "%s/slab-%06u", s->home, (unsigned)k);
        const int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        REQUIRE(file >= 0);
        REQUIRE(ftruncate(file, (off_t)(form->slab_slots * form->slot_bytes)) == 0);
        close(file);
    }
}

static void *make(const bench_options *options, uint32_t n)
{
    store_open_state *s = allocate(sizeof *s);
    s->n = options->quick ? n / QUICK_FACTOR : n;
    snprintf(s->directory, sizeof s->directory, "kvp_bench_open_XXXXXX");
    REQUIRE(mkdtemp(s->directory) != NULL);
    snprintf(s->home, sizeof s->home, "%s/0100000000000000", s->directory);
    REQUIRE(mkdir(s->home, 0700) == 0);
    snprintf(s->home, sizeof s->home, "%s/0100000000000000/w0", s->directory);
    REQUIRE(mkdir(s->home, 0700) == 0);
    struct kvpi_log_form form = {.slot_bytes = SLOT_BYTES,
                                 .header_bytes = HEADER_BYTES,
                                 .record_blocks = 1,
                                 .block_tokens = TOKENS,
                                 .n_slots = s->n};
    form.slab_slots = kvpi_slab_slots(SLOT_BYTES, s->n);
    form.n_slots = (s->n + form.slab_slots - 1) / form.slab_slots * form.slab_slots;
    make_slabs(s, &form);
    for (int killed = 0; killed < 2; killed++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", s->directory, killed ? "killed" : "closed");
        write_log(path, &form, s->n, killed);
    }
    return s;
}

/* Put a copy of a log into its place, and out of the page cache. */
static void place_log(const store_open_state *s, const char *name)
{
    char from_path[256];
    char to_path[256];
    snprintf(from_path, sizeof from_path, "%s/%s", s->directory, name);
    snprintf(to_path, sizeof to_path, "%s/log", s->home);
    const int from = open(from_path, O_RDONLY);
    const int to = open(to_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    REQUIRE(from >= 0 && to >= 0);
    static uint8_t bytes[1 << 20];
    ssize_t n;
    while ((n = read(from, bytes, sizeof bytes)) > 0)
        REQUIRE(write(to, bytes, (size_t)n) == n);
    REQUIRE(fdatasync(to) == 0);
    REQUIRE(posix_fadvise(to, 0, 0, POSIX_FADV_DONTNEED) == 0);
    close(from);
    close(to);
}

static kvp_store *open_it(const store_open_state *s)
{
    kvp_store_config config;
    kvp_store_config_init(&config);
    char url[128];
    snprintf(url, sizeof url, "file:%s?size=%" PRIu64, s->directory,
             ((uint64_t)s->n + 8192) * (SLOT_BYTES + 256));
    config.url = url;
    config.fingerprint.bytes[0] = 1;
    config.block_tokens = TOKENS;
    config.block_bytes[0] = PAYLOAD_BYTES;
    config.record_blocks = 1;
    config.threads = 0;
    kvp_store *store = NULL;
    char why[256];
    const kvp_status status = kvp_store_open(&config, &store, why, sizeof why);
    if (status != KVP_OK)
        fprintf(stderr, "kvp_bench: %s\n", why);
    REQUIRE_OK(status);
    return store;
}

static double time_open(store_open_state *s, const char *log)
{
    place_log(s, log);
    const uint64_t begin = now_ns();
    kvp_store *store = open_it(s);
    const uint64_t end = now_ns();
    const kvp_digest key = key_of(s->n - 1 + (uint64_t)MILLION * 8);
    uint64_t bits = 0;
    kvp_store_stats stats;
    REQUIRE_OK(kvp_store_have(store, &key, 1, &bits, 0));
    REQUIRE_OK(kvp_store_work(store, NULL));
    REQUIRE_OK(kvp_store_stats_get(store, &stats));
    REQUIRE(bits == 1 && stats.records == s->n);
    const uint64_t begin_close = now_ns();
    kvp_store_close(store);
    s->close_ns = (double)(now_ns() - begin_close);
    return (double)(end - begin) / 1e6;
}

static double open_closed(void *state)
{
    return time_open(state, "closed");
}

static double open_killed(void *state)
{
    return time_open(state, "killed");
}

static double close_again(void *state)
{
    store_open_state *s = state;
    time_open(s, "closed");
    return s->close_ns / 1e6;
}

static int remove_entry(const char *path, const struct stat *stat, int kind, struct FTW *walk)
{
    (void)stat;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void tear_down(void *state)
{
    store_open_state *s = state;
    kvp_store_close(s->store);
    kvp_digester_destroy(s->digester);
    free(s->tokens);
    free(s->digests);
    nftw(s->directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(s);
}

static void *set_up_million(const bench_options *options)
{
    return make(options, MILLION);
}

static void *set_up_few(const bench_options *options)
{
    return make(options, FEW);
}

static const measurement open_measurements[] = {
    {"store_open_1m", "ms", 1000, 7, open_closed, NULL, "the log in a cold page cache"},
    {"store_open_1m_killed", "ms", 2000, 7, open_killed, NULL, "two entries for each slot"},
    {"store_close_1m", "ms", 0, 3, close_again, NULL, NULL},
};

const group store_open_1m_group = {open_measurements,
                                   sizeof open_measurements / sizeof *open_measurements,
                                   set_up_million, tear_down};

static const measurement few_measurements[] = {
    {"store_open_50k", "ms", 60, 21, open_closed, NULL, "the log in a cold page cache"},
};

const group store_open_50k_group = {few_measurements, 1, set_up_few, tear_down};

/* -------------------------------------------------------------------------------- have, digests */

static void *set_up_keys(const bench_options *options)
{
    store_open_state *s = make(options, MILLION);
    place_log(s, "closed");
    s->store = open_it(s);
    REQUIRE_OK(kvp_digester_create(&s->digester));
    s->tokens = allocate(sizeof *s->tokens * KEYS * TOKENS);
    s->digests = allocate(sizeof *s->digests * KEYS);
    for (uint32_t i = 0; i < KEYS * TOKENS; i++)
        s->tokens[i] = (int32_t)(mix(i) % 128256);
    return s;
}

/* Other keys each time: none is in a CPU cache. */
static double have(void *state)
{
    static uint64_t round;
    store_open_state *s = state;
    round++;
    memset(s->expected, 0, sizeof s->expected);
    for (uint32_t i = 0; i < KEYS; i++) {
        const uint64_t drawn = mix(round * KEYS + i);
        const bool there = drawn & 1;
        s->keys[i] = key_of((drawn >> 1) % s->n + (there ? (uint64_t)MILLION * 8 : 1));
        s->expected[i / 64] |= (uint64_t)there << i % 64;
    }
    kvp_store_done done;
    uint32_t n = 0;
    const uint64_t begin = now_ns();
    REQUIRE_OK(kvp_store_have(s->store, s->keys, KEYS, s->bits, 0));
    REQUIRE_OK(kvp_store_work(s->store, NULL));
    const uint64_t end = now_ns();
    REQUIRE_OK(kvp_store_poll(s->store, &done, 1, &n));
    REQUIRE(n == 1 && done.result == KVP_STORE_OK);
    REQUIRE(memcmp(s->bits, s->expected, sizeof s->bits) == 0);
    return (double)(end - begin);
}

static double digest(void *state)
{
    store_open_state *s = state;
    const kvp_hash_input input = {
        .tokens = s->tokens, .n_tokens = KEYS * TOKENS, .unit_tokens = TOKENS};
    const kvp_digest root = key_of(1);
    const uint64_t begin = now_ns();
    REQUIRE_OK(kvp_digest_blocks(s->digester, &input, &root, s->digests));
    return (double)(now_ns() - begin);
}

static const measurement key_measurements[] = {
    {"store_have_8192", "ns", 400000, 101, have, NULL, "of a million records; keys are given"},
    {"store_digest_8192", "ns", 570000, 101, digest, NULL, "blocks of 16 tokens"},
};

const group store_keys_group = {key_measurements, 2, set_up_keys, tear_down};

#else

const group store_open_1m_group = {0};
const group store_open_50k_group = {0};
const group store_keys_group = {0};

#endif

/* A store from outside: records that come back as they were, every way in which an operation ends,
 * and what the calls refuse. On the memory back end, without and with its thread. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"

#include <kvpager/store.h>

enum { BLOCK_BYTES = 300, BLOCKS = 2, TOKENS = 4 };

#include "chain_records.h"

static const char url_8[] = "memory:?size=37568"; /* eight slots */

static kvp_store *open_store(const kvp_store_config *config)
{
    kvp_store *store = NULL;
    char why[200];
    const kvp_status status = kvp_store_open(config, &store, why, sizeof why);
    if (status != KVP_OK)
        print_error("%s\n", why);
    assert_int_equal(status, KVP_OK);
    assert_string_equal(why, "");
    return store;
}

/* The result of the only operation that is on its way. */
static uint32_t result_of(kvp_store *store, uint64_t tag)
{
    kvp_store_done done = {0};
    uint32_t n = 0;
    while (n == 0) {
        if (kvp_store_work(store, NULL) == KVP_E_STATE) {
            /* It is told: no poll but one that ran out of time would see that it was not. */
            struct pollfd poll_fd = {.fd = kvp_store_fd(store), .events = POLLIN};
            assert_int_equal(poll(&poll_fd, 1, 10000), 1);
        }
        assert_int_equal(kvp_store_poll(store, &done, 1, &n), KVP_OK);
    }
    assert_true(done.tag == tag);
    return done.result;
}

static uint32_t put(kvp_store *store, struct record *record)
{
    assert_int_equal(kvp_store_put(store, &record->identity, record->blocks, 7), KVP_OK);
    return result_of(store, 7);
}

/* Gets into other memory, and compares what comes. */
static uint32_t get(kvp_store *store, const struct record *record)
{
    uint8_t kv[BLOCKS][BLOCK_BYTES] = {{0}};
    void *blocks[BLOCKS] = {kv[0], kv[1]};
    assert_int_equal(kvp_store_get(store, &record->identity, blocks, 8), KVP_OK);
    const uint32_t result = result_of(store, 8);
    if (result == KVP_STORE_OK)
        assert_memory_equal(kv, record->kv, sizeof kv);
    return result;
}

static kvp_store_stats stats_of(const kvp_store *store)
{
    kvp_store_stats stats;
    assert_int_equal(kvp_store_stats_get(store, &stats), KVP_OK);
    return stats;
}

/* ------------------------------------------------------------------------------ what comes back */

/* The sum of times is within what their buckets say. */
static void check_sum(const uint64_t counts[KVP_STORE_LATENCIES], uint64_t sum_ns)
{
    uint64_t least = 0, most = 0;
    for (unsigned b = 0; b + 1 < KVP_STORE_LATENCIES; b++) {
        least += b > 0 ? counts[b] << (b + 9) : 0;
        most += counts[b] << (b + 10);
    }
    assert_true(sum_ns >= least && sum_ns < most);
}

static void round_trip(kvp_store *store)
{
    struct record root, child, other;
    make_record(&root, 1, 0, NULL);
    make_record(&child, 1, 1, &root);
    make_record(&other, 2, 1, &root);
    other.identity.parent = input_digest(99);
    assert_int_equal(get(store, &root), KVP_STORE_ABSENT);
    assert_int_equal(put(store, &child), KVP_STORE_NO_PARENT);
    assert_int_equal(put(store, &root), KVP_STORE_OK);
    assert_int_equal(put(store, &child), KVP_STORE_OK);
    assert_int_equal(put(store, &child), KVP_STORE_KNOWN);
    assert_int_equal(put(store, &other), KVP_STORE_NO_PARENT);
    assert_int_equal(get(store, &root), KVP_STORE_OK);
    assert_int_equal(get(store, &child), KVP_STORE_OK);

    const kvp_digest keys[] = {other.key, child.key, root.key};
    uint64_t bits = ~UINT64_C(0);
    assert_int_equal(kvp_store_have(store, keys, 3, &bits, 9), KVP_OK);
    assert_int_equal(result_of(store, 9), KVP_STORE_OK);
    assert_true(bits == 6);
    assert_int_equal(kvp_store_sync(store, 10), KVP_OK);
    assert_int_equal(result_of(store, 10), KVP_STORE_OK);
    assert_int_equal(kvp_store_drop(store, &root.key, 1, 11), KVP_OK);
    assert_int_equal(result_of(store, 11), KVP_STORE_OK);
    assert_int_equal(get(store, &root), KVP_STORE_ABSENT);
    assert_int_equal(get(store, &child), KVP_STORE_ABSENT);

    const kvp_store_stats stats = stats_of(store);
    assert_fields(stats, records, 0, puts, 5, stored, 2, known, 1);
    assert_fields(stats, refused, 2, gets, 5, hits, 2, absent, 3);
    assert_fields(stats, dropped, 2, queued, 0, written_bytes, 2 * BLOCKS * BLOCK_BYTES, read_bytes,
                  2 * BLOCKS * BLOCK_BYTES);
    uint64_t timed = 0;
    for (unsigned i = 0; i < KVP_STORE_LATENCIES; i++)
        timed += stats.get_ns[i] + stats.put_ns[i];
    assert_int_equal(timed, 10);
    check_sum(stats.get_ns, stats.get_sum_ns);
    check_sum(stats.put_ns, stats.put_sum_ns);
}

TEST(test_records_come_back)
{
    kvp_store_config config = config_of(url_8);
    scoped_store *store = open_store(&config);
    round_trip(store);
}

TEST(test_records_come_back_by_a_thread)
{
    kvp_store_config config = config_of(url_8);
    config.threads = 1;
    scoped_store *store = open_store(&config);
    round_trip(store);
    assert_int_equal(kvp_store_work(store, NULL), KVP_E_STATE);
}

TEST(test_a_secret_guards_records)
{
    kvp_store_config config = config_of(url_8);
    config.secret = "0123456789abcdef";
    config.secret_bytes = 16;
    scoped_store *store = open_store(&config);
    round_trip(store);
}

/* The key finds it, its header says that it is another one's: two records with one digest. */
TEST(test_a_record_of_another_identity_is_bad)
{
    kvp_store_config config = config_of(url_8);
    scoped_store *store = open_store(&config);
    struct record record, forged;
    make_record(&record, 1, 0, NULL);
    make_record(&forged, 1, 0, NULL);
    forged.tokens[3]++;
    assert_int_equal(put(store, &record), KVP_STORE_OK);
    assert_int_equal(get(store, &forged), KVP_STORE_BAD);
    const kvp_store_stats stats = stats_of(store);
    assert_fields(stats, bad[KVP_BAD_IDENTITY], 1, records, 0);
    assert_int_equal(get(store, &record), KVP_STORE_ABSENT);
}

TEST(test_the_limit_holds_and_leaves_go_first)
{
    kvp_store_config config = config_of(url_8);
    scoped_store *store = open_store(&config);
    struct record chain[9];
    for (unsigned i = 0; i < 9; i++) {
        make_record(&chain[i], 1, i, i > 0 ? &chain[i - 1] : NULL);
        /* Eight slots: for the ninth of one chain there is nothing that it does not need. */
        assert_int_equal(put(store, &chain[i]), i < 8 ? KVP_STORE_OK : KVP_STORE_NO_ROOM);
        const unsigned n = i < 8 ? i + 1 : 8;
        assert_fields(stats_of(store), records, n, bytes, n * 4696, size, 8 * 4696);
    }
    struct record root;
    make_record(&root, 2, 0, NULL);
    assert_int_equal(put(store, &root), KVP_STORE_OK);
    assert_int_equal(get(store, &chain[7]), KVP_STORE_ABSENT);
    assert_int_equal(get(store, &chain[6]), KVP_STORE_OK);
    assert_int_equal(stats_of(store).evicted, 1);
}

/* ------------------------------------------------------------------------------------ the queue */

static uint64_t now;

static uint64_t test_clock(void *context)
{
    (void)context;
    return now;
}

/* Nanoseconds between the call and the end, and the bucket that counts them. */
TEST(test_times_are_counted_by_size)
{
    static const struct {
        int64_t took;
        unsigned bucket;
    } cases[] = {{0, 0},
                 {-5, 0}, /* the clock went back: none */
                 {1023, 0},
                 {1024, 1},
                 {2047, 1},
                 {2048, 2},
                 {(INT64_C(1) << 40) - 1, 30},
                 {INT64_C(1) << 40, 31},
                 {INT64_C(1) << 50, 31}};
    kvp_store_config config = config_of(url_8);
    config.now = test_clock;
    scoped_store *store = open_store(&config);
    struct record record;
    make_record(&record, 1, 0, NULL);
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        const kvp_store_stats before = stats_of(store);
        const uint64_t took = cases[i].took > 0 ? (uint64_t)cases[i].took : 0;
        now = UINT64_C(1) << 60;
        assert_int_equal(kvp_store_get(store, &record.identity, record.blocks, 8), KVP_OK);
        assert_int_equal(kvp_store_put(store, &record.identity, record.blocks, 7), KVP_OK);
        now += (uint64_t)cases[i].took;
        (void)input_result(store);
        (void)input_result(store);
        const kvp_store_stats after = stats_of(store);
        for (unsigned b = 0; b < KVP_STORE_LATENCIES; b++) {
            assert_int_equal(after.get_ns[b] - before.get_ns[b], b == cases[i].bucket);
            assert_int_equal(after.put_ns[b] - before.put_ns[b], b == cases[i].bucket);
        }
        assert_int_equal(after.get_sum_ns - before.get_sum_ns, took);
        assert_int_equal(after.put_sum_ns - before.put_sum_ns, took);
    }
}

TEST(test_a_full_queue_says_again)
{
    kvp_store_config config = config_of(url_8);
    config.max_ops = 8;
    scoped_store *store = open_store(&config);
    struct record record;
    make_record(&record, 1, 0, NULL);
    for (uint64_t tag = 0; tag < 8; tag++)
        assert_int_equal(kvp_store_put(store, &record.identity, record.blocks, tag), KVP_OK);
    uint64_t bits;
    assert_int_equal(kvp_store_put(store, &record.identity, record.blocks, 8), KVP_E_AGAIN);
    assert_int_equal(kvp_store_get(store, &record.identity, record.blocks, 8), KVP_E_AGAIN);
    assert_int_equal(kvp_store_have(store, &record.key, 1, &bits, 8), KVP_E_AGAIN);
    assert_int_equal(kvp_store_drop(store, &record.key, 1, 8), KVP_E_AGAIN);
    assert_int_equal(kvp_store_sync(store, 8), KVP_E_AGAIN);
    const kvp_store_match none = {.written_before = 0};
    assert_int_equal(kvp_store_evict(store, &none, 8), KVP_E_AGAIN);
    assert_int_equal(stats_of(store).queued, 8);
    assert_int_equal(kvp_store_wait(store, 0), KVP_E_AGAIN);
    int idle = 0;
    assert_int_equal(kvp_store_work(store, &idle), KVP_OK);
    assert_int_equal(idle, 1);
    assert_int_equal(kvp_store_wait(store, 0), KVP_OK);
    kvp_store_done done[8];
    uint32_t n = 0;
    unsigned seen = 0;
    assert_int_equal(kvp_store_poll(store, done, 3, &n), KVP_OK);
    assert_int_equal(n, 3);
    assert_int_equal(kvp_store_wait(store, 0), KVP_OK);
    for (uint32_t i = 0; i < n; i++)
        seen |= 1u << done[i].tag;
    assert_int_equal(kvp_store_poll(store, done, 8, &n), KVP_OK);
    assert_int_equal(n, 5);
    for (uint32_t i = 0; i < n; i++)
        seen |= 1u << done[i].tag;
    assert_int_equal(seen, 0xFF);
    assert_int_equal(kvp_store_wait(store, 0), KVP_E_AGAIN);
}

TEST(test_close_ends_what_is_on_its_way)
{
    for (uint32_t threads = 0; threads < 2; threads++) {
        kvp_store_config config = config_of(url_8);
        config.threads = threads;
        kvp_store *store = open_store(&config);
        struct record record;
        make_record(&record, 1, 0, NULL);
        for (uint64_t tag = 0; tag < 8; tag++)
            kvp_store_put(store, &record.identity, record.blocks, tag);
        kvp_store_close(store);
    }
    kvp_store_close(NULL);
}

/* ------------------------------------------------------------------------------------- refusals */

static void refuse_open(const kvp_store_config *config, const char *field)
{
    kvp_store *store = NULL;
    char why[300] = "untouched";
    assert_int_equal(kvp_store_open(config, &store, why, sizeof why), KVP_E_ARG);
    assert_null(store);
    if (!strstr(why, field))
        print_error("\"%s\" does not name %s\n", why, field);
    assert_non_null(strstr(why, field));
}

TEST(test_open_names_what_is_wrong)
{
    kvp_store_config config;
#define REFUSE(member, value, name)                                                                \
    do {                                                                                           \
        config = config_of(url_8);                                                                 \
        config.member = (value);                                                                   \
        refuse_open(&config, name);                                                                \
    } while (0)
    REFUSE(struct_size, 8, "struct_size");
    REFUSE(fingerprint, (kvp_digest){{0}}, "fingerprint");
    REFUSE(block_tokens, 0, "block_tokens");
    REFUSE(block_tokens, KVP_BLOCK_TOKENS_MAX + 1, "block_tokens");
    REFUSE(n_groups, 0, "n_groups");
    REFUSE(n_groups, KVP_GROUPS_MAX + 1, "n_groups");
    REFUSE(n_groups, 2, "block_bytes");
    REFUSE(block_bytes[0], UINT64_C(1) << 31, "block_bytes");
    REFUSE(record_blocks, 3, "record_blocks");
    REFUSE(record_blocks, 128, "record_blocks");
    REFUSE(group_tokens[0], 3 * TOKENS, "group_tokens");
    REFUSE(group_tokens[0], 4 * TOKENS, "group_tokens");
    REFUSE(key_bytes, (1 << 20) + 1, "key_bytes");
    REFUSE(max_ops, 0, "max_ops");
    REFUSE(max_ops, KVP_STORE_QUEUE_MAX + 1, "max_ops");
    REFUSE(threads, 2, "threads");
    REFUSE(secret_bytes, 16, "secret");
    REFUSE(url, NULL, "url");
    REFUSE(url, "memory", "SCHEME:PATH");
    REFUSE(url, ":x", "SCHEME:PATH");
    REFUSE(url, "cloud:x", "\"cloud:\"");
    REFUSE(url, "memory:path", "no path");
    REFUSE(url, "memory:?size=1B", "at least one record");
    REFUSE(url, "memory:?size=80", "which is bytes: 80GiB?");
    REFUSE(url, "memory:?size=", "size");
    REFUSE(url, "memory:?size=0", "size");
    REFUSE(url, "memory:?size=5 MB", "5 MB");
    REFUSE(url, "memory:?size=99999999999999999999", "size");
    REFUSE(url, "memory:?size=8388608TiB", "size");
    REFUSE(url, "memory:?size=1MiB&size=2MiB", "twice");
    REFUSE(url, "memory:?size=1MiB&speed=2", "\"speed\"");
    REFUSE(url, "memory:?size", "size");
    REFUSE(url, "memory:?max_age=7", "max_age");
    REFUSE(url, "memory:?max_age=0d", "s, m, h or d");
    REFUSE(url, "memory:?max_age=99999999d", "max_age");
    REFUSE(url, "memory:?quota=1KiB", "quota is 1024");
#undef REFUSE
    kvp_store *store = NULL;
    assert_int_equal(kvp_store_open(NULL, &store, NULL, 0), KVP_E_ARG);
    config = config_of(url_8);
    assert_int_equal(kvp_store_open(&config, NULL, NULL, 0), KVP_E_ARG);
    static const char secret[1025];
    config.secret = secret;
    for (unsigned i = 0; i < 4; i++) {
        static const uint32_t lengths[] = {15, 16, 1024, 1025};
        config.secret_bytes = lengths[i];
        const kvp_status expected = i == 1 || i == 2 ? KVP_OK : KVP_E_ARG;
        assert_int_equal(kvp_store_open(&config, &store, NULL, 0), expected);
        kvp_store_close(expected == KVP_OK ? store : NULL);
    }
}

/* The most of each is no mistake, and works. */
TEST(test_the_most_is_accepted)
{
    kvp_store_config config = config_of("memory:?size=4MiB");
    config.max_ops = KVP_STORE_QUEUE_MAX;
    config.n_groups = KVP_GROUPS_MAX;
    for (unsigned g = 1; g < KVP_GROUPS_MAX; g++)
        config.block_bytes[g] = BLOCK_BYTES;
    kvp_store *store = open_store(&config);
    struct record record;
    make_record(&record, 1, 0, NULL);
    record.identity.group = KVP_GROUPS_MAX - 1;
    for (unsigned i = 0; i < KVP_STORE_QUEUE_MAX; i++)
        assert_int_equal(kvp_store_put(store, &record.identity, record.blocks, 7), KVP_OK);
    assert_int_equal(kvp_store_sync(store, 7), KVP_E_AGAIN);
    for (unsigned i = 0; i < KVP_STORE_QUEUE_MAX; i++)
        (void)input_result(store);
    assert_fields(stats_of(store), stored, 1, known, KVP_STORE_QUEUE_MAX - 1, queued, 0);
    kvp_store_close(store);
    config = config_of("memory:?size=4MiB");
    config.block_tokens = KVP_BLOCK_TOKENS_MAX;
    config.key_bytes = 1 << 20;
    config.max_ops = 1;
    store = open_store(&config);
    kvp_store_close(store);
}

TEST(test_records_that_do_not_fit_are_refused)
{
    kvp_store_config config = config_of(url_8);
    scoped_store *store = open_store(&config);
    struct record good, bad;
    make_record(&good, 1, 0, NULL);
#define REFUSE(member, value, status)                                                              \
    do {                                                                                           \
        bad = good;                                                                                \
        bad.identity.member = (value);                                                             \
        assert_int_equal(kvp_store_put(store, &bad.identity, bad.blocks, 0), status);              \
        assert_int_equal(kvp_store_get(store, &bad.identity, bad.blocks, 0), status);              \
    } while (0)
    REFUSE(fingerprint.bytes[0], 99, KVP_E_ARG);
    REFUSE(group, 1, KVP_E_ARG);
    REFUSE(block_tokens, 2 * TOKENS, KVP_E_ARG);
    REFUSE(n_blocks, 1, KVP_E_ARG);
    REFUSE(tokens, NULL, KVP_E_ARG);
#undef REFUSE
    static const char digest[52];
    const kvp_key keys[2] = {{.end = 8, .n_bytes = 52, .bytes = digest},
                             {.end = 8, .n_bytes = 25, .bytes = digest}};
    bad = good;
    bad.identity.keys = keys;
    bad.identity.n_keys = 2;
    assert_int_equal(kvp_store_put(store, &bad.identity, bad.blocks, 0), KVP_E_TOO_LONG);
    bad = good;
    bad.blocks[1] = NULL;
    assert_int_equal(kvp_store_put(store, &bad.identity, bad.blocks, 0), KVP_E_ARG);
    assert_int_equal(kvp_store_put(store, NULL, bad.blocks, 0), KVP_E_ARG);
    assert_int_equal(kvp_store_put(NULL, &good.identity, good.blocks, 0), KVP_E_ARG);
    uint64_t bits;
    uint32_t n;
    assert_int_equal(kvp_store_have(store, &good.key, 0, &bits, 0), KVP_E_ARG);
    assert_int_equal(kvp_store_have(store, &good.key, KVP_STORE_KEYS_MAX + 1, &bits, 0), KVP_E_ARG);
    assert_int_equal(kvp_store_have(store, &good.key, 1, NULL, 0), KVP_E_ARG);
    assert_int_equal(kvp_store_drop(store, NULL, 1, 0), KVP_E_ARG);
    assert_int_equal(kvp_store_sync(NULL, 0), KVP_E_ARG);
    assert_int_equal(kvp_store_evict(store, NULL, 0), KVP_E_ARG);
    assert_int_equal(kvp_store_poll(store, NULL, 1, &n), KVP_E_ARG);
    assert_int_equal(kvp_store_poll(store, NULL, 0, NULL), KVP_E_ARG);
    assert_int_equal(kvp_store_wait(NULL, 0), KVP_E_ARG);
    assert_int_equal(kvp_store_work(NULL, NULL), KVP_E_ARG);
    assert_int_equal(kvp_store_stats_get(store, NULL), KVP_E_ARG);
    char text[8];
    assert_int_equal(kvp_store_describe(store, text, 0), KVP_E_ARG);
    assert_int_equal(kvp_store_describe(store, NULL, 8), KVP_E_ARG);
    assert_int_equal(kvp_store_describe(NULL, text, 8), KVP_E_ARG);
    assert_int_equal(kvp_store_fd(NULL), -1);
    assert_int_equal(kvp_store_record_blocks(NULL), 0);
    assert_int_equal(stats_of(store).queued, 0);
}

TEST(test_the_size_of_a_record_is_chosen)
{
    static const struct {
        uint64_t block_bytes;
        uint32_t blocks;
    } cases[] = {{524288, 1}, {524287, 2}, {131072, 4}, {1, 64}, {2097152, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvp_store_config config = config_of("memory:?size=16MiB");
        config.record_blocks = 0;
        config.block_bytes[0] = cases[i].block_bytes;
        scoped_store *store = open_store(&config);
        assert_int_equal(kvp_store_record_blocks(store), cases[i].blocks);
    }
}

/* S of groups 0 and 1, and the blocks of a record of each. */
TEST(test_records_of_blocks_of_several_sizes)
{
    static const struct {
        uint32_t tokens[2];
        uint64_t block_bytes;
        uint32_t blocks[2];
    } cases[] = {{{16, 0}, 524288, {1, 1}},
                 {{16, 8}, 524288, {1, 2}},
                 {{16, 64}, 524288, {4, 1}},
                 {{128, 16}, 1, {8, 64}}, /* as many as the smaller blocks let it */
                 {{8, 16}, 131072, {4, 2}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvp_store_config config = config_of("memory:?size=16MiB");
        config.block_tokens = 16;
        config.record_blocks = 0;
        config.n_groups = 2;
        config.block_bytes[0] = config.block_bytes[1] = cases[i].block_bytes;
        memcpy(config.group_tokens, cases[i].tokens, sizeof cases[i].tokens);
        scoped_store *store = open_store(&config);
        for (uint32_t g = 0; g < 2; g++)
            assert_int_equal(kvp_store_group_blocks(store, g), cases[i].blocks[g]);
        assert_int_equal(kvp_store_group_blocks(store, 2), 0);
    }
    assert_int_equal(kvp_store_group_blocks(NULL, 0), 0);
}

/* A record has the blocks of its group, and comes back to as many. */
TEST(test_a_record_has_the_blocks_of_its_group)
{
    kvp_store_config config = config_of("memory:?size=16MiB");
    config.n_groups = 2;
    config.block_bytes[1] = config.block_bytes[0] / 4;
    config.group_tokens[1] = TOKENS / 4;
    scoped_store *store = open_store(&config);
    const uint32_t n = kvp_store_group_blocks(store, 1);
    struct record record;
    uint8_t kv[16 * BLOCK_BYTES / 4];
    void *blocks[17] = {NULL};
    make_record(&record, 1, 0, NULL);
    record.identity.group = 1;
    assert_int_equal(n, 4 * kvp_store_group_blocks(store, 0));
    for (uint32_t i = 0; i < n; i++)
        blocks[i] = record.kv[0] + i * (BLOCK_BYTES / 4);
    assert_int_equal(kvp_store_put(store, &record.identity, blocks, 1), KVP_OK);
    assert_int_equal(result_of(store, 1), KVP_STORE_OK);
    for (uint32_t i = 0; i < n; i++) /* in another order, so that each must be its own */
        blocks[i] = kv + (n - 1 - i) * (BLOCK_BYTES / 4);
    assert_int_equal(kvp_store_get(store, &record.identity, blocks, 2), KVP_OK);
    assert_int_equal(result_of(store, 2), KVP_STORE_OK);
    for (uint32_t i = 0; i < n; i++)
        assert_memory_equal(blocks[i], record.kv[0] + i * (BLOCK_BYTES / 4), BLOCK_BYTES / 4);
    blocks[n - 1] = NULL;
    assert_int_equal(kvp_store_get(store, &record.identity, blocks, 3), KVP_E_ARG);
}

TEST_MAIN(NULL, NULL)

/* Random requests on a store whose back end lies: it delays, reorders, fails, loses writes, tears
 * them, writes the record of another operation, reads damaged or foreign bytes. Whatever it does,
 * each operation ends once, and a get that is KVP_STORE_OK brings the KV of its own identity.
 *
 *   test_store_random [SEED [OPERATIONS]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "liar.h"
#include "store_inputs.h"

enum {
    CHAINS = 6,
    DEPTH = 8,
    RECORDS = CHAINS * DEPTH,
    SPACES = 3,
    QUOTA = 5,     /* slots */
    MAX_AGE = 900, /* seconds */
    FOREIGN = 4,   /* identities with the digest of another record: collisions, as it were */
    STATES = 8,    /* of these, half have the digest, the tokens and the group of a record of KV */
    ALL = RECORDS + FOREIGN + STATES,
    STATE_BYTES = 100
};

static uint64_t seed = 1;
static uint64_t n_operations = 60000;

/* ---------------------------------------------------------------------------------- the records */

struct record {
    int32_t tokens[BLOCKS * TOKENS];
    kvp_identity identity;
    uint8_t kv[BLOCKS][BLOCK_BYTES];
    void *blocks[BLOCKS];
    kvp_digest key;
    uint64_t put_ns; /* when it was put last, whatever came of it */
};

/* FOREIGN have the digest of record 0 to 3, and tokens and KV of their own. */
static struct record records[ALL];

static int is_state(uint32_t r)
{
    return r >= RECORDS + FOREIGN;
}

/* The bytes of a record: a state has one piece. */
static size_t n_bytes_of(uint32_t r)
{
    return !is_state(r) ? BLOCKS * BLOCK_BYTES
                        : (records[r].identity.group == 0 ? BLOCK_BYTES : STATE_BYTES);
}

static void make_states(void)
{
    for (unsigned r = RECORDS + FOREIGN; r < ALL; r++) {
        const unsigned like = r - RECORDS - FOREIGN;
        records[r] = records[like];
        records[r].identity.kind = KVP_IDENTITY_STATE;
        records[r].identity.tokens = records[r].tokens;
        records[r].identity.group = like % 2;
        records[r].identity.space = SPACES;
        if (like % 4 > 1) /* they need nothing before them */
            records[r].identity.parent = (kvp_digest){{0}};
        input_pattern(records[r].kv, sizeof records[r].kv, r * 3);
        records[r].kv[0][0] = (uint8_t)r;
        records[r].blocks[0] = records[r].kv;
        records[r].blocks[1] = NULL;
        records[r].key = input_key(&records[r].identity);
    }
}

static void make_records(void)
{
    for (unsigned r = 0; r < RECORDS + FOREIGN; r++) {
        struct record *record = &records[r];
        const unsigned like = r < RECORDS ? r : r - RECORDS;
        record->identity = input_identity(record->tokens, BLOCKS, TOKENS, like % DEPTH, r * 100);
        record->identity.digest = input_digest(like);
        record->identity.space = like / DEPTH % SPACES;
        if (like % DEPTH > 0)
            record->identity.parent = records[like - 1].key;
        for (int i = 0; i < BLOCKS; i++) {
            input_pattern(record->kv[i], BLOCK_BYTES, r * 3 + (unsigned)i);
            record->kv[i][0] = (uint8_t)r;
            record->blocks[i] = record->kv[i];
        }
        record->key = input_key(&record->identity);
    }
    make_states();
}

/* --------------------------------------------------------------------------------- the requests */

struct request {
    int open;
    uint32_t kind;
    uint32_t record;
    uint64_t since_ns;
    uint8_t kv[BLOCKS][BLOCK_BYTES];
    void *blocks[BLOCKS];
    uint64_t bits;
};

static struct request requests[OPS];
static uint64_t now;
static uint64_t n_at_quota;
static uint64_t n_expired;
static uint64_t n_states; /* that were read */
static uint64_t n_results[KVP_STORE_CLOSED + 1];

static uint64_t test_clock(void *context)
{
    (void)context;
    return now;
}

static void submit(kvp_store *store)
{
    uint32_t at = 0;
    while (at < OPS && requests[at].open)
        at++;
    if (at == OPS)
        return;
    struct request *request = &requests[at];
    const uint32_t r = request->record = draw(ALL);
    const uint32_t what = draw(100);
    kvp_status status;
    for (int i = 0; i < BLOCKS; i++)
        request->blocks[i] = is_state(r) && i > 0 ? NULL : request->kv[i];
    if (what < 45) {
        request->kind = KVP_STORE_PUT;
        records[r].put_ns = now;
        status = kvp_store_put(store, &records[r].identity, records[r].blocks, at);
    } else if (what < 94) {
        request->kind = KVP_STORE_GET;
        memset(request->kv, 0xEE, sizeof request->kv);
        status = kvp_store_get(store, &records[r].identity, request->blocks, at);
    } else if (what < 97) {
        request->kind = KVP_STORE_HAVE;
        status = kvp_store_have(store, &records[r].key, 1, &request->bits, at);
    } else if (what < 98) {
        request->kind = KVP_STORE_SYNC;
        status = kvp_store_sync(store, at);
    } else if (what < 99 && draw(4) == 0) {
        request->kind = KVP_STORE_EVICT;
        const kvp_store_match match = {.written_before = now / 1000000000 - draw(MAX_AGE),
                                       .space = draw(SPACES + 1),
                                       .one_space = draw(2)};
        status = kvp_store_evict(store, &match, at);
    } else {
        request->kind = KVP_STORE_DROP;
        status = kvp_store_drop(store, &records[r].key, 1, at);
    }
    assert_int_equal(status, KVP_OK);
    request->open = 1;
    request->since_ns = now;
}

static void take_ended(kvp_store *store)
{
    kvp_store_done done[OPS];
    uint32_t n;
    assert_int_equal(kvp_store_poll(store, done, 1 + draw(OPS), &n), KVP_OK);
    for (uint32_t i = 0; i < n; i++) {
        struct request *request = &requests[done[i].tag];
        assert_true(request->open);
        assert_int_equal(done[i].op, request->kind);
        assert_true(done[i].result < KVP_STORE_CLOSED);
        request->open = 0;
        n_results[done[i].result]++;
        if (request->kind != KVP_STORE_GET || done[i].result != KVP_STORE_OK)
            continue;
        const size_t n_bytes = n_bytes_of(request->record);
        const uint8_t *kv = (const uint8_t *)request->kv;
        assert_memory_equal(kv, records[request->record].kv, n_bytes);
        for (size_t k = n_bytes; k < sizeof request->kv; k++)
            assert_int_equal(kv[k], 0xEE);
        n_states += is_state(request->record) ? 1 : 0;
        const uint64_t put_ns = records[request->record].put_ns;
        assert_true(put_ns > request->since_ns ||
                    request->since_ns - put_ns < MAX_AGE * UINT64_C(1000000000));
    }
}

/* No namespace has more than its quota: asked for once everything has ended. */
static void check_quota(kvp_store *store)
{
    uint32_t n_open;
    do {
        kvp_store_work(store, NULL);
        take_ended(store);
        n_open = 0;
        for (uint32_t i = 0; i < OPS; i++)
            n_open += requests[i].open != 0;
    } while (n_open > 0);
    kvp_digest keys[RECORDS];
    for (uint32_t r = 0; r < RECORDS; r++)
        keys[r] = records[r].key;
    uint64_t bits[(RECORDS + 63) / 64];
    assert_int_equal(kvp_store_have(store, keys, RECORDS, bits, 0), KVP_OK);
    if (input_result(store) != KVP_STORE_OK)
        return; /* it is left alone */
    uint32_t n[SPACES] = {0};
    for (uint32_t r = 0; r < RECORDS; r++) {
        if (r < STATES && r % 2 == 0)
            continue; /* a state of another namespace has the same key */
        n[records[r].identity.space] += (uint32_t)(bits[r / 64] >> r % 64 & 1);
    }
    for (uint32_t i = 0; i < SPACES; i++) {
        assert_true(n[i] <= QUOTA);
        n_at_quota += n[i] == QUOTA;
    }
}

static void run(unsigned rate)
{
    memset(requests, 0, sizeof requests);
    memset(n_results, 0, sizeof n_results);
    memset(n_faults, 0, sizeof n_faults);
    fault_rate = rate;
    kvp_store_config config;
    kvp_store_config_init(&config);
    char url[100]; /* 22 slots, of which four quotas take 20 */
    snprintf(url, sizeof url, "liar:?size=100000&quota=%d&max_age=%ds",
             QUOTA * (4096 + BLOCKS * STATE_BYTES), MAX_AGE);
    config.url = url;
    config.fingerprint = input_digest(1);
    config.block_tokens = TOKENS;
    config.block_bytes[0] = BLOCK_BYTES;
    config.n_groups = 2;
    config.block_bytes[1] = STATE_BYTES;
    config.record_blocks = BLOCKS;
    config.max_ops = OPS;
    config.threads = 0;
    config.now = test_clock;
    scoped_store *store;
    assert_int_equal(kvpi_store_open(&config, &liar_backend, &store, NULL, 0), KVP_OK);
    kvp_store_stats stats;
    for (uint64_t i = 0; i < n_operations; i++) {
        now += draw(500000000);
        const uint32_t what = draw(10);
        if (what < 5)
            submit(store);
        else if (what < 8)
            assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
        else
            take_ended(store);
        assert_int_equal(kvp_store_stats_get(store, &stats), KVP_OK);
        assert_true(stats.bytes <= stats.size);
        if (i % 512 == 0)
            check_quota(store);
    }
    for (int idle = 0; !idle;)
        assert_int_equal(kvp_store_work(store, &idle), KVP_OK);
    uint32_t n_open = OPS;
    while (n_open > 0) {
        take_ended(store);
        n_open = 0;
        for (uint32_t i = 0; i < OPS; i++)
            n_open += requests[i].open != 0;
    }
    assert_int_equal(kvp_store_stats_get(store, &stats), KVP_OK);
    assert_int_equal(stats.queued, 0);
    n_expired = stats.expired;
    uint64_t n_bad = 0;
    for (unsigned i = 0; i < KVP_BAD_REASONS; i++)
        n_bad += stats.bad[i];
    assert_true(n_bad == n_results[KVP_STORE_BAD]);
    assert_true(stats.hits + stats.absent + stats.raced + n_bad <= stats.gets);
}

TEST(test_nobody_reads_foreign_kv)
{
    random_state = seed * UINT64_C(0x9E3779B97F4A7C15);
    for (unsigned round = 0; round < 4; round++) {
        static const unsigned rates[] = {0, 10, 100, 400};
        n_at_quota = n_expired = n_states = 0;
        run(rates[round]);
        if (n_operations >= 20000 && rates[round] < 100)
            assert_true(n_at_quota > 0 && n_expired > 0);
        assert_true(n_results[KVP_STORE_OK] > 0);
        assert_true(n_states > 0 || n_operations < 20000);
        for (unsigned i = 0; i < FAULTS && n_operations >= 20000; i++)
            assert_int_equal(n_faults[i] > 0, rates[round] > 0);
        static const uint32_t expected[] = {KVP_STORE_KNOWN, KVP_STORE_ABSENT, KVP_STORE_NO_PARENT,
                                            KVP_STORE_BAD};
        for (unsigned i = 0; i < 4 && n_operations >= 20000; i++)
            assert_true(n_results[expected[i]] > 0);
        if (rates[round] == 400 && n_operations >= 20000)
            assert_true(n_results[KVP_STORE_FAILED] > 0 && n_results[KVP_STORE_AWAY] > 0);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        n_operations = strtoull(argv[2], NULL, 10);
    make_records();
    return run_all_tests(NULL, NULL);
}

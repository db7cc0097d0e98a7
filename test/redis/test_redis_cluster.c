/* A store on a cluster of three real servers, one of which has a replica: keys are spread and asked
 * for where they are, slots move while they are in use, and a server is killed. */
#define _GNU_SOURCE
#include "redis_records.h"

#include <time.h>

#include "real_cluster.h"
#include "store/redis/ages.h"
#include "store/redis/redis_map.h"

enum { RECORDS = 60, SECONDS_MAX = 20 };

static struct real_cluster cluster;
static struct record records[RECORDS];

static void name_of(const struct record *record, char out_name[KVPI_AGES_NAME])
{
    struct kvpi_ages ages = {.tags = 512};
    const kvp_digest fingerprint = input_digest(1);
    assert_int_equal(kvpi_ages_open(&ages, &fingerprint), KVP_OK);
    kvpi_ages_name(&ages, &record->key, out_name);
    kvpi_ages_close(&ages);
}

static int slot_of(const struct record *record)
{
    char name[KVPI_AGES_NAME];
    name_of(record, name);
    return (int)ask(&cluster.servers[1], "CLUSTER KEYSLOT %s", name);
}

static int server_of(const struct record *record)
{
    const int slot = slot_of(record);
    for (int i = 0; i < CLUSTER_PRIMARIES; i++)
        if (slot < (i + 1) * 16384 / CLUSTER_PRIMARIES)
            return i;
    fail();
    return 0;
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static kvp_store *open_on(int server)
{
    char url[140];
    snprintf(url, sizeof url, "%s?timeout=1s&connections=2", cluster.servers[server].url);
    kvp_store_config config = config_of(url);
    return open_store(&config);
}

static int set_up(void **state)
{
    (void)state;
    for (unsigned i = 0; i < RECORDS; i++) {
        make_record(&records[i], i, 0, NULL);
        records[i].identity.digest.bytes[0] = (uint8_t)i;
        records[i].key = input_key(&records[i].identity);
    }
    for (int i = 0; i < CLUSTER_SERVERS; i++)
        ask(&cluster.servers[i], "FLUSHALL");
    return 0;
}

TEST_WITH(slots_are_the_server_s, set_up, NULL)
{
    for (unsigned tag = 0; tag < 600; tag += 7)
        assert_int_equal(kvpi_map_slot(tag),
                         ask(&cluster.servers[0], "CLUSTER KEYSLOT kvp1:{%u}:x", tag));
}

TEST_WITH(records_are_spread, set_up, NULL)
{
    for (int seed = 0; seed < CLUSTER_SERVERS; seed += 3) { /* a primary, the replica */
        set_up(NULL);
        scoped_store *store = open_on(seed);
        for (unsigned i = 0; i < RECORDS; i += 2)
            assert_int_equal(put(store, &records[i]), KVP_STORE_OK);
        for (unsigned i = 0; i < RECORDS; i++)
            assert_int_equal(get(store, &records[i]), i % 2 ? KVP_STORE_ABSENT : KVP_STORE_OK);
        assert_true(have(store, records, RECORDS) == UINT64_C(0x555555555555555));
        for (int i = 0; i < CLUSTER_PRIMARIES; i++)
            assert_true(ask(&cluster.servers[i], "DBSIZE") >= 4);
        kvp_digest keys[RECORDS];
        for (unsigned i = 0; i < RECORDS; i++)
            keys[i] = records[i].key;
        assert_int_equal(kvp_store_drop(store, keys, RECORDS, 1), KVP_OK);
        assert_int_equal(input_result(store), KVP_STORE_OK);
        for (int i = 0; i < CLUSTER_PRIMARIES; i++)
            assert_int_equal(ask(&cluster.servers[i], "DBSIZE"), 0);
        const kvp_store_stats stats = stats_of(store);
        assert_fields(stats, failed, 0, away, 0);
        char text[300];
        assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
        assert_non_null(strstr(text, "to each of 3 servers"));
    }
}

/* Of KVP_STORE_KEYS_MAX keys each is asked for once, of the server that has it. */
TEST_WITH(all_keys_at_once, set_up, NULL)
{
    static kvp_digest keys[KVP_STORE_KEYS_MAX];
    static uint64_t bits[KVP_STORE_KEYS_MAX / 64];
    scoped_store *store = open_on(1);
    for (unsigned i = 0; i < KVP_STORE_KEYS_MAX; i++) {
        keys[i] = input_digest(i);
        memcpy(keys[i].bytes, (uint32_t[]){i * 2654435761u, i}, 8);
    }
    const unsigned places[] = {0, 63, 64, 4095, KVP_STORE_KEYS_MAX - 1};
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(put(store, &records[i]), KVP_STORE_OK);
        keys[places[i]] = records[i].key;
    }
    for (int i = 0; i < CLUSTER_PRIMARIES; i++)
        ask(&cluster.servers[i], "CONFIG RESETSTAT");
    assert_int_equal(kvp_store_have(store, keys, KVP_STORE_KEYS_MAX, bits, 1), KVP_OK);
    assert_int_equal(input_result(store), KVP_STORE_OK);
    int n_bits = 0;
    for (unsigned i = 0; i < KVP_STORE_KEYS_MAX / 64; i++)
        n_bits += __builtin_popcountll(bits[i]);
    assert_int_equal(n_bits, 5);
    for (unsigned i = 0; i < 5; i++)
        assert_true(bits[places[i] / 64] >> (places[i] % 64) & 1);
    unsigned n_asked = 0;
    for (int i = 0; i < CLUSTER_PRIMARIES; i++) {
        char text[4000];
        unsigned n = 0;
        ask_text(&cluster.servers[i], text, sizeof text, "INFO commandstats");
        const char *at = strstr(text, "cmdstat_exists:calls=");
        assert_true(at && sscanf(at, "cmdstat_exists:calls=%u", &n) == 1);
        n_asked += n;
    }
    assert_int_equal(n_asked, KVP_STORE_KEYS_MAX);
}

/* Moves one slot in the steps that operators' tools take; the store is in use all the time. */
TEST_WITH(a_slot_moves, set_up, NULL)
{
    scoped_store *store = open_on(0);
    scoped_store *other = open_on(2);
    struct record *record = &records[0];
    while (server_of(record) != 1)
        record++;
    for (unsigned i = 0; i < RECORDS; i++) {
        assert_int_equal(put(store, &records[i]), KVP_STORE_OK);
        assert_int_equal(get(other, &records[i]), KVP_STORE_OK);
    }
    const int slot = slot_of(record);
    const int from = 1, to = 2;
    const struct real_server *source = &cluster.servers[from];
    const struct real_server *target = &cluster.servers[to];
    char name[KVPI_AGES_NAME];
    name_of(record, name);
    assert_int_equal(ask(target, "CLUSTER SETSLOT %d IMPORTING %s", slot, cluster.ids[from]), 1);
    assert_int_equal(ask(source, "CLUSTER SETSLOT %d MIGRATING %s", slot, cluster.ids[to]), 1);
    assert_int_equal(get(store, record), KVP_STORE_OK);
    assert_int_equal(ask(source, "MIGRATE 127.0.0.1 %d %s 0 5000", target->port, name), 1);
    assert_int_equal(get(store, record), KVP_STORE_ABSENT);
    assert_int_not_equal(put(store, record), KVP_STORE_OK);
    for (int i = 0; i < CLUSTER_PRIMARIES; i++)
        ask(&cluster.servers[i == 0   ? to
                             : i == 1 ? from
                                      : 3 - to - from],
            "CLUSTER SETSLOT %d NODE %s", slot, cluster.ids[to]);
    /* Whoever asks the old one is told where to go, and goes there: a get, a put, a batch. */
    assert_int_equal(get(store, record), KVP_STORE_OK);
    assert_true(have(other, records, RECORDS) == (UINT64_C(1) << RECORDS) - 1);
    assert_int_equal(put(other, record), KVP_STORE_KNOWN);
    for (unsigned i = 0; i < RECORDS; i++)
        assert_int_equal(get(store, &records[i]), KVP_STORE_OK);
    assert_int_equal(stats_of(other).failed, 0);
}

/* An account that may not ask who has which slot: what the URL's server does not have is missed, at
 * once. One that may not ask for INFO does not know that there is a cluster until it is told. */
TEST_WITH(rights_in_a_cluster, set_up, NULL)
{
    static const char *const rights[] = {"+info", "+cluster|slots"};
    for (int lacks = 0; lacks < 2; lacks++) {
        for (int i = 0; i < CLUSTER_SERVERS; i++)
            assert_int_equal(ask(&cluster.servers[i],
                                 "ACL SETUSER kv reset on >pw ~kvp1:* +get +set +exists +unlink "
                                 "+pexpire %s",
                                 rights[!lacks]),
                             1);
        char url[140];
        snprintf(url, sizeof url, "redis://kv:pw@127.0.0.1:%d?connections=2",
                 cluster.servers[0].port);
        kvp_store_config config = config_of(url);
        kvp_store *store = open_store(&config);
        const double began = seconds();
        for (unsigned i = 0; i < RECORDS; i++) {
            const int is_served = lacks == 0 || server_of(&records[i]) == 0;
            assert_int_equal(put(store, &records[i]), is_served ? KVP_STORE_OK : KVP_STORE_FAILED);
            assert_int_equal(get(store, &records[i]), is_served ? KVP_STORE_OK : KVP_STORE_ABSENT);
        }
        assert_true(have(store, records, RECORDS) != 0);
        assert_true(seconds() - began < 5); /* the deadline of one operation */
        char text[300], said[60];
        assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
        snprintf(said, sizeof said, "; the account lacks %s", rights[lacks]);
        if (!strstr(text, said))
            fail_msg("%s", text);
        kvp_store_close(store);
        set_up(NULL);
    }
}

/* With cluster-require-full-coverage yes, which is the servers' default, one dead server without a
 * replica stops all others: everything is a miss, and nothing hangs. */
TEST_WITH(a_cluster_that_requires_full_coverage, set_up, NULL)
{
    static const char *const options[] = {"--cluster-require-full-coverage", "yes", NULL};
    struct real_cluster strict;
    start_cluster(&strict, CLUSTER_PRIMARIES, options);
    char url[140];
    snprintf(url, sizeof url, "%s?timeout=1s&connections=2", strict.servers[0].url);
    kvp_store_config config = config_of(url);
    kvp_store *store = open_store(&config);
    for (unsigned i = 0; i < RECORDS; i++)
        assert_int_equal(put(store, &records[i]), KVP_STORE_OK);
    stop_server(&strict.servers[2]);
    strict.servers[2].pid = 0;
    const double killed = seconds();
    char text[2000] = "";
    while (!strstr(text, "cluster_state:fail") && seconds() - killed < SECONDS_MAX) {
        poll(NULL, 0, 20);
        ask_text(&strict.servers[0], text, sizeof text, "CLUSTER INFO");
    }
    const double began = seconds();
    unsigned n_missed = 0;
    for (unsigned i = 0; i < RECORDS; i++) {
        const uint32_t result = get(store, &records[i]);
        n_missed += result == KVP_STORE_ABSENT;
        assert_int_not_equal(result, KVP_STORE_OK);
    }
    assert_true(n_missed >= RECORDS / 3);
    assert_true(have(store, records, RECORDS) == 0);
    assert_int_not_equal(put(store, &records[0]), KVP_STORE_OK);
    assert_true(seconds() - began < 5);
    kvp_store_close(store);
    stop_cluster(&strict);
}

/* The first server dies: its keys are misses, the others' are not touched; then its replica takes
 * its place. Last: the cluster is another one afterwards. */
TEST_WITH(a_server_is_killed, set_up, NULL)
{
    scoped_store *store = open_on(0);
    for (unsigned i = 0; i < RECORDS; i++)
        assert_int_equal(put(store, &records[i]), KVP_STORE_OK);
    uint64_t others = 0;
    for (unsigned i = 0; i < RECORDS; i++)
        others |= (uint64_t)(server_of(&records[i]) != 0) << i;
    assert_int_equal(ask(&cluster.servers[0], "WAIT 1 5000"), 1);
    stop_server(&cluster.servers[0]);
    cluster.servers[0].pid = 0;
    const double killed = seconds();
    for (unsigned i = 0; i < RECORDS; i++) {
        const uint32_t result = get(store, &records[i]);
        if (others >> i & 1)
            assert_int_equal(result, KVP_STORE_OK);
        else
            assert_true(result == KVP_STORE_FAILED || result == KVP_STORE_AWAY);
    }
    assert_true(have(store, records, RECORDS) == others);
    assert_true(seconds() - killed < 5);
    assert_int_equal(stats_of(store).away_ns, 0);
    uint64_t bits = 0;
    while (bits != (UINT64_C(1) << RECORDS) - 1 && seconds() - killed < SECONDS_MAX) {
        bits = have(store, records, RECORDS);
        assert_true((bits & others) == others);
        poll(NULL, 0, 20);
    }
    assert_true(bits == (UINT64_C(1) << RECORDS) - 1);
    for (unsigned i = 0; i < RECORDS; i++)
        assert_int_equal(get(store, &records[i]), KVP_STORE_OK);
}

int main(void)
{
    if (!redis_program()) {
        puts("skipped: there is no redis-server (Debian: redis-tools)");
        return 77;
    }
    start_cluster(&cluster, CLUSTER_SERVERS, NULL);
    const int failed = run_all_tests(NULL, NULL);
    stop_cluster(&cluster);
    return failed;
}

/* A store on a real server: what was put comes back, and nothing else does; a server that goes
 * away, is full, or does not let us in costs misses. Skipped where there is no redis-server. */
#define _GNU_SOURCE
#include "redis_records.h"

#include "real_server.h"
#include "store/redis/ages.h"

enum { RECORDS = 6 };

static struct real_server server;
static struct record records[RECORDS];

static void make_chain(void)
{
    for (unsigned i = 0; i < RECORDS; i++)
        make_record(&records[i], 1, i, i > 0 ? &records[i - 1] : NULL);
}

static int set_up(void **state)
{
    (void)state;
    make_chain();
    ask(&server, "FLUSHALL");
    return 0;
}

static void name_of(const struct record *record, uint32_t tags, char out_name[KVPI_AGES_NAME])
{
    struct kvpi_ages ages = {.tags = tags};
    const kvp_digest fingerprint = input_digest(1);
    assert_int_equal(kvpi_ages_open(&ages, &fingerprint), KVP_OK);
    kvpi_ages_name(&ages, &record->key, out_name);
    kvpi_ages_close(&ages);
}

TEST_WITH(what_was_put_comes_back, set_up, NULL)
{
    for (uint32_t threads = 0; threads < 2; threads++) {
        ask(&server, "FLUSHALL");
        kvp_store_config config = config_of(server.url);
        config.threads = threads;
        scoped_store *store = open_store(&config);
        assert_int_equal(get(store, &records[0]), KVP_STORE_ABSENT);
        assert_int_equal(put(store, &records[0]), KVP_STORE_OK);
        assert_int_equal(put(store, &records[0]), KVP_STORE_KNOWN);
        assert_int_equal(put(store, &records[1]), KVP_STORE_OK);
        assert_int_equal(get(store, &records[0]), KVP_STORE_OK);
        assert_int_equal(get(store, &records[1]), KVP_STORE_OK);
        assert_true(have(store, records, RECORDS) == 3);
        assert_int_equal(kvp_store_sync(store, 1), KVP_OK);
        assert_int_equal(input_result(store), KVP_STORE_OK);
        assert_int_equal(kvp_store_drop(store, &records[1].key, 1, 1), KVP_OK);
        assert_int_equal(input_result(store), KVP_STORE_OK);
        assert_int_equal(get(store, &records[1]), KVP_STORE_ABSENT);
        const kvp_store_stats stats = stats_of(store);
        assert_fields(stats, stored, 2, known, 1, hits, 2, absent, 2, failed, 0);
    }
}

TEST_WITH(two_stores_share_and_models_do_not, set_up, NULL)
{
    kvp_store_config config = config_of(server.url);
    kvp_store *one = open_store(&config);
    kvp_store *two = open_store(&config);
    assert_int_equal(put(one, &records[0]), KVP_STORE_OK);
    assert_int_equal(get(two, &records[0]), KVP_STORE_OK);
    assert_int_equal(put(two, &records[0]), KVP_STORE_KNOWN);
    kvp_store_close(one);
    kvp_store_close(two);

    /* The same key from another model: the name on the server has the model's number in it. */
    config.fingerprint = input_digest(2);
    scoped_store *other = open_store(&config);
    struct record record = records[0];
    record.identity.fingerprint = input_digest(2);
    assert_int_equal(get(other, &record), KVP_STORE_ABSENT);
}

static kvp_digest fingerprint_of(const kvp_fingerprint_input *input)
{
    kvp_digester *digester;
    kvp_digest digest;
    const char *why = NULL;
    assert_int_equal(kvp_digester_create(&digester), KVP_OK);
    assert_int_equal(kvp_fingerprint_make(digester, input, &digest, &why), KVP_OK);
    kvp_digester_destroy(digester);
    return digest;
}

static void name_in(const kvp_digest *fingerprint, const kvp_digest *key,
                    char out_name[KVPI_AGES_NAME])
{
    struct kvpi_ages ages = {.tags = 512};
    assert_int_equal(kvpi_ages_open(&ages, fingerprint), KVP_OK);
    kvpi_ages_name(&ages, key, out_name);
    kvpi_ages_close(&ages);
}

/* A model that differs in one field of the fingerprint neither finds what another has written, even
 * by the same key, nor takes it for its own if somebody gives it the name of one of its records. */
TEST_WITH(one_field_of_the_fingerprint_shares_nothing, set_up, NULL)
{
    kvp_fingerprint_input others[INPUT_OTHERS];
    const kvp_fingerprint_input same = input_fingerprint();
    const kvp_digest print = fingerprint_of(&same);
    const size_t n = input_other_fingerprints(others);
    assert_true(n > 20);
    struct record record = records[0];
    record.identity.fingerprint = print;
    kvp_store_config config = config_of(server.url);
    config.fingerprint = print;
    for (size_t i = 0; i < n; i++) {
        char name[KVPI_AGES_NAME], other_name[KVPI_AGES_NAME];
        scoped_store *store = open_store(&config);
        assert_int_equal(put(store, &record), KVP_STORE_OK);
        kvp_store_config other_config = config;
        struct record other_record = record;
        other_record.identity.fingerprint = other_config.fingerprint = fingerprint_of(&others[i]);
        scoped_store *other = open_store(&other_config);
        assert_int_equal(get(other, &other_record), KVP_STORE_ABSENT);
        assert_true(have(other, &other_record, 1) == 0);
        name_in(&print, &record.key, name);
        name_in(&other_config.fingerprint, &record.key, other_name);
        assert_int_equal(ask(&server, "RENAME %s %s", name, other_name), 1);
        assert_true(have(other, &other_record, 1) == 1);
        assert_int_equal(get(other, &other_record), KVP_STORE_BAD);
        assert_int_equal(stats_of(other).bad[KVP_BAD_IDENTITY], 1);
    }
}

/* Over many connections at once, more than there are: each ends once, and with its own bytes. */
TEST_WITH(many_at_once, set_up, NULL)
{
    kvp_store_config config = config_of(server.url);
    scoped_store *store = open_store(&config);
    struct record many[32];
    for (unsigned i = 0; i < 32; i++) {
        make_record(&many[i], i, 0, NULL);
        many[i].identity.digest.bytes[0] = (uint8_t)i;
        many[i].key = input_key(&many[i].identity);
        assert_int_equal(kvp_store_put(store, &many[i].identity, many[i].blocks, i), KVP_OK);
    }
    kvp_store_done done[32];
    uint32_t n = 0;
    for (uint32_t total = 0; total < 32; total += n) {
        assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
        assert_int_equal(kvp_store_poll(store, done, 32, &n), KVP_OK);
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(done[i].result, KVP_STORE_OK);
    }
    assert_true(have(store, many, 32) == UINT32_MAX);
    static uint8_t kv[32][BLOCKS][BLOCK_BYTES];
    for (unsigned i = 0; i < 32; i++) {
        void *blocks[BLOCKS] = {kv[i][0], kv[i][1]};
        assert_int_equal(kvp_store_get(store, &many[i].identity, blocks, i), KVP_OK);
    }
    for (uint32_t total = 0; total < 32; total += n) {
        assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
        assert_int_equal(kvp_store_poll(store, done, 32, &n), KVP_OK);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(done[i].result, KVP_STORE_OK);
            assert_memory_equal(kv[done[i].tag], many[done[i].tag].kv, sizeof kv[0]);
        }
    }
}

/* What somebody writes to a record is found, said by its reason, and dropped. */
TEST_WITH(what_is_damaged_is_dropped, set_up, NULL)
{
    kvp_store_config config = config_of(server.url);
    kvp_store *store = open_store(&config);
    static const struct {
        int at; /* byte that is written; -1: the record gets longer, -2: shorter */
        uint32_t reason;
    } cases[] = {{0, KVP_BAD_DAMAGED},
                 {8, KVP_BAD_VERSION},
                 {100, KVP_BAD_DAMAGED},
                 {4096 + 17, KVP_BAD_PAYLOAD},
                 {4096 + BLOCK_BYTES + 17, KVP_BAD_PAYLOAD},
                 {-1, KVP_BAD_LENGTH},
                 {-2, KVP_BAD_LENGTH}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[KVPI_AGES_NAME];
        name_of(&records[0], 512, name);
        assert_int_equal(put(store, &records[0]), KVP_STORE_OK);
        if (cases[i].at == -1)
            ask(&server, "APPEND %s %s", name, "more");
        else if (cases[i].at == -2)
            ask(&server, "EVAL %s 1 %s",
                "local v = redis.call('GETRANGE', KEYS[1], 0, -2); "
                "redis.call('SET', KEYS[1], v); return 1",
                name);
        else
            ask(&server, "SETRANGE %s %d %b", name, cases[i].at, "\xFF", (size_t)1);
        const uint64_t before = stats_of(store).bad[cases[i].reason];
        assert_int_equal(get(store, &records[0]), KVP_STORE_BAD);
        assert_int_equal(stats_of(store).bad[cases[i].reason], before + 1);
        assert_int_equal(get(store, &records[0]), KVP_STORE_ABSENT);
    }
    kvp_store_close(store);
}

/* Another identity's record under this key, as a collision or an attacker would have it. */
TEST_WITH(a_foreign_record_is_not_read, set_up, NULL)
{
    kvp_store_config config = config_of(server.url);
    scoped_store *store = open_store(&config);
    char name[KVPI_AGES_NAME], other[KVPI_AGES_NAME];
    name_of(&records[0], 512, name);
    name_of(&records[1], 512, other);
    assert_int_equal(put(store, &records[0]), KVP_STORE_OK);
    assert_int_equal(ask(&server, "RENAME %s %s", name, other), 1);
    assert_int_equal(get(store, &records[1]), KVP_STORE_BAD);
    assert_int_equal(stats_of(store).bad[KVP_BAD_IDENTITY], 1);
}

TEST_WITH(a_secret_refuses_what_others_wrote, set_up, NULL)
{
    kvp_store_config config = config_of(server.url);
    scoped_store *other = open_store(&config);
    config.secret = "0123456789abcdef";
    config.secret_bytes = 16;
    scoped_store *store = open_store(&config);
    assert_int_equal(put(other, &records[0]), KVP_STORE_OK);
    assert_int_equal(get(store, &records[0]), KVP_STORE_BAD);
    assert_int_equal(stats_of(store).bad[KVP_BAD_CODE], 1);
    assert_int_equal(put(store, &records[0]), KVP_STORE_OK);
    assert_int_equal(get(store, &records[0]), KVP_STORE_OK);
}

/* Children expire before their parents, from the start on and after hits in any order. */
TEST_WITH(no_child_outlives_its_parent, set_up, NULL)
{
    kvp_store_config config = config_of(server.url);
    kvp_store *store = open_store(&config);
    char names[RECORDS][KVPI_AGES_NAME];
    for (int i = 0; i < RECORDS; i++) {
        name_of(&records[i], 512, names[i]);
        assert_int_equal(put(store, &records[i]), KVP_STORE_OK);
    }
    /* Long ago: another process, which has the chain from nobody, hits the last record. */
    for (int i = 0; i < RECORDS; i++)
        ask(&server, "PEXPIRE %s %d", names[i], 1000000 - i * 1000);
    kvp_store_close(store);
    store = open_store(&config);
    for (int i = 0; i < RECORDS; i++)
        assert_int_equal(get(store, &records[i]), KVP_STORE_OK);
    assert_int_equal(kvp_store_drop(store, &records[RECORDS - 1].key, 0, 1), KVP_E_ARG);
    long long before = 7 * 86400 * 1000LL + 1;
    for (int i = 0; i < RECORDS; i++) {
        const long long ttl = ask(&server, "PTTL %s", names[i]);
        assert_true(ttl > 6 * 86400 * 1000LL);
        assert_true(ttl < before);
        before = ttl;
    }
    kvp_store_close(store);
}

static uint64_t late_clock(void *context)
{
    return *(uint64_t *)context;
}

/* A record that was written so long ago is not served, and goes; hits do not make it younger. */
TEST_WITH(what_is_too_old_is_not_served, set_up, NULL)
{
    char url[140];
    uint64_t now = UINT64_C(1700000000) * 1000000000;
    snprintf(url, sizeof url, "%s?max_age=2h", server.url);
    kvp_store_config config = config_of(url);
    config.now = late_clock;
    config.now_context = &now;
    scoped_store *store = open_store(&config);
    char name[KVPI_AGES_NAME];
    name_of(&records[0], 512, name);
    assert_int_equal(put(store, &records[0]), KVP_STORE_OK);
    assert_true(ask(&server, "PTTL %s", name) <= 7200 * 1000);
    now += UINT64_C(7199) * 1000000000;
    assert_int_equal(get(store, &records[0]), KVP_STORE_OK);
    now += UINT64_C(1) * 1000000000;
    assert_int_equal(get(store, &records[0]), KVP_STORE_ABSENT);
    assert_int_equal(stats_of(store).expired, 1);
    assert_int_equal(put(store, &records[0]), KVP_STORE_OK);
    assert_int_equal(get(store, &records[0]), KVP_STORE_OK);
}

TEST_WITH(a_server_that_goes_and_comes, set_up, NULL)
{
    struct real_server own = {0};
    start_server(&own, NULL);
    char url[140];
    snprintf(url, sizeof url, "%s?timeout=1s", own.url);
    kvp_store_config config = config_of(url);
    kvp_store *store = open_store(&config);
    assert_int_equal(put(store, &records[0]), KVP_STORE_OK);
    stop_server(&own);
    for (int i = 0; i < 20; i++) {
        const uint32_t result = get(store, &records[0]);
        assert_true(result == KVP_STORE_FAILED || result == KVP_STORE_AWAY);
    }
    uint64_t bits = 7;
    assert_int_equal(kvp_store_have(store, &records[0].key, 1, &bits, 1), KVP_OK);
    assert_int_not_equal(input_result(store), KVP_STORE_OK);
    assert_true(bits == 0);
    start_server(&own, NULL);
    uint32_t result;
    int tries = 0;
    while ((result = put(store, &records[0])) != KVP_STORE_OK && tries++ < 500)
        poll(NULL, 0, 10);
    assert_int_equal(result, KVP_STORE_OK);
    assert_int_equal(get(store, &records[0]), KVP_STORE_OK);
    kvp_store_close(store);
    stop_server(&own);
}

/* The server stops with everything open: it is there, and says nothing. */
TEST_WITH(a_server_that_stops_answering, set_up, NULL)
{
    scoped_server own = {0};
    start_server(&own, NULL);
    char url[140];
    snprintf(url, sizeof url, "%s?timeout=1s", own.url);
    kvp_store_config config = config_of(url);
    scoped_store *store = open_store(&config);
    assert_int_equal(put(store, &records[0]), KVP_STORE_OK);
    kill(own.pid, SIGSTOP);
    assert_int_equal(get(store, &records[0]), KVP_STORE_FAILED);
    assert_int_equal(get(store, &records[0]), KVP_STORE_AWAY);
    kill(own.pid, SIGCONT);
    uint32_t result;
    int tries = 0;
    while ((result = get(store, &records[0])) != KVP_STORE_OK && tries++ < 500)
        poll(NULL, 0, 10);
    assert_int_equal(result, KVP_STORE_OK);
}

TEST_WITH(a_full_server_refuses, set_up, NULL)
{
    scoped_server own = {0};
    static const char *const options[] = {"--maxmemory", "3mb", "--maxmemory-policy", "noeviction",
                                          NULL};
    start_server(&own, options);
    kvp_store_config config = config_of(own.url);
    scoped_store *store = open_store(&config);
    char text[300];
    assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
    assert_non_null(strstr(text, "maxmemory-policy is noeviction"));
    uint32_t result = KVP_STORE_OK;
    unsigned n = 0;
    for (; n < 400 && result == KVP_STORE_OK; n++) {
        struct record record;
        make_record(&record, 100 + n, 0, NULL);
        record.identity.digest.bytes[0] = (uint8_t)(n >> 4);
        record.identity.digest.bytes[1] = (uint8_t)n;
        record.key = input_key(&record.identity);
        result = put(store, &record);
    }
    assert_int_equal(result, KVP_STORE_NO_ROOM);
    assert_true(n > 10);
    assert_true(stats_of(store).size == 3 << 20);
    assert_int_equal(stats_of(store).refused, 1);
    assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
    assert_non_null(strstr(text, "; full: maxmemory is reached"));
    assert_int_equal(ask(&own, "FLUSHALL"), 1);
    assert_int_equal(put(store, &records[0]), KVP_STORE_OK);
    assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
    assert_null(strstr(text, "full"));
}

TEST_WITH(a_wrong_password_is_said, set_up, NULL)
{
    scoped_server own = {0};
    static const char *const options[] = {"--user",  "default",   "off",      "--user", "kv",
                                          "on",      ">right@:/", "~kvp1:*",  "+get",   "+set",
                                          "+exists", "+unlink",   "+pexpire", "+info",  NULL};
    start_server(&own, options);
    char url[200], why[300];
    snprintf(url, sizeof url, "redis://kv:wrong@127.0.0.1:%d", own.port);
    kvp_store_config config = config_of(url);
    scoped_store *store = NULL;
    assert_int_equal(kvpi_store_open(&config, &kvpi_redis_backend, &store, why, sizeof why),
                     KVP_E_IO);
    assert_non_null(strstr(why, "WRONGPASS"));
    assert_null(strstr(why, "wrong@"));
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", own.port);
    assert_int_equal(kvpi_store_open(&config, &kvpi_redis_backend, &store, why, sizeof why),
                     KVP_E_IO);
    assert_non_null(strstr(why, "NOAUTH"));
    /* A database that is not the first one needs a right more. */
    snprintf(url, sizeof url, "redis://kv:right%%40%%3A%%2f@127.0.0.1:%d/3", own.port);
    assert_int_equal(kvpi_store_open(&config, &kvpi_redis_backend, &store, why, sizeof why),
                     KVP_E_IO);
    assert_non_null(strstr(why, "NOPERM"));
    assert_non_null(strstr(why, "select"));
    /* The rights that docs/STORES.md names are enough. */
    snprintf(url, sizeof url, "redis://kv:right%%40%%3A%%2f@127.0.0.1:%d", own.port);
    store = open_store(&config);
    assert_int_equal(put(store, &records[0]), KVP_STORE_OK);
    assert_int_equal(get(store, &records[0]), KVP_STORE_OK);
    assert_true(have(store, records, 2) == 1);
    assert_int_equal(kvp_store_drop(store, &records[0].key, 1, 1), KVP_OK);
    assert_int_equal(input_result(store), KVP_STORE_OK);
    assert_int_equal(stats_of(store).failed, 0);
}

static void describe(const kvp_store *store, char out_text[300])
{
    assert_int_equal(kvp_store_describe(store, out_text, 300), KVP_OK);
}

/* The password is another one while the store is open: what it is asked is told by the server, and
 * with the old one again all is well. */
TEST_WITH(a_password_that_changes, set_up, NULL)
{
    scoped_server own = {0};
    start_server(&own, NULL);
    char url[200], text[300];
    assert_int_equal(ask(&own, "ACL SETUSER kv reset on >old ~kvp1:* +@all"), 1);
    snprintf(url, sizeof url, "redis://kv:old@127.0.0.1:%d?timeout=1s&connections=1", own.port);
    kvp_store_config config = config_of(url);
    scoped_store *store = open_store(&config);
    assert_int_equal(put(store, &records[0]), KVP_STORE_OK);
    assert_int_equal(ask(&own, "ACL SETUSER kv resetpass >new"), 1);
    assert_true(ask(&own, "CLIENT KILL USER kv") >= 1);
    for (int tries = 0; get(store, &records[0]) != KVP_STORE_AWAY && tries < 500; tries++)
        poll(NULL, 0, 10);
    describe(store, text);
    if (!strstr(text, "; away: WRONGPASS") || strstr(text, "old"))
        fail_msg("%s", text);
    assert_int_equal(ask(&own, "ACL SETUSER kv >old"), 1);
    uint32_t result;
    int tries = 0;
    while ((result = get(store, &records[0])) != KVP_STORE_OK && tries++ < 500)
        poll(NULL, 0, 10);
    assert_int_equal(result, KVP_STORE_OK);
}

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        n++;
    return n;
}

/* Every right but get and set can be missing: it is said once, and the rest works. */
TEST_WITH(missing_rights_are_said, set_up, NULL)
{
    static const char *const rights[] = {"+info", "+pexpire", "+exists", "+unlink"};
    for (unsigned without = 0; without < 4; without++) {
        scoped_server own = {0};
        const char *options[16] = {"--user", "default", "off",     "--user", "kv",
                                   "on",     ">pw",     "~kvp1:*", "+get",   "+set"};
        for (unsigned i = 0, n = 10; i < 4; i++)
            if (i != without)
                options[n++] = rights[i];
        start_server(&own, options);
        char url[100];
        snprintf(url, sizeof url, "redis://kv:pw@127.0.0.1:%d", own.port);
        uint64_t now = UINT64_C(1700000000) * 1000000000;
        kvp_store_config config = config_of(url);
        config.now = late_clock;
        config.now_context = &now;
        scoped_store *store = open_store(&config);
        for (int i = 0; i < 3; i++) {
            struct record *record = &records[i];
            uint64_t bits = 0;
            assert_int_equal(put(store, record), KVP_STORE_OK);
            now += UINT64_C(61) * 1000000000; /* a hit renews */
            assert_int_equal(get(store, record), KVP_STORE_OK);
            assert_int_equal(kvp_store_have(store, &record->key, 1, &bits, 1), KVP_OK);
            assert_int_equal(input_result(store), without == 2 ? KVP_STORE_FAILED : KVP_STORE_OK);
            assert_int_equal(kvp_store_drop(store, &record->key, 1, 1), KVP_OK);
            assert_int_equal(input_result(store), without == 3 ? KVP_STORE_FAILED : KVP_STORE_OK);
        }
        char text[300], lacks[60];
        describe(store, text);
        snprintf(lacks, sizeof lacks, "; the account lacks %s", rights[without]);
        if (!strstr(text, lacks) || count_of(text, rights[without]) != 1)
            fail_msg("%s", text);
    }
}

/* What would let prefixes go to waste, or the machine run full. */
TEST_WITH(a_server_that_is_not_set_up_for_it_is_said, set_up, NULL)
{
    static const struct {
        const char *policy;
        const char *memory;
        const char *said;
        const char *not_said;
    } cases[] = {
        {"volatile-ttl", "100mb", "", "maxmemory"},
        {"volatile-ttl", "0", "; maxmemory is 0: no limit", "maxmemory-policy"},
        {"allkeys-lru", "100mb", "; maxmemory-policy is allkeys-lru, not volatile-ttl", "is 0"},
        {"noeviction", "0", "; maxmemory-policy is noeviction, not volatile-ttl; maxmemory is 0",
         "?"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        assert_int_equal(ask(&server, "CONFIG SET maxmemory %s", cases[i].memory), 1);
        assert_int_equal(ask(&server, "CONFIG SET maxmemory-policy %s", cases[i].policy), 1);
        kvp_store_config config = config_of(server.url);
        scoped_store *store = open_store(&config);
        describe(store, text);
        if (!strstr(text, cases[i].said) || strstr(text, cases[i].not_said))
            fail_msg("%s", text);
    }
    assert_int_equal(ask(&server, "CONFIG SET maxmemory 0"), 1);
    assert_int_equal(ask(&server, "CONFIG SET maxmemory-policy noeviction"), 1);
}

/* Statistics are those of the servers, at most ten seconds old when an operation ends. */
TEST_WITH(statistics_are_the_server_s, set_up, NULL)
{
    struct real_server own = {0};
    static const char *const options[] = {"--maxmemory", "3mb", "--maxmemory-policy",
                                          "allkeys-random", NULL};
    uint64_t now = UINT64_C(1700000000) * 1000000000;
    start_server(&own, options);
    char url[140]; /* the clock of deadlines is moved on, too */
    snprintf(url, sizeof url, "%s?timeout=1h", own.url);
    kvp_store_config config = config_of(url);
    config.now = late_clock;
    config.now_context = &now;
    kvp_store *store = open_store(&config);
    assert_int_equal(stats_of(store).records, 0);
    unsigned n_put = 0;
    for (unsigned n = 0; n < 300; n++) {
        struct record record;
        make_record(&record, 100 + n, 0, NULL);
        record.identity.digest.bytes[0] = (uint8_t)(n >> 4);
        record.identity.digest.bytes[1] = (uint8_t)n;
        record.key = input_key(&record.identity);
        n_put += put(store, &record) == KVP_STORE_OK;
    }
    assert_int_equal(n_put, 300);
    assert_int_equal(stats_of(store).evicted, 0); /* it was not asked again */
    now += UINT64_C(10) * 1000000000;
    kvp_store_stats stats = {0};
    for (int i = 0; i < 1000 && stats.evicted == 0; i++) {
        (void)have(store, records, 1);
        stats = stats_of(store);
    }
    /* A client that asks takes memory itself, for which the server may evict. */
    const uint64_t there = (uint64_t)ask(&own, "DBSIZE");
    kvp_store_close(store);
    stop_server(&own);
    assert_true(there <= stats.records && stats.records < there + 20);
    assert_int_equal(stats.evicted, 300 - stats.records);
    assert_true(stats.bytes > 1 << 20);
}

/* Through the library that kvp_store_open loads, and in another database. */
TEST_WITH(by_its_url, set_up, NULL)
{
    char url[140];
    snprintf(url, sizeof url, "%s/3?tags=16&connections=2", server.url);
    kvp_store_config config = config_of(url);
    char why[300];
    kvp_store *store = NULL;
    if (kvp_store_open(&config, &store, why, sizeof why) != KVP_OK)
        fail_msg("%s", why);
    assert_string_equal(why, "");
    assert_int_equal(put(store, &records[0]), KVP_STORE_OK);
    assert_int_equal(get(store, &records[0]), KVP_STORE_OK);
    assert_int_equal(kvp_store_describe(store, why, sizeof why), KVP_OK);
    assert_non_null(strstr(why, ", 2 connections"));
    kvp_store_close(store);
    assert_int_equal(ask(&server, "DBSIZE"), 0);
    config.url = "nothing:";
    assert_int_equal(kvp_store_open(&config, &store, why, sizeof why), KVP_E_ARG);
    assert_non_null(strstr(why, "redis:"));
}

int main(void)
{
    if (!redis_program()) {
        puts("skipped: there is no redis-server (Debian: redis-tools)");
        return 77;
    }
    start_server(&server, NULL);
    const int failed = run_all_tests(NULL, NULL);
    stop_server(&server);
    return failed;
}

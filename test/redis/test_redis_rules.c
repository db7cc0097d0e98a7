/* What docs/STORES.md promises of commands, errors and times, on servers in memory that count what
 * they are asked, and in simulated time. */
#define _GNU_SOURCE
#include "memory_servers.h"

#include <stdio.h>

#define ONE_SERVER "redis://127.0.0.1:1?timeout=1s&connections=1"

static uint32_t drop(kvp_store *store, const struct record *record)
{
    assert_int_equal(kvp_store_drop(store, &record->key, 1, 1), KVP_OK);
    return input_result(store);
}

/* What each error means for a get, a put and a batch. The connection stays, whatever it is. */
TEST(errors_are_answers)
{
    static const struct {
        const char *said;
        uint32_t get, put, have;
    } errors[] = {
        {"-ASK 1 127.0.0.1:2\r\n", KVP_STORE_ABSENT, KVP_STORE_FAILED, KVP_STORE_OK},
        {"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", KVP_STORE_ABSENT,
         KVP_STORE_FAILED, KVP_STORE_OK},
        {"-CLUSTERDOWN Hash slot not served\r\n", KVP_STORE_ABSENT, KVP_STORE_FAILED, KVP_STORE_OK},
        {"-OOM command not allowed when used memory > 'maxmemory'.\r\n", KVP_STORE_FAILED,
         KVP_STORE_NO_ROOM, KVP_STORE_FAILED},
        {"-LOADING Redis is loading the dataset in memory\r\n", KVP_STORE_FAILED, KVP_STORE_FAILED,
         KVP_STORE_FAILED},
        {"-READONLY You can't write against a read only replica.\r\n", KVP_STORE_FAILED,
         KVP_STORE_FAILED, KVP_STORE_FAILED},
        {"-NOPERM this user has no permissions to run the command\r\n", KVP_STORE_FAILED,
         KVP_STORE_FAILED, KVP_STORE_FAILED},
        {"-NOAUTH Authentication required.\r\n", KVP_STORE_FAILED, KVP_STORE_FAILED,
         KVP_STORE_FAILED},
        {"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", KVP_STORE_FAILED,
         KVP_STORE_FAILED, KVP_STORE_FAILED},
        {"-\r\n", KVP_STORE_FAILED, KVP_STORE_FAILED, KVP_STORE_FAILED},
    };
    struct record record;
    make_record(&record, 1, 0, NULL);
    for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++) {
        scoped_store *store = open_in_memory(ONE_SERVER, &redis_server_net, 0, NULL);
        uint64_t bits = ~UINT64_C(0);
        redis_server_say(errors[i].said);
        const uint32_t got = get(store, &record);
        const uint32_t was_put = put(store, &record);
        assert_int_equal(kvp_store_have(store, &record.key, 1, &bits, 1), KVP_OK);
        const uint32_t asked = input_result(store);
        if (got != errors[i].get || was_put != errors[i].put || asked != errors[i].have || bits)
            fail_msg("%s: get %u, put %u, have %u", errors[i].said, got, was_put, asked);
        redis_server_say(NULL);
        assert_int_equal(put(store, &record), KVP_STORE_OK);
        assert_int_equal(get(store, &record), KVP_STORE_OK);
        assert_int_equal(redis_server_asked("INFO"), 1); /* of the only connection */
    }
}

/* Four errors in a row, and the server is left alone: for 0.1 s, then twice as long each time, up
 * to 60 s; one success, and all is as before. */
TEST(pauses_double)
{
    struct record record;
    uint64_t pause = SECOND / 10;
    make_record(&record, 1, 0, NULL);
    scoped_store *store = open_in_memory(ONE_SERVER, &redis_server_net, 0, NULL);
    redis_server_say("-LOADING Redis is loading the dataset in memory\r\n");
    for (int i = 0; i < 13; i++) {
        for (int n = 0; n < 4; n++) {
            assert_int_equal(stats_of(store).away_ns, 0);
            assert_int_equal(get(store, &record), KVP_STORE_FAILED);
        }
        const unsigned n_asked = redis_server_asked("GET");
        assert_int_equal(stats_of(store).away_ns, pause);
        assert_int_equal(get(store, &record), KVP_STORE_AWAY);
        simulated_ns += pause - 1;
        assert_int_equal(get(store, &record), KVP_STORE_AWAY);
        assert_int_equal(redis_server_asked("GET"), n_asked);
        simulated_ns += 1;
        pause = pause * 2 < 60 * SECOND ? pause * 2 : 60 * SECOND;
    }
    assert_true(pause == 60 * SECOND);
    redis_server_say(NULL);
    assert_int_equal(get(store, &record), KVP_STORE_ABSENT);
    redis_server_say("-LOADING Redis is loading the dataset in memory\r\n");
    for (int n = 0; n < 4; n++)
        assert_int_equal(get(store, &record), KVP_STORE_FAILED);
    assert_int_equal(stats_of(store).away_ns, SECOND / 10);
}

/* A record that is bad is read twice and dropped once; one that is not there is asked for once. */
TEST(what_a_get_costs)
{
    struct record record;
    make_record(&record, 1, 0, NULL);
    scoped_store *store = open_in_memory(ONE_SERVER, &redis_server_net, 0, NULL);
    assert_int_equal(get(store, &record), KVP_STORE_ABSENT);
    assert_int_equal(redis_server_asked("GET"), 1);
    assert_int_equal(redis_server_asked("UNLINK") + redis_server_asked("PEXPIRE"), 0);
    redis_server_say("$5\r\nhello\r\n");
    assert_int_equal(get(store, &record), KVP_STORE_BAD);
    redis_server_say(NULL);
    assert_int_equal(get(store, &record), KVP_STORE_ABSENT);
    assert_int_equal(redis_server_asked("GET"), 4);
    assert_int_equal(redis_server_asked("UNLINK"), 1);
    assert_int_equal(stats_of(store).dropped, 1);
    assert_int_equal(drop(store, &record), KVP_STORE_OK);
    assert_int_equal(redis_server_asked("UNLINK"), 2);
}

/* A hit renews the record and its ancestors, each once a minute. */
TEST(hits_renew_once_a_minute)
{
    struct record chain[3];
    for (unsigned i = 0; i < 3; i++)
        make_record(&chain[i], 1, i, i > 0 ? &chain[i - 1] : NULL);
    scoped_store *store = open_in_memory(ONE_SERVER, &redis_server_net, 0, NULL);
    simulated_ns = 6000 * SECOND; /* a period begins */
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(put(store, &chain[i]), KVP_STORE_OK);
    for (unsigned minute = 0; minute < 3; minute++) {
        const unsigned before = redis_server_asked("PEXPIRE");
        for (int i = 0; i < 5; i++, simulated_ns += 10 * SECOND)
            assert_int_equal(get(store, &chain[2]), KVP_STORE_OK);
        assert_int_equal(redis_server_asked("PEXPIRE"), before + (minute > 0 ? 3 : 0));
        simulated_ns += 10 * SECOND;
    }
}

/* While all keys have moved to where they are not, maps are read once in 0.1 s. */
TEST(maps_are_read_at_intervals)
{
    struct record record;
    record_of(&record, 1);
    kvp_store *store =
        open_in_memory("redis://127.0.0.1:1?timeout=5s", &redis_server_net, 0, "127.0.0.1");
    assert_int_equal(redis_server_asked("CLUSTER"), 1);
    simulated_ns += SECOND;
    redis_server_say("-MOVED 1 127.0.0.1:1\r\n");
    uint8_t kv[BLOCKS][BLOCK_BYTES];
    void *blocks[BLOCKS] = {kv[0], kv[1]};
    for (int n = 0; n < 10; n++)
        assert_int_equal(kvp_store_get(store, &record.identity, blocks, 1), KVP_OK);
    /* One at once; the second tries have to wait for the next one. */
    for (int i = 0; i < 20; i++, simulated_ns += SECOND / 1000)
        assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
    assert_int_equal(redis_server_asked("CLUSTER"), 2);
    assert_int_equal(redis_server_asked("GET"), 20);
    simulated_ns += SECOND / 10;
    kvp_store_done done[10];
    uint32_t n_done = 0;
    for (int i = 0; i < 10; i++)
        assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
    assert_int_equal(kvp_store_poll(store, done, 10, &n_done), KVP_OK);
    assert_int_equal(n_done, 10);
    for (int i = 0; i < 10; i++)
        assert_int_equal(done[i].result, KVP_STORE_ABSENT);
    assert_int_equal(redis_server_asked("CLUSTER"), 3);
    assert_int_equal(redis_server_asked("GET"), 30); /* three times each */
    kvp_store_close(store);
}

/* Of what a server says of its memory, a share: so many records are read at once. What asks only
 * whether they are there does not wait for them. */
TEST(records_under_way_have_a_share_of_memory)
{
    enum { N = 6, RECORD = 4096 + BLOCKS * BLOCK_BYTES };
    static const struct {
        uint64_t memory;
        unsigned n_read;
    } cases[] = {{0, N}, {1, 1}, {64 * RECORD * 2, 2}, {64 * RECORD * 3 - 1, 2}, {1 << 30, N}};
    static uint8_t kv[N][BLOCKS][BLOCK_BYTES];
    struct record record;
    make_record(&record, 1, 0, NULL);
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvp_store *store =
            open_in_memory("redis://127.0.0.1:1?timeout=1s", &redis_server_net, 0, NULL);
        uint64_t bits;
        redis_server_memory(cases[i].memory);
        redis_server_hang_up();
        assert_int_equal(get(store, &record), KVP_STORE_ABSENT);
        const unsigned before = redis_server_asked("GET");
        redis_server_say("");
        for (int n = 0; n < N; n++) {
            void *blocks[BLOCKS] = {kv[n][0], kv[n][1]};
            assert_int_equal(kvp_store_get(store, &record.identity, blocks, 1), KVP_OK);
        }
        assert_int_equal(kvp_store_have(store, &record.key, 1, &bits, 1), KVP_OK);
        for (int n = 0; n < 4; n++)
            assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
        assert_int_equal(redis_server_asked("GET"), before + cases[i].n_read);
        assert_int_equal(redis_server_asked("EXISTS"), 1);
        simulated_ns += SECOND;
        for (int n = 0; n < N + 1; n++)
            assert_int_equal(input_result(store), KVP_STORE_FAILED);
        kvp_store_close(store);
    }
}

/* An open store does not evict. */
TEST(nothing_is_evicted)
{
    const kvp_store_match all = {.written_before = UINT64_MAX};
    struct record record;
    make_record(&record, 1, 0, NULL);
    scoped_store *store = open_in_memory(ONE_SERVER, &redis_server_net, 0, NULL);
    assert_int_equal(put(store, &record), KVP_STORE_OK);
    assert_int_equal(kvp_store_evict(store, &all, 1), KVP_OK);
    assert_int_equal(input_result(store), KVP_STORE_FAILED);
    assert_int_equal(get(store, &record), KVP_STORE_OK);
}

TEST_MAIN(NULL, NULL)

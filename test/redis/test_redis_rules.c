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
        assert_int_equal(put(store, &record), KVP_STORE_AWAY);
        assert_int_equal(drop(store, &record), KVP_STORE_AWAY);
        uint64_t bits = 1;
        assert_int_equal(kvp_store_have(store, &record.key, 1, &bits, 1), KVP_OK);
        assert_int_equal(input_result(store), KVP_STORE_AWAY);
        assert_int_equal(bits, 0);
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

/* A record as old as max_age is dropped by the get that finds it, and no other. */
TEST(what_is_too_old_is_dropped)
{
    struct record record;
    make_record(&record, 1, 0, NULL);
    scoped_store *store = open_in_memory(ONE_SERVER "&max_age=2h", &redis_server_net, 0, NULL);
    assert_int_equal(get(store, &record), KVP_STORE_ABSENT);
    assert_int_equal(put(store, &record), KVP_STORE_OK);
    assert_int_equal(put(store, &record), KVP_STORE_KNOWN);
    simulated_ns += 7200 * SECOND - 1;
    assert_int_equal(get(store, &record), KVP_STORE_OK);
    assert_int_equal(stats_of(store).expired, 0);
    assert_int_equal(redis_server_asked("UNLINK"), 0);
    simulated_ns += 1;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(get(store, &record), KVP_STORE_ABSENT);
        assert_fields(stats_of(store), expired, 1, dropped, 0, absent, 2 + (unsigned)i);
        assert_int_equal(redis_server_asked("UNLINK"), 1);
    }
    simulated_ns -= 7300 * SECOND; /* the clock goes back: what is put now is young */
    assert_int_equal(put(store, &record), KVP_STORE_OK);
    simulated_ns -= 100 * SECOND;
    assert_int_equal(get(store, &record), KVP_STORE_OK);
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

/* The same in a cluster, where a chain lies on both servers. */
TEST(hits_renew_on_each_server)
{
    enum { N = 4 };
    struct record chain[N];
    const struct kvpi_ages ages = {.tags = TAGS, .is_large = BLOCKS_ARE_LARGE};
    for (unsigned i = 0, number = 1; i < N; number++) {
        make_record(&chain[i], number, i, i > 0 ? &chain[i - 1] : NULL);
        const uint32_t slot = kvpi_map_slot(kvpi_ages_tag(&ages, &chain[i].key));
        i += slot / (KVPI_MAP_SLOTS / 2) == i % 2; /* one after the other */
    }
    kvp_store *store =
        open_in_memory("redis://:p@127.0.0.1:1?timeout=1s", &redis_server_net, 0, "127.0.0.1");
    simulated_ns = 6000 * SECOND;
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(put(store, &chain[i]), KVP_STORE_OK);
    assert_int_equal(redis_server_asked("PEXPIRE"), 0);
    simulated_ns += 60 * SECOND;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(get(store, &chain[N - 1]), KVP_STORE_OK);
    assert_int_equal(get(store, &chain[0]), KVP_STORE_OK);
    assert_int_equal(redis_server_asked("PEXPIRE"), N);
    assert_int_equal(get(store, &chain[1]), KVP_STORE_OK);
    simulated_ns += 60 * SECOND;
    for (unsigned i = 0; i < N; i++) /* the first one is of one server */
        assert_int_equal(get(store, &chain[i]), KVP_STORE_OK);
    assert_int_equal(redis_server_asked("PEXPIRE"), 2 * N);
    assert_int_equal(redis_server_asked("AUTH"), 2); /* no connection was closed */
    kvp_store_close(store);
}

/* What has moved while no map comes is a miss when its time is over, though the server has longer
 * to tell its map. */
TEST(what_has_moved_has_its_time)
{
    struct record record;
    kvp_store_done done;
    uint8_t kv[BLOCKS][BLOCK_BYTES];
    void *blocks[BLOCKS] = {kv[0], kv[1]};
    uint32_t n_done = 0;
    record_of(&record, 1);
    scoped_store *store =
        open_in_memory("redis://127.0.0.1:1?timeout=1s", &redis_server_net, 0, "127.0.0.1");
    redis_server_clock(simulated_clock);
    redis_server_say("-MOVED 1 127.0.0.1:1\r\n");
    redis_server_trouble("CLUSTER", 1, REDIS_IS_SLOW);
    simulated_ns += SECOND;
    assert_int_equal(kvp_store_get(store, &record.identity, blocks, 1), KVP_OK);
    simulated_ns += SECOND / 2;
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
    assert_false(redis_server_is_waiting_for_trouble());
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
        assert_int_equal(kvp_store_poll(store, &done, 1, &n_done), KVP_OK);
        assert_int_equal(n_done, i);
        simulated_ns += i == 0 ? SECOND / 2 : 0;
    }
    assert_int_equal(done.result, KVP_STORE_ABSENT);
}

/* The connection that was to tell the map is lost: another one is made for it, or what has moved is
 * a miss, long before its time is over. */
TEST(a_map_that_is_lost_is_asked_for_again)
{
    struct record record;
    kvp_store_done done;
    uint8_t kv[BLOCKS][BLOCK_BYTES];
    void *blocks[BLOCKS] = {kv[0], kv[1]};
    record_of(&record, 0);
    scoped_store *store =
        open_in_memory("redis://127.0.0.1:1?timeout=1h", &redis_server_net, 0, "127.0.0.1");
    simulated_ns += SECOND;
    redis_server_say("-MOVED 1 127.0.0.1:1\r\n");
    redis_server_trouble("CLUSTER", 1, REDIS_IS_LAST);
    assert_int_equal(kvp_store_get(store, &record.identity, blocks, 1), KVP_OK);
    assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
    assert_false(redis_server_is_waiting_for_trouble());
    redis_server_say(NULL);
    uint32_t n_done = 0;
    for (int i = 0; i < 50 && n_done == 0; i++, simulated_ns += SECOND / 100) {
        assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
        assert_int_equal(kvp_store_poll(store, &done, 1, &n_done), KVP_OK);
    }
    assert_int_equal(n_done, 1);
    assert_int_equal(done.result, KVP_STORE_ABSENT);
    assert_int_equal(redis_server_asked("GET"), 2);
}

static ssize_t read_few(void *context, int fd, void *out_bytes, size_t n_bytes)
{
    return redis_server_net.read(context, fd, out_bytes, n_bytes < 100 ? n_bytes : 100);
}

/* What a closed connection had of an answer does not count for the next one. */
TEST(half_an_answer_is_forgotten)
{
    enum { LIMIT = 256 * 1024 }; /* of an answer */
    static char half[LIMIT] = "$262130\r\n";
    struct record record;
    make_record(&record, 1, 0, NULL);
    struct kvpi_net net = redis_server_net;
    net.read = read_few;
    scoped_store *store = open_in_memory(ONE_SERVER, &net, 0, NULL);
    memset(half + strlen(half), 'x', sizeof half - 20 - strlen(half));
    for (int i = 0; i < 2; i++) {
        redis_server_say(half);
        const uint64_t sent = redis_server_sent();
        uint8_t kv[BLOCKS][BLOCK_BYTES];
        void *blocks[BLOCKS] = {kv[0], kv[1]};
        assert_int_equal(kvp_store_get(store, &record.identity, blocks, 1), KVP_OK);
        assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
        assert_true(redis_server_sent() >= sent + LIMIT - 20);
        redis_server_hang_up();
        assert_int_equal(input_result(store), KVP_STORE_FAILED);
        redis_server_say(NULL);
        assert_int_equal(get(store, &record), KVP_STORE_ABSENT);
    }
}

/* An operation has nothing of the one before, which had more blocks. */
TEST(records_of_two_groups)
{
    static struct record records[2];
    kvp_store_config config = config_of(ONE_SERVER);
    kvp_store *store = open_in_memory(ONE_SERVER, &redis_server_net, 0, NULL);
    kvp_store_close(store);
    config.now = simulated_clock;
    config.max_ops = 1;
    config.n_groups = 2;
    config.block_bytes[1] = BLOCK_BYTES;
    config.group_blocks[1] = 1;
    struct kvpi_backend backend = kvpi_redis_backend;
    backend.open = open_on_net;
    assert_int_equal(kvpi_store_open(&config, &backend, &store, NULL, 0), KVP_OK);
    for (unsigned i = 0; i < 2; i++) {
        make_record(&records[i], 1, 0, NULL);
        records[i].identity.group = i;
        records[i].key = input_key(&records[i].identity);
        assert_int_equal(put(store, &records[i]), KVP_STORE_OK);
    }
    uint8_t kv[2][BLOCK_BYTES] = {{0}};
    void *blocks[] = {kv[0], kv[1]};
    assert_int_equal(get(store, &records[0]), KVP_STORE_OK);
    assert_int_equal(kvp_store_get(store, &records[1].identity, blocks, 1), KVP_OK);
    assert_int_equal(input_result(store), KVP_STORE_OK);
    assert_memory_equal(kv[0], records[1].kv[0], BLOCK_BYTES);
    assert_int_equal(kv[1][0], 0);
    kvp_store_close(store);
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

/* What each server says of itself, added up; it is asked again after ten seconds. */
TEST(servers_are_counted)
{
    struct record record;
    record_of(&record, 0);
    for (unsigned n = 1; n <= 2; n++) {
        scoped_store *store = open_in_memory("redis://127.0.0.1:1?timeout=1s", &redis_server_net, 0,
                                             n == 2 ? "127.0.0.1" : NULL);
        struct record far;
        record_of(&far, 1);
        simulated_ns += SECOND;
        for (int i = 0; i < 2; i++) { /* a connection to each */
            assert_int_equal(get(store, &record), KVP_STORE_ABSENT);
            assert_int_equal(get(store, &far), KVP_STORE_ABSENT);
        }
        assert_fields(stats_of(store), records, 3 * n, bytes, 1000 * n, size, (uint64_t)n << 30,
                      evicted, 0);
        expect_text(store, n == 1 ? "server 7.2.4, 8 connections"
                                  : "server 7.2.4, 8 connections to each of 2 servers");
        const unsigned n_asked = redis_server_asked("INFO");
        simulated_ns += 9 * SECOND - 1; /* of the first server, which was asked at the opening */
        assert_int_equal(get(store, &record), KVP_STORE_ABSENT);
        assert_int_equal(redis_server_asked("INFO"), n_asked);
        simulated_ns += 1;
        for (int i = 0; i < 3; i++)
            assert_int_equal(get(store, &record), KVP_STORE_ABSENT);
        assert_int_equal(redis_server_asked("INFO"), n_asked + 1);
    }
}

static void begin_gets(kvp_store *store, const struct record *record)
{
    static uint8_t kv[2][BLOCKS][BLOCK_BYTES];
    for (int i = 0; i < 2; i++) { /* each on a connection of its own */
        void *blocks[BLOCKS] = {kv[i][0], kv[i][1]};
        assert_int_equal(kvp_store_get(store, &record->identity, blocks, 1), KVP_OK);
    }
}

/* A server that does not tell is not asked once more meanwhile. */
TEST(a_server_is_asked_once)
{
    struct record record;
    make_record(&record, 1, 0, NULL);
    scoped_store *store =
        open_in_memory("redis://127.0.0.1:1?timeout=5s&connections=2", &redis_server_net, 0, NULL);
    redis_server_clock(simulated_clock);
    redis_server_trouble("GET", 1, REDIS_IS_SLOW);
    begin_gets(store, &record);
    assert_int_equal(input_result(store), KVP_STORE_ABSENT);
    simulated_ns += 2 * SECOND;
    assert_int_equal(input_result(store), KVP_STORE_ABSENT);
    assert_int_equal(redis_server_asked("INFO"), 2);
    simulated_ns += 11 * SECOND;
    redis_server_trouble("INFO", 1, REDIS_IS_SLOW);
    assert_int_equal(get(store, &record), KVP_STORE_ABSENT);
    begin_gets(store, &record); /* one of them behind INFO */
    assert_int_equal(input_result(store), KVP_STORE_ABSENT);
    for (int i = 0; i < 5; i++)
        assert_int_equal(get(store, &record), KVP_STORE_ABSENT);
    assert_false(redis_server_is_waiting_for_trouble());
    assert_int_equal(redis_server_asked("INFO"), 3);
    simulated_ns += 2 * SECOND;
    assert_int_equal(input_result(store), KVP_STORE_ABSENT);
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

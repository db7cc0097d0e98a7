/* Every call out by what can go wrong with it, on servers in memory and in simulated time: what is
 * asked of sockets, and what servers answer. Each cell plays one scene once for each time that the
 * scene makes the call, 20 at most, and the call goes wrong then.
 *
 *   E1  every operation ends within `timeout`, whatever goes wrong
 *   E2  a get that succeeds gives the right bytes, none is bad, and none writes beside the blocks
 *   E3  a put that succeeds, or is known, is of a record that the server has, whole and right
 *   E4  have tells of no record that is not there, and of each that is, if it succeeds; unless the
 *       server answers a batch once too often: a get decides
 *   E5  a record on the server expires, and never before the one that needs it; if the server
 *       refuses to renew one and renews the next, not before it is hit again
 *   E6  when something failed, describe gives a reason in the server's or the system's words
 *   E7  then all is well again: records are put and come back
 *   E8  at the end no connection is left
 *
 * Built twice: with small records (SET, GET) and with large ones (EXISTS, MULTI, HMGET). */
#define _GNU_SOURCE
#include "memory_servers.h"

#include <errno.h>
#include <stdio.h>

enum { CHAIN = 3, TIMES_MAX = 20, TIMEOUT_MS = 1000, STEP_MS = 50 };

#define MS UINT64_C(1000000)

/* ------------------------------------------------------------------- sockets that make trouble */

enum call { CONNECT, CONNECTED, READ, WRITE, CALLS };

static const char *const call_names[CALLS] = {"connect", "connected", "read", "write"};
static const char *const kind_names[4] = {"fails", "is slow", "repeats", "is the last"};

static struct {
    int is_armed;
    enum call call;
    unsigned nth;
    enum redis_trouble kind;
    int fd; /* with which it goes wrong; -1: none */
    uint64_t until;
    unsigned turn;
} trouble;

/* 1: with this one it goes wrong, now or since an earlier call. */
static int is_troubled(enum call call, int fd)
{
    if (trouble.is_armed && trouble.call == call && --trouble.nth == 0) {
        trouble.is_armed = 0;
        trouble.fd = fd;
        trouble.until = simulated_ns + 2 * SECOND;
        return 1;
    }
    return fd >= 0 && trouble.fd == fd && trouble.call == call && trouble.kind != REDIS_FAILS &&
           (trouble.kind != REDIS_IS_SLOW || simulated_ns < trouble.until);
}

/* Of those that repeat, each second one has to be called again. */
static int is_interrupted(void)
{
    return trouble.kind == REDIS_REPEATS && trouble.turn++ % 2 == 0;
}

static int net_connect(void *context, const struct kvpi_net_address *address)
{
    if (is_troubled(CONNECT, -1)) {
        errno = ECONNREFUSED;
        return -1;
    }
    return redis_server_net.connect(context, address);
}

static int net_connected(void *context, int fd)
{
    if (!is_troubled(CONNECTED, fd))
        return redis_server_net.connected(context, fd);
    if (trouble.kind == REDIS_IS_SLOW || is_interrupted())
        return EAGAIN;
    return trouble.kind == REDIS_REPEATS ? 0 : ETIMEDOUT;
}

static ssize_t net_read(void *context, int fd, void *out_bytes, size_t n_bytes)
{
    if (!is_troubled(READ, fd))
        return redis_server_net.read(context, fd, out_bytes, n_bytes);
    if (trouble.kind == REDIS_IS_LAST)
        return 0;
    errno = trouble.kind == REDIS_FAILS     ? ECONNRESET
            : trouble.kind == REDIS_REPEATS ? EINTR
                                            : EAGAIN;
    if (trouble.kind != REDIS_REPEATS || is_interrupted())
        return -1;
    return redis_server_net.read(context, fd, out_bytes, n_bytes < 700 ? n_bytes : 700);
}

static ssize_t net_write(void *context, int fd, struct iovec *pieces, size_t n_pieces)
{
    struct iovec first = {pieces[0].iov_base, pieces[0].iov_len < 700 ? pieces[0].iov_len : 700};
    if (!is_troubled(WRITE, fd))
        return redis_server_net.write(context, fd, pieces, n_pieces);
    if (trouble.kind == REDIS_IS_LAST && trouble.turn++ == 0)
        return redis_server_net.write(context, fd, &first, 1);
    errno = trouble.kind == REDIS_FAILS     ? ECONNRESET
            : trouble.kind == REDIS_REPEATS ? EINTR
            : trouble.kind == REDIS_IS_LAST ? EPIPE
                                            : EAGAIN;
    if (trouble.kind != REDIS_REPEATS || is_interrupted())
        return -1;
    return redis_server_net.write(context, fd, &first, 1);
}

static void net_close(void *context, int fd)
{
    trouble.fd = trouble.fd == fd ? -1 : trouble.fd;
    redis_server_net.close(context, fd);
}

/* ------------------------------------------------------------------------------------ the scene */

static struct record chain[CHAIN + 1]; /* the last one is never put */
static uint64_t worst_ms;
static const char *cell; /* in words */

static void fail_cell(const char *what, uint32_t result)
{
    fail_msg("%s: %s (%u)", cell, what, result);
}

static uint64_t expiry_of(const struct record *record)
{
    struct kvpi_ages ages = {.tags = TAGS, .is_large = BLOCKS_ARE_LARGE};
    const kvp_digest fingerprint = input_digest(1);
    char name[KVPI_AGES_NAME];
    assert_int_equal(kvpi_ages_open(&ages, &fingerprint), KVP_OK);
    kvpi_ages_name(&ages, &record->key, name);
    kvpi_ages_close(&ages);
    return redis_server_expiry(name);
}

static int has_bits;  /* that are right, as is promised */
static int has_order; /* of expiries, which is promised now */

static void check_expiries(void)
{
    for (unsigned i = 0; i < CHAIN; i++) {
        const uint64_t own = expiry_of(&chain[i]);
        const uint64_t parent = i > 0 ? expiry_of(&chain[i - 1]) : 0;
        if (own == UINT64_MAX)
            fail_cell("a record never expires", i);
        if (has_order && own > 0 && parent > 0 && parent <= own)
            fail_msg("%s: a parent expires before its child: %u at %llu: %lld %lld", cell, i,
                     (unsigned long long)simulated_ns / 1000000, (long long)parent / 1000000,
                     (long long)own / 1000000);
    }
}

static uint32_t end_one(kvp_store *store)
{
    const uint64_t began = simulated_ns;
    for (;;) {
        kvp_store_done done;
        uint32_t n = 0;
        assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
        check_expiries();
        assert_int_equal(kvp_store_poll(store, &done, 1, &n), KVP_OK);
        const uint64_t took = (simulated_ns - began) / MS;
        worst_ms = took > worst_ms ? took : worst_ms;
        if (n > 0)
            return done.result;
        if (took > TIMEOUT_MS)
            fail_cell("an operation is later than its time", 0);
        simulated_ns += STEP_MS * MS;
    }
}

/* 1: it says why. */
static void check_reason(const kvp_store *store, uint32_t result)
{
    char text[400];
    assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
    const char *away = strstr(text, "; away: ");
    if (result == KVP_STORE_AWAY && (!away || strlen(away) < strlen("; away: ") + 5))
        fail_cell(text, result);
}

static uint32_t put_one(kvp_store *store, unsigned i)
{
    struct record *record = &chain[i];
    assert_int_equal(kvp_store_put(store, &record->identity, record->blocks, 7), KVP_OK);
    const uint32_t result = end_one(store);
    const int is_there = result == KVP_STORE_OK || result == KVP_STORE_KNOWN;
    if (is_there && expiry_of(record) == 0)
        fail_cell("a put has ended well, and the record is not there", result);
    if (!is_there && result != KVP_STORE_FAILED && result != KVP_STORE_AWAY)
        fail_cell("a put has ended otherwise", result);
    check_reason(store, result);
    return result;
}

static uint32_t get_one(kvp_store *store, unsigned i)
{
    static uint8_t kv[BLOCKS][3][BLOCK_BYTES];
    void *blocks[BLOCKS] = {kv[0][1], kv[1][1]};
    const uint64_t was_there = expiry_of(&chain[i]);
    memset(kv, 0xEE, sizeof kv);
    assert_int_equal(kvp_store_get(store, &chain[i].identity, blocks, 8), KVP_OK);
    const uint32_t result = end_one(store);
    for (int b = 0; b < BLOCKS; b++)
        for (int at = 0; at < BLOCK_BYTES; at++)
            if (kv[b][0][at] != 0xEE || kv[b][2][at] != 0xEE ||
                (result == KVP_STORE_OK && kv[b][1][at] != chain[i].kv[b][at]))
                fail_cell("a get has written other bytes", result);
    if (result == KVP_STORE_BAD || result == KVP_STORE_RACED ||
        (result == KVP_STORE_ABSENT && was_there) || (result == KVP_STORE_OK && !was_there))
        fail_cell("a get has ended otherwise", result);
    check_reason(store, result);
    return result;
}

static uint32_t have_all(kvp_store *store)
{
    kvp_digest keys[CHAIN + 1];
    uint64_t there = 0;
    uint64_t bits = ~UINT64_C(0);
    for (unsigned i = 0; i <= CHAIN; i++) {
        keys[i] = chain[i].key;
        there |= (uint64_t)(expiry_of(&chain[i]) > 0) << i;
    }
    assert_int_equal(kvp_store_have(store, keys, CHAIN + 1, &bits, 9), KVP_OK);
    const uint32_t result = end_one(store);
    if (!has_bits)
        return result;
    if (result == KVP_STORE_OK ? bits != there : (bits & ~there) != 0)
        fail_cell("have has told of other records", result);
    check_reason(store, result);
    return result;
}

static void drop_one(kvp_store *store, unsigned i)
{
    assert_int_equal(kvp_store_drop(store, &chain[i].key, 1, 1), KVP_OK);
    const uint32_t result = end_one(store);
    if (result == KVP_STORE_OK && expiry_of(&chain[i]) > 0)
        fail_cell("a record that was dropped is there", result);
    check_reason(store, result);
}

/* Records come and go, some minutes go by, and hits renew. */
static void play(kvp_store *store)
{
    for (unsigned i = 0; i < CHAIN; i++)
        (void)put_one(store, i);
    (void)put_one(store, 1);
    (void)have_all(store);
    for (int minute = 0; minute < 2; minute++) {
        simulated_ns += 61 * SECOND;
        (void)get_one(store, CHAIN - 1);
        (void)get_one(store, CHAIN);
        (void)get_one(store, 0);
    }
    drop_one(store, CHAIN - 1);
    (void)get_one(store, CHAIN - 1);
    (void)put_one(store, CHAIN - 1);
    (void)have_all(store);
}

static void recover(kvp_store *store)
{
    unsigned n_good = 0;
    for (int tries = 0; tries < 4 && n_good < CHAIN; tries++) {
        n_good = 0;
        simulated_ns += 70 * SECOND;
        for (unsigned i = 0; i < CHAIN; i++) {
            (void)put_one(store, i);
            n_good += get_one(store, i) == KVP_STORE_OK;
        }
    }
    if (n_good < CHAIN || have_all(store) != KVP_STORE_OK)
        fail_cell("it does not recover", n_good);
    char text[400];
    has_order = has_bits = 1;
    check_expiries();
    assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
    if (strstr(text, "away"))
        fail_cell(text, 0);
}

static struct kvpi_net net;

static kvp_store *open_scene(void)
{
    net = redis_server_net;
    net.connect = net_connect;
    net.connected = net_connected;
    net.read = net_read;
    net.write = net_write;
    net.close = net_close;
    trouble.fd = -1;
    trouble.is_armed = 0;
    trouble.turn = 0;
    kvp_store *store =
        open_in_memory("redis://127.0.0.1:1?timeout=1s&connections=1", &net, 0, NULL);
    redis_server_clock(simulated_clock);
    has_order = has_bits = 1;
    simulated_ns += SECOND;
    return store;
}

/* Gives 0: the scene does not make this call so often. */
static int play_cell(const char *command, enum call call, enum redis_trouble kind, unsigned nth)
{
    char words[100];
    kvp_store *store = open_scene();
    snprintf(words, sizeof words, "%s %u %s", command ? command : call_names[call], nth,
             kind_names[kind]);
    cell = words;
    trouble.kind = kind;
    if (command) {
        redis_server_trouble(command, nth, kind);
    } else {
        trouble.is_armed = 1;
        trouble.call = call;
        trouble.nth = nth;
    }
    has_bits = !(command && strcmp(command, "EXISTS") == 0 && kind == REDIS_REPEATS);
    has_order = !(command && strcmp(command, "PEXPIRE") == 0 && kind == REDIS_FAILS);
    /* A connection is opened anew in the scene: what it takes is tried, too. */
    redis_server_hang_up();
    play(store);
    const int happened = command ? !redis_server_is_waiting_for_trouble() : !trouble.is_armed;
    redis_server_trouble(NULL, 0, kind);
    trouble.is_armed = 0;
    recover(store);
    kvp_store_close(store);
    if (redis_server_open() != 0)
        fail_cell("connections are left", redis_server_open());
    return happened;
}

/* ------------------------------------------------------------------------------------ the table */

static void play_row(const char *command, enum call call, unsigned n_least)
{
    for (int kind = REDIS_FAILS; kind <= REDIS_IS_LAST; kind++) {
        unsigned nth = 1;
        while (nth <= TIMES_MAX && play_cell(command, call, (enum redis_trouble)kind, nth))
            nth++;
        if (nth - 1 < n_least)
            fail_msg("%s: %u times", cell, nth - 1);
    }
}

TEST(what_is_asked_of_sockets)
{
    static const unsigned n_least[CALLS] = {1, 1, 20, 15};
    for (int call = 0; call < CALLS; call++)
        play_row(NULL, (enum call)call, n_least[call]);
}

TEST(what_the_server_answers)
{
    static const struct {
        const char *command;
        unsigned n_least;
    } rows[] = {
#if BLOCKS_ARE_LARGE
        {"MULTI", 4},
        {"HSET", 4},
        {"EXEC", 4},
        {"HMGET", 7},
        {"PEXPIRE", 8},
        {"EXISTS", 13},
#else
        {"SET", 5},
        {"GET", 7},
        {"PEXPIRE", 5},
        {"EXISTS", 8},
#endif
        {"UNLINK", 1},
        {"INFO", 2},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++)
        play_row(rows[i].command, CALLS, rows[i].n_least);
}

/* Time goes back, jumps, or stands still between any two operations. */
TEST(the_clock)
{
    static const int64_t jumps[] = {-3600, -1, 3600, 8 * 86400};
    for (unsigned i = 0; i < sizeof jumps / sizeof *jumps; i++)
        for (int at = 0; at < CHAIN; at++) {
            scoped_store *store = open_scene();
            cell = "the clock jumps";
            redis_server_clock(NULL); /* the server has its own */
            has_order = 0;
            simulated_ns += 7200 * SECOND;
            for (int k = 0; k < CHAIN; k++) {
                if (k == at)
                    simulated_ns += (uint64_t)(jumps[i] * (int64_t)SECOND);
                (void)put_one(store, (unsigned)k);
            }
            assert_int_equal(have_all(store), KVP_STORE_OK);
            assert_int_equal(get_one(store, CHAIN - 1), KVP_STORE_OK);
        }
}

/* Time that an operation waits before it is begun is of its deadline. */
TEST(the_queue_counts)
{
    static uint8_t kv[BLOCKS][BLOCK_BYTES];
    void *blocks[BLOCKS] = {kv[0], kv[1]};
    for (int kind = 0; kind < 4; kind++) {
        scoped_store *store = open_scene();
        uint64_t bits = 0;
        cell = "the queue";
        redis_server_trouble(kind == 0   ? "EXISTS"
                             : kind == 1 ? (BLOCKS_ARE_LARGE ? "HMGET" : "GET")
                             : kind == 2 ? (BLOCKS_ARE_LARGE ? "EXISTS" : "SET")
                                         : "UNLINK",
                             1, REDIS_IS_SLOW);
        if (kind == 0)
            assert_int_equal(kvp_store_have(store, &chain[0].key, 1, &bits, 1), KVP_OK);
        else if (kind == 1)
            assert_int_equal(kvp_store_get(store, &chain[0].identity, blocks, 1), KVP_OK);
        else if (kind == 2)
            assert_int_equal(kvp_store_put(store, &chain[0].identity, chain[0].blocks, 1), KVP_OK);
        else
            assert_int_equal(kvp_store_drop(store, &chain[0].key, 1, 1), KVP_OK);
        simulated_ns += SECOND * 7 / 10;
        kvp_store_done done;
        uint32_t n = 0;
        const uint64_t began = simulated_ns;
        while (n == 0 && simulated_ns < began + SECOND) {
            assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
            assert_int_equal(kvp_store_poll(store, &done, 1, &n), KVP_OK);
            if (n == 0)
                simulated_ns += SECOND / 100;
        }
        assert_int_equal(n, 1);
        assert_int_equal(done.result, KVP_STORE_FAILED);
        assert_true(simulated_ns - began == SECOND * 3 / 10);
    }
}

/* So many hits renew at once, over a connection that is slow, that a put behind them has as much
 * before it as a connection takes. */
TEST(many_renewals_before_a_put)
{
    enum { N = 9 };
    static struct record records[N];
    static struct record child;
    static uint8_t kv[N][BLOCKS][BLOCK_BYTES];
    net = redis_server_net;
    for (int n_hits = 1; n_hits < N; n_hits++) {
        scoped_store *store = open_in_memory("redis://127.0.0.1:1?timeout=1s", &net, 0, NULL);
        uint32_t n_failed = 0;
        for (int i = 0; i < N; i++) {
            make_record(&records[i], 2 + (unsigned)i, 0, NULL);
            assert_int_equal(put(store, &records[i]), KVP_STORE_OK);
        }
        make_record(&child, 2 + N - 1, 1, &records[N - 1]);
        simulated_ns += 61 * SECOND;
        redis_server_clock(simulated_clock);
        redis_server_trouble("PEXPIRE", 1, REDIS_IS_SLOW);
        for (int i = 0; i < n_hits; i++) {
            void *blocks[BLOCKS] = {kv[i][0], kv[i][1]};
            assert_int_equal(kvp_store_get(store, &records[i].identity, blocks, 1), KVP_OK);
        }
        assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
        assert_int_equal(kvp_store_put(store, &child.identity, child.blocks, 2), KVP_OK);
        kvp_store_done done[N + 1];
        uint32_t n_done = 0;
        for (int i = 0; i < 30 && n_done < (uint32_t)n_hits + 1; i++) {
            uint32_t n = 0;
            assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
            assert_int_equal(kvp_store_poll(store, done + n_done, N + 1 - n_done, &n), KVP_OK);
            n_done += n;
            simulated_ns += 50 * MS;
        }
        assert_int_equal(n_done, n_hits + 1);
        for (uint32_t i = 0; i < n_done; i++)
            n_failed += done[i].result != KVP_STORE_OK;
        assert_true(n_failed <= 1); /* the put, if it was behind the slow ones */
    }
}

/* Only a large record is an array, of three fields, each of which may be missing. */
TEST(arrays_that_are_no_record)
{
    static const struct {
        const char *said;
        uint32_t large;
    } answers[] = {
        {"*0\r\n", KVP_STORE_FAILED},
        {"*2\r\n$1\r\na\r\n$1\r\nb\r\n", KVP_STORE_FAILED},
        {"*4\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n", KVP_STORE_FAILED},
        {"*3\r\n:1\r\n:2\r\n:3\r\n", KVP_STORE_FAILED},
        {"*3\r\n+a\r\n$1\r\nb\r\n$1\r\nc\r\n", KVP_STORE_FAILED},
        {"*3\r\n*0\r\n$1\r\nb\r\n$1\r\nc\r\n", KVP_STORE_FAILED},
        {"*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n", KVP_STORE_BAD},
        {"*3\r\n$1\r\na\r\n$-1\r\n$-1\r\n", KVP_STORE_BAD},
        {"*3\r\n$-1\r\n$1\r\nb\r\n$-1\r\n", KVP_STORE_BAD},
        {"*3\r\n$-1\r\n$-1\r\n$-1\r\n", KVP_STORE_ABSENT},
    };
    for (unsigned i = 0; i < sizeof answers / sizeof *answers; i++) {
        scoped_store *store =
            open_in_memory("redis://127.0.0.1:1?timeout=1s", &redis_server_net, 0, NULL);
        redis_server_say(answers[i].said);
        const uint32_t result = get(store, &chain[0]);
        if (result != (BLOCKS_ARE_LARGE ? answers[i].large : KVP_STORE_FAILED))
            fail_msg("%s: %u", answers[i].said, result);
        redis_server_say(NULL);
        assert_int_equal(put(store, &chain[0]), KVP_STORE_OK);
        assert_int_equal(get(store, &chain[0]), KVP_STORE_OK);
    }
}

/* ------------------------------------------------------------------------------- for operators */

enum { N_WALKED = 5 };

static struct {
    unsigned n_servers;
    unsigned n_records[N_WALKED]; /* how often each was told */
    unsigned n_wrong;
    uint64_t goes;              /* bit i: record i is to go */
    size_t n_expected;          /* bytes of a record */
    kvp_store_directory server; /* the last one */
} walked;

static struct record walked_records[N_WALKED];

static void note_server(void *context, const kvp_store_directory *server)
{
    static const char *const paths[] = {"redis://127.0.0.1:1", "redis://127.0.0.1:2"};
    (void)context;
    walked.n_wrong += strcmp(server->path, paths[walked.n_servers % 2]) != 0;
    walked.n_servers++;
    walked.server = *server;
}

static int note_record(void *context, const char *name, const uint8_t *bytes, size_t n_bytes)
{
    struct kvpi_ages ages = {.tags = TAGS, .is_large = BLOCKS_ARE_LARGE};
    const kvp_digest fingerprint = input_digest(1);
    char own[KVPI_AGES_NAME];
    unsigned i = 0;
    (void)context;
    assert_int_equal(kvpi_ages_open(&ages, &fingerprint), KVP_OK);
    for (; i < N_WALKED; i++) {
        kvpi_ages_name(&ages, &walked_records[i].key, own);
        if (strcmp(own, name) == 0)
            break;
    }
    kvpi_ages_close(&ages);
    if (i == N_WALKED)
        return (int)++walked.n_wrong;
    walked.n_records[i]++;
    walked.n_wrong += n_bytes != walked.n_expected;
    if (n_bytes > 4096)
        walked.n_wrong += memcmp(bytes + 4096, walked_records[i].kv, n_bytes - 4096) != 0;
    return (int)(walked.goes >> i & 1);
}

static kvp_status walk(size_t n_bytes, int with_records)
{
    const struct kvpi_walk all = {
        .n_bytes = n_bytes, .server = note_server, .record = with_records ? note_record : NULL};
    struct kvpi_url url;
    char why[300] = "";
    const uint64_t goes = walked.goes;
    memset(&walked, 0, sizeof walked);
    walked.goes = goes;
    walked.n_expected = n_bytes == SIZE_MAX ? 4096 + BLOCKS * BLOCK_BYTES
                        : BLOCKS_ARE_LARGE  ? 4096
                                            : n_bytes;
    assert_int_equal(kvpi_url_read("redis://127.0.0.1:1?timeout=1s", &url, NULL, 0), KVP_OK);
    const kvp_status status = kvpi_redis_walk(&redis_server_net, &url, &all, why, sizeof why);
    if (status == KVP_E_IO && !strstr(why, "the server at 127.0.0.1:1: "))
        fail_msg("%s", why);
    return status;
}

static kvp_store *open_walked(int is_cluster)
{
    kvp_store *store = open_in_memory("redis://127.0.0.1:1?timeout=1s", &redis_server_net, 0,
                                      is_cluster ? "127.0.0.1" : NULL);
    for (unsigned i = 0; i < N_WALKED; i++) {
        make_record(&walked_records[i], 20 + i, 0, NULL);
        assert_int_equal(put(store, &walked_records[i]), KVP_STORE_OK);
    }
    walked.goes = 0;
    return store;
}

/* All records of each server, whole or their beginnings, however many names come at once. */
TEST(a_walk_tells_all)
{
    for (unsigned page = 0; page <= N_WALKED + 1; page++)
        for (int is_cluster = 0; is_cluster < 2; is_cluster++)
            for (int depth = 0; depth < 3; depth++) {
                kvp_store *store = open_walked(is_cluster);
                redis_server_page(page);
                assert_int_equal(walk(depth == 2 ? SIZE_MAX : 256, depth > 0), KVP_OK);
                assert_fields(walked, n_wrong, 0, n_servers, 1 + is_cluster);
                assert_fields(walked.server, status, KVP_OK, records, N_WALKED, bytes, 1000,
                              slot_bytes, 100000);
                /* Of the first names only. */
                assert_int_equal(redis_server_asked("MEMORY"),
                                 (page > 0 && page < N_WALKED ? page : N_WALKED) *
                                     (unsigned)(1 + is_cluster));
                for (unsigned i = 0; i < N_WALKED; i++)
                    assert_int_equal(walked.n_records[i], depth > 0 ? 1 + is_cluster : 0);
                kvp_store_close(store);
                assert_int_equal(redis_server_open(), 0);
            }
}

TEST(a_walk_drops_what_goes)
{
    for (int whole = 0; whole < 2; whole++) {
        kvp_store *store = open_walked(0);
        walked.goes = 1 << 1 | 1 << 4;
        redis_server_page(3);
        assert_int_equal(walk(whole ? SIZE_MAX : 256, 1), KVP_OK);
        assert_int_equal(redis_server_asked("UNLINK"), 2);
        assert_int_equal(walked.n_wrong, 0);
        for (unsigned i = 0; i < N_WALKED; i++)
            assert_int_equal(get(store, &walked_records[i]),
                             walked.goes >> i & 1 ? KVP_STORE_ABSENT : KVP_STORE_OK);
        kvp_store_close(store);
    }
}

/* An error, or a connection that ends, ends the walk; but what records take need not be told. */
TEST(a_walk_that_fails)
{
    static const char *const commands[] = {"SCAN", BLOCKS_ARE_LARGE ? "HMGET" : "GET",
                                           BLOCKS_ARE_LARGE ? "HGET" : "GETRANGE", "UNLINK",
                                           "MEMORY"};
    for (unsigned i = 0; i < sizeof commands / sizeof *commands; i++)
        for (int is_last = 0; is_last < 2; is_last++) {
            kvp_store *store = open_walked(0);
            const int is_memory = strcmp(commands[i], "MEMORY") == 0;
            walked.goes = 1 << 1;
            redis_server_trouble(commands[i], i == 1 ? N_WALKED : 1,
                                 is_last ? REDIS_IS_LAST : REDIS_FAILS);
            assert_int_equal(walk(i == 1 ? SIZE_MAX : 256, 1),
                             is_memory && !is_last ? KVP_OK : KVP_E_IO);
            assert_int_equal(walked.server.slot_bytes,
                             i == 0 || (is_memory && is_last) ? 0 : 100000);
            assert_false(redis_server_is_waiting_for_trouble());
            kvp_store_close(store);
            assert_int_equal(redis_server_open(), 0);
        }
}

int main(void)
{
    for (unsigned i = 0; i <= CHAIN; i++)
        make_record(&chain[i], 1, i, i > 0 ? &chain[i - 1] : NULL);
    const int failed = run_all_tests(NULL, NULL);
    printf("the longest operation took %u ms of %u\n", (unsigned)worst_ms, (unsigned)TIMEOUT_MS);
    return failed;
}

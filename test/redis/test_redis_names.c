/* Names that are looked up late, never or in vain. The servers are in memory (fuzz/redis_server.h),
 * their names are this test's, and a look-up runs when the test lets it go. */
#define _GNU_SOURCE
#include "memory_servers.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>

#include "store/redis/link/lookup.h"
#include "store/wake.h"

enum { HELD_MAX = 100 };

static struct {
    struct {
        void *(*run)(void *argument);
        void *argument;
    } held[HELD_MAX];
    unsigned n_held;
    unsigned n_started;
    int has_no_thread;
    int is_refused;                          /* all connections */
    enum { ALL_LIVE, REFUSES, LOSES } first; /* of two addresses of a name */
    int fd_lost;                             /* a connection that will not be made */
    int has_no_name;
    int runs_beside; /* in a thread, which waits at the gate */
    sem_t gate;
} names;

/* ------------------------------------------------------------------------------------ the names */

static int start(void *context, void *(*run)(void *), void *argument)
{
    (void)context;
    if (names.has_no_thread)
        return EAGAIN;
    names.n_started++;
    if (names.runs_beside)
        return kvpi_net_system.start(NULL, run, argument);
    assert_true(names.n_held < HELD_MAX);
    names.held[names.n_held].run = run;
    names.held[names.n_held++].argument = argument;
    return 0;
}

static uint32_t look_up(void *context, const char *host, int port,
                        struct kvpi_net_address out_addresses[KVPI_NET_ADDRESSES], char *out_why,
                        size_t why_bytes)
{
    const int is_name = host[0] < '0' || host[0] > '9';
    if (is_name && names.runs_beside && names.n_started > 0)
        sem_wait(&names.gate);
    if (is_name && names.has_no_name) {
        snprintf(out_why, why_bytes, "no such name");
        return 0;
    }
    if (is_name && names.first != ALL_LIVE) {
        out_addresses[0].n_bytes = 1; /* what connect_unless_refused knows it by */
        return 1 + redis_server_net.look_up(context, "127.0.0.1", port, out_addresses + 1, out_why,
                                            why_bytes);
    }
    return redis_server_net.look_up(context, "127.0.0.1", port, out_addresses, out_why, why_bytes);
}

static int connect_unless_refused(void *context, const struct kvpi_net_address *address)
{
    names.fd_lost = -1;
    if (names.is_refused || (names.first == REFUSES && address->n_bytes == 1)) {
        errno = ECONNREFUSED;
        return -1;
    }
    const int fd = redis_server_net.connect(context, address);
    if (names.first == LOSES && address->n_bytes == 1)
        names.fd_lost = fd;
    return fd;
}

static int connect_later(void *context, int fd)
{
    return fd == names.fd_lost ? ETIMEDOUT : redis_server_net.connected(context, fd);
}

static ssize_t read_unless_refused(void *context, int fd, void *out_bytes, size_t n_bytes)
{
    return names.is_refused ? 0 : redis_server_net.read(context, fd, out_bytes, n_bytes);
}

static void let_go(void)
{
    while (names.n_held > 0) {
        names.n_held--;
        names.held[names.n_held].run(names.held[names.n_held].argument);
    }
}

/* ------------------------------------------------------------------------------------ the store */

static struct kvpi_net net; /* of the servers, but for names and refusals */

static kvp_store *open_on_names(const char *url, uint32_t threads)
{
    names.n_started = 0;
    return open_in_memory(url, &net, threads, "slow.test");
}

static void begin_get(kvp_store *store, const struct record *record, uint64_t tag)
{
    static uint8_t kv[BLOCKS][BLOCK_BYTES];
    void *blocks[BLOCKS] = {kv[0], kv[1]};
    assert_int_equal(kvp_store_get(store, &record->identity, blocks, tag), KVP_OK);
}

/* What has ended when there is nothing more to do now. */
static uint32_t work(kvp_store *store, kvp_store_done *out_done, uint32_t capacity)
{
    uint32_t n = 0;
    for (int i = 0; i < 10; i++)
        assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
    assert_int_equal(kvp_store_poll(store, out_done, capacity, &n), KVP_OK);
    return n;
}

/* ------------------------------------------------------------------------------------ the tests */

/* While the name of one server is looked up, the other one answers. What waits for the name has its
 * own time, and no longer; there is one look-up, however many wait. */
TEST(a_slow_name_delays_nobody)
{
    struct record near, far;
    kvp_store_done done[4];
    record_of(&near, 0);
    record_of(&far, 1);
    kvp_store *store = open_on_names("redis://127.0.0.1:1?timeout=1s&connections=2", 0);
    for (uint64_t tag = 1; tag <= 3; tag++) {
        begin_get(store, &far, tag);
        begin_get(store, &near, 10);
        assert_int_equal(work(store, done, 4), 1);
        assert_true(done[0].tag == 10 && done[0].result == KVP_STORE_ABSENT);
    }
    assert_int_equal(names.n_started, 1);
    simulated_ns += SECOND;
    assert_int_equal(work(store, done, 4), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(done[i].result, KVP_STORE_FAILED);
    expect_text(store, "away: the server's address was not found in time");
    assert_int_equal(get(store, &far), KVP_STORE_AWAY);
    /* The first look-up still runs, long after: no second one is begun. */
    simulated_ns += 100 * SECOND;
    begin_get(store, &far, 1);
    assert_int_equal(work(store, done, 4), 0);
    assert_int_equal(names.n_started, 1);
    let_go();
    assert_int_equal(work(store, done, 4), 1);
    assert_int_equal(done[0].result, KVP_STORE_ABSENT);
    assert_int_equal(put(store, &far), KVP_STORE_OK);
    assert_int_equal(get(store, &far), KVP_STORE_OK);
    kvp_store_close(store);
    assert_int_equal(redis_server_open(), 0);
}

/* The opening waits no longer than for a server; what was looked up for it in vain is looked up
 * anew. */
TEST(the_opening_waits_for_a_name_in_time)
{
    struct record record;
    kvp_store_done done;
    record_of(&record, 0);
    scoped_store *store = open_on_names("redis://slow.test:1?timeout=1s", 0);
    assert_int_equal(names.n_started, 1);
    expect_text(store, "away: the server's address was not found in time");
    let_go();
    simulated_ns += 2 * SECOND;
    begin_get(store, &record, 1);
    assert_int_equal(work(store, &done, 1), 0);
    assert_int_equal(names.n_started, 2);
    let_go();
    assert_int_equal(work(store, &done, 1), 1);
    assert_int_equal(done.result, KVP_STORE_ABSENT);
}

/* A look-up may outlive the store that began it. */
TEST(a_store_is_closed_during_a_look_up)
{
    struct record far;
    kvp_store_done done;
    record_of(&far, 1);
    kvp_store *store = open_on_names("redis://127.0.0.1:1?timeout=1s", 0);
    begin_get(store, &far, 1);
    assert_int_equal(work(store, &done, 1), 0);
    simulated_ns += SECOND;
    assert_int_equal(work(store, &done, 1), 1);
    kvp_store_close(store);
    assert_int_equal(names.n_held, 1);
    let_go();
}

TEST(what_cannot_be_looked_up_is_away)
{
    struct record far;
    kvp_store_done done;
    record_of(&far, 1);
    scoped_store *store = open_on_names("redis://127.0.0.1:1?timeout=1s", 0);
    names.has_no_name = 1;
    begin_get(store, &far, 1);
    assert_int_equal(work(store, &done, 1), 0);
    let_go();
    assert_int_equal(work(store, &done, 1), 1);
    assert_int_equal(done.result, KVP_STORE_FAILED);
    expect_text(store, "away: no such name");
    names.has_no_name = 0;
    names.has_no_thread = 1;
    simulated_ns += SECOND;
    assert_int_equal(get(store, &far), KVP_STORE_FAILED);
    expect_text(store, "away: the system gave no thread");
    names.has_no_thread = 0;
}

/* Of two addresses the second is used: at once if the first refuses, with the next attempt if the
 * connection is not made. */
TEST(another_address_may_do)
{
    struct record far;
    kvp_store_done done;
    record_of(&far, 1);
    for (int is_lost = 0; is_lost < 2; is_lost++) {
        names.first = is_lost ? LOSES : REFUSES;
        scoped_store *store = open_on_names("redis://127.0.0.1:1?timeout=1s&connections=1", 0);
        for (int attempt = 0; attempt <= is_lost; attempt++, simulated_ns += SECOND) {
            begin_get(store, &far, 1);
            assert_int_equal(work(store, &done, 1), 0);
            let_go();
            assert_int_equal(work(store, &done, 1), 1);
            assert_int_equal(done.result, attempt < is_lost ? KVP_STORE_FAILED : KVP_STORE_ABSENT);
        }
        names.first = ALL_LIVE;
    }
}

/* The statistics tell for how long the store is away: as long as all of its servers are. */
TEST(a_store_is_away_with_its_last_server)
{
    struct record near, far;
    kvp_store_done done;
    record_of(&near, 0);
    record_of(&far, 1);
    scoped_store *store = open_on_names("redis://127.0.0.1:1?timeout=1s&connections=1", 0);
    names.has_no_name = 1;
    begin_get(store, &far, 1);
    assert_int_equal(work(store, &done, 1), 0);
    let_go();
    assert_int_equal(work(store, &done, 1), 1);
    assert_int_equal(stats_of(store).away_ns, 0);
    expect_text(store, "; 1 of 2 away: no such name");
    simulated_ns += SECOND / 100;
    names.is_refused = 1;
    assert_int_equal(get(store, &near), KVP_STORE_FAILED); /* its connection is closed */
    assert_int_equal(get(store, &near), KVP_STORE_AWAY);   /* and none can be made */
    assert_int_equal(stats_of(store).away_ns, SECOND / 10 - SECOND / 100);
    expect_text(store, "; 2 of 2 away: ");
    names.is_refused = names.has_no_name = 0;
    simulated_ns += SECOND / 10;
    assert_int_equal(stats_of(store).away_ns, 0);
    assert_int_equal(get(store, &near), KVP_STORE_ABSENT);
    assert_int_equal(stats_of(store).away_ns, 0);
    let_go(); /* what the map may have asked for */
}

/* However many names a map has, there are only so many threads; then there are threads again. */
TEST(there_are_only_so_many_threads)
{
    static struct kvpi_lookup lookups[KVPI_LOOKUP_THREADS + 1];
    const struct kvpi_place_of_server place = {.host = "slow.test", .port = 1};
    struct kvpi_lookup *last = &lookups[KVPI_LOOKUP_THREADS];
    for (int i = 0; i <= KVPI_LOOKUP_THREADS; i++)
        kvpi_lookup_begin(&lookups[i], &net, &place);
    assert_int_equal(lookups[0].state, KVPI_LOOKUP_RUNNING);
    assert_int_equal(kvpi_wake_wait(kvpi_lookup_fd(&lookups[0]), 0), 0);
    assert_int_equal(last->state, KVPI_LOOKUP_FAILED);
    assert_string_equal(last->why, "too many names are looked up at once");
    assert_int_equal(kvpi_lookup_fd(last), -1);
    let_go();
    for (int i = 0; i < KVPI_LOOKUP_THREADS; i++) {
        assert_int_equal(kvpi_wake_wait(kvpi_lookup_fd(&lookups[i]), 0), 1);
        assert_int_equal(kvpi_lookup_step(&lookups[i]), KVPI_LOOKUP_FOUND);
    }
    kvpi_lookup_begin(last, &net, &place);
    let_go();
    assert_int_equal(kvpi_lookup_step(last), KVPI_LOOKUP_FOUND);
}

/* The store's own thread is woken when a look-up in another one has ended: nothing else would, for
 * an hour. */
TEST(the_end_of_a_look_up_wakes_the_store)
{
    struct record near, far;
    record_of(&near, 0);
    record_of(&far, 1);
    sem_init(&names.gate, 0, 0);
    names.runs_beside = 1;
    redis_server_never_ready();
    kvp_store *store = open_on_names("redis://127.0.0.1:1?timeout=1h", 1);
    begin_get(store, &far, 1);
    assert_int_equal(get(store, &near), KVP_STORE_ABSENT);
    sem_post(&names.gate);
    kvp_store_done done = {0};
    uint32_t n = 0;
    for (int i = 0; i < 20 && n == 0; i++) {
        (void)kvp_store_wait(store, SECOND);
        assert_int_equal(kvp_store_poll(store, &done, 1, &n), KVP_OK);
    }
    assert_int_equal(n, 1);
    assert_int_equal(done.result, KVP_STORE_ABSENT);
    kvp_store_close(store);
    names.runs_beside = 0;
    sem_destroy(&names.gate);
}

int main(void)
{
    net = redis_server_net;
    net.start = start;
    net.look_up = look_up;
    net.connect = connect_unless_refused;
    net.connected = connect_later;
    net.read = read_unless_refused;
    return run_all_tests(NULL, NULL);
}

/* Readers that ask for batches: what is kept, the whole set, both forms; numbers and heartbeats; a
 * cache that is read, and one whose events are gone. */
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "publish/kept_batches.h"
#include "wire.h"
#include "world.h"

enum { SECOND = 1000000000 };

static struct wire wire;

static void open_named(const kvp_publisher_config *config)
{
    wire_open(&wire, config);
    wire_unit(&wire, 'a', '\0', "m", NULL);
    wire_unit(&wire, 'b', 'a', "m", NULL);
    wire_unit(&wire, 'c', 'b', "m", NULL);
    /* A known place to begin: what was sent to find the reader is not counted. */
    assert_string_equal(wire_put(&wire, "!*"), "clear");
}

static kvp_publisher_stats stats(void)
{
    kvp_publisher_stats found;
    assert_int_equal(kvp_publisher_stats_get(wire.publisher, &found), KVP_OK);
    return found;
}

/* "N:events" for batch newest + more, N as the number is. */
static void expect_answer(uint64_t number, const char *format)
{
    char expected[WIRE_TEXT];
    const unsigned long long newest = wire.newest;
    (void)snprintf(expected, sizeof(expected), format, newest - 1, newest); /* NOLINT */
    assert_string_equal(wire_ask(&wire, number), expected);
}

TEST(test_what_is_kept_is_sent_again)
{
    const kvp_publisher_config config = wire_config();
    open_named(&config);
    (void)wire_put(&wire, "+Ga");
    (void)wire_put(&wire, "+Gb");
    expect_answer(wire.newest - 1, "%llu +G:a | %llu +G a:b");
    assert_string_equal(wire_ask(&wire, wire.newest + 1), "");
    assert_int_equal(stats().replays, 2);
    assert_int_equal(stats().snapshots, 0);
    wire_close(&wire);
}

TEST(test_without_a_topic)
{
    kvp_publisher_config config = wire_config();
    config.replay_form = KVP_PUBLISH_REPLAY_PLAIN;
    config.topic = "kv@host@model";
    open_named(&config);
    (void)wire_put(&wire, "+Ga");
    (void)wire_put(&wire, "+Gb");
    expect_answer(wire.newest - 1, "%llu +G:a | %llu +G a:b");
    wire_close(&wire);
}

TEST(test_a_late_reader_gets_the_set)
{
    const kvp_publisher_config config = wire_config();
    open_named(&config);
    (void)wire_put(&wire, "+Gabc +Cbc");
    (void)wire_put(&wire, "-Gc");
    char expected[WIRE_TEXT];
    (void)snprintf(expected, sizeof(expected), "%llu clear +G:ab +C a:bc",
                   (unsigned long long)wire.newest);
    assert_string_equal(wire_ask(&wire, 0), expected);
    assert_int_equal(stats().snapshots, 1);
    wire_close(&wire);
}

TEST(test_a_gap_that_is_too_old_gets_the_set)
{
    kvp_publisher_config config = wire_config();
    config.kept_batches = 2;
    open_named(&config);
    (void)wire_put(&wire, "+Ga");
    (void)wire_put(&wire, "+Gb");
    (void)wire_put(&wire, "+Gc");
    assert_int_equal(stats().oldest, wire.newest - 1);
    expect_answer(wire.newest - 1, "%llu +G a:b | %llu +G b:c");
    char expected[WIRE_TEXT];
    (void)snprintf(expected, sizeof(expected), "%llu clear +G:abc",
                   (unsigned long long)wire.newest);
    assert_string_equal(wire_ask(&wire, wire.newest - 2), expected);
    wire_close(&wire);
}

/* Batch `number`: each of its bytes says which it is. */
static void add_batch(struct kvpi_kept *kept, uint64_t number, size_t n_bytes)
{
    uint8_t bytes[64];
    memset(bytes, (int)(number % 251), sizeof(bytes));
    kvpi_kept_add(kept, bytes, n_bytes);
    assert_int_equal(kept->newest, number);
}

static void check_kept(const struct kvpi_kept *kept, const size_t sizes[])
{
    for (uint64_t number = kvpi_kept_oldest(kept); number <= kept->newest; number++) {
        size_t n_bytes;
        const uint8_t *bytes = kvpi_kept_at(kept, number, &n_bytes);
        assert_int_equal(n_bytes, sizes[number]);
        assert_true(bytes >= kept->bytes && bytes + n_bytes <= kept->bytes + kept->capacity);
        for (size_t i = 0; i < n_bytes; i++)
            assert_int_equal(bytes[i], number % 251);
    }
}

/* As many as there is room for, and as may be; of any sizes, each as it was. */
TEST(test_kept_batches)
{
    enum { ROUNDS = 2000 };
    static const struct {
        size_t capacity, size;
        uint32_t most, n;
    } cases[] = {{30, 10, 9, 3}, {35, 10, 9, 3}, {39, 10, 9, 3}, {64, 64, 9, 1}, {64, 1, 5, 5}};
    static size_t sizes[ROUNDS + 1];
    struct kvpi_kept kept;
    for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
        assert_int_equal(kvpi_kept_open(&kept, cases[c].capacity, cases[c].most, 1), KVP_OK);
        for (uint64_t number = 1; number <= 100; number++) {
            sizes[number] = cases[c].size;
            add_batch(&kept, number, cases[c].size);
            check_kept(&kept, sizes);
            assert_int_equal(number + 1 - kvpi_kept_oldest(&kept),
                             number < cases[c].n ? number : cases[c].n);
        }
        kvpi_kept_close(&kept);
    }
    uint64_t random = 3;
    for (uint32_t most = 8; most <= 64; most += 56) {
        assert_int_equal(kvpi_kept_open(&kept, 3 * most, 12, 1), KVP_OK);
        for (uint64_t number = 1; number <= ROUNDS; number++) {
            sizes[number] = 1 + draw(&random, most);
            add_batch(&kept, number, sizes[number]);
            check_kept(&kept, sizes);
        }
        kvpi_kept_close(&kept);
    }
}

/* Many units: more than one batch holds. */
enum { CHAINS = 60, CHAIN_UNITS = 64 };

static void put_chains(const char *space)
{
    static kvp_event events[CHAIN_UNITS];
    static int32_t tokens[CHAIN_UNITS * WIRE_U];
    kvp_hash hashes[CHAIN_UNITS + 1];
    for (int chain = 0; chain < CHAINS; chain++) {
        const kvp_hash_input input = {
            .unit_tokens = WIRE_U, .n_tokens = CHAIN_UNITS * WIRE_U, .tokens = tokens};
        for (int i = 0; i < CHAIN_UNITS * WIRE_U; i++)
            tokens[i] = 1000000 + 1000 * chain + i;
        assert_int_equal(kvp_hash_root(WIRE_U, 0, space, strlen(space), &hashes[0]), KVP_OK);
        assert_int_equal(kvp_hash_units(&input, &hashes[0], hashes + 1), KVP_OK);
        for (uint32_t i = 0; i < CHAIN_UNITS; i++) {
            events[i] = (kvp_event){.kind = KVP_EVENT_STORED,
                                    .hash = hashes[i + 1],
                                    .parent = hashes[i],
                                    .root = hashes[0],
                                    .position = i * WIRE_U,
                                    .n_tokens = WIRE_U};
        }
        assert_int_equal(kvp_publisher_put(wire.publisher, events, CHAIN_UNITS, tokens, wire.now),
                         KVP_OK);
    }
    wire_skip(&wire);
}

/* Ask for batches: the numbers of those that come. */
static uint32_t ask_numbers(uint64_t from, uint64_t numbers[64])
{
    uint32_t n = 0;
    wire_request(&wire, from);
    while (wire_take_answer(&wire, &numbers[n]))
        assert_true(++n < 63);
    return n;
}

TEST(test_a_large_set_goes_in_several_batches)
{
    kvp_publisher_config config = wire_config();
    uint64_t numbers[64];
    config.max_units = 4096;
    config.kept_batches = 8;
    open_named(&config);
    put_chains("m");
    assert_true(stats().units == CHAINS * CHAIN_UNITS + 1);
    assert_true(stats().oldest > 1001);
    const uint32_t n = ask_numbers(1, numbers);
    assert_true(n > 1);
    for (uint32_t i = 0; i + 1 < n; i++)
        assert_int_equal(numbers[i], 1 + i);
    assert_int_equal(numbers[n - 1], wire.newest);
    /* With less room than batches, none has a number beyond the newest. */
    const uint64_t from = stats().oldest - 1;
    const uint32_t again = ask_numbers(from, numbers);
    for (uint32_t i = 0; i < again; i++)
        assert_true(numbers[i] >= from && numbers[i] <= wire.newest);
    assert_int_equal(numbers[again - 1], wire.newest);
    wire_close(&wire);
}

TEST(test_units_that_came_meanwhile_are_left_to_later_batches)
{
    kvp_publisher_config config = wire_config();
    uint64_t numbers[64];
    config.max_units = 4096;
    config.kept_batches = 1;
    open_named(&config);
    put_chains("m");
    /* The answer begins with the first work; the rest comes after a change. */
    wire_request(&wire, 0);
    uint32_t n = 0;
    assert_true(wire_take_answer(&wire, &numbers[n++]));
    const uint64_t before = wire.newest;
    const kvp_event clear = {.kind = KVP_EVENT_CLEARED};
    assert_int_equal(kvp_publisher_put(wire.publisher, &clear, 1, NULL, wire.now), KVP_OK);
    wire_skip(&wire);
    while (wire_take_answer(&wire, &numbers[n]))
        assert_true(numbers[n] <= before && ++n < 64);
    wire_close(&wire);
}

TEST(test_what_is_no_request_is_counted)
{
    const kvp_publisher_config config = wire_config();
    open_named(&config);
    assert_int_equal(zmq_send(wire.dealer, "hello", 5, 0), 5);
    assert_int_equal(zmq_send(wire.dealer, "", 0, ZMQ_SNDMORE), 0);
    assert_int_equal(zmq_send(wire.dealer, "1234567", 7, 0), 7);
    assert_int_equal(zmq_send(wire.dealer, "", 0, ZMQ_SNDMORE), 0);
    assert_int_equal(zmq_send(wire.dealer, "123456789", 9, 0), 9);
    assert_int_equal(zmq_send(wire.dealer, "x", 1, ZMQ_SNDMORE), 1);
    assert_int_equal(zmq_send(wire.dealer, "12345678", 8, 0), 8);
    static uint8_t large[1000];
    assert_int_equal(zmq_send(wire.dealer, "", 0, ZMQ_SNDMORE), 0);
    assert_int_equal(zmq_send(wire.dealer, large, sizeof(large), ZMQ_SNDMORE), sizeof(large));
    assert_int_equal(zmq_send(wire.dealer, large, 8, 0), 8);
    assert_string_equal(wire_ask(&wire, wire.newest + 1), "");
    assert_int_equal(stats().bad_requests, 5);
    wire_close(&wire);
}

/* Readers may name themselves, by up to 255 bytes. */
TEST(test_a_reader_with_a_long_name)
{
    const kvp_publisher_config config = wire_config();
    const int none = 0;
    char endpoint[256], name[255];
    open_named(&config);
    memset(name, 'n', sizeof(name));
    (void)zmq_close(wire.dealer);
    wire.dealer = zmq_socket(wire.zmq, ZMQ_DEALER);
    assert_int_equal(zmq_setsockopt(wire.dealer, ZMQ_ROUTING_ID, name, sizeof(name)), 0);
    assert_int_equal(zmq_setsockopt(wire.dealer, ZMQ_LINGER, &none, sizeof(none)), 0);
    assert_int_equal(kvp_publisher_endpoint(wire.publisher, 1, endpoint, sizeof(endpoint)), KVP_OK);
    assert_int_equal(zmq_connect(wire.dealer, endpoint), 0);
    (void)wire_put(&wire, "+Ga");
    (void)wire_put(&wire, "+Gb");
    expect_answer(wire.newest - 1, "%llu +G:a | %llu +G a:b");
    assert_fields(stats(), bad_requests, 0, replays, 1);
    wire_close(&wire);
}

/* A reader asks 600 times and takes nothing; when it is stuck, another one asks. Gives how many of
 * the first one's requests were left: none, if libzmq has stopped to bring them before its own
 * buffers were full. */
static uint64_t ask_and_take_nothing(void)
{
    kvp_publisher_config config = wire_config();
    char endpoint[256];
    const int one = 1, none = 0;
    int busy = 1;
    config.max_units = 4096;
    open_named(&config);
    put_chains("m");
    void *other = zmq_socket(wire.zmq, ZMQ_DEALER);
    assert_int_equal(kvp_publisher_endpoint(wire.publisher, 1, endpoint, 256), KVP_OK);
    assert_int_equal(zmq_setsockopt(other, ZMQ_RCVHWM, &one, sizeof(one)), 0);
    assert_int_equal(zmq_setsockopt(other, ZMQ_LINGER, &none, sizeof(none)), 0);
    assert_int_equal(zmq_connect(other, endpoint), 0);
    for (int i = 0; i < 600; i++) {
        const uint8_t zero[8] = {0};
        assert_int_equal(zmq_send(other, "", 0, ZMQ_SNDMORE), 0);
        assert_int_equal(zmq_send(other, zero, 8, 0), 8);
        assert_int_equal(kvp_publisher_work(wire.publisher, wire.now, &busy), KVP_OK);
    }
    for (uint64_t before = 0; before != stats().snapshots;) { /* until it is stuck */
        before = stats().snapshots;
        for (int i = 0; i < 100; i++) {
            assert_int_equal(kvp_publisher_work(wire.publisher, wire.now, &busy), KVP_OK);
            (void)zmq_poll(NULL, 0, 1);
        }
    }
    assert_true(stats().snapshots < 600);
    assert_int_equal(stats().bad_requests, 0);
    wire.now += UINT64_C(6) * SECOND;
    assert_string_equal(wire_ask(&wire, wire.newest + 1), "");
    for (int i = 0; i < 1000 && stats().bad_requests == 1; i++) { /* no time passes */
        assert_int_equal(kvp_publisher_work(wire.publisher, wire.now, &busy), KVP_OK);
        (void)zmq_poll(NULL, 0, 1);
    }
    const uint64_t n_left = stats().bad_requests;
    (void)zmq_close(other);
    wire_close(&wire);
    return n_left;
}

/* It asks often and takes nothing: what libzmq queues for it ends. The others wait for it once:
 * what it has asked since is left at once. */
TEST(test_a_reader_that_takes_nothing_is_left)
{
    uint64_t n_left = 0;
    for (int i = 0; i < 30 && n_left == 0; i++)
        n_left = ask_and_take_nothing();
    assert_true(n_left > 1);
}

/* -------------------------------------------------------------------------------- heartbeats */

TEST(test_a_heartbeat_goes_out_when_nothing_else_did)
{
    kvp_publisher_config config = wire_config();
    config.heartbeat_ns = SECOND;
    open_named(&config);
    const uint64_t sent = stats().heartbeats;
    const uint64_t newest = wire.newest;
    assert_int_equal(kvp_publisher_work(wire.publisher, wire.now + SECOND - 1, NULL), KVP_OK);
    assert_int_equal(stats().heartbeats, sent);
    wire.now += SECOND;
    assert_int_equal(kvp_publisher_work(wire.publisher, wire.now, NULL), KVP_OK);
    assert_string_equal(wire_read(&wire), "");
    assert_int_equal(wire.newest, newest + 1);
    assert_int_equal(stats().heartbeats, sent + 1);
    wire.now += SECOND / 2;
    assert_string_equal(wire_put(&wire, "+Ga"), "+G:a");
    wire.now += SECOND / 2;
    assert_int_equal(kvp_publisher_work(wire.publisher, wire.now, NULL), KVP_OK);
    assert_int_equal(stats().heartbeats, sent + 1);
    wire_close(&wire);
}

TEST(test_numbers_begin_where_they_are_told)
{
    kvp_publisher_config config = wire_config();
    kvp_publisher *publisher;
    kvp_publisher_stats first;
    config.first_number = UINT64_C(1) << 62;
    assert_int_equal(kvp_publisher_open(&config, &publisher, NULL, 0), KVP_OK);
    assert_int_equal(kvp_publisher_stats_get(publisher, &first), KVP_OK);
    assert_fields(first, newest, config.first_number - 1, oldest, config.first_number);
    kvp_publisher_close(publisher);
}

/* ------------------------------------------------------------------------------------ caches */

static world make_published(uint32_t max_events)
{
    kvp_config config;
    kvp_config_init(&config);
    config.n_blocks = 9;
    config.block_tokens = WIRE_U;
    config.max_seqs = 4;
    config.max_seq_tokens = 64;
    config.max_events = max_events;
    return make_world(&config);
}

static kvp_seq fill(const world *w, int32_t first, uint32_t n_tokens)
{
    int32_t tokens[64];
    kvp_seq seq;
    for (uint32_t i = 0; i < n_tokens; i++)
        tokens[i] = first + (int32_t)i;
    const kvp_prompt prompt = {
        .struct_size = sizeof(prompt), .tokens = tokens, .n_tokens = n_tokens};
    assert_int_equal(kvp_seq_open(w->cache, w->ns, &prompt, &seq, NULL), KVP_OK);
    assert_int_equal(kvp_seq_commit(w->cache, seq, n_tokens), KVP_OK);
    return seq;
}

TEST(test_a_cache_is_read)
{
    const kvp_publisher_config config = wire_config();
    scoped_world w = make_published(64);
    wire_open(&wire, &config);
    const uint64_t newest = wire.newest;
    (void)fill(&w, 0, 12);
    assert_int_equal(kvp_publisher_read(wire.publisher, w.cache, wire.now), KVP_OK);
    assert_int_equal(stats().next_event, 4);
    assert_int_equal(stats().stored, 3);
    assert_int_equal(stats().newest, newest + 1);
    assert_int_equal(kvp_publisher_read(wire.publisher, w.cache, wire.now), KVP_OK);
    assert_int_equal(stats().newest, newest + 1);
    wire_close(&wire);
}

TEST(test_who_is_behind_sends_the_difference)
{
    const kvp_publisher_config config = wire_config();
    scoped_world w = make_published(4);
    wire_open(&wire, &config);
    kvp_seq seq = fill(&w, 0, 16);
    assert_int_equal(kvp_publisher_read(wire.publisher, w.cache, wire.now), KVP_OK);
    assert_int_equal(stats().stored, 4);
    assert_int_equal(kvp_seq_close(w.cache, seq, NULL), KVP_OK);
    seq = fill(&w, 100, 24); /* evicts two of the four */
    assert_int_equal(kvp_publisher_read(wire.publisher, w.cache, wire.now), KVP_E_BEHIND);
    assert_int_equal(kvp_publisher_resync(wire.publisher, w.cache, wire.now), KVP_OK);
    assert_int_equal(stats().stored, 10);
    assert_int_equal(stats().removed, 2);
    assert_int_equal(stats().cleared, wire.cleared);
    const uint64_t next = stats().next_event;
    assert_int_equal(kvp_publisher_read(wire.publisher, w.cache, wire.now), KVP_OK);
    assert_fields(stats(), stored, 10, next_event, next);
    /* And once more: all eight are evicted. */
    assert_int_equal(kvp_seq_close(w.cache, seq, NULL), KVP_OK);
    (void)fill(&w, 200, 32);
    assert_int_equal(kvp_publisher_read(wire.publisher, w.cache, wire.now), KVP_E_BEHIND);
    assert_int_equal(kvp_publisher_resync(wire.publisher, w.cache, wire.now), KVP_OK);
    assert_fields(stats(), stored, 18, removed, 10);
    wire_close(&wire);
}

TEST(test_a_resync_leaves_stores_alone)
{
    const kvp_publisher_config config = wire_config();
    scoped_world w = make_published(4);
    open_named(&config);
    assert_string_equal(wire_put(&wire, "+Ga +Sa"), "+G:a +S:a");
    assert_int_equal(kvp_publisher_resync(wire.publisher, w.cache, wire.now), KVP_OK);
    assert_string_equal(wire_read(&wire), "-G:a");
    assert_string_equal(wire_put(&wire, "-Sa"), "-S:a");
    wire_close(&wire);
}

TEST_MAIN(NULL, NULL)

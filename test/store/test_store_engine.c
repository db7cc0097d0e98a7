/* The engine of the file back end on a queue whose kernel is the test (sim_queue), over a simulated
 * disk: everything in any order, cut short, put off and refused, each submission and completion
 * failing once, and a queue that there is not or that breaks.
 *
 * Whatever it answers: every operation ends once, and a get that is KVP_STORE_OK brings the KV of
 * its own record, now and after the next start.
 *
 *   test_store_engine [SEED [ROUNDS]] */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "on_sim.h"
#include "sim_queue.h"
#include "store_inputs.h"

enum { BLOCKS = 2, TOKENS = 4, RECORDS = 90, PAGE = 4096, ODD = 1000, GONE = 99 };

static uint64_t seed = 1;
static unsigned rounds = 40;

/* ------------------------------------------------------------------------------------ the store */

static struct sim_queue queue;
static struct kvpi_queue_system queue_system;
static int can_direct; /* the file system lets files go past the page cache */
static int direct;     /* they do */
static int cannot_buffer;
static size_t block_bytes;

static int (*open_of_sim)(void *context, const char *path, unsigned flags, int *out_file);

static int open_direct(void *context, const char *path, unsigned flags, int *out_file)
{
    if (can_direct)
        flags &= ~(unsigned)KVPI_DISK_DIRECT;
    return open_of_sim(context, path, flags, out_file);
}

static int go_buffered(void *context, int file)
{
    (void)context;
    (void)file;
    direct = 0;
    return cannot_buffer ? EINVAL : 0;
}

static kvp_status open_on_queue(const struct kvpi_backend_config *config, void **out_self,
                                char *out_why, size_t why_bytes)
{
    const struct kvpi_engine_config engine = {.n_threads = 0, .queue = &queue_system};
    return kvpi_file_open(config, &disk, &engine, out_self, out_why, why_bytes);
}

/* choice: "", or "&engine=..." */
static kvp_status try_open(const char *choice, kvp_store **out_store, char *out_why,
                           size_t why_bytes)
{
    static struct kvpi_backend backend;
    backend = kvpi_file_backend;
    backend.open = open_on_queue;
    kvp_store_config config;
    kvp_store_config_init(&config);
    char url[80];
    snprintf(url, sizeof url, "file:/kv?size=2MiB%s", choice);
    config.url = url;
    config.fingerprint = input_digest(1);
    config.block_tokens = TOKENS;
    config.block_bytes[0] = block_bytes;
    config.record_blocks = BLOCKS;
    config.max_ops = RECORDS;
    config.threads = 0;
    config.now = test_clock;
    return kvpi_store_open(&config, &backend, out_store, out_why, why_bytes);
}

static kvp_store *open_store(void)
{
    kvp_store *store = NULL;
    char why[300];
    if (try_open("", &store, why, sizeof why) != KVP_OK)
        fail_msg("%s", why);
    return store;
}

static void begin_world(int with_direct, size_t bytes)
{
    make_sim(seed);
    open_of_sim = disk.open;
    disk.open = open_direct;
    disk.buffer = go_buffered;
    can_direct = direct = with_direct;
    cannot_buffer = 0;
    block_bytes = bytes;
    now = 1000;
    tick = 1;
    queue = (struct sim_queue){.disk = &disk, .direct = &direct, .random = seed};
    queue_system = sim_queue_interface(&queue);
}

static void end_world(kvp_store *store)
{
    kvp_store_close(store);
    assert_false(queue.is_open);
    sim_disk_destroy(sim);
}

/* ---------------------------------------------------------------------------------- the records */

static int32_t tokens[RECORDS][BLOCKS * TOKENS];
static kvp_identity identities[RECORDS];
static _Alignas(PAGE) uint8_t written[RECORDS][BLOCKS * PAGE];
static _Alignas(PAGE) uint8_t read[RECORDS][BLOCKS * PAGE];
static uint32_t results[RECORDS];

static void make_records(void)
{
    for (unsigned r = 0; r < RECORDS; r++) {
        for (int i = 0; i < BLOCKS * TOKENS; i++)
            tokens[r][i] = (int32_t)(r * 100) + i;
        identities[r] = (kvp_identity){.kind = KVP_IDENTITY_TOKENS,
                                       .slice = {.n_layers = 1, .n_heads = 1},
                                       .fingerprint = input_digest(1),
                                       .digest = input_digest(r),
                                       .block_tokens = TOKENS,
                                       .n_blocks = BLOCKS,
                                       .tokens = tokens[r]};
        input_pattern(written[r], sizeof written[r], r * 3 + 1);
    }
}

/* Until n have ended; each once. */
static void finish(kvp_store *store, uint32_t n)
{
    kvp_store_done done[RECORDS];
    for (uint32_t turns = 0; n > 0; turns++) {
        uint32_t n_done = 0;
        assert_true(turns < 200000);
        kvp_store_work(store, NULL);
        assert_int_equal(kvp_store_poll(store, done, RECORDS, &n_done), KVP_OK);
        for (uint32_t i = 0; i < n_done; i++) {
            assert_int_equal(results[done[i].tag], GONE);
            results[done[i].tag] = done[i].result;
        }
        n -= n_done;
    }
}

/* All records at a time, then what they ended with is in `results`. Gives how many were OK. */
static unsigned move_all(kvp_store *store, int write)
{
    unsigned n_ok = 0;
    for (unsigned r = 0; r < RECORDS; r++) {
        uint8_t *kv = write ? written[r] : read[r];
        void *blocks[BLOCKS] = {kv, kv + block_bytes};
        results[r] = GONE;
        if (!write)
            memset(read[r], 0xEE, sizeof read[r]);
        assert_int_equal(write ? kvp_store_put(store, &identities[r], blocks, r)
                               : kvp_store_get(store, &identities[r], blocks, r),
                         KVP_OK);
    }
    finish(store, RECORDS);
    for (unsigned r = 0; r < RECORDS; r++) {
        n_ok += results[r] == KVP_STORE_OK;
        if (!write && results[r] == KVP_STORE_OK)
            assert_memory_equal(read[r], written[r], BLOCKS * block_bytes);
    }
    return n_ok;
}

static uint32_t sync_now(kvp_store *store)
{
    results[0] = GONE;
    assert_int_equal(kvp_store_sync(store, 0), KVP_OK);
    finish(store, 1);
    return results[0];
}

static void expect_description(const kvp_store *store, const char *part)
{
    char text[300];
    assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
    if (!strstr(text, part))
        print_error("\"%s\" does not say \"%s\"\n", text, part);
    assert_non_null(strstr(text, part));
}

/* ------------------------------------------------------------------------------- what it may do */

TEST(test_any_order_and_any_pieces)
{
    uint64_t n_short = 0, n_again = 0, n_out_of_order = 0, n_stray = 0;
    for (unsigned round = 0; round < rounds; round++) {
        begin_world(round & 1, round & 2 ? PAGE : ODD);
        queue.random = seed * 1000 + round;
        queue.fix_error = round & 4 ? ENOMEM : 0;
        queue.short_rate = 30;
        queue.again_rate = 10;
        queue.late_rate = 30;
        queue.part_rate = 30;
        queue.stray_rate = round & 8 ? 20 : 0;
        kvp_store *store = open_store();
        assert_int_equal(move_all(store, 1), RECORDS);
        assert_int_equal(move_all(store, 0), RECORDS);
        assert_int_equal(sync_now(store), KVP_STORE_OK);
        const int staged = direct && block_bytes != PAGE;
        assert_int_equal(stats_of(store).staged, staged ? 2 * RECORDS : 0);
        assert_true(staged && !queue.fix_error ? queue.n_fixed > 0 : queue.n_fixed == 0);
        assert_true(queue.n_syncs > 0);
        n_short += queue.n_short;
        n_again += queue.n_again;
        n_out_of_order += queue.n_out_of_order;
        n_stray += queue.n_stray;
        kvp_store_close(store);
        store = open_store();
        assert_int_equal(move_all(store, 0), RECORDS);
        end_world(store);
    }
    assert_true(n_short > rounds && n_again > rounds && n_out_of_order > rounds);
    assert_true(n_stray > rounds);
}

TEST(test_each_submission_fails_once)
{
    static const int errors[] = {EINTR, EAGAIN, EBUSY, EPERM, ENOSYS, EBADF, ENOMEM};
    for (unsigned e = 0; e < sizeof errors / sizeof *errors; e++) {
        const int passes = e < 3;
        int reached = 1;
        for (uint64_t n = 1; reached && n < 400; n++) {
            begin_world(1, n % 2 ? PAGE : ODD);
            queue.late_rate = 50;
            queue.fail_submit = n;
            queue.submit_error = errors[e];
            queue.n_submit_failures = passes ? 3 : UINT64_MAX;
            kvp_store *store = open_store();
            assert_int_equal(move_all(store, 1), RECORDS);
            assert_int_equal(sync_now(store), KVP_STORE_OK);
            assert_int_equal(move_all(store, 0), RECORDS);
            reached = queue.n_submits >= n;
            expect_description(store, passes || !reached ? "io_uring; " : "stopped working");
            end_world(store);
        }
        assert_false(reached); /* so each of them was one that failed */
    }
}

/* A queue that takes nothing more, though it says "later": it is not waited for without end. */
TEST(test_a_queue_that_never_takes_anything_is_given_up)
{
    begin_world(1, ODD);
    queue.fail_submit = 10;
    queue.submit_error = EAGAIN;
    queue.n_submit_failures = UINT64_MAX;
    kvp_store *store = open_store();
    assert_int_equal(move_all(store, 1), RECORDS);
    assert_int_equal(move_all(store, 0), RECORDS);
    expect_description(store, "stopped working");
    end_world(store);
}

TEST(test_each_completion_fails_once)
{
    static const int32_t answers[] = {-EIO, -ENOSPC, -ECANCELED, 0};
    for (unsigned a = 0; a < sizeof answers / sizeof *answers; a++) {
        for (uint64_t n = 1; n <= 2 * RECORDS; n++) {
            begin_world(1, n % 2 ? PAGE : ODD);
            queue.fail_result = n;
            queue.result = answers[a];
            kvp_store *store = open_store();
            assert_int_equal(move_all(store, 1), n <= RECORDS ? RECORDS - 1 : RECORDS);
            assert_int_equal(move_all(store, 0), RECORDS - 1);
            for (unsigned r = 0; r < RECORDS; r++)
                assert_true(results[r] == KVP_STORE_OK ||
                            results[r] == (n <= RECORDS ? KVP_STORE_ABSENT : KVP_STORE_FAILED));
            assert_int_equal(stats_of(store).failed, 1);
            kvp_store_close(store);
            store = open_store();
            assert_int_equal(move_all(store, 0), RECORDS - 1); /* what could not be read is gone */
            end_world(store);
        }
    }
}

/* A sync that failed has made nothing sure: the next one does it all. */
TEST(test_each_sync_that_fails_is_made_good)
{
    begin_world(0, ODD);
    kvp_store *store = open_store();
    move_all(store, 1);
    const uint64_t before = queue.n_syncs;
    assert_int_equal(sync_now(store), KVP_STORE_OK);
    const uint64_t n_slabs = queue.n_syncs - before;
    assert_true(n_slabs > 2);
    end_world(store);
    for (uint64_t n = 1; n <= n_slabs; n++) {
        begin_world(0, ODD);
        store = open_store();
        move_all(store, 1);
        queue.fail_result = queue.n_results + n;
        queue.result = -EIO;
        queue.n_syncs = 0;
        assert_int_equal(sync_now(store), KVP_STORE_FAILED);
        assert_int_equal(queue.n_syncs, n - 1);
        assert_int_equal(sync_now(store), KVP_STORE_OK);
        assert_int_equal(queue.n_syncs, n_slabs);
        assert_int_equal(sync_now(store), KVP_STORE_OK);
        assert_int_equal(queue.n_syncs, n_slabs); /* nothing was left to do */
        sim_disk_stop_after(sim, 0);
        kvp_store_close(store);
        sim_disk_power_off(sim);
        store = open_store();
        assert_int_equal(move_all(store, 0), RECORDS);
        end_world(store);
    }
}

/* What never gets on ends. */
TEST(test_a_transfer_that_never_moves_fails)
{
    static const int32_t answers[] = {-EAGAIN, -EINTR, 1};
    for (unsigned a = 0; a < sizeof answers / sizeof *answers; a++) {
        begin_world(1, PAGE);
        kvp_store *store = open_store();
        assert_int_equal(move_all(store, 1), RECORDS);
        queue.fail_result = queue.n_results + 1;
        queue.result = answers[a]; /* 1: less than the disk's grain */
        queue.n_result_failures = UINT64_MAX;
        assert_int_equal(move_all(store, 0), 0);
        assert_true(stats_of(store).failed > 0);
        end_world(store);
    }
}

/* ----------------------------------------------------------------------------- what it may lack */

static void expect_threads(int error, const char *part)
{
    begin_world(0, ODD);
    queue.open_error = error;
    kvp_store *store = open_store();
    expect_description(store, part);
    expect_description(store, "threads, because there is no io_uring");
    assert_int_equal(move_all(store, 1), RECORDS);
    assert_int_equal(move_all(store, 0), RECORDS);
    kvp_store_close(store);
    store = NULL;
    char why[300];
    assert_int_equal(try_open("&engine=io_uring", &store, why, sizeof why), KVP_E_IO);
    assert_non_null(strstr(why, part));
    assert_int_equal(try_open("&engine=threads", &store, why, sizeof why), KVP_OK);
    expect_description(store, "0 threads, as asked for; through the page cache");
    end_world(store);
}

TEST(test_without_a_queue_threads_do_it)
{
    expect_threads(ENOSYS, "the kernel has none");
    expect_threads(EPERM, "forbids");
    expect_threads(ENOTSUP, "built without liburing");
    expect_threads(ENOMEM, strerror(ENOMEM));
    expect_threads(EMFILE, strerror(EMFILE));
}

TEST(test_the_choice_is_one_of_three)
{
    begin_world(0, ODD);
    kvp_store *store = NULL;
    char why[300];
    assert_int_equal(try_open("&engine=fast", &store, why, sizeof why), KVP_E_ARG);
    assert_non_null(strstr(why, "auto, io_uring or threads"));
    assert_int_equal(try_open("&engine=auto", &store, why, sizeof why), KVP_OK);
    expect_description(store, "io_uring; ");
    char text[5];
    assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
    assert_string_equal(text, "io_u");
    assert_int_equal(kvp_store_describe(store, NULL, 10), KVP_E_ARG);
    assert_int_equal(kvp_store_describe(store, text, 0), KVP_E_ARG);
    assert_int_equal(kvp_store_describe(NULL, text, sizeof text), KVP_E_ARG);
    end_world(store);
}

TEST(test_memory_that_is_not_registered_is_said)
{
    begin_world(1, ODD);
    queue.fix_error = ENOMEM;
    kvp_store *store = open_store();
    expect_description(store, "without registered memory: Cannot allocate memory");
    expect_description(store, "; past the page cache");
    assert_int_equal(move_all(store, 1), RECORDS);
    assert_int_equal(queue.n_fixed, 0);
    end_world(store);
}

TEST(test_a_file_system_that_refuses_direct_is_said)
{
    begin_world(0, ODD);
    kvp_store *store = open_store();
    assert_int_equal(move_all(store, 1), RECORDS);
    assert_int_equal(stats_of(store).staged, 0);
    expect_description(store, "has no direct I/O");
    end_world(store);
}

/* One that lets a file be opened so, and then says EINVAL to each transfer. */
TEST(test_a_transfer_that_is_refused_direct_goes_buffered)
{
    for (uint64_t n = 1; n <= RECORDS; n += 8) {
        begin_world(1, n % 2 ? PAGE : ODD);
        queue.fail_result = n;
        queue.result = -EINVAL;
        kvp_store *store = open_store();
        assert_int_equal(move_all(store, 1), RECORDS);
        assert_int_equal(move_all(store, 0), RECORDS);
        expect_description(store, "has no direct I/O");
        end_world(store);
    }
    begin_world(1, PAGE);
    cannot_buffer = 1;
    queue.fail_result = 1;
    queue.result = -EINVAL;
    kvp_store *store = open_store();
    assert_int_equal(move_all(store, 1), RECORDS - 1);
    end_world(store);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        rounds = (unsigned)strtoul(argv[2], NULL, 10);
    make_records();
    return run_all_tests(NULL, NULL);
}

/* A process that writes records is killed at some instant, many times over, and the next one finds
 * every record whose put had ended. On the disk of this machine, with the store's own threads.
 *
 *   test_store_kill [ROUNDS [SEED]]    rounds of each engine
 *
 * The instant is drawn in operations, not in time: the child says which puts have ended, and the
 * parent kills it after so many words. What it was doing meanwhile is the system's choice. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mocka.h"

#include "draw.h"
#include <kvpager/store.h>

#include "store_inputs.h"

enum { BLOCK_BYTES = 8192, BLOCKS = 4, TOKENS = 4, CHAIN = 16, RECORDS = 64 * CHAIN, DEPTH = 8 };

static unsigned rounds = 3;
static char directory[64];
static const char *engine = "auto"; /* io_uring, where there is one */

/* ---------------------------------------------------------------------------------- the records */

struct record {
    int32_t tokens[BLOCKS * TOKENS];
    kvp_identity identity;
    kvp_digest key;
};

static struct record records[RECORDS];

static void make_records(void)
{
    for (unsigned r = 0; r < RECORDS; r++) {
        struct record *record = &records[r];
        record->identity = input_identity(record->tokens, BLOCKS, TOKENS, r % CHAIN, r * 100);
        memcpy(record->identity.digest.bytes, &r, sizeof r);
        if (r % CHAIN > 0)
            record->identity.parent = records[r - 1].key;
        record->key = input_key(&record->identity);
    }
}

static void fill(uint8_t *kv, unsigned r)
{
    for (size_t i = 0; i < BLOCKS * BLOCK_BYTES; i += 4) {
        const uint32_t word = r * 2654435761u + (uint32_t)i;
        memcpy(kv + i, &word, 4);
    }
}

static kvp_store *open_store(void)
{
    kvp_store_config config;
    kvp_store_config_init(&config);
    char url[128];
    snprintf(url, sizeof url, "file:%s?size=256MiB&engine=%s", directory, engine);
    config.url = url;
    config.fingerprint = input_digest(1);
    config.block_tokens = TOKENS;
    config.block_bytes[0] = BLOCK_BYTES;
    config.record_blocks = BLOCKS;
    config.max_ops = DEPTH;
    kvp_store *store = NULL;
    char why[300];
    if (kvp_store_open(&config, &store, why, sizeof why) != KVP_OK) {
        fprintf(stderr, "%s\n", why);
        exit(3);
    }
    return store;
}

/* ---------------------------------------------------------------------------- the two processes */

/* Writes from record `first` on, DEPTH at a time, and says which have ended well. */
static void write_until_killed(unsigned first, int out)
{
    kvp_store *store = open_store();
    static _Alignas(4096) uint8_t kv[DEPTH][BLOCKS * BLOCK_BYTES];
    void *blocks[DEPTH][BLOCKS];
    unsigned free_places[DEPTH], n_free = DEPTH;
    for (unsigned i = 0; i < DEPTH; i++) {
        free_places[i] = i;
        for (unsigned b = 0; b < BLOCKS; b++)
            blocks[i][b] = kv[i] + b * BLOCK_BYTES;
    }
    for (unsigned r = first;;) {
        if (n_free > 0 && r < RECORDS) {
            const unsigned place = free_places[--n_free];
            fill(kv[place], r);
            if (kvp_store_put(store, &records[r].identity, blocks[place],
                              (uint64_t)r * DEPTH + place) != KVP_OK)
                _exit(4);
            r++;
            continue;
        }
        kvp_store_done done[DEPTH];
        uint32_t n = 0;
        kvp_store_wait(store, UINT64_C(1000000000));
        kvp_store_poll(store, done, DEPTH, &n);
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t ended = (uint32_t)(done[i].tag / DEPTH);
            free_places[n_free++] = (unsigned)(done[i].tag % DEPTH);
            if (done[i].result != KVP_STORE_OK && done[i].result != KVP_STORE_KNOWN)
                _exit(20 + (int)done[i].result); /* nobody would hear of it */
            if (done[i].result == KVP_STORE_OK && write(out, &ended, sizeof ended) < 0)
                _exit(5);
        }
        if (n_free == DEPTH && r == RECORDS) {
            close(out); /* a parent that is late would wait for more */
            while (1)
                pause();
        }
    }
}

static int ended[RECORDS];

/* One child from its start to its death. */
static unsigned run_child(unsigned first, unsigned n_words)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        write_until_killed(first, ends[1]);
        _exit(6);
    }
    close(ends[1]);
    unsigned n = 0;
    uint32_t r;
    while (n < n_words && read(ends[0], &r, sizeof r) == (ssize_t)sizeof r) {
        ended[r] = 1;
        n++;
    }
    kill(child, SIGKILL);
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    if (!WIFSIGNALED(status))
        print_error("the child ended with %d\n", WEXITSTATUS(status));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    while (read(ends[0], &r, sizeof r) == (ssize_t)sizeof r)
        ended[r] = 1; /* said before it died */
    close(ends[0]);
    return n;
}

static void check_all(void)
{
    scoped_store *store = open_store();
    static _Alignas(4096) uint8_t kv[BLOCKS * BLOCK_BYTES];
    static uint8_t expected[BLOCKS * BLOCK_BYTES];
    void *blocks[BLOCKS];
    for (unsigned b = 0; b < BLOCKS; b++)
        blocks[b] = kv + b * BLOCK_BYTES;
    for (unsigned r = 0; r < RECORDS; r++) {
        memset(kv, 0, sizeof kv);
        assert_int_equal(kvp_store_get(store, &records[r].identity, blocks, r), KVP_OK);
        const uint32_t result = input_result(store);
        if (ended[r])
            assert_int_equal(result, KVP_STORE_OK);
        else
            assert_true(result == KVP_STORE_OK || result == KVP_STORE_ABSENT);
        if (result == KVP_STORE_OK) {
            fill(expected, r);
            assert_memory_equal(kv, expected, sizeof kv);
        }
    }
}

static void remove_directory(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    assert_int_equal(system(command), 0);
}

TEST(test_what_has_ended_is_served_after_a_kill)
{
    unsigned n_ended = 0;
    for (unsigned round = 0; round < 2 * rounds; round++) {
        engine = round % 2 ? "threads" : "auto";
        memset(ended, 0, sizeof ended);
        /* Three lives on one directory, each goes on where the one before was killed. */
        for (unsigned life = 0; life < 3; life++) {
            unsigned first = 0;
            while (first < RECORDS && ended[first])
                first++;
            n_ended += run_child(first / CHAIN * CHAIN, 1 + draw(200));
            check_all();
        }
        remove_directory();
    }
    engine = "auto";
    assert_true(n_ended > rounds);
}

/* A second engine beside the first has a directory of its own, and reads the first one's records,
 * also those that come later. What the first drops is a miss for the second. */
TEST(test_two_writers_read_each_other)
{
    kvp_store *first = open_store();
    kvp_store *second = open_store();
    char path[160];
    for (unsigned w = 0; w < 2; w++) {
        snprintf(path, sizeof path, "%s/01080f161d242b32/w%u/lock", directory, w);
        assert_int_equal(access(path, F_OK), 0);
    }
    static _Alignas(4096) uint8_t kv[2][BLOCKS * BLOCK_BYTES];
    void *blocks[2][BLOCKS];
    for (unsigned i = 0; i < 2 * BLOCKS; i++)
        blocks[i / BLOCKS][i % BLOCKS] = kv[i / BLOCKS] + i % BLOCKS * BLOCK_BYTES;
    for (unsigned r = 0; r < 3; r++) {
        fill(kv[0], r);
        memset(kv[1], 0, sizeof kv[1]);
        kvp_store_put(first, &records[r].identity, blocks[0], 0);
        assert_int_equal(input_result(first), KVP_STORE_OK);
        uint32_t result;
        do { /* a look at the other's log is due now and then only */
            kvp_store_get(second, &records[r].identity, blocks[1], 0);
            result = input_result(second);
        } while (result == KVP_STORE_ABSENT);
        assert_int_equal(result, KVP_STORE_OK);
        assert_memory_equal(kv[0], kv[1], sizeof kv[0]);
    }
    kvp_store_drop(first, &records[0].key, 1, 0);
    assert_int_equal(input_result(first), KVP_STORE_OK);
    for (unsigned r = CHAIN; r < CHAIN + 3; r++) { /* they take the slots */
        kvp_store_put(first, &records[r].identity, blocks[0], 0);
        assert_int_equal(input_result(first), KVP_STORE_OK);
    }
    kvp_store_get(second, &records[0].identity, blocks[1], 0);
    const uint32_t result = input_result(second);
    assert_true(result == KVP_STORE_RACED || result == KVP_STORE_ABSENT);
    kvp_store_close(first);
    kvp_store_close(second);
    remove_directory();
}

static void expect_refusal(const char *url, const char *part)
{
    kvp_store_config config;
    kvp_store_config_init(&config);
    config.url = url;
    config.fingerprint = input_digest(1);
    config.block_bytes[0] = BLOCK_BYTES;
    kvp_store *store = NULL;
    char why[300] = "";
    assert_int_not_equal(kvp_store_open(&config, &store, why, sizeof why), KVP_OK);
    if (!strstr(why, part))
        print_error("\"%s\" does not say \"%s\"\n", why, part);
    assert_non_null(strstr(why, part));
}

TEST(test_a_wrong_place_is_named)
{
    expect_refusal("file:?size=1GiB", "needs a directory");
    expect_refusal("file:/tmp/kv", "size is missing");
    expect_refusal("file:/tmp/kv?size=2000000GiB", "expected room for 1 to 2^31-1 records");
    expect_refusal("file:/tmp/kv?size=4KiB", "expected room for");
    expect_refusal("file:/nowhere/at/all?size=1GiB", "/nowhere/at/all");
    expect_refusal("file:/dev/null?size=1GiB", "/dev/null");
}

int main(int argc, char **argv)
{
    if (argc > 1)
        rounds = (unsigned)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        random_state = strtoull(argv[2], NULL, 10) * 2 + 1;
    snprintf(directory, sizeof directory, "store_kill_%ld", (long)getpid());
    make_records();
    return run_all_tests(NULL, NULL);
}

/* Whose is the cache? The mark of a call inside, a forked child, an owner that died in a call, and
 * kvp_cache_recover. Two threads: test_cache_threads.c. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arenas.h"
#include "world.h"

#include "core/cache/frame.h"
#include "core/cache/state.h"

/* The system's call, which fails when a test says so. */
static int is_refused;

int __real_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));
int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    return is_refused ? ENOMEM : __real_pthread_atfork(prepare, parent, child);
}

/* The first cache of all: later ones find the handler there. */
TEST(test_without_a_fork_handler_there_is_no_cache)
{
    const kvp_config config = config_of(4, 4, 3);
    kvp_cache *cache = NULL;
    is_refused = 1;
    assert_status(KVP_E_NO_MEMORY, kvp_cache_create(&config, NULL, 0, &cache));
    assert_null(cache);
    is_refused = 0;
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    kvp_cache_destroy(cache);
}

/* ------------------------------------------------------------------------------------- the mark */

TEST(test_a_mark_that_is_there_is_not_put_again)
{
    int (*const marks[])(uint64_t *) = {kvpi_mark_plain, kvpi_mark_exact};
    (void)state;
    for (int i = 0; i < 2; i++) {
        uint64_t calls = UINT64_C(0x100000006);
        assert_true(marks[i](&calls));
        assert_true(calls == UINT64_C(0x100000007));
        assert_false(marks[i](&calls));
        assert_true(calls == UINT64_C(0x100000007));
    }
}

TEST(test_a_mark_is_seen_by_calls_and_not_by_reads)
{
    scoped_world w = small_world(7);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    kvp_ns ns;
    kvp_config config;
    observed before = observe(&w);
    assert_true(kvpi_mark_exact(&w.cache->calls));
    assert_status(KVP_E_BUSY, kvp_ns_open(w.cache, "x", 1, &ns));
    assert_status(KVP_E_BUSY, kvp_seq_close(w.cache, seq, NULL));
    assert_status(KVP_E_BUSY, kvp_cache_check(w.cache, 1, NULL));
    assert_status(KVP_E_BUSY, kvp_cache_reset(w.cache));
    assert_ok(kvp_cache_config_get(w.cache, &config));
    assert_int_equal(row_entry(&w, seq, 0), 1);
    assert_int_equal(stats_of(&w).open_seqs, 1);
    assert_ok(kvp_cache_recover(w.cache, NULL));
    assert_observed(&w, &before, __FILE__, __LINE__);
    close_seq(&w, seq);
}

/* ----------------------------------------------------------------------------------- the child */

/* What the child finds; 0: all is well, else the line. */
#define CHECK_CHILD(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__;                                                                       \
    } while (0)

static int refused_in_child(world *w, kvp_seq seq)
{
    kvp_ns ns;
    kvp_seq_info info;
    const kvp_sink sink = {NULL, NULL};
    const kvp_sink taken = {&ns, write_nothing};
    CHECK_CHILD(kvp_seq_close(w->cache, seq, NULL) == KVP_E_BUSY);
    CHECK_CHILD(kvp_ns_open(w->cache, "x", 1, &ns) == KVP_E_BUSY);
    CHECK_CHILD(kvp_cache_record_start(w->cache, &sink) == KVP_E_ARG);
    CHECK_CHILD(kvp_cache_record_start(w->cache, &taken) == KVP_E_BUSY);
    CHECK_CHILD(kvp_cache_record_stop(w->cache) == KVP_E_BUSY);
    CHECK_CHILD(kvp_seq_info_get(w->cache, seq, &info) == KVP_OK && info.n_tokens == 6);
    return 0;
}

/* A byte copy, and a cache of its own, are the child's. */
static int own_in_child(world *w, kvp_seq seq)
{
    kvp_cache *own;
    const kvp_config config = config_of(4, 4, 3);
    void *copy =
        mmap(NULL, w->arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_CHILD(copy != MAP_FAILED);
    memcpy(copy, w->cache, w->arena_bytes);
    CHECK_CHILD(kvp_seq_close(copy, seq, NULL) == KVP_OK);
    CHECK_CHILD(kvp_cache_check(copy, 3, NULL) == KVP_OK);
    CHECK_CHILD(kvp_cache_create(&config, NULL, 0, &own) == KVP_OK);
    CHECK_CHILD(kvp_cache_check(own, 3, NULL) == KVP_OK);
    kvp_cache_destroy(own);
    return 0;
}

static int taken_over_in_child(world *w, kvp_seq seq)
{
    CHECK_CHILD(kvp_cache_recover(w->cache, NULL) == KVP_OK);
    CHECK_CHILD(kvp_seq_close(w->cache, seq, NULL) == KVP_OK);
    CHECK_CHILD(kvp_cache_check(w->cache, 3, NULL) == KVP_OK);
    return 0;
}

/* Of a cache in memory of ours that it has a copy of. */
static int destroyed_in_child(world *w, kvp_seq seq)
{
    (void)seq;
    kvp_cache_destroy(w->cache);
    return 0;
}

static int in_child(int (*run)(world *, kvp_seq), world *w, kvp_seq seq)
{
    int ends[2], line = -1, status;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        line = run(w, seq);
        _exit(write(ends[1], &line, sizeof(line)) != sizeof(line));
    }
    assert_int_equal(read(ends[0], &line, sizeof(line)), sizeof(line));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(ends[0]);
    close(ends[1]);
    return line;
}

TEST(test_a_child_is_refused_and_the_parent_goes_on)
{
    scoped_world w = small_world(7);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    assert_int_equal(in_child(refused_in_child, &w, seq), 0);
    assert_int_equal(in_child(own_in_child, &w, seq), 0);
    assert_int_equal(in_child(taken_over_in_child, &w, seq), 0);
    close_seq(&w, seq);
}

static arena shared_arena(const kvp_config *config)
{
    arena a = {NULL, 0, NULL};
    assert_ok(kvp_cache_bytes(config, &a.n));
    a.bytes = mmap(NULL, a.n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(a.bytes != MAP_FAILED);
    return a;
}

TEST(test_a_child_that_destroys_leaves_a_shared_cache_alone)
{
    const kvp_config config = config_of(4, 4, 7);
    arena a = shared_arena(&config);
    kvp_arena_report report;
    assert_ok(kvp_cache_create(&config, a.bytes, a.n, &a.cache));
    world w = {.cache = a.cache, .arena_bytes = a.n};
    assert_ok(kvp_ns_open(w.cache, NULL, 0, &w.ns));
    const kvp_seq seq = open_done(&w, ints(0), 6);
    const kvp_arena_source source = arena_source(&a);
    assert_int_equal(in_child(refused_in_child, &w, seq), 0);
    assert_int_equal(in_child(destroyed_in_child, &w, seq), 0);
    assert_ok(kvp_arena_inspect(&source, NULL, &report)); /* its mark is there */
    close_seq(&w, seq);
    assert_ok(kvp_cache_check(w.cache, 3, NULL));
    kvp_cache_destroy(w.cache);
    assert_status(KVP_E_FORMAT, kvp_arena_inspect(&source, NULL, &report));
    munmap(a.bytes, a.n);
}

/* --------------------------------------------------------------------------- the owner is dead */

/* Dies in the middle of a call. */
static int write_and_die(void *context, const void *bytes, size_t n_bytes)
{
    (void)bytes;
    (void)n_bytes;
    if (*(int *)context)
        _exit(0);
    return 0;
}

/* A child's cache, whose last call, a commit, did not end. */
static arena left_inside(const kvp_config *config)
{
    arena a = shared_arena(config);
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int armed = 0;
        const kvp_sink sink = {&armed, write_and_die};
        world w = {.arena_bytes = a.n};
        const kvp_prompt prompt = prompt_of(ints(0), 6);
        kvp_seq seq;
        if (kvp_cache_create(config, a.bytes, a.n, &w.cache) == KVP_OK &&
            kvp_cache_record_start(w.cache, &sink) == KVP_OK &&
            kvp_ns_open(w.cache, NULL, 0, &w.ns) == KVP_OK &&
            kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL) == KVP_OK) {
            armed = 1;
            (void)kvp_seq_commit(w.cache, seq, 6);
        }
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    a.cache = (kvp_cache *)(void *)a.bytes;
    return a;
}

TEST(test_a_cache_whose_owner_died_in_a_call_is_taken_over)
{
    const kvp_config config = config_of(4, 4, 7);
    arena a = left_inside(&config);
    kvp_arena_report report;
    kvp_violation violation = {.object = 77};
    const kvp_arena_source source = arena_source(&a);
    assert_ok(kvp_arena_inspect(&source, NULL, &report));
    assert_int_equal(report.inside, 1);
    const kvp_sink sink = {NULL, write_nothing};
    kvp_stats stats;
    assert_status(KVP_E_BUSY, kvp_cache_reset(a.cache));
    assert_status(KVP_E_BUSY, kvp_cache_record_start(a.cache, &sink));
    assert_status(KVP_E_BUSY, kvp_cache_record_stop(a.cache));
    assert_ok(kvp_cache_stats_get(a.cache, &stats)); /* into no log: the sink was that process's */
    kvp_cache_destroy(a.cache);                      /* nor is it ours to destroy */
    assert_ok(kvp_cache_recover(a.cache, &violation));
    assert_int_equal(violation.object, 77); /* only when there is one */
    assert_ok(kvp_arena_inspect(&source, NULL, &report));
    assert_int_equal(report.inside, 0);
    assert_int_equal(report.stats.open_seqs, 1);
    assert_status(KVP_E_STATE, kvp_cache_record_stop(a.cache));
    world w = {.cache = a.cache, .arena_bytes = a.n};
    assert_ok(kvp_ns_open(w.cache, NULL, 0, &w.ns));
    kvp_open_info info;
    close_seq(&w, open_seq(&w, ints(0), 6, &info)); /* what it has committed is a hit */
    assert_int_equal(info.hit_tokens, 4);
    assert_ok(kvp_cache_check(w.cache, 3, NULL));
    kvp_cache_destroy(w.cache);
    munmap(a.bytes, a.n);
}

TEST(test_a_cache_that_does_not_hold_is_refused_still)
{
    const kvp_config config = config_of(4, 4, 7);
    arena a = left_inside(&config);
    kvp_violation violation;
    kvpi_block(&a.cache->pool, 1)->refs++; /* the call had come half way */
    assert_status(KVP_E_CORRUPT, kvp_cache_recover(a.cache, &violation));
    assert_string_equal(violation.invariant, "T1");
    assert_int_equal(violation.object, 1);
    assert_status(KVP_E_CORRUPT, kvp_cache_recover(a.cache, NULL));
    assert_status(KVP_E_BUSY, kvp_cache_reset(a.cache));
    kvpi_block(&a.cache->pool, 1)->refs--;
    kvpi_seq_at(&a.cache->table, 0)->n_units = 1u << 30; /* the audit must not go there */
    assert_status(KVP_E_CORRUPT, kvp_cache_recover(a.cache, &violation));
    assert_string_equal(violation.invariant, "M2");
    kvpi_seq_at(&a.cache->table, 0)->n_units = 1;
    assert_ok(kvp_cache_recover(a.cache, NULL));
    assert_ok(kvp_cache_reset(a.cache));
    kvp_cache_destroy(a.cache);
    munmap(a.bytes, a.n);
}

TEST(test_what_is_no_cache_is_not_taken_over)
{
    const kvp_config config = config_of(4, 4, 7);
    arena a = arena_of(&config);
    kvp_cache *cache = a.cache;
    assert_status(KVP_E_ARG, kvp_cache_recover(NULL, NULL));
    cache->layout++;
    assert_status(KVP_E_VERSION, kvp_cache_recover(cache, NULL));
    cache->layout--;
    cache->table.seqs_at += 64;
    assert_status(KVP_E_FORMAT, kvp_cache_recover(cache, NULL));
    cache->table.seqs_at -= 64;
    assert_ok(kvp_cache_recover(cache, NULL)); /* of one that is well, too */
    cache->mark++;
    assert_status(KVP_E_FORMAT, kvp_cache_recover(cache, NULL));
    cache->mark--;
    arena_drop(&a);
}

TEST(test_one_that_is_not_inside_and_does_not_hold_is_as_before)
{
    scoped_world w = small_world(7);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    kvp_violation violation;
    kvpi_block(&w.cache->pool, 1)->refs++;
    const uint64_t calls = w.cache->calls;
    assert_status(KVP_E_CORRUPT, kvp_cache_recover(w.cache, &violation));
    assert_true(w.cache->calls == calls);
    kvpi_block(&w.cache->pool, 1)->refs--;
    close_seq(&w, seq);
}

/* -------------------------------------------------------------------- a thread that ends inside */

static int write_and_end(void *context, const void *bytes, size_t n_bytes)
{
    (void)bytes;
    (void)n_bytes;
    if (*(int *)context)
        pthread_exit(NULL);
    return 0;
}

static void *flush_once(void *context)
{
    const world *w = context;
    (void)kvp_ns_flush(w->cache, w->ns);
    return NULL;
}

TEST(test_a_thread_that_ends_in_a_call_ends_the_recording)
{
    const kvp_config config = config_of(4, 4, 7);
    arena a = arena_of(&config);
    world w = {.cache = a.cache};
    int armed = 0;
    const kvp_sink sink = {&armed, write_and_end};
    pthread_t thread;
    assert_ok(kvp_cache_record_start(w.cache, &sink));
    assert_ok(kvp_ns_open(w.cache, NULL, 0, &w.ns));
    armed = 1;
    assert_int_equal(pthread_create(&thread, NULL, flush_once, &w), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_status(KVP_E_BUSY, kvp_ns_flush(w.cache, w.ns));
    assert_ok(kvp_cache_recover(w.cache, NULL));
    assert_ok(kvp_ns_flush(w.cache, w.ns)); /* and nothing is written */
    assert_status(KVP_E_IO, kvp_cache_record_stop(w.cache));
    assert_status(KVP_E_STATE, kvp_cache_record_stop(w.cache));
    arena_drop(&a);
}

/* -------------------------------------------------------------- a change in the midst of a read */

static struct midst {
    kvp_cache *cache;
    kvp_seq seq;
    void *page; /* the second half of the sequence begins there */
    size_t page_bytes;
} midst;

/* The read comes to the page: change the sequence, and let it go on. */
static void change_and_go_on(int number)
{
    (void)number;
    (void)mprotect(midst.page, midst.page_bytes, PROT_READ | PROT_WRITE);
    (void)kvp_seq_extend(midst.cache, midst.seq, ints(6), 1, 0);
}

TEST(test_a_change_in_the_midst_of_a_read_is_noticed)
{
    const kvp_config config = config_of(4, 4, 7);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    kvp_cache *planned;
    size_t n;
    assert_ok(kvp_cache_bytes(&config, &n));
    assert_ok(kvp_cache_create(&config, NULL, 0, &planned));
    const size_t half_at = offsetof(kvp_cache, table) + planned->table.seqs_at + 64;
    kvp_cache_destroy(planned);
    uint8_t *memory =
        mmap(NULL, n + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    world w = {.arena_bytes = n};
    assert_ok(kvp_cache_create(&config, memory + (page - half_at % page), n, &w.cache));
    assert_ok(kvp_ns_open(w.cache, NULL, 0, &w.ns));
    const kvp_seq seq = open_done(&w, ints(0), 6);
    midst = (struct midst){w.cache, seq, (char *)w.cache + half_at, page};
    assert_true((uintptr_t)midst.page % page == 0);
    assert_true(offsetof(struct kvpi_seq, known) < 64 && offsetof(struct kvpi_seq, last) >= 64);
    const struct sigaction action = {.sa_handler = change_and_go_on};
    struct sigaction before;
    kvp_seq_info info;
    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    assert_int_equal(mprotect(midst.page, page, PROT_NONE), 0);
    assert_ok(kvp_seq_info_get(w.cache, seq, &info));
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    assert_int_equal(info.last_token, 6); /* of the second try, all of it */
    assert_fields(info, known_tokens, 7, n_tokens, 7);
    kvp_cache_destroy(w.cache);
    munmap(memory, n + 2 * page);
}

/* ------------------------------------------------------------------- sequences that nobody owns */

TEST(test_open_sequences_are_listed_and_closed)
{
    scoped_world w = small_world(15);
    kvp_seq seqs[3] = {{77}, {77}, {77}};
    uint32_t n = 77;
    assert_ok(kvp_cache_seqs(w.cache, NULL, 0, &n));
    assert_int_equal(n, 0);
    assert_ok(kvp_cache_seqs(w.cache, seqs, 3, &n));
    assert_int_equal(n, 0);
    const kvp_seq a = open_seq(&w, ints(0), 6, NULL);
    const kvp_seq b = open_seq(&w, ints(10), 6, NULL);
    const kvp_seq c = open_seq(&w, ints(20), 6, NULL);
    assert_ok(kvp_cache_seqs(w.cache, NULL, 0, &n));
    assert_int_equal(n, 3);
    assert_ok(kvp_cache_seqs(w.cache, seqs, 3, &n));
    assert_true(seqs[0].bits == a.bits && seqs[1].bits == b.bits && seqs[2].bits == c.bits);
    close_seq(&w, b);
    n = 77;
    seqs[0].bits = 77;
    assert_unchanged(&w, assert_status(KVP_E_TOO_SMALL, kvp_cache_seqs(w.cache, seqs, 1, &n)));
    assert_int_equal(n, 2);
    assert_true(seqs[0].bits == 77);
    assert_status(KVP_E_ARG, kvp_cache_seqs(NULL, seqs, 3, &n));
    assert_status(KVP_E_ARG, kvp_cache_seqs(w.cache, NULL, 3, &n));
    assert_status(KVP_E_ARG, kvp_cache_seqs(w.cache, seqs, 3, NULL));
    assert_ok(kvp_cache_seqs(w.cache, seqs, 2, &n));
    for (uint32_t i = 0; i < n; i++)
        close_seq(&w, seqs[i]);
    assert_int_equal(stats_of(&w).open_seqs, 0);
}

TEST_MAIN(fill_ints, NULL) /* before there are others */

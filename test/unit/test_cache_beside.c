/* What may run beside the thread that calls the cache: hashing, copies of a plan by the workers of
 * a copier, attention by a team over blocks that are held, other caches; and reads beside reads.
 * For the thread sanitizer's build. Counters, and overlapping writers: test_cache_threads.c. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <kvpager/attention.h>
#include <kvpager/memory.h>

#include "tiers.h"

enum { S = 4, H = 2, D = 8, USABLE = 24, HOST = 16, HELD = 30, COPIES = 64, MOST_OUT = 3 };
enum { TURNS = 400 };

/* A step's plan on its way to the thread that copies, and back. */
typedef struct job {
    uint64_t number;
    kvp_copy copies[COPIES];
    uint32_t n;
} job;

typedef struct engine {
    world w;
    kvp_memory *tiers[2];
    kvp_copier *copier;
    kvp_attention_team *team;
    int32_t row[HELD]; /* of a sequence that is open all the time */
    int is_over;       /* atomic */
    int n_rounds[3];   /* atomic: of hashing, attention and other caches */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    job jobs[MOST_OUT]; /* [n_jobs] given out, the first n_run of them run */
    uint32_t n_jobs, n_run;
    int is_closed;
} engine;

static int goes_on(engine *e)
{
    return !__atomic_load_n(&e->is_over, __ATOMIC_RELAXED);
}

static void count_round(engine *e, int which)
{
    __atomic_add_fetch(&e->n_rounds[which], 1, __ATOMIC_RELAXED);
}

/* ---------------------------------------------------------------------------- the other threads */

static void *hash(void *context)
{
    engine *e = context;
    kvp_hash root, first[8], again[8];
    const kvp_hash_input input = {.unit_tokens = S, .n_tokens = 8 * S, .tokens = ints(50)};
    while (goes_on(e)) {
        assert_ok(kvp_hash_root(S, 7, "beside", 6, &root));
        assert_ok(kvp_hash_units(&input, &root, e->n_rounds[0] ? again : first));
        assert_true(e->n_rounds[0] == 0 || memcmp(first, again, sizeof first) == 0);
        count_round(e, 0);
    }
    return NULL;
}

/* A decoding query over the held sequence: always the same bits. */
static void *attend(void *context)
{
    engine *e = context;
    kvp_layer layer;
    kvp_attention attention;
    size_t n_bytes;
    float q[H][D], first[H][D], out[H][D];
    const int32_t query_start[2] = {0, 1}, length = HELD;
    const kvp_attention_level level = {.n_rows = 1,
                                       .n_blocks = (HELD + S - 1) / S,
                                       .blocks = e->row,
                                       .row_stride = HELD,
                                       .lengths = &length};
    for (uint32_t i = 0; i < H * D; i++)
        (&q[0][0])[i] = (float)i / 8;
    assert_ok(kvp_memory_layer(e->tiers[0], 0, &layer));
    kvp_attention_init(&attention);
    attention.layer = &layer;
    attention.n_seqs = attention.n_tokens = 1;
    attention.n_heads = H;
    attention.query_start = query_start;
    attention.levels = &level;
    attention.n_levels = 1;
    attention.q.data = &q[0][0];
    attention.out.data = &out[0][0];
    attention.team = e->team;
    assert_ok(kvp_attention_bytes(&attention, &n_bytes));
    void *scratch = aligned_alloc(KVP_SCRATCH_ALIGN, (n_bytes / 64 + 1) * 64);
    assert_non_null(scratch);
    for (int i = 0; goes_on(e); i++) {
        assert_ok(kvp_attention_run(&attention, scratch, n_bytes));
        if (i == 0)
            memcpy(first, out, sizeof out);
        assert_memory_equal(first, out, sizeof out);
        count_round(e, 1);
    }
    free(scratch);
    return NULL;
}

/* Caches of their own. */
static void *use_others(void *context)
{
    engine *e = context;
    const kvp_config config = tiers_config(S, S, 8, 4);
    while (goes_on(e)) {
        kvp_cache *cache;
        kvp_ns ns;
        assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
        assert_ok(kvp_ns_open(cache, "own", 3, &ns));
        assert_non_null(kvp_status_text(KVP_E_NO_BLOCKS));
        kvp_cache_destroy(cache);
        count_round(e, 2);
    }
    return NULL;
}

/* Runs plans, in order, while the cache goes on. */
static void *copy(void *context)
{
    engine *e = context;
    pthread_mutex_lock(&e->mutex);
    for (;;) {
        while (e->n_run == e->n_jobs && !e->is_closed)
            pthread_cond_wait(&e->changed, &e->mutex);
        if (e->n_run == e->n_jobs)
            break;
        const job mine = e->jobs[e->n_run];
        pthread_mutex_unlock(&e->mutex);
        assert_ok(kvp_copier_run(e->copier, mine.copies, mine.n, NULL));
        pthread_mutex_lock(&e->mutex);
        e->n_run++;
        pthread_cond_broadcast(&e->changed);
    }
    pthread_mutex_unlock(&e->mutex);
    return NULL;
}

/* --------------------------------------------------------------------------------- the writer */

/* Report what has run; wait for one when as many are out as may be, or for all. */
static void report(engine *e, uint32_t most_out)
{
    pthread_mutex_lock(&e->mutex);
    while (e->n_jobs > most_out) {
        while (e->n_run == 0)
            pthread_cond_wait(&e->changed, &e->mutex);
        assert_ok(kvp_step_done(e->w.cache, e->jobs[0].number, NULL));
        memmove(e->jobs, e->jobs + 1, (MOST_OUT - 1) * sizeof *e->jobs);
        e->n_jobs--;
        e->n_run--;
    }
    pthread_mutex_unlock(&e->mutex);
}

static void submit(engine *e)
{
    job next;
    report(e, MOST_OUT - 1);
    assert_ok(kvp_step_begin(e->w.cache, next.copies, COPIES, &next.n, &next.number));
    pthread_mutex_lock(&e->mutex);
    e->jobs[e->n_jobs++] = next;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->mutex);
}

/* Prompts that hit each other, on both tiers; a refusal is as good. */
static void work(engine *e, int32_t turn)
{
    kvp_cache *cache = e->w.cache;
    const kvp_prompt prompt = prompt_of(ints(100 * (turn % 5)), 9 + (uint32_t)turn % 20);
    kvp_seq seq;
    if (kvp_seq_open(cache, e->w.ns, &prompt, &seq, NULL) != KVP_OK) {
        submit(e);
        report(e, 0);
        return;
    }
    submit(e);
    assert_ok(kvp_seq_commit(cache, seq, prompt.n_tokens));
    (void)kvp_seq_extend(cache, seq, ints(turn % 3000), 2, 0);
    if (turn % 3 == 0 && kvp_seq_swap_out(cache, &seq, 1, NULL) == KVP_OK) {
        submit(e);
        (void)kvp_seq_swap_in(cache, &seq, 1, 0, NULL);
    }
    close_seq(&e->w, seq);
}

static void open_engine(engine *e)
{
    kvp_config config = steps_config(S, S, USABLE, HOST);
    kvp_layout layout;
    kvp_copier_config copier;
    config.keep_evicted = 1;
    config.max_steps_out = MOST_OUT;
    memset(e, 0, sizeof *e);
    e->w = make_world(&config);
    kvp_layout_init(&layout);
    layout.type = KVP_F32;
    layout.block_tokens = S;
    layout.n_layers = 1;
    layout.n_heads = H;
    layout.k.size = layout.v.size = D;
    for (uint32_t i = 0; i < 2; i++) {
        layout.n_blocks = 1 + (i == 0 ? USABLE : HOST);
        assert_ok(kvp_layout_arrange(&layout, KVP_ORDER_FLASHINFER_HND, NULL));
        assert_ok(kvp_memory_create(&layout, NULL, &e->tiers[i]));
    }
    kvp_copier_config_init(&copier);
    copier.device = &e->tiers[0];
    copier.host = &e->tiers[1];
    copier.n_threads = 3;
    assert_ok(kvp_copier_create(&copier, &e->copier));
    assert_ok(kvp_attention_team_create(3, &e->team));
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->changed, NULL);
}

/* A sequence that stays, with KV. */
static kvp_seq hold_one(engine *e)
{
    kvp_layer layer;
    float values[D];
    const kvp_seq seq = open_done(&e->w, ints(3000), HELD);
    assert_ok(kvp_memory_layer(e->tiers[0], 0, &layer));
    for (uint32_t i = 0; i < (HELD + S - 1) / S; i++)
        e->row[i] = row_entry(&e->w, seq, i);
    for (uint32_t i = 0; i < HELD * H * 2; i++) {
        const uint32_t at = i / H / 2;
        for (uint32_t k = 0; k < D; k++)
            values[k] = (float)((i * 7 + k * 3) % 11);
        assert_ok(kvp_layer_write(&layer, (int)(i & 1), (int64_t)e->row[at / S] * S + at % S,
                                  i / 2 % H, values));
    }
    return seq;
}

static void close_engine(engine *e, kvp_seq held)
{
    close_seq(&e->w, held);
    submit(e);
    report(e, 0);
    assert_int_equal(stats_of(&e->w).held_blocks + stats_of(&e->w).parked_blocks, 0);
}

static int has_met_all(const engine *e)
{
    for (int i = 0; i < 3; i++)
        if (__atomic_load_n(&e->n_rounds[i], __ATOMIC_RELAXED) < 50)
            return 0;
    return 1;
}

TEST(test_work_beside_the_writer)
{
    static engine e;
    static void *(*const others[])(void *) = {hash, attend, use_others, copy};
    enum { OTHERS = sizeof others / sizeof *others };
    pthread_t threads[OTHERS];
    (void)state;
    open_engine(&e);
    const kvp_seq held = hold_one(&e);
    for (int i = 0; i < OTHERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, others[i], &e), 0);
    for (int32_t turn = 0; turn < TURNS || !has_met_all(&e); turn++)
        work(&e, turn);
    close_engine(&e, held);
    __atomic_store_n(&e.is_over, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&e.mutex);
    e.is_closed = 1;
    pthread_cond_broadcast(&e.changed);
    pthread_mutex_unlock(&e.mutex);
    for (int i = 0; i < OTHERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(stats_of(&e.w).copies > 100); /* there was something to copy */
    kvp_copier_destroy(e.copier);
    kvp_attention_team_destroy(e.team);
    kvp_memory_destroy(e.tiers[0]);
    kvp_memory_destroy(e.tiers[1]);
    end_world(&e.w);
}

/* --------------------------------------------------------------------------- reads beside reads */

typedef struct reading {
    const world *w;
    kvp_seq seq;
    uint64_t sum;
} reading;

/* Everything that cache.h, windows.h, trees.h and events.h call a read. */
static void *read_all(void *context)
{
    reading *r = context;
    const kvp_cache *cache = r->w->cache;
    for (int i = 0; i < 200; i++) {
        kvp_seq_info info;
        kvp_window_info window;
        kvp_block_info block;
        kvp_event events[8];
        kvp_shortage shortage;
        kvp_config config;
        const kvp_evicted *evicted;
        const int32_t *row;
        int32_t tokens[64];
        int64_t slots[4];
        uint32_t n;
        assert_ok(kvp_cache_config_get(cache, &config));
        assert_ok(kvp_cache_shortage_get(cache, &shortage));
        assert_ok(kvp_cache_evicted(cache, &evicted, &n));
        assert_ok(kvp_seq_info_get(cache, r->seq, &info));
        assert_ok(kvp_seq_tokens(cache, r->seq, 0, 12, tokens));
        assert_ok(kvp_seq_block_tokens(cache, r->seq, 1, tokens, &n));
        assert_ok(kvp_seq_row(cache, r->seq, 0, &row, &n));
        assert_ok(kvp_seq_slots(cache, r->seq, 0, 0, 4, slots));
        assert_ok(kvp_seq_window_get(cache, r->seq, 0, &window));
        assert_ok(kvp_seq_tree(cache, r->seq, NULL, NULL, 0, &n));
        assert_ok(kvp_block_info_get(cache, 0, KVP_DEVICE, row[0], &block));
        assert_ok(kvp_block_tokens(cache, 0, KVP_DEVICE, row[0], tokens, &n));
        assert_ok(kvp_events_read(cache, 1, events, 8, NULL, &n));
        r->sum += info.n_tokens + (uint64_t)row[0] + block.sealed_tokens + n;
    }
    return NULL;
}

TEST(test_reads_beside_reads)
{
    enum { READERS = 4 };
    kvp_config config = tiers_config(S, S, USABLE, HOST);
    pthread_t threads[READERS];
    reading readings[READERS];
    (void)state;
    config.max_events = 64;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(5), 12);
    for (int i = 0; i < READERS; i++) {
        readings[i] = (reading){&w, seq, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &readings[i]), 0);
    }
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(readings[i].sum == readings[0].sum);
    }
    close_seq(&w, seq);
}

TEST_MAIN(fill_ints, NULL) /* before there are others */

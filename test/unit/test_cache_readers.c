/* Reads beside a change: a sequence's counts and events, from other threads while the owner works.
 * Nothing that is read is torn, and the thread sanitizer finds no race. */
#include <pthread.h>
#include <string.h>

#include "world.h"

#include <kvpager/recover.h>

#include "core/cache/frame.h"
#include "core/cache/state.h"

enum { S = 4, READERS = 4, ENOUGH = 500, SEQ_TOKENS = 48, GROWTH = 3, RING = 8 };

typedef struct shared {
    world w;
    uint64_t seq;     /* atomic: bits of the one that is open now */
    int is_over;      /* atomic */
    uint32_t n_reads; /* atomic: that gave something */
    uint32_t n_wrong; /* atomic */
} shared;

static void count(uint32_t *counter)
{
    __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

static int goes_on(const shared *s)
{
    return !__atomic_load_n(&s->is_over, __ATOMIC_RELAXED);
}

static int has_read_enough(const shared *s)
{
    return __atomic_load_n(&s->n_reads, __ATOMIC_RELAXED) >= ENOUGH;
}

/* Value of token i of the sequence with this tag. */
static int32_t value_of(uint64_t tag, uint32_t i)
{
    return (int32_t)(tag % 1000 * 100 + i);
}

static void run_readers(shared *s, void *(*read)(void *), void (*churn)(shared *, uint64_t))
{
    pthread_t threads[READERS];
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read, s), 0);
    for (uint64_t turn = 1; turn < 100 || !has_read_enough(s); turn++)
        churn(s, turn);
    __atomic_store_n(&s->is_over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(s->n_wrong, 0);
}

/* --------------------------------------------------------------------------------- the counts */

/* What is so between any two calls of churn_seq. */
static int is_of_one_moment(const kvp_seq_info *info)
{
    const uint32_t n = info->n_tokens;
    const uint32_t reserve = (uint32_t)(info->tag % 3);
    return info->known_tokens == n && info->kept_tokens == n && info->public_tokens == n / S * S &&
           info->prompt_tokens == info->tag % 7 + 1 && info->retention == info->tag % 8 &&
           (info->computed_tokens == n || n - info->computed_tokens == GROWTH ||
            n == info->prompt_tokens) &&
           info->writable_tokens == n + reserve && info->n_blocks == (n + reserve + S - 1) / S &&
           info->last_token == value_of(info->tag, n - 1) && info->tree_tokens == 0;
}

static void *read_counts(void *context)
{
    shared *s = context;
    while (goes_on(s)) {
        kvp_seq_info info;
        const kvp_seq seq = {__atomic_load_n(&s->seq, __ATOMIC_RELAXED)};
        const kvp_status status = kvp_seq_info_get(s->w.cache, seq, &info);
        if (status == KVP_OK)
            count(&s->n_reads);
        if (status == KVP_OK ? !is_of_one_moment(&info)
                             : status != KVP_E_AGAIN && status != KVP_E_HANDLE)
            count(&s->n_wrong);
    }
    return NULL;
}

static void churn_seq(shared *s, uint64_t tag)
{
    int32_t tokens[SEQ_TOKENS];
    kvp_cache *cache = s->w.cache;
    kvp_seq seq;
    for (uint32_t i = 0; i < SEQ_TOKENS; i++)
        tokens[i] = value_of(tag, i);
    kvp_prompt prompt = prompt_of(tokens, (uint32_t)(tag % 7) + 1);
    prompt.tag = tag;
    prompt.retention = (uint32_t)(tag % 8);
    prompt.reserve_tokens = (uint32_t)(tag % 3);
    assert_ok(kvp_seq_open(cache, s->w.ns, &prompt, &seq, NULL));
    __atomic_store_n(&s->seq, seq.bits, __ATOMIC_RELAXED);
    assert_ok(kvp_seq_commit(cache, seq, prompt.n_tokens));
    for (uint32_t n = prompt.n_tokens; n + GROWTH <= SEQ_TOKENS; n += GROWTH) {
        assert_ok(kvp_seq_extend(cache, seq, &tokens[n], GROWTH, prompt.reserve_tokens));
        assert_ok(kvp_seq_commit(cache, seq, n + GROWTH));
    }
    close_seq(&s->w, seq); /* the next one has its place */
}

TEST(test_counts_are_of_one_moment)
{
    const kvp_config config = config_of(S, S, 31);
    static shared s;
    s.w = make_world(&config);
    run_readers(&s, read_counts, churn_seq);
    end_world(&s.w);
}

TEST(test_counts_while_a_call_is_inside)
{
    scoped_world w = small_world(7);
    kvp_seq_info info;
    const kvp_seq seq = open_done(&w, ints(0), 6);
    memset(&info, 0x55, sizeof(info));
    const kvp_seq_info before = info;
    assert_true(kvpi_mark_exact(&w.cache->calls));
    assert_status(KVP_E_AGAIN, kvp_seq_info_get(w.cache, seq, &info));
    assert_status(KVP_E_AGAIN, kvp_seq_info_get(w.cache, (kvp_seq){1}, &info));
    assert_memory_equal(&info, &before, sizeof(info));
    assert_ok(kvp_cache_recover(w.cache, NULL));
    assert_ok(kvp_seq_info_get(w.cache, seq, &info));
    assert_int_equal(info.last_token, 5);
    close_seq(&w, seq);
}

/* --------------------------------------------------------------------------------- the events */

/* Its parts fit each other: the hash is that of these tokens after this parent. */
static int is_whole(const kvp_event *event, const int32_t *tokens)
{
    static const kvp_hash zero;
    kvp_hash hash;
    const kvp_hash_input input = {.unit_tokens = S, .n_tokens = S, .tokens = tokens};
    switch (event->kind) {
    case KVP_EVENT_STORED:
        return event->n_tokens == S && event->tier == KVP_DEVICE &&
               kvp_hash_units(&input, &event->parent, &hash) == KVP_OK &&
               memcmp(&hash, &event->hash, sizeof(hash)) == 0 &&
               tokens[0] % 100 == (int32_t)event->position;
    case KVP_EVENT_REMOVED:
        return event->n_tokens == 0 && event->position == 0 &&
               memcmp(&event->parent, &zero, sizeof(zero)) == 0 &&
               memcmp(&event->hash, &zero, sizeof(zero)) != 0;
    default: return 0;
    }
}

static void *read_events(void *context)
{
    shared *s = context;
    uint64_t from = 1;
    while (goes_on(s)) {
        kvp_event events[RING];
        int32_t tokens[RING * S];
        uint32_t n = 0;
        const kvp_status status = kvp_events_read(s->w.cache, from, events, RING, tokens, &n);
        for (uint32_t i = 0; i < n; i++)
            if (events[i].number != from + i || !is_whole(&events[i], tokens + (size_t)i * S))
                count(&s->n_wrong);
        if (n > 0)
            count(&s->n_reads);
        if (status != KVP_OK && status != KVP_E_BEHIND && status != KVP_E_AGAIN)
            count(&s->n_wrong);
        from += status == KVP_E_BEHIND ? RING : n; /* which is not beyond the newest */
    }
    return NULL;
}

/* Prompts that evict each other: STORED and REMOVED in turn. */
static void churn_events(shared *s, uint64_t turn)
{
    int32_t tokens[SEQ_TOKENS];
    for (uint32_t i = 0; i < SEQ_TOKENS; i++)
        tokens[i] = value_of(turn, i);
    leave_cached(&s->w, tokens, SEQ_TOKENS);
}

TEST(test_events_are_whole)
{
    kvp_config config = config_of(S, S, 15);
    static shared s;
    config.max_events = RING;
    s.w = make_world(&config);
    run_readers(&s, read_events, churn_events);
    end_world(&s.w);
}

TEST(test_an_event_that_is_written_over_is_not_read)
{
    kvp_config config = config_of(S, S, 15);
    kvp_event events[RING];
    uint32_t n = 77;
    config.max_events = RING;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 10 * S); /* 1 to 10 */
    assert_ok(kvp_events_read(w.cache, 3, events, RING, NULL, &n));
    assert_int_equal(n, RING);
    w.cache->events.begun++; /* as if its place were half written */
    n = 77;
    assert_status(KVP_E_AGAIN, kvp_events_read(w.cache, 3, events, RING, NULL, &n));
    assert_status(KVP_E_BEHIND, kvp_events_read(w.cache, 2, events, RING, NULL, &n));
    assert_int_equal(n, 77);
    assert_ok(kvp_events_read(w.cache, 4, events, RING, NULL, &n));
    assert_int_equal(n, RING - 1);
    assert_ok(kvp_events_read(w.cache, 3, NULL, 0, NULL, &n)); /* nothing is read */
    assert_int_equal(n, 0);
    leave_cached(&w, ints(100), S); /* goes on with 11 */
    assert_ok(kvp_events_read(w.cache, 11, events, RING, NULL, &n));
    assert_int_equal(n, 1);
    assert_int_equal(events[0].number, 11);
}

/* ------------------------------------------------------------------------------------- the log */

static int count_bytes(void *context, const void *bytes, size_t n_bytes)
{
    (void)bytes;
    *(size_t *)context += n_bytes;
    return 0;
}

TEST(test_they_are_not_recorded)
{
    kvp_config config = config_of(S, S, 15);
    kvp_cache *cache;
    kvp_event event;
    kvp_seq_info info;
    uint32_t n;
    size_t n_bytes = 0;
    const kvp_sink sink = {&n_bytes, count_bytes};
    config.max_events = RING;
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    assert_ok(kvp_cache_record_start(cache, &sink));
    const size_t before = n_bytes;
    assert_ok(kvp_events_read(cache, 1, &event, 1, NULL, &n));
    assert_status(KVP_E_ARG, kvp_events_read(cache, 0, &event, 1, NULL, &n));
    assert_status(KVP_E_HANDLE, kvp_seq_info_get(cache, (kvp_seq){0}, &info));
    assert_int_equal(n_bytes, before);
    assert_ok(kvp_cache_config_get(cache, &config));
    assert_true(n_bytes > before); /* other reads are */
    kvp_cache_destroy(cache);
}

TEST_MAIN(fill_ints, NULL) /* before there are others */

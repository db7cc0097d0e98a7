/* Calls as data: kvp_oplog_call_run makes the call that a kvp_call describes, and the outcome has
 * what the call gave. Every call is made by the random runs of test_oplog_replay.c; here are those
 * whose outcomes take some work. */
#include <string.h>

#include "mocka.h"

#include <kvpager/oplog.h>

struct fixture {
    kvp_cache *cache;
    kvp_outcome out; /* of the last call */
    uint64_t ns;
};

static const int32_t TOKENS[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const int32_t OTHERS[] = {21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32};

static kvp_status make(struct fixture *f, kvp_call call)
{
    /* What the call does not write must not look as if it had. */
    if (f->out.storage != NULL)
        memset(f->out.storage, 0xee, f->out.storage_bytes);
    assert_int_equal(kvp_oplog_call_run(f->cache, &call, &f->out), KVP_OK);
    return f->out.status;
}

/* S = U = 4, three blocks. */
static kvp_config config_of(uint32_t steps, uint32_t max_events)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = 4;
    config.n_blocks = 4;
    config.max_seqs = 4;
    config.host_blocks = 6;
    config.keep_evicted = 0;
    config.steps = steps;
    config.max_events = max_events;
    return config;
}

static void begin_with(struct fixture *f, const kvp_config *config)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(kvp_cache_create(config, NULL, 0, &f->cache), KVP_OK);
    assert_int_equal(make(f, (kvp_call){.op = KVP_CALL_NS_OPEN}), KVP_OK);
    f->ns = f->out.handle;
}

static void begin(struct fixture *f, uint32_t steps, uint32_t max_events)
{
    kvp_config config = config_of(steps, max_events);
    begin_with(f, &config);
}

static void begin_with_nodes(struct fixture *f, uint32_t n_nodes)
{
    kvp_config config = config_of(KVP_STEPS_ORDERED, 16);
    config.max_namespaces = 1;
    config.n_nodes = n_nodes;
    begin_with(f, &config);
}

static void end(struct fixture *f)
{
    kvp_outcome_free(&f->out);
    kvp_cache_destroy(f->cache);
}

/* Opens a sequence; its tokens are computed. */
static uint64_t open_computed(struct fixture *f, const int32_t *tokens, uint32_t n)
{
    kvp_call open = {.op = KVP_CALL_OPEN, .handle = f->ns, .tokens = tokens, .n_tokens = n};
    assert_int_equal(make(f, open), KVP_OK);
    uint64_t seq = f->out.handle;
    kvp_call commit = {.op = KVP_CALL_COMMIT, .handle = seq, .position = n};
    assert_int_equal(make(f, commit), KVP_OK);
    return seq;
}

/* Two blocks stored, evicted by three others, which are stored. */
static void make_seven_events(struct fixture *f)
{
    uint64_t seq = open_computed(f, TOKENS, 8);
    assert_int_equal(make(f, (kvp_call){.op = KVP_CALL_CLOSE, .handle = seq}), KVP_OK);
    open_computed(f, OTHERS, 12);
}

TEST(test_events_and_their_tokens)
{
    static const uint32_t kinds[] = {KVP_EVENT_STORED, KVP_EVENT_STORED, KVP_EVENT_REMOVED,
                                     KVP_EVENT_REMOVED};
    static const int32_t nothing[8];
    struct fixture f;
    begin(&f, KVP_STEPS_ORDERED, 16);
    make_seven_events(&f);
    kvp_call read = {.op = KVP_CALL_EVENTS_READ, .number = 1, .count = 100, .with_tokens = 1};
    assert_int_equal(make(&f, read), KVP_OK); /* twice: the storage is large enough by now */
    assert_int_equal(make(&f, read), KVP_OK);
    assert_int_equal(f.out.n, 7);
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(f.out.events[i].number, i + 1);
        assert_int_equal(f.out.events[i].kind, i < 4 ? kinds[i] : KVP_EVENT_STORED);
    }
    assert_memory_equal(f.out.i32, TOKENS, 8 * sizeof *TOKENS);
    assert_memory_equal(f.out.i32 + 8, nothing, sizeof nothing); /* those removed have none */
    assert_memory_equal(f.out.i32 + 16, OTHERS, sizeof OTHERS);
    read.with_tokens = 0;
    read.count = 2;
    read.number = 6;
    assert_int_equal(make(&f, read), KVP_OK);
    assert_int_equal(f.out.n, 2);
    assert_int_equal(f.out.events[1].number, 7);
    assert_null(f.out.i32);
    read.number = 9;
    assert_int_equal(make(&f, read), KVP_E_ARG);
    assert_true(f.out.n == 0 && f.out.events == NULL && f.out.i32 == NULL);
    end(&f);
}

TEST(test_a_snapshot_and_its_number)
{
    struct fixture f;
    begin(&f, KVP_STEPS_ORDERED, 2); /* what is not remembered is in the snapshot all the same */
    make_seven_events(&f);
    kvp_call snapshot = {.op = KVP_CALL_EVENTS_SNAPSHOT, .count = 2, .with_tokens = 1};
    assert_int_equal(make(&f, snapshot), KVP_E_TOO_SMALL);
    assert_true(f.out.n == 3 && f.out.number == 7);
    assert_true(f.out.events == NULL && f.out.i32 == NULL);
    snapshot.count = 0; /* asks */
    assert_int_equal(make(&f, snapshot), KVP_OK);
    assert_true(f.out.n == 3 && f.out.number == 7);
    assert_true(f.out.events == NULL && f.out.i32 == NULL);
    snapshot.count = UINT32_MAX;
    assert_int_equal(make(&f, snapshot), KVP_OK);
    assert_true(f.out.n == 3 && f.out.number == 7);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(f.out.events[i].kind, KVP_EVENT_STORED);
        assert_int_equal(f.out.events[i].position, 4 * i);
    }
    assert_memory_equal(f.out.i32, OTHERS, sizeof OTHERS);
    end(&f);
}

/* Four nodes, three of them on both tiers: more events than nodes. */
TEST(test_a_snapshot_of_both_tiers)
{
    struct fixture f;
    begin_with_nodes(&f, 4);
    uint64_t seq = open_computed(&f, TOKENS, 12);
    kvp_call out = {.op = KVP_CALL_SWAP_OUT, .handles = &seq, .n_seqs = 1};
    assert_int_equal(make(&f, out), KVP_OK);
    kvp_call snapshot = {.op = KVP_CALL_EVENTS_SNAPSHOT, .count = UINT32_MAX, .with_tokens = 1};
    assert_int_equal(make(&f, snapshot), KVP_OK);
    assert_int_equal(f.out.n, 6);
    for (uint32_t i = 0; i < 6; i++) {
        const kvp_event *event = &f.out.events[i];
        assert_int_equal(event->n_tokens, 4);
        assert_memory_equal(f.out.i32 + 4 * i, TOKENS + event->position, 4 * sizeof *TOKENS);
    }
    end(&f);
}

/* Four nodes, three of them in three groups: more events than nodes on two tiers. */
TEST(test_a_snapshot_of_all_groups)
{
    struct fixture f;
    kvp_config config = config_of(KVP_STEPS_ORDERED, 16);
    config.max_namespaces = 1;
    config.n_nodes = 4;
    config.n_groups = 3;
    config.n_blocks = 10;
    begin_with(&f, &config);
    open_computed(&f, TOKENS, 12);
    kvp_call snapshot = {.op = KVP_CALL_EVENTS_SNAPSHOT, .count = UINT32_MAX, .with_tokens = 1};
    assert_int_equal(make(&f, snapshot), KVP_OK);
    assert_int_equal(f.out.n, 9);
    uint32_t n_of_group[3] = {0};
    for (uint32_t i = 0; i < 9; i++) {
        const kvp_event *event = &f.out.events[i];
        n_of_group[event->group]++;
        assert_memory_equal(f.out.i32 + 4 * i, TOKENS + event->position, 4 * sizeof *TOKENS);
    }
    assert_true(n_of_group[0] == 3 && n_of_group[1] == 3 && n_of_group[2] == 3);
    end(&f);
}

/* Two groups; the tree 7 -> 8 -> 10, 7 -> 9, of which 7, 8 and 10 are accepted. */
TEST(test_a_tree_and_its_moves)
{
    static const int32_t parents[] = {-1, 0, 0, 1};
    static const int32_t last = 3;
    const uint32_t four = 4;
    struct fixture f;
    kvp_config config = config_of(KVP_STEPS_ORDERED, 0);
    config.n_groups = 2;
    config.n_blocks = 9;
    config.max_tree_tokens = 5;
    begin_with(&f, &config);
    uint64_t seq = open_computed(&f, TOKENS, 6);
    kvp_call grow = {.op = KVP_CALL_EXTEND_TREE,
                     .handles = &seq,
                     .n_seqs = 1,
                     .counts = &four,
                     .tokens = TOKENS + 6,
                     .parents = parents,
                     .n_tokens = 4};
    assert_int_equal(make(&f, grow), KVP_OK);
    kvp_call tree = {.op = KVP_CALL_TREE, .handle = seq, .count = 3, .with_tokens = 1};
    assert_int_equal(make(&f, tree), KVP_E_TOO_SMALL);
    assert_true(f.out.n == 4 && f.out.i32 == NULL);
    tree.count = 0; /* asks */
    assert_int_equal(make(&f, tree), KVP_OK);
    assert_true(f.out.n == 4 && f.out.i32 == NULL);
    tree.count = UINT32_MAX;
    tree.with_parents = 1;
    assert_int_equal(make(&f, tree), KVP_OK);
    assert_memory_equal(f.out.i32, TOKENS + 6, 4 * sizeof *TOKENS);
    assert_memory_equal(f.out.parents, parents, sizeof parents);
    kvp_call slots = {.op = KVP_CALL_SLOTS, .handle = seq, .position = 8, .count = 2};
    int64_t places[2][2];
    for (slots.group = 0; slots.group < 2; slots.group++) {
        assert_int_equal(make(&f, slots), KVP_OK);
        memcpy(places[slots.group], f.out.i64, sizeof places[0]);
    }
    kvp_call accept = {.op = KVP_CALL_ACCEPT, .handles = &seq, .leaves = &last, .n_seqs = 1};
    assert_int_equal(make(&f, accept), KVP_E_TOO_SMALL);
    assert_true(f.out.n == 1 && f.out.moves == NULL);
    accept.count = UINT32_MAX;
    assert_int_equal(make(&f, accept), KVP_OK);
    assert_int_equal(f.out.n, 1);
    for (uint32_t group = 0; group < 2; group++)
        assert_true(f.out.moves[group].dst == places[group][0] &&
                    f.out.moves[group].src == places[group][1]);
    grow.n_tokens = 3; /* not the sum of the counts */
    grow.tokens = NULL;
    assert_int_equal(kvp_oplog_call_run(f.cache, &grow, &f.out), KVP_E_ARG);
    end(&f);
}

TEST(test_a_window_and_what_it_drops)
{
    struct fixture f;
    begin(&f, KVP_STEPS_ORDERED, 0);
    uint64_t seq = open_computed(&f, TOKENS, 12);
    kvp_call set = {.op = KVP_CALL_WINDOW, .handle = seq, .window = {1, 2}};
    assert_int_equal(make(&f, set), KVP_OK);
    assert_int_equal(f.out.u.released.cached_blocks, 1);
    kvp_call get = {.op = KVP_CALL_WINDOW_GET, .handle = seq};
    assert_int_equal(make(&f, get), KVP_OK);
    assert_int_equal(f.out.u.window.window.recent_tokens, 2);
    assert_true(f.out.u.window.dropped_begin == 1 && f.out.u.window.dropped_end == 2);
    get.group = 1;
    assert_int_equal(make(&f, get), KVP_E_ARG);
    end(&f);
}

TEST(test_a_step_and_its_copies)
{
    struct fixture f;
    begin(&f, KVP_STEPS_OVERLAPPED, 0);
    uint64_t seq = open_computed(&f, TOKENS, 6);
    kvp_call fork = {.op = KVP_CALL_FORK, .handle = seq, .position = KVP_END};
    assert_int_equal(make(&f, fork), KVP_OK);
    uint64_t child = f.out.handle;
    kvp_call extend = {.op = KVP_CALL_EXTEND, .handle = child, .tokens = TOKENS + 6, .n_tokens = 1};
    assert_int_equal(make(&f, extend), KVP_OK);
    kvp_call step = {.op = KVP_CALL_STEP_BEGIN}; /* asks */
    assert_int_equal(make(&f, step), KVP_OK);
    assert_true(f.out.n == 1 && f.out.number == 0 && f.out.copies == NULL);
    step.count = UINT32_MAX;
    assert_int_equal(make(&f, step), KVP_OK);
    assert_true(f.out.n == 1 && f.out.number == 1);
    assert_int_equal(f.out.copies[0].n_tokens, 2);
    const uint32_t seven = 7;
    kvp_call commit = {
        .op = KVP_CALL_STEP_COMMIT, .number = 1, .handles = &child, .counts = &seven, .n_seqs = 1};
    assert_int_equal(make(&f, commit), KVP_OK);
    kvp_call failed = {.op = KVP_CALL_STEP_FAILED, .number = 1};
    assert_int_equal(make(&f, failed), KVP_OK); /* asks: the copy was the child's */
    assert_true(f.out.n == 1 && f.out.u64 == NULL);
    failed.count = 3;
    assert_int_equal(make(&f, failed), KVP_OK);
    assert_int_equal(f.out.n, 1);
    assert_true(f.out.u64[0] == child);
    assert_int_equal(make(&f, step), KVP_OK);
    assert_int_equal(f.out.number, 2);
    assert_int_equal(make(&f, (kvp_call){.op = KVP_CALL_STEP_DONE, .number = 2}), KVP_OK);
    assert_int_equal(f.out.number, 2);
    end(&f);
}

TEST(test_a_swap_and_its_counts)
{
    struct fixture f;
    begin(&f, KVP_STEPS_ORDERED, 0);
    uint64_t seq = open_computed(&f, TOKENS, 6);
    kvp_call call = {.op = KVP_CALL_CAN_SWAP_OUT, .handles = &seq, .n_seqs = 1};
    assert_int_equal(make(&f, call), KVP_OK);
    assert_true(f.out.u.admission.need_blocks == 2 && f.out.u.admission.available == 5);
    call.op = KVP_CALL_SWAP_OUT;
    assert_int_equal(make(&f, call), KVP_OK);
    assert_int_equal(f.out.u.swapped.copied_blocks, 2);
    assert_fields(f.out.u.swapped.released, cached_blocks, 1, freed_blocks, 1);
    call.op = KVP_CALL_CAN_SWAP_IN;
    call.reserve_tokens = 3; /* 9 tokens: the third block */
    assert_int_equal(make(&f, call), KVP_OK);
    assert_true(f.out.u.admission.need_blocks == 3 && f.out.u.admission.available == 3);
    call.op = KVP_CALL_SWAP_IN;
    assert_int_equal(make(&f, call), KVP_OK);
    assert_fields(f.out.u.swapped, found_blocks, 1, copied_blocks, 1);
    kvp_call info = {.op = KVP_CALL_BLOCK_INFO, .tier = KVP_HOST, .block = 5};
    assert_int_equal(make(&f, info), KVP_OK);
    info.tier = KVP_DEVICE; /* ids 0..3 */
    assert_int_equal(make(&f, info), KVP_E_ARG);
    kvp_call tokens = {.op = KVP_CALL_BLOCK_TOKENS, .tier = KVP_HOST, .block = 1};
    assert_int_equal(make(&f, tokens), KVP_OK);
    assert_int_equal(f.out.n, 4);
    assert_memory_equal(f.out.i32, TOKENS, 4 * sizeof *TOKENS);
    tokens.block = 5;
    assert_int_equal(make(&f, tokens), KVP_OK);
    assert_int_equal(f.out.n, 0);
    end(&f);
}

TEST_MAIN(NULL, NULL)

/* A capacity of 0 asks for the size: never a failure, and nothing is changed, not even what the
 * last failure left behind. */
#include <string.h>

#include <kvpager/meta.h>
#include <kvpager/trees.h>

#include "tiers.h"

/* Make a call fail, and remember what it left. */
static kvp_shortage fall_short(world *w)
{
    kvp_prompt prompt = prompt_of(NULL, 0);
    kvp_seq seq;
    prompt.reserve_tokens = 4 * 1000;
    assert_int_not_equal(kvp_seq_open(w->cache, w->ns, &prompt, &seq, NULL), KVP_OK);
    return shortage_of(w);
}

/* assert_asked(&w, call, n, expected): the call is KVP_OK, gives n, and leaves no trace. */
#define assert_asked(w, call, n, expected)                                                         \
    do {                                                                                           \
        const kvp_shortage short_ = fall_short(w);                                                 \
        const uint64_t refused_ = stats_of(w).refused;                                             \
        (n) = 77;                                                                                  \
        assert_unchanged(w, assert_ok(call));                                                      \
        assert_int_equal(n, expected);                                                             \
        const kvp_shortage after_ = shortage_of(w);                                                \
        assert_memory_equal(&after_, &short_, sizeof short_);                                      \
        assert_int_equal(stats_of(w).refused, refused_);                                           \
    } while (0)

TEST(test_what_ordered_caches_are_asked)
{
    static const int32_t parents[] = {-1, 0, 0};
    const uint32_t three = 3;
    kvp_config config = tiers_config(4, 4, 15, 15);
    config.max_tree_tokens = 8;
    config.max_events = 64;
    scoped_world w = make_world(&config);
    kvp_event event = {.number = 77};
    kvp_copy copy = {.src_block = 77};
    kvp_seq shared = {77};
    int32_t node = 77;
    uint32_t n;
    uint64_t number;
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq child = fork_seq(&w, parent, 6);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0));
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = 1,
                             .seqs = &parent,
                             .n_tokens = &three,
                             .tokens = ints(700)};
    assert_ok(kvp_seq_extend_tree(w.cache, &batch, parents));

    assert_asked(&w, kvp_plan_take(w.cache, NULL, 0, &n), n, 1);
    assert_asked(&w, kvp_plan_take(w.cache, &copy, 0, &n), n, 1);
    assert_asked(&w, kvp_seq_invalidate(w.cache, parent, 0, NULL, 0, &n), n, 1);
    assert_asked(&w, kvp_seq_invalidate(w.cache, parent, 0, &shared, 0, &n), n, 1);
    assert_asked(&w, kvp_seq_invalidate(w.cache, parent, 6, NULL, 0, &n), n, 0);
    assert_asked(&w, kvp_seq_tree(w.cache, parent, NULL, NULL, 0, &n), n, 3);
    assert_asked(&w, kvp_seq_tree(w.cache, parent, &node, &node, 0, &n), n, 3);
    assert_asked(&w, kvp_events_snapshot(w.cache, NULL, 0, NULL, &n, &number), n, 1);
    assert_asked(&w, kvp_events_snapshot(w.cache, &event, 0, &node, &n, &number), n, 1);
    assert_int_equal(copy.src_block, 77);
    assert_int_equal(shared.bits, 77);
    assert_int_equal(event.number, 77);
    assert_int_equal(node, 77);
    /* Wrong is wrong. */
    assert_status(KVP_E_ARG, kvp_seq_invalidate(w.cache, parent, 10, NULL, 0, &n));
    assert_status(KVP_E_HANDLE, kvp_seq_invalidate(w.cache, (kvp_seq){0}, 0, NULL, 0, &n));
    assert_status(KVP_E_HANDLE, kvp_seq_tree(w.cache, (kvp_seq){0}, NULL, NULL, 0, &n));
    assert_status(KVP_E_STATE, kvp_step_begin(w.cache, NULL, 0, &n, &number));
    /* Who has no use for the report gives no number. */
    assert_ok(kvp_seq_invalidate(w.cache, parent, 0, NULL, 0, NULL));
    assert_int_equal(info_of(&w, parent).computed_tokens, 0);
}

TEST(test_what_overlapped_caches_are_asked)
{
    scoped_world w = steps_world(15, 15);
    kvp_seq cut = {77};
    kvp_copy copy = {.src_block = 77};
    uint32_t n;
    uint64_t step = 77;
    const kvp_seq seq = open_done(&w, ints(0), 12);
    swap_out(&w, &seq, 1);
    assert_asked(&w, kvp_step_begin(w.cache, NULL, 0, &n, &step), n, 3);
    assert_asked(&w, kvp_step_begin(w.cache, &copy, 0, &n, &step), n, 3);
    assert_int_equal(step, 77);
    step = begin_step(&w);
    assert_asked(&w, kvp_step_failed(w.cache, step, NULL, 0, &n), n, 1);
    assert_asked(&w, kvp_step_failed(w.cache, step, &cut, 0, &n), n, 1);
    assert_int_equal(cut.bits, 77);
    assert_int_equal(copy.src_block, 77);
    assert_status(KVP_E_ARG, kvp_step_failed(w.cache, step + 1, NULL, 0, &n));
    assert_status(KVP_E_STATE, kvp_plan_take(w.cache, NULL, 0, &n));
    assert_ok(kvp_step_failed(w.cache, step, NULL, 0, NULL));
}

TEST(test_a_buffer_of_no_bytes_is_measured)
{
    _Alignas(KVP_META_ALIGN) char buffer[KVP_META_ALIGN];
    const kvp_meta_sizes sizes = {.n_seqs = 2, .n_tokens = 5, .n_entries = 3, .max_blocks = 2};
    kvp_meta_csr csr = {.struct_size = sizeof csr};
    kvp_meta_dense dense = {.struct_size = sizeof dense};
    const kvp_meta_csr no_csr = csr;
    const kvp_meta_dense no_dense = dense;
    size_t with_null, with_none;
    assert_ok(kvp_meta_place_csr(&csr, &sizes, NULL, 0, &with_null));
    assert_ok(kvp_meta_place_csr(&csr, &sizes, buffer, 0, &with_none));
    assert_int_equal(with_null, with_none);
    assert_memory_equal(&csr, &no_csr, sizeof csr);
    assert_ok(kvp_meta_place_dense(&dense, &sizes, NULL, 0, &with_null));
    assert_ok(kvp_meta_place_dense(&dense, &sizes, buffer, 0, &with_none));
    assert_int_equal(with_null, with_none);
    assert_memory_equal(&dense, &no_dense, sizeof dense);
    assert_status(KVP_E_TOO_SMALL, kvp_meta_place_csr(&csr, &sizes, buffer, 1, &with_none));
}

TEST_MAIN(NULL, NULL)

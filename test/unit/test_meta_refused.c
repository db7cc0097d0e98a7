/* Batch metadata that is refused: each argument that must be there is left out in turn, each array
 * is made too small, and nothing is written. CSR and trees: test_meta.c, test_meta_tree.c. */
#include "world.h"

#include <kvpager/meta.h>
#include <string.h>

enum { UNTOUCHED = 0x5A5A5A5A };

/* Two sequences of 9 and 6 tokens, S = 4. */
struct scene {
    world w;
    kvp_seq seqs[2];
    kvp_meta_batch batch;
    int32_t room[64];
    int64_t slots[64];
};

static kvp_cache *make_scene(struct scene *s)
{
    s->w = small_world(15);
    s->seqs[0] = open_done(&s->w, ints(0), 9);
    s->seqs[1] = open_done(&s->w, ints(100), 6);
    s->batch =
        (kvp_meta_batch){.struct_size = sizeof(kvp_meta_batch), .n_seqs = 2, .seqs = s->seqs};
    memset(s->room, 0x5A, sizeof(s->room));
    memset(s->slots, 0x5A, sizeof(s->slots));
    return s->w.cache;
}

static void end_scene(struct scene *s)
{
    for (size_t i = 0; i < sizeof(s->room) / sizeof(*s->room); i++) {
        assert_int_equal(s->room[i], UNTOUCHED);
        assert_int_equal((int32_t)s->slots[i], UNTOUCHED);
    }
    end_world(&s->w);
}

/* Expects `status` of the call with `field` of `object` set to `value`. */
#define refused(status, object, field, value, call)                                                \
    do {                                                                                           \
        char whole_[sizeof(object)];                                                               \
        memcpy(whole_, &(object), sizeof(object));                                                 \
        (object).field = value;                                                                    \
        assert_status(status, call);                                                               \
        memcpy(&(object), whole_, sizeof(object));                                                 \
    } while (0)

TEST(test_a_batch)
{
    struct scene s;
    kvp_meta_sizes sizes;
    kvp_cache *cache = make_scene(&s);
    assert_status(KVP_E_ARG, kvp_meta_measure(cache, &s.batch, NULL));
    refused(KVP_E_ARG, s.batch, struct_size, 0, kvp_meta_measure(cache, &s.batch, &sizes));
    refused(KVP_E_ARG, s.batch, seqs, NULL, kvp_meta_measure(cache, &s.batch, &sizes));
    refused(KVP_E_ARG, s.batch, n_seqs, 0, kvp_meta_measure(cache, &s.batch, &sizes));
    refused(KVP_E_ARG, s.batch, group, 1, kvp_meta_measure(cache, &s.batch, &sizes));
    assert_ok(kvp_meta_measure(cache, &s.batch, &sizes));
    end_scene(&s);
}

TEST(test_dense)
{
    struct scene s;
    kvp_cache *cache = make_scene(&s);
    kvp_meta_dense d = {.struct_size = sizeof(d),
                        .row_stride = 3,
                        .max_tokens = 15,
                        .block_table = s.room,
                        .slot_mapping = s.slots};
    const uint32_t begin[] = {0, 0};
    const uint32_t n_tokens[] = {9, 6};
    s.batch.begin = begin;
    s.batch.n_tokens = n_tokens;
    assert_status(KVP_E_ARG, kvp_meta_fill_dense(cache, &s.batch, NULL));
    assert_status(KVP_E_ARG, kvp_meta_fill_dense(cache, NULL, &d));
    refused(KVP_E_ARG, d, struct_size, 0, kvp_meta_fill_dense(cache, &s.batch, &d));
    refused(KVP_E_TOO_SMALL, d, row_stride, 2, kvp_meta_fill_dense(cache, &s.batch, &d));
    refused(KVP_E_TOO_SMALL, d, max_tokens, 14, kvp_meta_fill_dense(cache, &s.batch, &d));
    kvp_meta_sizes sizes;
    size_t n_bytes;
    assert_ok(kvp_meta_measure(cache, &s.batch, &sizes));
    assert_status(KVP_E_ARG, kvp_meta_place_dense(NULL, &sizes, NULL, 0, &n_bytes));
    assert_status(KVP_E_ARG, kvp_meta_place_dense(&d, NULL, NULL, 0, &n_bytes));
    assert_status(KVP_E_ARG, kvp_meta_place_dense(&d, &sizes, NULL, 0, NULL));
    refused(KVP_E_ARG, d, struct_size, 0, kvp_meta_place_dense(&d, &sizes, NULL, 0, &n_bytes));
    end_scene(&s);
}

/* Nothing is placed, and nothing in the structs is changed. */
TEST(test_places)
{
    const kvp_meta_sizes sizes = {.n_seqs = 1};
    size_t n_bytes = 7;
    kvp_meta_csr c = {.struct_size = sizeof(c)};
    kvp_meta_windowed w = {.struct_size = sizeof(w)};
    kvp_meta_tree t = {.struct_size = sizeof(t)};
    assert_status(KVP_E_ARG, kvp_meta_place_csr(NULL, &sizes, NULL, 0, &n_bytes));
    assert_status(KVP_E_ARG, kvp_meta_place_windowed(NULL, &sizes, NULL, 0, &n_bytes));
    assert_status(KVP_E_ARG, kvp_meta_place_tree(NULL, &sizes, NULL, 0, &n_bytes));
    refused(KVP_E_ARG, c, struct_size, 0, kvp_meta_place_csr(&c, &sizes, NULL, 0, &n_bytes));
    refused(KVP_E_ARG, w, struct_size, 0, kvp_meta_place_windowed(&w, &sizes, NULL, 0, &n_bytes));
    refused(KVP_E_ARG, t, struct_size, 0, kvp_meta_place_tree(&t, &sizes, NULL, 0, &n_bytes));
    assert_status(KVP_E_ARG, kvp_meta_place_csr(&c, NULL, NULL, 0, &n_bytes));
    assert_status(KVP_E_ARG, kvp_meta_place_windowed(&w, NULL, NULL, 0, &n_bytes));
    assert_status(KVP_E_ARG, kvp_meta_place_tree(&t, NULL, NULL, 0, &n_bytes));
    assert_int_equal(n_bytes, 7);
    /* With a buffer of no bytes it is a question. */
    _Alignas(64) char buffer[64];
    kvp_meta_dense d = {.struct_size = sizeof(d)};
    assert_ok(kvp_meta_place_dense(&d, &sizes, buffer, 0, &n_bytes));
    assert_ok(kvp_meta_place_csr(&c, &sizes, buffer, 0, &n_bytes));
    assert_ok(kvp_meta_place_windowed(&w, &sizes, buffer, 0, &n_bytes));
    assert_ok(kvp_meta_place_tree(&t, &sizes, buffer, 0, &n_bytes));
    assert_null(d.seq_lens);
    assert_null(c.qo_indptr);
    assert_null(w.recent);
    assert_null(t.indptr);
}

TEST(test_trtllm)
{
    struct scene s;
    kvp_cache *cache = make_scene(&s);
    kvp_meta_trtllm t = {
        .struct_size = sizeof(t), .layers_per_block = 1, .row_stride = 3, .block_offsets = s.room};
    assert_status(KVP_E_ARG, kvp_meta_fill_trtllm(cache, &s.batch, NULL));
    assert_status(KVP_E_ARG, kvp_meta_fill_trtllm(cache, NULL, &t));
    refused(KVP_E_ARG, t, struct_size, 0, kvp_meta_fill_trtllm(cache, &s.batch, &t));
    refused(KVP_E_ARG, t, layers_per_block, 0, kvp_meta_fill_trtllm(cache, &s.batch, &t));
    refused(KVP_E_TOO_SMALL, t, row_stride, 2, kvp_meta_fill_trtllm(cache, &s.batch, &t));
    refused(KVP_E_TOO_LONG, t, layers_per_block, INT32_MAX / 2 + 1u,
            kvp_meta_fill_trtllm(cache, &s.batch, &t));
    end_scene(&s);
}

TEST(test_cascade)
{
    struct scene s;
    kvp_cache *cache = make_scene(&s);
    kvp_meta_level level = {s.room, s.room, s.room, s.room, 0, 0};
    kvp_meta_cascade c = {.struct_size = sizeof(c),
                          .max_levels = 1,
                          .max_entries = 5,
                          .order = s.room,
                          .levels = &level};
    assert_status(KVP_E_ARG, kvp_meta_fill_cascade(cache, &s.batch, NULL));
    assert_status(KVP_E_ARG, kvp_meta_fill_cascade(cache, NULL, &c));
    refused(KVP_E_ARG, c, struct_size, 0, kvp_meta_fill_cascade(cache, &s.batch, &c));
    refused(KVP_E_ARG, c, max_levels, 0, kvp_meta_fill_cascade(cache, &s.batch, &c));
    refused(KVP_E_ARG, c, max_levels, KVP_META_LEVELS_MAX + 1,
            kvp_meta_fill_cascade(cache, &s.batch, &c));
    refused(KVP_E_ARG, c, order, NULL, kvp_meta_fill_cascade(cache, &s.batch, &c));
    refused(KVP_E_ARG, c, levels, NULL, kvp_meta_fill_cascade(cache, &s.batch, &c));
    refused(KVP_E_ARG, level, qo_indptr, NULL, kvp_meta_fill_cascade(cache, &s.batch, &c));
    refused(KVP_E_ARG, level, kv_indptr, NULL, kvp_meta_fill_cascade(cache, &s.batch, &c));
    refused(KVP_E_ARG, level, last_block_len, NULL, kvp_meta_fill_cascade(cache, &s.batch, &c));
    refused(KVP_E_ARG, level, kv_indices, NULL, kvp_meta_fill_cascade(cache, &s.batch, &c));
    c.max_entries = 0; /* none is needed then */
    refused(KVP_E_TOO_SMALL, level, kv_indices, NULL, kvp_meta_fill_cascade(cache, &s.batch, &c));
    c.max_entries = 5;
    refused(KVP_E_TOO_SMALL, c, max_entries, 4, kvp_meta_fill_cascade(cache, &s.batch, &c));
    end_scene(&s);
}

TEST(test_delta)
{
    struct scene s;
    kvp_cache *cache = make_scene(&s);
    const uint32_t had[] = {0, 0};
    const uint64_t had_version[] = {0, 0};
    uint64_t version[2] = {7, 7};
    uint32_t now[2] = {7, 7};
    kvp_meta_delta d = {.struct_size = sizeof(d),
                        .max_entries = 5,
                        .had_version = had_version,
                        .had_blocks = had,
                        .version = version,
                        .blocks = now,
                        .indptr = s.room,
                        .start = s.room,
                        .entries = s.room};
    assert_status(KVP_E_ARG, kvp_meta_fill_delta(cache, &s.batch, NULL));
    assert_status(KVP_E_ARG, kvp_meta_fill_delta(cache, NULL, &d));
    refused(KVP_E_ARG, d, struct_size, 0, kvp_meta_fill_delta(cache, &s.batch, &d));
    refused(KVP_E_ARG, d, had_version, NULL, kvp_meta_fill_delta(cache, &s.batch, &d));
    refused(KVP_E_ARG, d, had_blocks, NULL, kvp_meta_fill_delta(cache, &s.batch, &d));
    refused(KVP_E_ARG, d, version, NULL, kvp_meta_fill_delta(cache, &s.batch, &d));
    refused(KVP_E_ARG, d, blocks, NULL, kvp_meta_fill_delta(cache, &s.batch, &d));
    refused(KVP_E_ARG, d, indptr, NULL, kvp_meta_fill_delta(cache, &s.batch, &d));
    refused(KVP_E_ARG, d, start, NULL, kvp_meta_fill_delta(cache, &s.batch, &d));
    refused(KVP_E_ARG, d, entries, NULL, kvp_meta_fill_delta(cache, &s.batch, &d));
    refused(KVP_E_ARG, s.batch, seqs, NULL, kvp_meta_fill_delta(cache, &s.batch, &d));
    assert_int_equal(now[0], 7);
    end_scene(&s);
}

TEST_MAIN(NULL, NULL)

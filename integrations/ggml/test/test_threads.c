/* threads: every share is done once, whatever number of threads there is; and only OpenMP's are
 * borrowed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../threads.h"

enum { SHARES = 7 };

static unsigned n_there, n_asked, n_regions;
static unsigned done[SHARES];

/* A region of n_there threads, one after the other: the first does what is to be done. */
static void fake_parallel(void (*fn)(void *data), void *data, unsigned n, unsigned flags)
{
    assert_int_equal(flags, 0);
    n_asked = n;
    n_regions++;
    for (unsigned i = 0; i < n_there; i++)
        fn(data);
}

static void note_share(void *data, uint32_t index, uint32_t n)
{
    assert_ptr_equal(data, done);
    assert_int_equal(n, SHARES);
    assert_true(index < SHARES);
    done[index]++;
}

static void test_every_share_is_done_once(void **state)
{
    kvpi_parallel parallel = fake_parallel;
    (void)state;
    for (n_there = 1; n_there <= SHARES + 2; n_there++) {
        memset(done, 0, sizeof done);
        kvpi_threads_run(&parallel, note_share, done, SHARES);
        assert_int_equal(n_asked, SHARES);
        for (uint32_t i = 0; i < SHARES; i++)
            assert_int_equal(done[i], 1);
    }
}

/* Attention on wrapped threads: as on one. */
static void test_attention_is_the_same(void **state)
{
    float kv[2 * 64 * 16], q[4 * 16], alone[4 * 16], together[4 * 16];
    int32_t blocks[63], row_start[] = {0, 63}, last_len[] = {1}, query_start[] = {0, 1};
    kvpi_parallel parallel = fake_parallel;
    kvp_attention_team *team = NULL;
    static _Alignas(KVP_SCRATCH_ALIGN) unsigned char scratch[1 << 20];
    (void)state;
    for (uint32_t i = 0; i < 2 * 64 * 16; i++)
        kv[i] = (float)(i * 7919 % 2003) / 1000.0f - 1.0f;
    for (uint32_t i = 0; i < 4 * 16; i++)
        q[i] = (float)(i * 104729 % 2003) / 1000.0f - 1.0f;
    for (int32_t i = 0; i < 63; i++)
        blocks[i] = i + 1;
    const kvp_layer_part part = {.base = (unsigned char *)kv,
                                 .block_stride = 64,
                                 .token_stride = 64,
                                 .head_stride = 64,
                                 .size = 16,
                                 .run = 16};
    kvp_layer layer = {
        .type = KVP_F32, .n_blocks = 64, .block_tokens = 1, .n_heads = 1, .k = part, .v = part};
    layer.v.base += sizeof kv / 2;
    const kvp_attention_level level = {.n_rows = 1,
                                       .n_blocks = 63,
                                       .blocks = blocks,
                                       .row_start = row_start,
                                       .last_len = last_len};
    kvp_attention call;
    kvp_attention_init(&call);
    call.layer = &layer;
    call.n_seqs = call.n_tokens = 1;
    call.n_heads = 4;
    call.query_start = query_start;
    call.levels = &level;
    call.q.data = q;
    call.out.data = alone;
    assert_int_equal(kvp_attention_run(&call, scratch, sizeof scratch), KVP_OK);
    assert_int_equal(kvp_attention_team_wrap(SHARES, kvpi_threads_run, &parallel, &team), KVP_OK);
    call.team = team;
    call.out.data = together;
    n_there = 2;
    n_regions = 0;
    assert_int_equal(kvp_attention_run(&call, scratch, sizeof scratch), KVP_OK);
    assert_in_range(n_regions, 1, 2);
    assert_memory_equal(alone, together, sizeof alone);
    kvp_attention_team_destroy(team);
}

static void test_only_openmp_is_borrowed(void **state)
{
    const struct kvpi_feature with[] = {{"AVX2", "1"}, {"OPENMP", "1"}, {NULL, NULL}};
    const struct kvpi_feature off[] = {{"OPENMP", "0"}, {NULL, NULL}};
    const struct kvpi_feature without[] = {{"AVX2", "1"}, {"REPACK", "1"}, {NULL, NULL}};
    (void)state;
    assert_true(kvpi_threads_are_openmp(with));
    assert_false(kvpi_threads_are_openmp(off));
    assert_false(kvpi_threads_are_openmp(without));
    assert_false(kvpi_threads_are_openmp(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_share_is_done_once),
        cmocka_unit_test(test_attention_is_the_same),
        cmocka_unit_test(test_only_openmp_is_borrowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

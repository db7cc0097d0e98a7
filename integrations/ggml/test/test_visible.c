/* visible: random masks become lists; an oracle reads them back as the headers of attention say,
 * and must find every bit of the mask. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../plain.h"
#include "../visible.h"

enum { MAX_ROWS = 40, MAX_CELLS = 420, MAX_STREAMS = 3, INFINITE = 0xfc00 };

static uint16_t numbers[MAX_STREAMS * MAX_ROWS * MAX_CELLS];
static uint8_t found[MAX_STREAMS * MAX_ROWS][MAX_CELLS];
static uint64_t state;

static uint32_t below(uint32_t n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 33) % n);
}

/* Whose key a block is, marked for one query. */
static void mark(const struct kvpi_mask *mask, uint32_t query, int32_t block)
{
    const uint32_t cell = (uint32_t)block - 1, stream = query / mask->n_rows;
    assert_true(block >= 1);
    assert_int_equal(cell / mask->stream_cells, stream);
    assert_true(cell % mask->stream_cells < mask->n_cells);
    assert_int_equal(found[query][cell % mask->stream_cells], 0); /* no key twice */
    found[query][cell % mask->stream_cells] = 1;
}

/* The keys of the sequence at a place of the cascade, in order. */
static uint32_t keys_of(const struct kvpi_visible *visible, uint32_t place, uint32_t first_query,
                        int32_t *out_keys)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < visible->n_levels; i++) {
        const kvp_attention_level *level = &visible->levels[i];
        uint32_t row = place;
        if (level->query_start != NULL) {
            for (row = 0; level->query_start[row + 1] <= (int32_t)first_query;)
                row++;
        }
        for (int32_t at = level->row_start[row]; at < level->row_start[row + 1]; at++)
            out_keys[n++] = level->blocks[at];
        assert_int_equal(level->last_len[row], level->row_start[row + 1] > level->row_start[row]);
    }
    return n;
}

/* What the lists show, by the rules of kvpager/attention.h. */
static void read_back(const struct kvpi_visible *visible, const struct kvpi_mask *mask)
{
    static int32_t keys[2 * MAX_CELLS];
    const int32_t *query_start = visible->query_start.data, *order = visible->order.data;
    uint32_t first_query = 0;
    memset(found, 0, sizeof found);
    for (uint32_t place = 0; place < visible->n_seqs; place++) {
        const uint32_t seq = visible->n_levels > 1 ? (uint32_t)order[place] : place;
        const uint32_t n_queries = (uint32_t)(query_start[seq + 1] - query_start[seq]);
        const uint32_t n_keys = keys_of(visible, place, first_query, keys);
        const kvp_attention_tree *tree = &visible->tree;
        const int has_bits =
            tree->bits != NULL && tree->bits_start[seq + 1] > tree->bits_start[seq];
        assert_true(has_bits || n_queries <= n_keys);
        for (uint32_t q = 0; q < n_queries; q++) {
            for (uint32_t key = 0; key < n_keys; key++) {
                const size_t bit = (size_t)q * n_keys + key;
                const int is_seen =
                    has_bits ? tree->bits[(size_t)tree->bits_start[seq] + bit / 8] >> bit % 8 & 1
                             : key <= n_keys - n_queries + q;
                if (is_seen)
                    mark(mask, (uint32_t)query_start[seq] + q, keys[key]);
            }
        }
        first_query += n_queries;
    }
    assert_int_equal(first_query, mask->n_streams * mask->n_rows);
}

static const uint16_t *number_at(const struct kvpi_mask *mask, uint32_t query, uint32_t cell)
{
    return mask->data + query / mask->n_rows * mask->stream_stride +
           query % mask->n_rows * mask->row_stride + cell;
}

static void assert_found(const struct kvpi_visible *visible, const struct kvpi_mask *mask)
{
    read_back(visible, mask);
    for (uint32_t query = 0; query < mask->n_streams * mask->n_rows; query++) {
        for (uint32_t cell = 0; cell < mask->n_cells; cell++)
            assert_int_equal(found[query][cell],
                             mask->data == NULL || (*number_at(mask, query, cell) & 0x7fff) == 0);
    }
}

static int sees(uint32_t kind, const struct kvpi_mask *mask, uint32_t row, uint32_t cell,
                uint32_t salt)
{
    const uint32_t n_old = mask->n_cells - mask->n_rows;
    const uint32_t dice = (cell * 2654435761u + salt) >> 7;
    switch (kind) {
    case 0: return dice % 9 != 0 && cell <= n_old + row;
    case 1: return cell <= n_old + row && cell + 30 > n_old + row;
    case 2: return cell < n_old / 2 || cell % mask->n_rows == row;
    case 3: return cell < n_old ? (cell + row % 2) % 4 != 0 : cell - n_old == row;
    case 4: return dice % 3 == 0;
    case 5: return (dice ^ (row * 40503)) % 4 == 0;
    case 6: return cell <= n_old / 2 + 2 * row;
    default: return cell % (mask->n_rows + 1) == row;
    }
}

static struct kvpi_mask any_mask(void)
{
    struct kvpi_mask mask = {.data = numbers, .n_rows = 1 + below(MAX_ROWS)};
    mask.n_streams = 1 + below(MAX_STREAMS);
    mask.n_cells = mask.n_rows + below(MAX_CELLS - mask.n_rows);
    mask.stream_cells = mask.n_cells + below(3) * 7;
    mask.row_stride = mask.n_cells + (MAX_CELLS - mask.n_cells) * below(2);
    mask.stream_stride = below(3) == 0 ? 0 : mask.n_rows * mask.row_stride;
    const uint32_t kind = below(8), salt = below(1000);
    const uint32_t empty = below(4) == 0 ? below(mask.n_rows) : UINT32_MAX;
    for (uint32_t query = 0; query < mask.n_streams * mask.n_rows; query++) {
        const uint32_t row = query % mask.n_rows;
        for (uint32_t cell = 0; cell < mask.n_cells; cell++)
            numbers[number_at(&mask, query, cell) - numbers] =
                row == empty || !sees(kind, &mask, row, cell, salt) ? INFINITE
                : below(2)                                          ? 0x8000
                                                                    : 0;
    }
    return mask;
}

static void test_random_masks(void **unused)
{
    struct kvpi_visible visible = {.n_groups = 0};
    uint32_t n_cascades = 0, n_patches = 0, n_chains = 0;
    (void)unused;
    state = 7;
    for (int i = 0; i < 3000; i++) {
        struct kvpi_mask mask = any_mask();
        if (below(20) == 0)
            mask.data = NULL;
        const enum kvpi_visible_found first = kvpi_visible_read(&visible, &mask);
        assert_true(first == KVPI_VISIBLE_CHANGED || first == KVPI_VISIBLE_SAME);
        assert_found(&visible, &mask);
        assert_int_equal(kvpi_visible_read(&visible, &mask), KVPI_VISIBLE_SAME);
        n_cascades += visible.n_levels == 2;
        n_patches += visible.tree.bits != NULL;
        n_chains += visible.n_seqs < mask.n_rows * mask.n_streams && visible.tree.bits == NULL;
    }
    assert_true(n_cascades > 100 && n_patches > 100 && n_chains > 100);
    kvpi_visible_end(&visible);
}

/* The same memory, one number other than before: as between two layers. */
static void test_each_changed_bit_is_seen(void **unused)
{
    struct kvpi_visible visible = {.n_groups = 0};
    (void)unused;
    state = 8;
    const struct kvpi_mask mask = any_mask();
    assert_int_equal(kvpi_visible_read(&visible, &mask), KVPI_VISIBLE_CHANGED);
    for (uint32_t query = 0; query < mask.n_rows; query++) {
        for (uint32_t cell = 0; cell < mask.n_cells; cell += 1 + below(5)) {
            uint16_t *number = &numbers[number_at(&mask, query, cell) - numbers];
            *number = (*number & 0x7fff) == 0 ? INFINITE : 0;
            assert_int_equal(kvpi_visible_read(&visible, &mask), KVPI_VISIBLE_CHANGED);
            assert_found(&visible, &mask);
        }
    }
    kvpi_visible_end(&visible);
}

/* A prompt is one sequence, requests with a common prefix are a cascade. */
static void test_shapes(void **unused)
{
    struct kvpi_visible visible = {.n_groups = 0};
    struct kvpi_mask mask = {numbers, 300, 20, 1, 300, 300, 6000};
    (void)unused;
    for (uint32_t i = 0; i < 6000; i++)
        numbers[i] = i % 300 <= 280 + i / 300 ? 0 : INFINITE;
    assert_int_equal(kvpi_visible_read(&visible, &mask), KVPI_VISIBLE_CHANGED);
    assert_int_equal(visible.n_seqs, 1);
    assert_null(visible.tree.bits);
    for (uint32_t i = 0; i < 6000; i++)
        numbers[i] = i % 300 < 200 || i % 300 % 20 == i / 300 ? 0 : INFINITE;
    assert_int_equal(kvpi_visible_read(&visible, &mask), KVPI_VISIBLE_CHANGED);
    assert_int_equal(visible.n_seqs, 20);
    assert_int_equal(visible.n_levels, 2);
    assert_int_equal(visible.levels[0].n_rows, 1);
    assert_int_equal(visible.levels[0].n_blocks, 200);
    assert_int_equal(visible.levels[1].n_blocks, 100);
    kvpi_visible_end(&visible);
}

/* Numbers that are to be added to scores make no lists, wherever they are; the mask without them
 * does again. */
static void test_other_numbers(void **unused)
{
    static const uint16_t others[] = {0x3c00, 0xbc00, 0x0001, 0x8001, 0x7c00, 0x7e00, 0xfbff};
    struct kvpi_visible visible = {.n_groups = 0};
    (void)unused;
    state = 9;
    const struct kvpi_mask mask = any_mask();
    for (uint32_t cell = 0; cell < mask.n_cells; cell++) {
        uint16_t *number = &numbers[number_at(&mask, below(mask.n_rows), cell) - numbers];
        const uint16_t before = *number;
        *number = others[below(sizeof others / sizeof *others)];
        assert_int_equal(kvpi_visible_read(&visible, &mask), KVPI_VISIBLE_OTHER);
        *number = before;
        assert_int_equal(kvpi_visible_read(&visible, &mask), KVPI_VISIBLE_CHANGED);
        assert_found(&visible, &mask);
    }
    kvpi_visible_end(&visible);
}

/* Where all numbers are 0 or minus infinity, the plain sums are those of the reference. */
static void test_plain_sums(void **unused)
{
    enum { D = 8, CELLS = 30, ROWS = 4 };
    static float k[(CELLS + 1) * D], v[(CELLS + 1) * D], q[ROWS * 2 * D];
    static float plain[ROWS * 2 * D], lists[ROWS * 2 * D];
    static _Alignas(64) unsigned char scratch[1 << 20];
    const float sinks[2] = {0.5f, -1.0f};
    struct kvpi_visible visible = {.n_groups = 0};
    struct kvpi_mask mask = {numbers, CELLS, ROWS, 1, CELLS, CELLS, CELLS * ROWS};
    kvp_layer layer = {.type = KVP_F32, .n_blocks = CELLS + 1, .block_tokens = 1, .n_heads = 1};
    layer.k = (kvp_layer_part){.base = (unsigned char *)k,
                               .block_stride = sizeof(float) * D,
                               .token_stride = sizeof(float) * D,
                               .size = D,
                               .run = D};
    layer.v = layer.k;
    layer.v.base = (unsigned char *)v;
    (void)unused;
    state = 10;
    for (size_t i = 0; i < sizeof k / sizeof *k; i++) {
        k[i] = (float)below(1000) / 250.0f - 2.0f;
        v[i] = (float)below(1000) / 250.0f - 2.0f;
    }
    for (size_t i = 0; i < sizeof q / sizeof *q; i++)
        q[i] = (float)below(1000) / 250.0f - 2.0f;
    for (uint32_t i = 0; i < CELLS * ROWS; i++)
        numbers[i] = below(3) == 0 ? INFINITE : 0;
    assert_int_equal(kvpi_visible_read(&visible, &mask), KVPI_VISIBLE_CHANGED);
    kvp_attention call;
    kvp_attention_init(&call);
    call.impl = KVP_ATTENTION_REFERENCE;
    call.layer = &layer;
    call.n_tokens = ROWS;
    call.n_heads = 2;
    call.q.data = q;
    call.q.token_stride = 2 * D;
    call.q.head_stride = D;
    call.out = (kvp_rows_out){plain, 2 * D, D};
    call.scale = 0.4;
    call.soft_cap = 3.0;
    call.sink_logits = sinks;
    assert_true(kvpi_plain_run(&call, &mask));
    call.n_seqs = visible.n_seqs;
    call.query_start = visible.query_start.data;
    call.levels = visible.levels;
    call.n_levels = visible.n_levels;
    call.tree = visible.tree;
    call.out.data = lists;
    assert_int_equal(kvp_attention_run(&call, scratch, sizeof scratch), KVP_OK);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        assert_float_equal(plain[i], lists[i], 1e-6f);
    kvpi_visible_end(&visible);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_masks), cmocka_unit_test(test_each_changed_bit_is_seen),
        cmocka_unit_test(test_shapes),       cmocka_unit_test(test_other_numbers),
        cmocka_unit_test(test_plain_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

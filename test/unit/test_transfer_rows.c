/* What a message carries, gathered in runs of many lengths: byte for byte, with the checksum of all
 * of it, whether another processor reads the message where it lies or not; and scattered back. */
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "transfer/transfer_rows.h"

enum { BLOCK = 16, BLOCKS = 5, HEADS = 3, BEFORE = 32, ROW = 4 };

struct side {
    kvp_layout layout;
    kvp_memory *memory;
    kvp_layer layer;
};

static void make(struct side *side, const char *order, uint32_t size, uint32_t type)
{
    kvp_layout_init(&side->layout);
    side->layout.type = type;
    side->layout.n_blocks = BLOCKS;
    side->layout.block_tokens = type == KVP_BYTES ? 1 : BLOCK;
    side->layout.n_layers = 1;
    side->layout.n_heads = HEADS;
    side->layout.k.size = side->layout.v.size = size;
    assert_int_equal(kvp_layout_arrange(&side->layout, order, NULL), KVP_OK);
    assert_int_equal(kvp_memory_create(&side->layout, NULL, &side->memory), KVP_OK);
    assert_int_equal(kvp_memory_layer(side->memory, 0, &side->layer), KVP_OK);
}

static uint8_t *fill(const struct side *side)
{
    uint8_t *bytes = kvp_memory_tensor(side->memory, 0);
    for (size_t i = 0; i < side->layout.k.tensor_bytes; i++)
        bytes[i] = (uint8_t)(i * 131 + (i >> 8) * 29);
    return bytes;
}

/* A message made element by element. */
static size_t expect(const struct kvpi_rows *rows, uint8_t *out)
{
    const kvp_layer_part *parts[] = {&rows->layer->k, &rows->layer->v};
    const size_t element = kvp_type_bytes(rows->layer->type);
    uint8_t *const begin = out;
    for (uint32_t p = 0; p < 2; p++)
        for (uint32_t t = rows->position; t < rows->position + rows->n_tokens; t++)
            for (uint32_t h = rows->first_head; h < rows->first_head + rows->n_heads; h++)
                for (uint32_t e = 0; e < parts[p]->size; e++, out += element)
                    memcpy(out,
                           parts[p]->base + (size_t)rows->row[t / BLOCK] * parts[p]->block_stride +
                               (t % BLOCK) * parts[p]->token_stride + h * parts[p]->head_stride +
                               (size_t)(e / parts[p]->run) * parts[p]->run_stride +
                               e % parts[p]->run * element,
                           element);
    return (size_t)(out - begin);
}

static void gathers(const struct side *side, const struct kvpi_rows *rows, int is_shared)
{
    const size_t n = kvpi_rows_token_bytes(rows->layer, rows->n_heads) * rows->n_tokens;
    uint8_t *expected = malloc(BEFORE + n), *message = malloc(BEFORE + n + 1);
    struct kvpi_rows_out out = {.at = message + BEFORE, .is_shared = is_shared};
    assert_true(expected && message);
    memset(expected, 7, BEFORE);
    memset(message, 7, BEFORE + n + 1);
    assert_int_equal(expect(rows, expected + BEFORE), n);
    kvpi_checksum_begin(&out.sum);
    kvpi_checksum_add(&out.sum, message, BEFORE);
    kvpi_rows_gather(rows, &out);
    assert_ptr_equal(out.at, message + BEFORE + n);
    assert_memory_equal(message, expected, BEFORE + n);
    assert_int_equal(message[BEFORE + n], 7);
    assert_true(kvpi_checksum_end(&out.sum) == kvpi_checksum(expected, BEFORE + n));

    memset(kvp_memory_tensor(side->memory, 0), 0, side->layout.k.tensor_bytes);
    kvpi_rows_scatter(rows, message + BEFORE);
    assert_int_equal(expect(rows, message + BEFORE), n);
    assert_memory_equal(message, expected, BEFORE + n);
    (void)fill(side);
    free(expected);
    free(message);
}

static void gathers_all(const char *order, uint32_t size, uint32_t type)
{
    static const int32_t row[ROW] = {3, 1, 4, 2};
    static const uint32_t ranges[][2] = {{0, 64}, {0, 1}, {5, 30}, {16, 32}, {15, 2}, {63, 1}};
    struct side side;
    make(&side, order, size, type);
    (void)fill(&side);
    for (uint32_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        for (uint32_t heads = 1; heads <= HEADS; heads++) {
            const struct kvpi_rows rows = {&side.layer, row,          HEADS - heads,
                                           heads,       ranges[i][0], ranges[i][1]};
            gathers(&side, &rows, 0);
            gathers(&side, &rows, 1);
        }
    }
    kvp_memory_destroy(side.memory);
}

/* Bytes of a state, K's before V's in each head: what a message of them has. */
static size_t expect_state(const struct kvpi_rows *rows, uint8_t *out)
{
    size_t n = 0;
    for (uint32_t h = rows->first_head; h < rows->first_head + rows->n_heads; h++) {
        for (uint32_t e = rows->position; e < rows->position + rows->n_tokens; e++) {
            const int is_v = e >= rows->layer->k.size;
            const kvp_layer_part *part = is_v ? &rows->layer->v : &rows->layer->k;
            const uint32_t at = is_v ? e - rows->layer->k.size : e;
            out[n++] =
                ((const uint8_t *)
                     part->base)[(size_t)rows->row[0] * part->block_stride + h * part->head_stride +
                                 at / part->run * part->run_stride + at % part->run];
        }
    }
    return n;
}

static void moves_state(const struct side *side, const struct kvpi_rows *rows)
{
    uint8_t expected[HEADS * 256], message[HEADS * 256 + 1] = {0}, after[HEADS * 256];
    struct kvpi_rows_out out = {.at = message};
    const size_t n = expect_state(rows, expected);
    kvpi_checksum_begin(&out.sum);
    kvpi_rows_gather_state(rows, &out);
    assert_ptr_equal(out.at, message + n);
    assert_memory_equal(message, expected, n);
    assert_true(kvpi_checksum_end(&out.sum) == kvpi_checksum(expected, n));
    memset(kvp_memory_tensor(side->memory, 0), 0, side->layout.k.tensor_bytes);
    kvpi_rows_scatter_state(rows, message);
    assert_int_equal(expect_state(rows, after), n);
    assert_memory_equal(after, expected, n);
    (void)fill(side);
}

/* Heads whose bytes lie side by side, or in runs apart from each other; any part of them. */
TEST(states)
{
    static const char *const orders[] = {"L2NSHD", "L2NHSD", "L2NHDSx", "L2NDHSx"};
    static const int32_t row[] = {3};
    static const uint32_t ranges[][2] = {{0, 256}, {0, 1},   {5, 128}, {127, 2},
                                         {128, 1}, {17, 31}, {255, 1}, {144, 100}};
    for (uint32_t o = 0; o < sizeof orders / sizeof *orders; o++) {
        struct side side;
        make(&side, orders[o], 128, KVP_BYTES);
        (void)fill(&side);
        for (uint32_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
            for (uint32_t heads = 1; heads <= HEADS; heads++) {
                const struct kvpi_rows rows = {&side.layer, row,          HEADS - heads,
                                               heads,       ranges[i][0], ranges[i][1]};
                moves_state(&side, &rows);
            }
        }
        kvp_memory_destroy(side.memory);
    }
}

/* A block's tokens side by side: 96 bytes a token to 42 KiB a block, in whole pieces or not. */
TEST(tokens_side_by_side)
{
    static const uint32_t sizes[] = {16, 43, 64, 128, 441};
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        gathers_all("L2NSHD", sizes[i], KVP_BF16);
}

TEST(heads_apart)
{
    gathers_all("L2NHSD", 128, KVP_BF16);
    gathers_all("L2NHSD", 2100, KVP_F32); /* a head of a token is more than a piece */
}

TEST(runs_apart)
{
    gathers_all("L2NHDSx", 64, KVP_BF16);
    gathers_all("L2NHDS", 8, KVP_F32);
}

TEST_MAIN(NULL, NULL)

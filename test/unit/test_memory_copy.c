/* Copies of whole plans: every slot carries a tag, and plain arrays of tags say what must be where.
 * Blocks are large here, so that they go past the caches and are shared by threads; small ones in
 * every layout are test_memory_random.c's. */
#include <string.h>

#include "mocka.h"

#include <stdlib.h>

#include <kvpager/memory.h>

#include "memory/chunks.h"
#include "memory/copy/stream.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { N = 24, S = 16, L = 3, H = 4, D = 128, MAX_COPIES = 64 };

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

/* --------------------------------------------------------------------------- one range of bytes */

/* Any length, any alignment; what lies beside the range stays. */
TEST(test_streams)
{
    enum { ROOM = 4096 };
    static const char *const names[] = {"avx512", "avx2"};
    static unsigned char src[ROOM];
    static unsigned char dst[ROOM];
    static unsigned char expected[ROOM];
    uint64_t random = 7;
    for (size_t i = 0; i < ROOM; i++)
        src[i] = (unsigned char)draw(&random, 256);
    for (size_t f = 0; f < COUNT(names); f++) {
        const kvpi_stream_fn stream = kvpi_stream_named(names[f]);
        if (!stream) {
            print_message("not on this processor: %s\n", names[f]);
            continue;
        }
        for (int i = 0; i < 20000; i++) {
            const size_t from = draw(&random, 200);
            const size_t to = draw(&random, 200);
            const size_t n = i % 2 ? draw(&random, 200) : draw(&random, ROOM - 200);
            memset(dst, i, ROOM);
            memset(expected, i, ROOM);
            memcpy(expected + to, src + from, n);
            stream(dst + to, src + from, n, i % 3 ? src : NULL);
            kvpi_stream_end();
            assert_memory_equal(dst, expected, ROOM);
        }
    }
    assert_null(kvpi_stream_named("no such"));
}

/* ------------------------------------------------------------------------ collected ranges */

static size_t n_asked;
static size_t n_streamed;

static void count_stream(unsigned char *dst, const unsigned char *src, size_t n,
                         const unsigned char *ahead)
{
    memcpy(dst, src, n);
    n_streamed += n;
    n_asked += ahead != src ? n : 0;
}

/* All bytes get to their places, joined or not, more ranges than are collected at a time; and what
 * lies ahead is asked for, but at the end of a collection. */
TEST(test_chunks)
{
    enum { RANGES = 1000, BYTES = 96 };
    static unsigned char src[2 * RANGES * BYTES];
    static unsigned char dst[2 * RANGES * BYTES];
    static struct kvpi_chunks chunks;
    const kvpi_stream_fn streams[] = {NULL, count_stream, kvpi_stream_best()};
    uint64_t random = 11;
    for (size_t i = 0; i < sizeof src; i++)
        src[i] = (unsigned char)draw(&random, 256);
    for (size_t f = 0; f < COUNT(streams); f++) {
        for (size_t gap = 0; gap < 2; gap++) { /* 0: one long range */
            const size_t step = BYTES + gap * 32;
            memset(dst, 0, sizeof dst);
            n_asked = n_streamed = 0;
            kvpi_chunks_begin(&chunks, streams[f]);
            for (size_t i = 0; i < RANGES; i++) {
                kvpi_chunks_add(&chunks, dst + i * step, src + i * step, BYTES);
                assert_true(chunks.n == (gap ? i % KVPI_CHUNKS + 1 : 1));
            }
            kvpi_chunks_end(&chunks);
            assert_int_equal(chunks.n, 0);
            for (size_t i = 0; i < RANGES * step; i++)
                assert_int_equal(dst[i], i % step < BYTES ? src[i] : 0);
            if (streams[f] == count_stream) {
                const size_t collections = gap ? (RANGES + KVPI_CHUNKS - 1) / KVPI_CHUNKS : 1;
                assert_int_equal(n_streamed, RANGES * BYTES);
                assert_int_equal(n_asked, RANGES * BYTES - collections * 4096);
            }
        }
    }
}

/* ----------------------------------------------------------------------------------- plans */

/* The tag of a slot is written all over its KV: in each layer, part and head it is another byte. */
struct side {
    kvp_memory *memory;
    kvp_layout layout;
    uint32_t tags[N][S];
};

static unsigned char byte_of(uint32_t tag, uint32_t layer, int which, uint32_t head, uint32_t i)
{
    const uint32_t mixed =
        (tag * 2654435761u) ^ ((layer * 8 + (uint32_t)which * 4 + head) * 40503u) ^ (i * 97u);
    return (unsigned char)(mixed >> 8 ^ mixed);
}

static void write_tag(struct side *side, uint32_t block, uint32_t token, uint32_t tag)
{
    const size_t element = kvp_type_bytes(side->layout.type);
    kvp_layer layer;
    side->tags[block][token] = tag;
    for (uint32_t i = 0; i < L * 2 * H; i++) {
        const int which = i % 2 ? KVP_V : KVP_K;
        const uint32_t head = i / 2 % H;
        assert_int_equal(kvp_memory_layer(side->memory, i / (2 * H), &layer), KVP_OK);
        const kvp_layer_part *part = which ? &layer.v : &layer.k;
        for (uint32_t e = 0; e < D; e++) {
            unsigned char *at = part->base + block * part->block_stride +
                                token * part->token_stride + head * part->head_stride +
                                e / part->run * part->run_stride + e % part->run * element;
            for (uint32_t b = 0; b < element; b++)
                at[b] = byte_of(tag, i / (2 * H), which, head, e * 4 + b);
        }
    }
}

static void expect_tag(const struct side *side, uint32_t block, uint32_t token)
{
    const size_t element = kvp_type_bytes(side->layout.type);
    kvp_layer layer;
    for (uint32_t i = 0; i < L * 2 * H; i++) {
        const int which = i % 2 ? KVP_V : KVP_K;
        const uint32_t head = i / 2 % H;
        (void)kvp_memory_layer(side->memory, i / (2 * H), &layer);
        const kvp_layer_part *part = which ? &layer.v : &layer.k;
        for (uint32_t e = 0; e < D; e++) {
            const unsigned char *at = part->base + block * part->block_stride +
                                      token * part->token_stride + head * part->head_stride +
                                      e / part->run * part->run_stride + e % part->run * element;
            for (uint32_t b = 0; b < element; b++) {
                if (at[b] !=
                    byte_of(side->tags[block][token], i / (2 * H), which, head, e * 4 + b)) {
                    fail_msg("block %u, token %u, layer %u, part %d, head %u, element %u", block,
                             token, i / (2 * H), which, head, e);
                }
            }
        }
    }
}

static void open_side(struct side *side, const char *k_order, const char *v_order)
{
    kvp_layout_init(&side->layout);
    side->layout.type = KVP_BF16;
    side->layout.n_blocks = N;
    side->layout.block_tokens = S;
    side->layout.n_layers = L;
    side->layout.n_heads = H;
    side->layout.k.size = side->layout.v.size = D;
    assert_int_equal(kvp_layout_arrange(&side->layout, k_order, v_order), KVP_OK);
    assert_int_equal(kvp_memory_create(&side->layout, NULL, &side->memory), KVP_OK);
}

static kvp_copier *open_copier(struct side sides[2], uint32_t n_threads)
{
    kvp_copier_config config;
    kvp_copier *copier;
    kvp_copier_config_init(&config);
    config.n_threads = n_threads;
    config.device = &sides[KVP_DEVICE].memory;
    config.host = &sides[KVP_HOST].memory;
    assert_int_equal(kvp_copier_create(&config, &copier), KVP_OK);
    return copier;
}

/* A plan that may be run: in a phase no block is written twice, or read and written. */
static uint32_t draw_plan(uint64_t *random, kvp_copy *copies, uint32_t n)
{
    uint8_t role[2][N] = {{0}}; /* 1 read, 2 written */
    uint32_t phase = 0, n_copies = 0;
    for (uint32_t tries = 0; tries < 40 * n && n_copies < n; tries++) {
        const kvp_copy copy = {.phase = phase,
                               .src_tier = (uint8_t)draw(random, 2),
                               .dst_tier = (uint8_t)draw(random, 2),
                               .src_block = 1 + (int32_t)draw(random, N - 1),
                               .dst_block = 1 + (int32_t)draw(random, N - 1),
                               .n_tokens = draw(random, 2) ? S : 1 + draw(random, S)};
        uint8_t *src = &role[copy.src_tier][copy.src_block];
        uint8_t *dst = &role[copy.dst_tier][copy.dst_block];
        if (src == dst || *src == 2 || *dst != 0) {
            if (draw(random, 12) == 0) {
                phase++;
                memset(role, 0, sizeof role);
            }
            continue;
        }
        *src = 1;
        *dst = 2;
        copies[n_copies++] = copy;
    }
    return n_copies;
}

static const char *const orders[][2] = {
    {KVP_ORDER_TENSORRT_LLM, NULL},           {KVP_ORDER_VLLM_NHD, NULL},
    {KVP_ORDER_FLASHINFER_HND, NULL},         {KVP_ORDER_VLLM_PAGED_K, KVP_ORDER_VLLM_PAGED_V},
    {KVP_ORDER_APART_NHD, KVP_ORDER_CELLS_V},
};

/* The most bytes that a phase copies. */
static uint64_t largest_phase(const kvp_copy *copies, uint32_t n, uint64_t block_bytes)
{
    uint64_t largest = 0, bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes = i > 0 && copies[i].phase == copies[i - 1].phase ? bytes : 0;
        bytes += block_bytes / S * copies[i].n_tokens;
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

/* ThreadSanitizer makes every access slow: a few pairs of layouts show what it can find. */
#ifdef __SANITIZE_THREAD__
enum { PAIR_STEP = 8 };
#else
enum { PAIR_STEP = 1 };
#endif

/* Two runs of the same plans, by one thread and by three, between any two layouts. */
TEST(test_plans)
{
    uint32_t n_streamed_plans = 0;
    for (size_t i = 0; i < COUNT(orders) * COUNT(orders); i += PAIR_STEP) {
        struct side sides[2][2];
        kvp_copier *copiers[2];
        kvp_copy copies[MAX_COPIES];
        uint64_t random = i, fence = 0;
        for (uint32_t run = 0; run < 2; run++) {
            open_side(&sides[run][0], orders[i % COUNT(orders)][0], orders[i % COUNT(orders)][1]);
            open_side(&sides[run][1], orders[i / COUNT(orders)][0], orders[i / COUNT(orders)][1]);
            copiers[run] = open_copier(sides[run], run ? 3 : 1);
            for (uint32_t s = 0; s < 2 * N * S; s++)
                write_tag(&sides[run][s / (N * S)], s / S % N, s % S, 1 + s);
        }
        for (uint64_t round = 1; round <= 3; round++) {
            const uint32_t n = draw_plan(&random, copies, MAX_COPIES);
            const uint64_t bytes =
                largest_phase(copies, n, kvp_layout_block_bytes(&sides[0][0].layout));
            n_streamed_plans += bytes >= 1 << 20; /* copy_cpu.c */
            for (uint32_t c = 0; c < n; c++) {
                struct side *src = &sides[0][copies[c].src_tier];
                struct side *dst = &sides[0][copies[c].dst_tier];
                memcpy(dst->tags[copies[c].dst_block], src->tags[copies[c].src_block],
                       copies[c].n_tokens * sizeof(uint32_t));
            }
            memcpy(sides[1][0].tags, sides[0][0].tags, sizeof sides[0][0].tags);
            memcpy(sides[1][1].tags, sides[0][1].tags, sizeof sides[0][1].tags);
            for (uint32_t run = 0; run < 2; run++) {
                assert_int_equal(kvp_copier_run(copiers[run], copies, n, &fence), KVP_OK);
                assert_int_equal(fence, round);
                assert_int_equal(kvp_copier_wait(copiers[run], fence), KVP_OK);
                for (uint32_t s = 0; s < 2 * N * S; s++)
                    expect_tag(&sides[run][s / (N * S)], s / S % N, s % S);
            }
        }
        for (uint32_t run = 0; run < 2; run++) {
            kvp_copier_destroy(copiers[run]);
            kvp_memory_destroy(sides[run][0].memory);
            kvp_memory_destroy(sides[run][1].memory);
        }
    }
    assert_true(n_streamed_plans > COUNT(orders) * COUNT(orders) / PAIR_STEP);
}

/* ----------------------------------------------------------------------------------- moves */

/* An accepted path of a tree, moved to the front, by one thread and by two; then a cycle. */
TEST(test_moves)
{
    for (uint32_t run = 0; run < 2; run++) {
        struct side sides[2];
        kvp_slot_move moves[8 * S];
        uint64_t fence = 0;
        open_side(&sides[0], KVP_ORDER_FLASHINFER_HND, NULL);
        open_side(&sides[1], KVP_ORDER_TENSORRT_LLM, NULL);
        kvp_copier *copier = open_copier(sides, run ? 2 : 1); /* 3 layers: an unequal share */
        for (uint32_t s = 0; s < N * S; s++)
            write_tag(&sides[0], s / S, s % S, 1 + s);
        for (uint32_t i = 0; i < 8 * S; i++) { /* every second token of blocks 2.. */
            moves[i] = (kvp_slot_move){2 * S + 2 * i, 2 * S + i};
            sides[0].tags[2 + i / S][i % S] = 1 + 2 * S + 2 * i;
        }
        assert_int_equal(kvp_copier_move(copier, 0, moves, 8 * S, &fence), KVP_OK);
        assert_int_equal(fence, 1);
        const uint32_t first = sides[0].tags[20][0];
        for (uint32_t i = 0; i < 5; i++) /* 5 slots in a ring */
            moves[i] = (kvp_slot_move){20 * S + 7 * i, 20 * S + 7 * ((i + 4) % 5)};
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t at = 20 * S + 7 * i;
            sides[0].tags[at / S][at % S] = sides[0].tags[(at + 7) / S][(at + 7) % S];
        }
        sides[0].tags[(20 * S + 28) / S][(20 * S + 28) % S] = first;
        assert_int_equal(kvp_copier_move(copier, 0, moves, 5, &fence), KVP_OK);
        for (uint32_t s = 0; s < N * S; s++)
            expect_tag(&sides[0], s / S, s % S);
        kvp_copier_destroy(copier);
        kvp_memory_destroy(sides[0].memory);
        kvp_memory_destroy(sides[1].memory);
    }
}

/* -------------------------------------------------------------------------------- refusals */

TEST(test_run_refusals)
{
    struct side sides[2];
    uint64_t fence = 77;
    open_side(&sides[0], KVP_ORDER_TENSORRT_LLM, NULL);
    open_side(&sides[1], KVP_ORDER_TENSORRT_LLM, NULL);
    kvp_copier *copier = open_copier(sides, 2);
    for (uint32_t s = 0; s < 2 * N * S; s++)
        write_tag(&sides[s / (N * S)], s / S % N, s % S, 1 + s);
    const kvp_copy good = {.src_block = 1, .dst_block = 2, .n_tokens = S};
    kvp_copy plan[3] = {good, good, good};
#define REFUSED(n, change)                                                                         \
    do {                                                                                           \
        plan[0] = good;                                                                            \
        plan[1] = (kvp_copy){.src_block = 3, .dst_block = 4, .n_tokens = S};                       \
        plan[2] = (kvp_copy){.src_block = 5, .dst_block = 6, .n_tokens = S};                       \
        change;                                                                                    \
        assert_int_equal(kvp_copier_run(copier, plan, n, &fence), KVP_E_ARG);                      \
    } while (0)
    REFUSED(3, plan[2].n_tokens = 0);
    REFUSED(3, plan[2].n_tokens = S + 1);
    REFUSED(3, plan[2].src_block = 0);
    REFUSED(3, plan[2].src_block = N);
    REFUSED(3, plan[2].dst_block = -1);
    REFUSED(3, plan[2].dst_block = INT32_MAX);
    REFUSED(3, plan[2].src_tier = 2);
    REFUSED(3, plan[2].dst_tier = 255);
    REFUSED(3, plan[2].group = 1);
    REFUSED(3, plan[1].phase = 1);     /* falls again */
    REFUSED(3, plan[2].dst_block = 2); /* twice */
    REFUSED(3, plan[2].src_block = 2); /* written in this phase */
    REFUSED(3, plan[2].dst_block = 1); /* read in this phase */
    REFUSED(3, plan[2].dst_block = 5); /* onto itself */
    REFUSED(3, plan[2].phase = 1; plan[2].src_block = plan[2].dst_block);
#undef REFUSED
    assert_int_equal(kvp_copier_run(copier, NULL, 1, &fence), KVP_E_ARG);
    assert_int_equal(kvp_copier_run(NULL, &good, 1, &fence), KVP_E_ARG);

    const kvp_slot_move right = {S, S + 1};
    const kvp_slot_move wrong[] = {{0, S},     {S, S - 1}, {-1, S},        {N * S, S},
                                   {S, N * S}, {S, -1},    {INT64_MAX, S}, {S, INT64_MIN}};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        const kvp_slot_move moves[2] = {right, wrong[i]};
        assert_int_equal(kvp_copier_move(copier, 0, moves, 2, &fence), KVP_E_ARG);
    }
    const kvp_slot_move twice[] = {{S, S + 9}, {S + 3, S + 4}, {S + 1, S + 9}};
    assert_int_equal(kvp_copier_move(copier, 0, twice, 3, &fence), KVP_E_ARG);
    assert_int_equal(kvp_copier_move(copier, 1, &right, 1, &fence), KVP_E_ARG);
    assert_int_equal(kvp_copier_move(copier, 0, NULL, 1, &fence), KVP_E_ARG);
    assert_int_equal(kvp_copier_move(NULL, 0, &right, 1, &fence), KVP_E_ARG);
    assert_int_equal(kvp_copier_move(copier, 0, &right, 1025, &fence), KVP_E_TOO_SMALL);
    for (uint32_t s = 0; s < 2 * N * S; s++)
        expect_tag(&sides[s / (N * S)], s / S % N, s % S);
    assert_int_equal(fence, 77);
    assert_int_equal(kvp_copier_wait(copier, 1), KVP_E_ARG); /* none was given */
    assert_int_equal(kvp_copier_run(copier, NULL, 0, &fence), KVP_OK);
    assert_int_equal(kvp_copier_move(copier, 0, NULL, 0, NULL), KVP_OK);
    assert_int_equal(fence, 1);
    assert_int_equal(kvp_copier_wait(copier, 2), KVP_OK);
    assert_int_equal(kvp_copier_wait(copier, 3), KVP_E_ARG);
    assert_int_equal(kvp_copier_wait(copier, 0), KVP_E_ARG);
    assert_int_equal(kvp_copier_wait(NULL, 1), KVP_E_ARG);
    kvp_copier_destroy(copier);
    kvp_copier_destroy(NULL);
    kvp_memory_destroy(sides[0].memory);
    kvp_memory_destroy(sides[1].memory);
}

TEST(test_create_refusals)
{
    struct side sides[2];
    kvp_copier_config config;
    kvp_copier *copier = NULL;
    kvp_memory *other;
    open_side(&sides[0], KVP_ORDER_TENSORRT_LLM, NULL);
    open_side(&sides[1], KVP_ORDER_VLLM_NHD, NULL);
    kvp_memory *none = NULL;
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        kvp_copier_config_init(&config);                                                           \
        config.device = &sides[0].memory;                                                          \
        config.host = &sides[1].memory;                                                            \
        change;                                                                                    \
        assert_int_equal(kvp_copier_create(&config, &copier), KVP_E_ARG);                          \
    } while (0)
    REFUSED(config.struct_size = 8);
    REFUSED(config.n_groups = 0);
    REFUSED(config.n_groups = 65);
    REFUSED(config.n_threads = 0);
    REFUSED(config.n_threads = 257);
    REFUSED(config.max_moves = (1 << 20) + 1);
    REFUSED(config.reserved = 1);
    REFUSED(config.device = NULL);
    REFUSED(config.device = &none);
    REFUSED(config.host = &none);
    REFUSED(config.host = config.device); /* one memory as both tiers */
    kvp_layout layouts[10];
    size_t n = 0;
    for (size_t i = 0; i < COUNT(layouts); i++)
        layouts[i] = sides[1].layout;
    layouts[n++].type = KVP_F16;
    layouts[n++].block_tokens = S / 2;
    layouts[n++].n_layers--;
    layouts[n++].n_heads--;
    layouts[n++].first_layer++;
    layouts[n++].first_head++;
    layouts[n].k.size /= 2;
    layouts[n].k.run /= 2;
    layouts[n++].k.tensor_step = 1;
    layouts[n].v.size /= 2;
    layouts[n++].v.run /= 2;
    layouts[n].v.size = 0;
    n++;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(kvp_memory_create(&layouts[i], NULL, &other), KVP_OK);
        REFUSED(config.host = &other);
        kvp_memory_destroy(other);
    }
    /* Tensors of the two tiers that overlap by a byte, without being the same. */
    kvp_layout layout = sides[1].layout;
    void *tensors[L];
    assert_int_equal(kvp_layout_arrange(&layout, KVP_ORDER_TENSORRT_LLM, NULL), KVP_OK);
    unsigned char *space = malloc(2 * layout.k.tensor_bytes);
    kvp_memory *both[2];
    tensors[0] = space;
    assert_int_equal(kvp_memory_wrap(&layout, tensors, &both[0]), KVP_OK);
    tensors[0] = space + layout.k.tensor_bytes - 2;
    assert_int_equal(kvp_memory_wrap(&layout, tensors, &both[1]), KVP_OK);
    kvp_memory *const devices[] = {both[0], sides[0].memory};
    kvp_memory *const hosts[] = {sides[1].memory, both[1]}; /* of another group */
    REFUSED(config.n_groups = 2; config.device = devices; config.host = hosts);
    REFUSED(config.device = &both[0]; config.host = &both[1]);
    kvp_memory_destroy(both[1]);
    tensors[0] = space + layout.k.tensor_bytes;
    assert_int_equal(kvp_memory_wrap(&layout, tensors, &both[1]), KVP_OK);
    config.device = &both[0];
    config.host = &both[1];
    assert_int_equal(kvp_copier_create(&config, &copier), KVP_OK);
    kvp_copier_destroy(copier);
    kvp_memory_destroy(both[0]);
    kvp_memory_destroy(both[1]);
    free(space);
#undef REFUSED
    copier = NULL;
    kvp_copier_config_init(&config);
    kvp_copier_config_init(NULL);
    assert_fields(config, n_groups, 1, n_threads, 1, max_moves, 1024);
    config.device = &sides[0].memory;
    assert_int_equal(kvp_copier_create(NULL, &copier), KVP_E_ARG);
    assert_int_equal(kvp_copier_create(&config, NULL), KVP_E_ARG);
    assert_null(copier);
    /* Without a host tier there is none to copy to. */
    assert_int_equal(kvp_copier_create(&config, &copier), KVP_OK);
    kvp_copy copy = {.src_block = 1, .dst_block = 2, .n_tokens = 1};
    assert_int_equal(kvp_copier_run(copier, &copy, 1, NULL), KVP_OK);
    copy.dst_tier = KVP_HOST;
    assert_int_equal(kvp_copier_run(copier, &copy, 1, NULL), KVP_E_ARG);
    kvp_copier_destroy(copier);
    kvp_memory_destroy(sides[0].memory);
    kvp_memory_destroy(sides[1].memory);
}

/* Two groups with layers of their own: the group of a copy chooses the memory. */
TEST(test_groups)
{
    struct side groups[2];
    kvp_copier_config config;
    kvp_copier *copier;
    open_side(&groups[0], KVP_ORDER_TENSORRT_LLM, NULL);
    open_side(&groups[1], KVP_ORDER_VLLM_HND, NULL);
    kvp_memory *const device[] = {groups[0].memory, groups[1].memory};
    kvp_copier_config_init(&config);
    config.n_groups = 2;
    config.device = device;
    assert_int_equal(kvp_copier_create(&config, &copier), KVP_OK);
    for (uint32_t s = 0; s < 2 * N * S; s++)
        write_tag(&groups[s / (N * S)], s / S % N, s % S, 1 + s);
    const kvp_copy copies[] = {{.group = 0, .src_block = 1, .dst_block = 2, .n_tokens = S},
                               {.group = 1, .src_block = 2, .dst_block = 1, .n_tokens = 3}};
    assert_int_equal(kvp_copier_run(copier, copies, 2, NULL), KVP_OK);
    memcpy(groups[0].tags[2], groups[0].tags[1], sizeof groups[0].tags[1]);
    memcpy(groups[1].tags[1], groups[1].tags[2], 3 * sizeof(uint32_t));
    const kvp_slot_move move = {5 * S, 6 * S + 1};
    assert_int_equal(kvp_copier_move(copier, 1, &move, 1, NULL), KVP_OK);
    groups[1].tags[6][1] = groups[1].tags[5][0];
    for (uint32_t s = 0; s < 2 * N * S; s++)
        expect_tag(&groups[s / (N * S)], s / S % N, s % S);
    kvp_copier_destroy(copier);
    kvp_memory_destroy(groups[0].memory);
    kvp_memory_destroy(groups[1].memory);
}

/* Scales in one of the two tiers. */
TEST(test_scales_in_one_tier)
{
    for (uint32_t host_has = 0; host_has < 2; host_has++) {
        kvp_layout layout;
        kvp_memory *both[2];
        kvp_copier_config config;
        kvp_copier *copier;
        kvp_layout_init(&layout);
        layout.type = KVP_INT8;
        layout.n_blocks = N;
        layout.block_tokens = S;
        layout.n_layers = layout.n_heads = 1;
        layout.k.size = layout.v.size = D;
        assert_int_equal(kvp_layout_arrange(&layout, "NSHD", NULL), KVP_OK);
        assert_int_equal(kvp_memory_create(&layout, NULL, &both[!host_has]), KVP_OK);
        assert_int_equal(kvp_layout_add_scales(&layout, "NH"), KVP_OK);
        assert_int_equal(kvp_memory_create(&layout, NULL, &both[host_has]), KVP_OK);
        kvp_copier_config_init(&config);
        config.device = &both[0];
        config.host = &both[1];
        assert_int_equal(kvp_copier_create(&config, &copier), KVP_E_ARG);
        kvp_memory_destroy(both[0]);
        kvp_memory_destroy(both[1]);
    }
}

/* As many moves as there may be, of rows of any length: the longest are of the first group, or of
 * the second; of K, or of V. */
TEST(test_rows_of_any_length)
{
    enum { MOVES = 4 * S, LONG = 4096, SHORT = 2 };
    for (uint32_t longest = 0; longest < 4; longest++) {
        static float row[LONG];
        kvp_memory *memories[2];
        kvp_slot_move moves[MOVES];
        kvp_copier_config config;
        kvp_copier *copier;
        kvp_layer layer;
        for (uint32_t g = 0; g < 2; g++) {
            kvp_layout layout;
            kvp_layout_init(&layout);
            layout.type = KVP_F32;
            layout.n_blocks = 10;
            layout.block_tokens = S;
            layout.n_layers = layout.n_heads = 1;
            layout.k.size = longest == 2 * g ? LONG : SHORT;
            layout.v.size = longest == 2 * g + 1 ? LONG : SHORT;
            assert_int_equal(kvp_layout_arrange(&layout, "NSHD", NULL), KVP_OK);
            assert_int_equal(kvp_memory_create(&layout, NULL, &memories[g]), KVP_OK);
        }
        kvp_copier_config_init(&config);
        config.n_groups = 2;
        config.max_moves = MOVES;
        config.device = memories;
        assert_int_equal(kvp_copier_create(&config, &copier), KVP_OK);
        const uint32_t group = longest / 2;
        const int which = longest % 2 ? KVP_V : KVP_K;
        assert_int_equal(kvp_memory_layer(memories[group], 0, &layer), KVP_OK);
        for (uint32_t i = 0; i < MOVES; i++) {
            moves[i] = (kvp_slot_move){S + i, 5 * S + i};
            for (uint32_t e = 0; e < LONG; e++)
                row[e] = (float)(i * LONG + e);
            assert_int_equal(kvp_layer_write(&layer, which, S + i, 0, row), KVP_OK);
        }
        assert_int_equal(kvp_copier_move(copier, group, moves, MOVES, NULL), KVP_OK);
        for (uint32_t i = 0; i < MOVES; i++) {
            assert_int_equal(kvp_layer_read(&layer, which, 5 * S + i, 0, row), KVP_OK);
            for (uint32_t e = 0; e < LONG; e++)
                assert_true(row[e] == (float)(i * LONG + e));
        }
        kvp_copier_destroy(copier);
        kvp_memory_destroy(memories[0]);
        kvp_memory_destroy(memories[1]);
    }
}

/* Two memories whose tensors are apart, but for one of each, in turn. */
TEST(test_tensors_that_overlap)
{
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = KVP_F16;
    layout.n_blocks = 4;
    layout.block_tokens = 4;
    layout.n_layers = 2;
    layout.n_heads = 1;
    layout.k.size = layout.v.size = 8;
    assert_int_equal(kvp_layout_arrange(&layout, KVP_ORDER_APART_NHD, NULL), KVP_OK);
    assert_int_equal(layout.n_tensors, 4);
    const size_t bytes = layout.k.tensor_bytes;
    unsigned char *space = malloc(8 * bytes);
    for (uint32_t which = 0; which <= 4; which++) {
        void *tensors[2][4];
        kvp_memory *both[2];
        kvp_copier_config config;
        kvp_copier *copier = NULL;
        for (uint32_t i = 0; i < 4; i++) {
            tensors[0][i] = space + 2 * i * bytes;
            tensors[1][i] = space + (2 * i + 1) * bytes - (i == which ? 2 : 0);
        }
        for (int i = 0; i < 2; i++)
            assert_int_equal(kvp_memory_wrap(&layout, tensors[i], &both[i]), KVP_OK);
        kvp_copier_config_init(&config);
        config.device = &both[0];
        config.host = &both[1];
        assert_int_equal(kvp_copier_create(&config, &copier), which < 4 ? KVP_E_ARG : KVP_OK);
        kvp_copier_destroy(copier);
        kvp_memory_destroy(both[0]);
        kvp_memory_destroy(both[1]);
    }
    free(space);
}

TEST_MAIN(NULL, NULL)

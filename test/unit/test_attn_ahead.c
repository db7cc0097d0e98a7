/* What is asked for ahead of its use: over the heads and tiles of an item each line once, in time,
 * and nothing else, for every kind of layout. Asking for a wrong line changes no result. */
#include <string.h>

#include "mocka.h"
#include "attention/fast/ahead.h"

enum { LINE = 64, HEADS = 3, MAX_LINES = 1 << 16, NEVER = INT32_MAX };

/* A memory in which tiles lie, some way. */
typedef struct world {
    kvp_layer_part k, v;
    uint32_t k_bytes, v_bytes; /* of a row; 0: not asked for */
    uint32_t n_keys[2];        /* of two tiles */
    int is_even;
    enum kvpi_order order;
} world;

static unsigned char memory[MAX_LINES * LINE];

typedef struct watch {
    int32_t asked[MAX_LINES]; /* how many lines had been asked for before; NEVER */
    int32_t used[MAX_LINES];  /* how many had been used before; NEVER */
    uint32_t times[MAX_LINES];
    int32_t n_asked;
    int32_t n_used;
} watch;

static watch seen;

static size_t line_of(const unsigned char *at)
{
    assert_true(at >= memory && at < memory + sizeof memory);
    return (size_t)(at - memory) / LINE;
}

static void use_rows(const unsigned char *const *rows, uint32_t n, uint32_t n_bytes, size_t offset)
{
    for (uint32_t i = 0; i < (n + 15) / 16 * 16; i++) {
        for (uint32_t at = 0; at < n_bytes; at += LINE, seen.n_used++) {
            const size_t line = line_of(rows[i] + offset + at);
            seen.used[line] = seen.used[line] == NEVER ? seen.n_used : seen.used[line];
        }
    }
}

static void ask(struct kvpi_ahead *ahead, uint32_t n_fours, const struct kvpi_pieces *pieces)
{
    for (uint32_t i = 0; i < n_fours; i++) {
        const struct kvpi_lines lines = kvpi_ahead_next(ahead);
        for (uint32_t j = 0; j < 4; j++, seen.n_asked++) {
            const unsigned char *at = lines.at[j];
            if (pieces->n_k + pieces->n_v == 0) {
                assert_true(at >= (const unsigned char *)pieces->at &&
                            at < (const unsigned char *)pieces->at + 8 * LINE);
                continue;
            }
            const size_t line = line_of(at);
            seen.times[line]++;
            if (seen.asked[line] == NEVER)
                seen.asked[line] = seen.n_asked;
        }
    }
}

static void place(const world *w, uint32_t which, struct kvpi_places *places)
{
    memset(places, 0, sizeof *places);
    places->n_keys = w->n_keys[which];
    places->is_even = (uint32_t)w->is_even;
    for (uint32_t i = 0; i < (w->n_keys[which] + 15) / 16 * 16; i++) {
        const uint32_t key = i < places->n_keys ? i : 0;
        /* keys of an uneven tile lie the other way round */
        const uint32_t slot = w->is_even ? key : w->n_keys[which] - 1 - key;
        places->k[i] = w->k.base + which * w->k.block_stride + slot * w->k.token_stride;
        places->v[i] = w->v.base + which * w->v.block_stride + slot * w->v.token_stride;
    }
}

static void cut(const world *w, const struct kvpi_places *places, struct kvpi_pieces *pieces,
                uint32_t head)
{
    const struct kvpi_cut k = {&w->k, places->k, w->k_bytes}, v = {&w->v, places->v, w->v_bytes};
    kvpi_pieces_make(pieces, places, &k, &v, head, w->order);
    assert_true(pieces->n_k + pieces->n_v + pieces->n_ahead <=
                kvpi_pieces_max(w->k_bytes, w->v_bytes));
}

/* Two tiles, and all heads of each. */
static void run(const world *w)
{
    static const unsigned char *lists[2][4096];
    struct kvpi_places places[3];
    struct kvpi_pieces pieces[2] = {{.at = lists[0]}, {.at = lists[1]}};
    memset(&seen, 0, sizeof seen);
    for (uint32_t i = 0; i < MAX_LINES; i++)
        seen.asked[i] = seen.used[i] = NEVER;
    assert_true(kvpi_pieces_max(w->k_bytes, w->v_bytes) <= 4096);
    memset(&places[2], 0, sizeof places[2]); /* behind the last one: nothing */
    for (uint32_t t = 0; t < 2; t++)
        place(w, t, &places[t]);
    cut(w, &places[0], &pieces[0], 0);
    for (uint32_t t = 0; t < 2; t++) {
        struct kvpi_pieces *now = &pieces[t], *next = &pieces[1 - t];
        cut(w, &places[t + 1], next, 0);
        for (uint32_t head = 0; head < HEADS; head++) {
            struct kvpi_ahead ahead;
            const int is_last = head == HEADS - 1;
            if (head > 0 && !kvpi_pieces_fit_all_heads(now))
                cut(w, &places[t], now, head);
            kvpi_pieces_put_next(now, head, is_last ? next : NULL);
            kvpi_ahead_begin(now, head, &ahead);
            const uint32_t n = now->n_k + now->n_v;
            ask(&ahead, n > 0 ? n * now->lines / 4 : 100, now);
            use_rows(places[t].k, places[t].n_keys, w->k_bytes, head * w->k.head_stride);
            use_rows(places[t].v, places[t].n_keys, w->v_bytes, head * w->v.head_stride);
        }
    }
}

/* Everything but the beginning has been asked for, once, before its turn; `slack` lines may be
 * asked for more than once (padding, and the last of all). */
static void expect_all(const world *w, int32_t distance, uint32_t slack)
{
    uint32_t again = 0;
    int32_t last = 0;
    run(w);
    for (uint32_t i = 0; i < MAX_LINES; i++)
        last = seen.used[i] != NEVER && seen.used[i] > last ? seen.used[i] : last;
    for (uint32_t i = 0; i < MAX_LINES; i++) {
        if (seen.used[i] == NEVER) {
            assert_int_equal(seen.times[i], 0);
            continue;
        }
        again += seen.times[i] > 1 ? seen.times[i] - 1 : 0;
        if (seen.used[i] < distance)
            continue;
        assert_true(seen.times[i] >= 1);
        assert_true(seen.asked[i] + 16 <= seen.used[i]);
        assert_true(seen.times[i] == 1 || slack > 0 || seen.used[i] + 4 > last);
    }
    assert_true(again <= (uint32_t)distance + 4 + slack);
}

/* [block][head][K or V][key][dims] */
static world block_major(uint32_t k_bytes, uint32_t v_bytes)
{
    world w = {.k_bytes = k_bytes, .v_bytes = v_bytes, .n_keys = {64, 64}, .is_even = 1};
    const size_t head = (size_t)64 * (k_bytes + v_bytes);
    w.k = (kvp_layer_part){.base = memory,
                           .block_stride = 2 * HEADS * head,
                           .token_stride = k_bytes,
                           .head_stride = head};
    w.v = w.k;
    w.v.base += (size_t)64 * k_bytes;
    w.v.token_stride = v_bytes;
    return w;
}

/* [K or V][block][key][head][dims] */
static world token_major(uint32_t k_bytes, uint32_t v_bytes)
{
    world w = {.k_bytes = k_bytes, .v_bytes = v_bytes, .n_keys = {64, 64}, .is_even = 1};
    w.k = (kvp_layer_part){.base = memory,
                           .block_stride = (size_t)64 * HEADS * k_bytes,
                           .token_stride = (size_t)HEADS * k_bytes,
                           .head_stride = k_bytes};
    w.v = (kvp_layer_part){.base = memory + sizeof memory / 2,
                           .block_stride = (size_t)64 * HEADS * v_bytes,
                           .token_stride = (size_t)HEADS * v_bytes,
                           .head_stride = v_bytes};
    return w;
}

TEST(test_side_by_side)
{
    static const uint32_t bytes[] = {64, 128, 192, 256, 320, 512};
    (void)state;
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        const world w = block_major(bytes[i], bytes[i]);
        expect_all(&w, 80, 0);
    }
}

TEST(test_apart)
{
    static const uint32_t bytes[] = {64, 128, 192, 256, 320, 448, 512};
    (void)state;
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        world w = token_major(bytes[i], bytes[i]);
        expect_all(&w, 80, 0);
        w.is_even = 0;
        expect_all(&w, 80, 0);
    }
}

/* K and V have different strides from head to head: pieces are cut anew for each. */
TEST(test_sizes_differ)
{
    world w = token_major(384, 256);
    run(&w);
    expect_all(&w, 80, 0);
    w = block_major(384, 256);
    expect_all(&w, 80, 0);
    w = token_major(192, 128);
    expect_all(&w, 80, 0);
}

/* Rows behind the last key are read, and so asked for, as the first one's. */
TEST(test_tile_with_few_keys)
{
    world w = token_major(256, 256);
    w.n_keys[0] = 64;
    w.n_keys[1] = 20;
    expect_all(&w, 80, 12 * 4 * 2 * HEADS);
    w = block_major(128, 128);
    w.n_keys[1] = 48;
    expect_all(&w, 80, 0);
}

/* V lies in K, or is made from it: nothing of its own is asked for. */
TEST(test_without_v)
{
    world w = block_major(1152, 0);
    w.v = w.k;
    expect_all(&w, 80, 0);
}

TEST(test_a_head_early)
{
    world w = block_major(256, 256);
    w.order = KVPI_EARLY;
    expect_all(&w, 512, 0);
    w = token_major(128, 192);
    w.order = KVPI_EARLY;
    expect_all(&w, 128 + 192, 0);
}

/* No further than a head. */
static int32_t run_distance(const world *w)
{
    const int32_t of_head = (int32_t)(64 * (w->k_bytes + w->v_bytes) / LINE);
    return of_head < 200 ? of_head : 200;
}

/* Line after line, each as far ahead as the others. */
static void expect_in_order(world w)
{
    const int32_t distance = run_distance(&w);
    w.order = KVPI_IN_ORDER;
    expect_all(&w, distance, 1); /* the last piece, while there is nothing else */
    for (uint32_t i = 0; i < MAX_LINES; i++)
        if (seen.used[i] != NEVER && seen.asked[i] != NEVER && seen.times[i] == 1)
            assert_int_equal(seen.asked[i], seen.used[i] - distance);
}

TEST(test_in_order)
{
    static const uint32_t bytes[] = {64, 128, 192, 256, 320, 512};
    (void)state;
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++)
        expect_in_order(block_major(bytes[i], bytes[i]));
    expect_in_order(block_major(384, 256));
    world w = block_major(1152, 0);
    w.v = w.k;
    expect_in_order(w);
    w = block_major(256, 256);
    w.n_keys[1] = 48;
    expect_in_order(w);
}

/* Rows are apart, or the last tile's are: there are no lines in a row to ask for. */
TEST(test_in_order_where_there_is_one)
{
    static const uint32_t bytes[] = {64, 128, 192, 256, 320, 448, 512};
    (void)state;
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        world w = token_major(bytes[i], bytes[i]);
        w.order = KVPI_IN_ORDER;
        expect_all(&w, run_distance(&w), 0);
        w.is_even = 0;
        expect_all(&w, run_distance(&w), 0);
    }
    world w = block_major(256, 256);
    w.order = KVPI_IN_ORDER;
    w.k_bytes = w.v_bytes = 0;
    run(&w);
    assert_int_equal(seen.n_used, 0);
}

/* Nothing lies as it is used: what is asked for instead is there already. */
TEST(test_nothing)
{
    world w = block_major(256, 256);
    w.k_bytes = w.v_bytes = 0;
    run(&w);
    w.order = KVPI_EARLY;
    run(&w);
    assert_int_equal(seen.n_used, 0);
}

TEST_MAIN(NULL, NULL)

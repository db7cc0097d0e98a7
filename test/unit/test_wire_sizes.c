/* Worker messages of layer groups with blocks of several sizes: rows of every length, the blocks
 * that a token more needs, places of moves, and what a mirror refuses of it. */
#include "wire_pair.h"

/* Three groups without windows, with blocks of 4, 6 and 2 tokens. */
static void begin_sizes(struct pair *p)
{
    kvp_config config = config_of(4, 2, 40);
    config.n_groups = 3;
    config.groups[1].block_tokens = 6;
    config.groups[2].block_tokens = 2;
    config.max_tree_tokens = 4;
    begin_as(p, &config);
}

/* A sender of other sizes is refused, and so are its messages. */
TEST(test_block_sizes_are_the_caches)
{
    struct pair p;
    begin_sizes(&p);
    p.item.seq = open_done(&p.w, ints(0), 5);
    tell_item(&p);
    for (uint32_t group = 0; group < 5; group++) {
        kvp_wire_sender *sender;
        kvp_wire_mirror *mirror;
        kvp_wire_config other = p.config;
        kvp_status expected = KVP_E_ARG;
        if (group < 3)
            other.group_tokens[group] += 2; /* of which 2 is a divisor, too */
        if (group == 3)
            other.group_tokens[1] = other.group_tokens[2] = other.block_tokens = 2;
        if (group == 4) {
            other.group_tokens[0] = 4; /* the same */
            other.group_tokens[3] = UINT32_MAX;
            expected = KVP_OK;
        }
        assert_status(expected, kvp_wire_sender_create(&other, p.w.cache, NULL, 0, &sender));
        if (expected == KVP_OK)
            kvp_wire_sender_destroy(sender);
        assert_ok(kvp_wire_mirror_create(&other, NULL, 0, &mirror));
        assert_status(expected == KVP_OK ? KVP_OK : KVP_E_MISMATCH,
                      kvp_wire_mirror_apply(mirror, p.bytes, p.n_bytes, NULL));
        kvp_wire_mirror_destroy(mirror);
    }
    end(&p);
    kvp_why why;
    p.config.group_tokens[2] = KVP_BLOCK_TOKENS_MAX;
    assert_ok(kvp_wire_config_check(&p.config, &why));
    p.config.group_tokens[2]++;
    assert_status(KVP_E_ARG, kvp_wire_config_check(&p.config, &why));
    assert_string_equal(why.field, "group_tokens[2]");
}

static void assert_body(const struct pair *p, const uint8_t *body, size_t n_body)
{
    assert_int_equal(p->n_bytes, KVP_WIRE_HEAD_BYTES + n_body);
    assert_memory_equal(p->bytes + KVP_WIRE_HEAD_BYTES, body, n_body);
}

#define assert_body(p, ...)                                                                        \
    assert_body(p, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static kvp_wire_seq decode_one(struct pair *p)
{
    kvp_seq_info info = info_of(&p->w, p->item.seq);
    assert_ok(kvp_seq_extend(p->w.cache, p->item.seq, ints(9), 1, 0));
    assert_ok(kvp_seq_commit(p->w.cache, p->item.seq, info.n_tokens + 1));
    return tell_item(p);
}

/* Every row grows when it is full: a message has blocks of those alone. */
TEST(test_rows_of_several_sizes)
{
    scoped_pair p;
    begin_sizes(&p);
    p.item.seq = open_done(&p.w, ints(0), 4);
    kvp_wire_seq seq = tell_item(&p);
    assert_rows(&p, &seq);
    assert_int_equal(p.bytes[KVPI_WIRE_AT_PARTS], KVPI_WIRE_SIZES);
    assert_int_equal(p.bytes[KVPI_WIRE_AT_BLOCK_TOKENS], 2);
    /* Sizes; nothing closed, no copies; id 3 is new: 4 tokens, 0 1 2 3; rows up to token 4. */
    assert_body(&p, 4, 6, 2, 0, 0, 1, 3 << 2 | 3, 1, 4, 4, 0, 0, 0, 4, 0, 1, 2, 3, 2, 2, 2, 2, 2);
    assert_int_equal(seq.row_tokens, 4);
    seq = decode_one(&p); /* rows of 4 and of 2 are full; that of 6 has room for two */
    assert_rows(&p, &seq);
    assert_body(&p, 4, 6, 2, 0, 0, 1, 3 << 2 | 1, 0, 9, 10, 2);
    assert_int_equal(seq.row_tokens, 6);
    seq = decode_one(&p);
    assert_body(&p, 4, 6, 2, 0, 0, 1, 3 << 2 | 0, 0, 9);
    seq = decode_one(&p);
    assert_body(&p, 4, 6, 2, 0, 0, 1, 3 << 2 | 1, 0, 9, 14, 2); /* 6 and 2 */
    assert_rows(&p, &seq);
    assert_int_equal(seq.row_tokens, 8);
    /* Back to 5 tokens; then to the end of every row, 12. */
    assert_ok(kvp_seq_truncate(p.w.cache, p.item.seq, 5, NULL));
    seq = tell_item(&p);
    assert_rows(&p, &seq);
    assert_int_equal(seq.row_tokens, 6);
    assert_ok(kvp_seq_extend(p.w.cache, p.item.seq, ints(20), 7, 0));
    seq = tell_item(&p);
    assert_rows(&p, &seq);
    assert_int_equal(seq.row_tokens, 12);
}

/* ------------------------------------------------------------------------------------ refusals */

/* Messages for blocks of 4 and 6, with nothing closed: worker id 0 is new in a full one. */
#define FULL(m, ...)                                                                               \
    give(m, KVPI_WIRE_FULL_STATE, 0,                                                               \
         (const uint8_t[]){4, 6, 0, 0, 1, KVPI_WIRE_NEW, 1, __VA_ARGS__},                          \
         sizeof((const uint8_t[]){4, 6, 0, 0, 1, KVPI_WIRE_NEW, 1, __VA_ARGS__}))
#define STEP(m, parts, ...)                                                                        \
    give(m, KVPI_WIRE_STEP, parts, (const uint8_t[]){4, 6, 0, __VA_ARGS__},                        \
         sizeof((const uint8_t[]){4, 6, 0, __VA_ARGS__}))
#define TOKENS(n) n, 0, 0, 0, 0, 0, 0 /* none computed, no values */

TEST(test_sizes_that_are_not_the_mirrors)
{
    struct by_hand m;
    make_by_hand(&m, 6, 2);
    const uint8_t body[][2] = {{4, 6}, {5, 6}, {4, 5}, {6, 4}};
    for (size_t i = 0; i < 4; i++) {
        const uint8_t bytes[] = {body[i][0], body[i][1], 0, 0, 0};
        assert_status(i == 0 ? KVP_OK : KVP_E_MISMATCH,
                      give(&m, KVPI_WIRE_FULL_STATE, 0, bytes, sizeof bytes));
        assert_status(KVP_E_FORMAT, give(&m, KVPI_WIRE_FULL_STATE, 0, bytes, i == 0));
    }
    m.grain = 1;
    assert_status(KVP_E_MISMATCH, FULL(&m, TOKENS(0), 0));
    m.grain = 0; /* as if of one size */
    assert_status(KVP_E_MISMATCH, FULL(&m, TOKENS(0), 0));
    kvp_wire_mirror_destroy(m.mirror);
}

TEST(test_rows_that_end_nowhere)
{
    struct by_hand m;
    make_by_hand(&m, 6, 2);
    /* Three grains are 6 tokens: two blocks, and one. */
    assert_ok(FULL(&m, TOKENS(6), 3, 2, 2, 2));
    assert_status(KVP_E_FORMAT, FULL(&m, TOKENS(7), 3, 2, 2, 2));
    assert_status(KVP_E_FORMAT, FULL(&m, TOKENS(6), 3, 2, 2));
    assert_status(KVP_E_FORMAT, FULL(&m, TOKENS(6), 3, 2, 2, 2, 2));
    /* After 10 tokens no row ends, but after 12. */
    assert_status(KVP_E_FORMAT, FULL(&m, TOKENS(6), 5, 2, 2, 2, 2, 2));
    assert_ok(FULL(&m, TOKENS(12), 6, 2, 2, 2, 2, 2));
    assert_status(KVP_E_FORMAT, FULL(&m, TOKENS(13), 6, 2, 2, 2, 2, 2));
    /* Four blocks of 4 are the longest row. */
    assert_ok(FULL(&m, TOKENS(16), 8, 2, 2, 2, 2, 2, 2, 2));
    assert_status(KVP_E_TOO_SMALL, FULL(&m, TOKENS(16), 9, 2, 2, 2, 2, 2, 2, 2));
    /* Rows of 12 tokens, of which 8 are left, or 10. */
    assert_ok(FULL(&m, TOKENS(6), 6, 2, 2, 2, 2, 2));
    assert_status(KVP_E_FORMAT, STEP(&m, 0, 0, 1, KVPI_WIRE_CHANGE, KVPI_WIRE_ROW, 1, 0, 0, 0));
    assert_ok(STEP(&m, 0, 0, 1, KVPI_WIRE_CHANGE, KVPI_WIRE_ROW, 2, 0, 0, 0));
    kvp_wire_mirror_destroy(m.mirror);
}

TEST(test_blocks_of_a_token_more)
{
    struct by_hand m;
    kvp_wire_seq seq;
    make_by_hand(&m, 6, 2);
    assert_ok(FULL(&m, TOKENS(6), 3, 2, 2, 2)); /* that of 6 is full */
    assert_ok(STEP(&m, 0, 0, 1, KVPI_WIRE_CHANGE, KVPI_WIRE_VALUES, 0, 6, 1, 1, 1, 1, 1, 1));
    assert_status(KVP_E_FORMAT, STEP(&m, 0, 0, 1, KVPI_WIRE_DECODE, 0, 7));
    assert_status(KVP_E_FORMAT, STEP(&m, 0, 0, 1, KVPI_WIRE_DECODE_BLOCK, 0, 7));
    assert_status(KVP_E_FORMAT, STEP(&m, 0, 0, 1, KVPI_WIRE_DECODE_BLOCK, 0, 7, 8, 2));
    assert_ok(STEP(&m, 0, 0, 1, KVPI_WIRE_DECODE_BLOCK, 0, 7, 8));
    assert_ok(STEP(&m, 0, 0, 1, KVPI_WIRE_DECODE, 0, 7));
    assert_ok(STEP(&m, 0, 0, 1, KVPI_WIRE_DECODE_BLOCK, 0, 7, 10)); /* that of 4 */
    assert_ok(kvp_wire_mirror_seq(m.mirror, 0, &seq));
    assert_int_equal(seq.n_tokens, 9);
    assert_int_equal(seq.row_tokens, 12);
    assert_int_equal(seq.n_blocks, 3);
    assert_memory_equal(seq.row, ((int32_t[]){1, 2, 5}), 3 * sizeof(int32_t));
    assert_memory_equal(seq.row + 4, ((int32_t[]){3, 4}), 2 * sizeof(int32_t));
    kvp_wire_mirror_destroy(m.mirror);
}

/* Worker id 0 has rows of three and of two blocks. Entry i of one of them is replaced. */
#define REPLACE_0(m, i) STEP(m, 0, 0, 1, KVPI_WIRE_CHANGE, KVPI_WIRE_ROW, 0, 1, i, 18, 0, 0)
#define REPLACE_1(m, i) STEP(m, 0, 0, 1, KVPI_WIRE_CHANGE, KVPI_WIRE_ROW, 0, 0, 1, i, 18, 0)

TEST(test_entries_of_each_length)
{
    struct by_hand m;
    make_by_hand(&m, 6, 2);
    assert_ok(FULL(&m, TOKENS(6), 6, 2, 2, 2, 2, 2));
    assert_ok(REPLACE_0(&m, 2));
    assert_status(KVP_E_FORMAT, REPLACE_0(&m, 3));
    assert_ok(REPLACE_1(&m, 1));
    assert_status(KVP_E_FORMAT, REPLACE_1(&m, 2));
    /* Copies: of as many tokens as the group's blocks have. */
    assert_ok(STEP(&m, 0, 1, 0, 0, 0, 0, 2, 2, 4, 0));
    assert_status(KVP_E_FORMAT, STEP(&m, 0, 1, 0, 0, 0, 0, 2, 2, 5, 0));
    assert_ok(STEP(&m, 0, 1, 0, 1, 0, 0, 2, 2, 6, 0));
    assert_status(KVP_E_FORMAT, STEP(&m, 0, 1, 0, 1, 0, 0, 2, 2, 7, 0));
    kvp_wire_mirror_destroy(m.mirror);
}

/* A move from block 1 to 2 of the first group, and from 3 to 4 of the second one; places there. */
#define MOVE(m, src_0, dst_0, src_1, dst_1)                                                        \
    STEP(m, KVPI_WIRE_MOVES, 0, 1, src_0, dst_0, 2, 2, src_1, dst_1, 2, 2, 0)

TEST(test_places_of_moves)
{
    struct by_hand m;
    make_by_hand(&m, 6, 2);
    assert_ok(FULL(&m, TOKENS(6), 3, 2, 2, 2));
    assert_ok(MOVE(&m, 3, 0, 5, 4));
    assert_ok(MOVE(&m, 0, 3, 4, 1));
    assert_status(KVP_E_FORMAT, MOVE(&m, 4, 0, 4, 4));
    assert_status(KVP_E_FORMAT, MOVE(&m, 3, 4, 5, 4));
    assert_status(KVP_E_FORMAT, MOVE(&m, 3, 0, 7, 4));
    assert_status(KVP_E_FORMAT, MOVE(&m, 3, 0, 5, 6));
    assert_status(KVP_E_FORMAT, MOVE(&m, 3, 0, 4, 4)); /* places of one token are alike in twos */
    assert_status(KVP_E_FORMAT, MOVE(&m, 3, 0, 5, 3));
    kvp_wire_mirror_destroy(m.mirror);
}

TEST(test_moves_of_each_group)
{
    scoped_pair p;
    begin_sizes(&p);
    p.item.seq = open_done(&p.w, ints(0), 4);
    /* Positions 10 and 5: in blocks of 4, of 6 and of 2. */
    kvp_slot_move moves[3] = {{5 * 4 + 2, 6 * 4 + 1}, {7 * 6 + 4, 8 * 6 + 5}, {9 * 2, 10 * 2 + 1}};
    kvp_wire_step step = step_of(&p);
    step.moves = moves;
    step.n_moves = step.max_moves = 1;
    tell(&p, &step);
    assert_int_equal(p.news.n_moves, 1);
    assert_memory_equal(p.news.moves, moves, sizeof moves);
    for (uint32_t i = 0; i < 6; i++) {
        int64_t *slot = i % 2 == 0 ? &moves[i / 2].src : &moves[i / 2].dst;
        const int64_t right = *slot, S = i < 2 ? 4 : i < 4 ? 6 : 2;
        const int64_t wrong[] = {right + 1, right % S, right + S * 40, right - 2 * right};
        for (size_t k = 0; k < 4; k++) {
            *slot = wrong[k];
            assert_status(KVP_E_ARG, encode(&p, &step));
        }
        *slot = right;
        assert_ok(encode(&p, &step));
    }
}

/* Groups with blocks of one size have one place in them, which the first group's does not tell. */
TEST(test_moves_that_groups_of_one_size_have_apart)
{
    scoped_pair p;
    kvp_config config = config_of(4, 2, 40);
    config.n_groups = 3;
    config.groups[1].block_tokens = config.groups[2].block_tokens = 6;
    config.max_tree_tokens = 4;
    begin_as(&p, &config);
    p.item.seq = open_done(&p.w, ints(0), 4);
    kvp_slot_move moves[3] = {
        {5 * 4 + 1, 6 * 4 + 1}, {7 * 6 + 1, 8 * 6 + 1}, {9 * 6 + 3, 10 * 6 + 5}};
    kvp_wire_step step = step_of(&p);
    step.moves = moves;
    step.n_moves = step.max_moves = 1;
    assert_status(KVP_E_ARG, encode(&p, &step));
    moves[2] = (kvp_slot_move){9 * 6 + 1, 10 * 6 + 5};
    assert_status(KVP_E_ARG, encode(&p, &step));
    moves[2].dst = 10 * 6 + 1;
    tell(&p, &step);
    assert_memory_equal(p.news.moves, moves, sizeof moves);
}

/* The defaults are the sizes of a cache by its defaults. */
TEST(test_defaults)
{
    kvp_config of_cache;
    kvp_wire_config config, of_it;
    kvp_config_init(&of_cache);
    scoped_world w = make_world(&of_cache);
    memset(&config, 0, sizeof config);
    memset(&of_it, 0, sizeof of_it);
    kvp_wire_config_init(&config);
    assert_ok(kvp_wire_config_of(w.cache, &of_it));
    assert_memory_equal(&config, &of_it, sizeof config);
    world small = small_world(8);
    assert_ok(kvp_wire_config_of(small.cache, &config));
    assert_fields(config, block_tokens, 4, n_blocks, 9, max_seqs, 8, max_row_blocks, 64,
                  max_step_tokens, 8 + 4 * 256);
    end_world(&small);
    assert_status(KVP_E_ARG, kvp_wire_config_of(w.cache, NULL));
    assert_status(KVP_E_ARG, kvp_wire_config_of(NULL, &of_it));
}

TEST_MAIN(NULL, NULL)

/* Worker messages of caches with several layer groups, windows and token trees: rows of every group
 * with their dropped entries, windows, nodes, and the moves of what was accepted. What a cache
 * without these sends does not grow. */
#include "wire_drive.h"
#include "wire_pair.h"

#include <stdlib.h>

enum { STEPS = 3000 };

/* S = U = 4; two groups, the second one with 4 sinks and 4 recent tokens. */
static void begin(struct pair *p, uint32_t n_groups, uint32_t max_tree_tokens)
{
    kvp_config config = config_of(4, 4, 40);
    config.n_groups = n_groups;
    if (n_groups > 1)
        config.groups[1] = (kvp_group){4, 4, 0};
    config.max_tree_tokens = max_tree_tokens;
    begin_as(p, &config);
}

/* --------------------------------------------------------------------------- rows and windows */

TEST(test_each_group_has_its_row)
{
    scoped_pair p;
    begin(&p, 2, 0);
    p.item.seq = open_seq(&p.w, ints(0), 22, NULL);
    kvp_wire_seq seq = tell_item(&p);
    assert_rows(&p, &seq);
    assert_int_equal(seq.windows[0].recent_tokens, 0);
    assert_true(seq.windows[1].sink_tokens == 4 && seq.windows[1].recent_tokens == 4);
    /* Computed: of the second group's six entries, 1 to 3 are dropped. */
    assert_ok(kvp_seq_commit(p.w.cache, p.item.seq, 22));
    seq = tell_item(&p);
    assert_rows(&p, &seq);
    const int32_t *row = seq.row + p.config.max_row_blocks;
    assert_true(row[0] != 0 && row[1] == 0 && row[3] == 0 && row[4] != 0);
    /* A decoding token costs what it costs with one group, until something is dropped. */
    assert_ok(kvp_seq_extend(p.w.cache, p.item.seq, ints(5), 1, 0));
    assert_ok(kvp_seq_commit(p.w.cache, p.item.seq, 23));
    seq = tell_item(&p);
    assert_ok(kvp_seq_extend(p.w.cache, p.item.seq, ints(5), 1, 0));
    assert_ok(kvp_seq_commit(p.w.cache, p.item.seq, 24));
    p.item.step_tokens = 0;
    tell_item(&p);
    assert_ok(kvp_seq_extend(p.w.cache, p.item.seq, ints(5), 1, 0));
    seq = tell_item(&p);
    assert_int_equal(seq.n_blocks, 7);
    assert_rows(&p, &seq);
    /* A worker that joins now is told all of it. */
    kvp_wire_step full = step_of(&p);
    full.flags = KVP_WIRE_FULL;
    seq = tell(&p, &full);
    assert_rows(&p, &seq);
    assert_int_equal(seq.windows[1].recent_tokens, 4);
}

TEST(test_a_long_run_of_dropped_entries_is_short)
{
    scoped_pair p;
    begin(&p, 1, 0);
    p.item.seq = open_done(&p.w, ints(0), 120);
    p.item.first_token = KVP_END;
    assert_ok(kvp_seq_window(p.w.cache, p.item.seq, 0, (kvp_window){4, 8}, NULL));
    kvp_wire_seq seq = tell_item(&p);
    assert_rows(&p, &seq);
    assert_int_equal(seq.n_blocks, 30);
    assert_true(seq.row[1] == 0 && seq.row[26] == 0 && seq.row[27] == 0 && seq.row[29] != 0);
    /* Head, lists, counts; three entries, the run, the window. */
    assert_in_range(p.n_bytes, KVP_WIRE_HEAD_BYTES, KVP_WIRE_HEAD_BYTES + 27);
}

/* With one recent token whole blocks that are computed are dropped, also the last one. */
TEST(test_a_row_of_nothing_but_dropped_entries)
{
    scoped_pair p;
    begin(&p, 1, 0);
    p.item.seq = open_seq(&p.w, ints(0), 16, NULL);
    assert_ok(kvp_seq_window(p.w.cache, p.item.seq, 0, (kvp_window){0, 1}, NULL));
    kvp_wire_seq seq = tell_item(&p);
    assert_rows(&p, &seq);
    assert_ok(kvp_seq_commit(p.w.cache, p.item.seq, 16));
    seq = tell_item(&p);
    assert_rows(&p, &seq);
    assert_true(seq.n_blocks == 4 && seq.row[0] == 0 && seq.row[3] == 0);
    assert_ok(kvp_seq_truncate(p.w.cache, p.item.seq, 8, NULL)); /* behind the row are zeros now */
    kvp_wire_step full = step_of(&p);
    full.flags = KVP_WIRE_FULL;
    seq = tell(&p, &full);
    assert_rows(&p, &seq);
}

TEST(test_windows_are_told_when_they_change)
{
    scoped_pair p;
    begin(&p, 2, 0);
    p.item.seq = open_done(&p.w, ints(0), 6);
    kvp_wire_seq seq = tell_item(&p);
    const size_t n_quiet = (tell_item(&p), p.n_bytes);
    assert_ok(kvp_seq_window(p.w.cache, p.item.seq, 0, (kvp_window){2, 70}, NULL));
    seq = tell_item(&p);
    assert_true(seq.windows[0].sink_tokens == 2 && seq.windows[0].recent_tokens == 70);
    assert_true(seq.windows[1].sink_tokens == 4 && seq.windows[1].recent_tokens == 4);
    assert_int_equal(p.n_bytes, n_quiet + 5); /* bits, number, group, K, R */
    tell_item(&p);
    assert_int_equal(p.n_bytes, n_quiet);
    assert_ok(kvp_seq_window(p.w.cache, p.item.seq, 1, (kvp_window){0, 0}, NULL));
    seq = tell_item(&p);
    assert_int_equal(seq.windows[1].recent_tokens, 0);
    assert_ok(kvp_seq_window(p.w.cache, p.item.seq, 1, (kvp_window){KVP_CHUNKED, 4}, NULL));
    seq = tell_item(&p);
    assert_true(seq.windows[1].sink_tokens == KVP_CHUNKED && seq.windows[1].recent_tokens == 4);
    assert_true(seq.row[p.config.max_row_blocks] == 0); /* the first chunk of the second group */
    assert_rows(&p, &seq);
    /* The id's next sequence does not inherit what was told of this one. */
    const uint32_t closed = 3;
    close_seq(&p.w, p.item.seq);
    p.item.seq = open_seq(&p.w, ints(50), 4, NULL);
    kvp_wire_step step = step_of(&p);
    step.closed = &closed;
    step.n_closed = 1;
    seq = tell(&p, &step);
    assert_int_equal(seq.windows[0].recent_tokens, 0);
    assert_int_equal(seq.windows[1].recent_tokens, 4);
    step.n_items = 0;
    close_seq(&p.w, p.item.seq);
    seq = tell(&p, &step);
    assert_true(seq.status == 0 && seq.windows[1].recent_tokens == 0);
}

/* --------------------------------------------------------------------------------------- trees */

static void grow(struct pair *p, const int32_t *tokens, const int32_t *parents, uint32_t n)
{
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = 1,
                             .seqs = &p->item.seq,
                             .n_tokens = &n,
                             .tokens = tokens};
    assert_ok(kvp_seq_extend_tree(p->w.cache, &batch, parents));
}

static void assert_nodes(const kvp_wire_seq *seq, const int32_t *tokens, const int32_t *parents,
                         uint32_t n)
{
    assert_int_equal(seq->tree_tokens, n);
    assert_memory_equal(seq->node_tokens, tokens, n * sizeof *tokens);
    assert_memory_equal(seq->node_parents, parents, n * sizeof *parents);
}

TEST(test_a_tree_grows_is_replaced_and_accepted)
{
    static const int32_t tokens[] = {70, 80, 90, 100000, 7};
    static const int32_t parents[] = {-1, 0, -1, 1, 3};
    static const int32_t other[] = {70, 81, 90, 100000, 7};
    scoped_pair p;
    begin(&p, 2, 8);
    p.item.seq = open_done(&p.w, ints(0), 6);
    kvp_wire_seq seq = tell_item(&p);
    grow(&p, tokens, parents, 3);
    p.item.step_tokens = 9; /* all there is: six tokens, three nodes */
    seq = tell_item(&p);
    assert_nodes(&seq, tokens, parents, 3);
    assert_int_equal(p.news.items[0].from_node, 0);
    assert_rows(&p, &seq);
    grow(&p, tokens + 3, parents + 3, 2);
    seq = tell_item(&p);
    assert_nodes(&seq, tokens, parents, 5);
    assert_int_equal(p.news.items[0].from_node, 3);
    tell_item(&p);
    assert_int_equal(p.news.items[0].from_node, 5);
    /* As many nodes, and one of another value. */
    assert_ok(kvp_seq_truncate(p.w.cache, p.item.seq, 6, NULL));
    grow(&p, other, parents, 5);
    seq = tell_item(&p);
    assert_nodes(&seq, other, parents, 5);
    assert_int_equal(p.news.items[0].from_node, 1);
    /* Nodes 0, 1, 3 and 4 are accepted: the last two move. */
    const int32_t leaf = 4;
    kvp_slot_move moves[2][7];
    kvp_accept accept = {.struct_size = sizeof accept,
                         .n_seqs = 1,
                         .max_moves = 7,
                         .seqs = &p.item.seq,
                         .leaves = &leaf,
                         .moves = moves[0]};
    assert_ok(kvp_seq_accept(p.w.cache, &accept));
    assert_int_equal(accept.n_moves, 2);
    kvp_wire_step step = step_of(&p);
    step.moves = moves[0];
    step.n_moves = 2;
    step.max_moves = 7;
    seq = tell(&p, &step);
    assert_int_equal(seq.n_tokens, 10);
    assert_int_equal(seq.tree_tokens, 0);
    assert_int_equal(p.news.n_moves, 2);
    assert_memory_equal(p.news.moves, moves[0], 2 * sizeof **moves);
    assert_memory_equal(p.news.moves + 2, moves[1], 2 * sizeof **moves);
    assert_rows(&p, &seq);
    /* Moves are of one message. */
    tell_item(&p);
    assert_int_equal(p.news.n_moves, 0);
}

/* ------------------------------------------------------------------------------- any workload */

static void drive_many(void (*drive)(driver *, uint64_t))
{
    static driver d;
    drive(&d, 1);
    kvp_wire_mirror *mirror;
    assert_ok(kvp_wire_mirror_create(&d.config, NULL, 0, &mirror));
    uint32_t n_moves = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        kvp_wire_news news;
        drive_tell(&d, mirror, &news);
        assert_int_equal(news.n_moves, d.n_told);
        for (size_t group = 0; group < DRIVE_GROUPS; group++)
            assert_memory_equal(news.moves + group * d.n_told, d.told + group * DRIVE_MOVES,
                                d.n_told * sizeof *d.told);
        n_moves += d.n_told;
    }
    for (uint32_t kind = 0; kind < DRIVE_KINDS; kind++)
        assert_true(d.n_changes[kind] > 20 || kind == 6);
    assert_true(n_moves > 50);
    kvp_wire_mirror_destroy(mirror);
    drive_end(&d);
}

TEST(test_the_mirror_is_the_cache_after_each_message)
{
    drive_many(drive_begin_rich);
    drive_many(drive_begin_sizes);
}

/* Cut anywhere, or with one byte of another value, and a checksum that fits: what is refused
 * changes nothing, and nothing reads behind the message's end. */
static void try_sealed(kvp_wire_mirror *mirror, uint8_t *memory, size_t n_memory, const driver *d)
{
    uint8_t *before = malloc(n_memory);
    assert_non_null(before);
    const kvp_wire_config config = drive_roomy(d);
    const canaries rows = drive_put_canaries(mirror, &config);
    memcpy(before, memory, n_memory);
    for (size_t at = KVP_WIRE_HEAD_BYTES; at < 2 * d->n_bytes - KVP_WIRE_HEAD_BYTES; at++) {
        const size_t n = at < d->n_bytes ? at : d->n_bytes;
        uint8_t *bytes = malloc(n);
        assert_non_null(bytes);
        memcpy(bytes, d->bytes, n);
        if (at >= d->n_bytes)
            bytes[at - d->n_bytes + KVP_WIRE_HEAD_BYTES] ^= (uint8_t)(1u << at % 8);
        kvpi_bytes_store(bytes + KVPI_WIRE_AT_LENGTH, n, 4);
        kvpi_bytes_store(bytes + KVPI_WIRE_AT_CHECKSUM, kvpi_wire_checksum(bytes, n), 8);
        if (kvp_wire_mirror_apply(mirror, bytes, n, NULL) != KVP_OK)
            assert_memory_equal(memory, before, n_memory);
        else
            assert_true(at >= d->n_bytes); /* no cut is whole */
        drive_assert_canaries(mirror, &config, &rows);
        memcpy(memory, before, n_memory);
        free(bytes);
    }
    free(before);
}

static void try_damage(void (*drive)(driver *, uint64_t))
{
    static driver d;
    drive(&d, 4);
    kvp_wire_mirror *mirror;
    size_t n_memory;
    const kvp_wire_config config = drive_roomy(&d);
    assert_ok(kvp_wire_mirror_bytes(&config, &n_memory));
    uint8_t *memory = aligned_alloc(64, n_memory);
    assert_non_null(memory);
    memset(memory, 0x77, n_memory);
    assert_ok(kvp_wire_mirror_create(&config, memory, n_memory, &mirror));
    for (uint32_t i = 0; i < 120; i++) {
        drive_change(&d);
        drive_message(&d, i % 16 == 15);
        try_sealed(mirror, memory, n_memory, &d);
        assert_ok(kvp_wire_mirror_apply(mirror, d.bytes, d.n_bytes, NULL));
        assert_int_equal(drive_sum_mirror(mirror, &config), drive_sum_cache(&d));
    }
    kvp_wire_mirror_destroy(mirror);
    free(memory);
    drive_end(&d);
}

TEST(test_damage_is_refused)
{
    try_damage(drive_begin_rich);
    try_damage(drive_begin_sizes);
    try_damage(drive_begin_states);
}

/* ------------------------------------------------------------------------------------ refusals */

/* A step in which the first row of worker id 0 has other entries; nothing goes, nothing comes. */
#define GIVE_ROW(m, ...)                                                                           \
    GIVE_STEP(m, 0, 0, 0, 1, KVPI_WIRE_CHANGE, KVPI_WIRE_ROW, 0, __VA_ARGS__, 0, 0)

/* Nothing closed, no copies, worker id 0 is new: n tokens without values, rows of two blocks. */
#define TOKENS(n)  0, 0, 1, KVPI_WIRE_NEW, 1, n, 0, 0, 0, 0, 0, 0, 2
#define SIX_TOKENS TOKENS(6)
#define ROWS       2, 2, 2, 2 /* 1 2, 3 4 */

TEST(test_nonsense_is_refused)
{
    struct by_hand m;
    make_by_hand(&m, 0, 0);
    assert_ok(GIVE_FULL(&m, 0, SIX_TOKENS, ROWS));
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, 0, SIX_TOKENS, 2, 2)); /* one row of two */
    /* Rows of two blocks have eight slots. */
    assert_ok(GIVE_FULL(&m, 0, TOKENS(8), ROWS));
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, 0, TOKENS(9), ROWS));
    /* Dropped: one, and one that is told; a run longer than the row. */
    assert_ok(GIVE_FULL(&m, 0, SIX_TOKENS, 0, 0, 2, 1, 1)); /* 0 1, 0 0 */
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, 0, SIX_TOKENS, 0, 2, 0, 1));
    /* Entries that are replaced: the second of two, one behind them; both, and one behind them. */
    assert_ok(GIVE_FULL(&m, 0, SIX_TOKENS, ROWS));
    assert_ok(GIVE_ROW(&m, 1, 1, 6));
    assert_status(KVP_E_FORMAT, GIVE_ROW(&m, 1, 2, 6));
    assert_ok(GIVE_ROW(&m, 2, 0, 6, 0, 2));
    assert_status(KVP_E_FORMAT, GIVE_ROW(&m, 2, 0, 6, 1, 2));
    assert_status(KVP_E_FORMAT, GIVE_ROW(&m, 3, 0, 6, 0, 2, 0, 2));
    /* Windows. */
    assert_ok(GIVE_FULL(&m, KVPI_WIRE_MORE, SIX_TOKENS, ROWS, 0));
    assert_ok(GIVE_FULL(&m, KVPI_WIRE_MORE, SIX_TOKENS, ROWS, 1, 1, 1, 3, 5));
    assert_ok(GIVE_FULL(&m, KVPI_WIRE_MORE, SIX_TOKENS, ROWS, 1, 2, 0, 3, 5, 0, 0, 5));
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, KVPI_WIRE_MORE, SIX_TOKENS, ROWS, 1, 0));
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, KVPI_WIRE_MORE, SIX_TOKENS, ROWS, 1, 1, 2, 3, 5));
    assert_status(KVP_E_FORMAT,
                  GIVE_FULL(&m, KVPI_WIRE_MORE, SIX_TOKENS, ROWS, 1, 2, 1, 3, 5, 0, 3, 5));
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, KVPI_WIRE_MORE, SIX_TOKENS, ROWS, 1, 1, 1, 3, 0));
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, KVPI_WIRE_MORE, SIX_TOKENS, ROWS, 4));
    /* Trees: 7, and 8 after it. */
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, KVPI_WIRE_MORE, SIX_TOKENS, ROWS, 2, 0, 0));
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, KVPI_WIRE_MORE, SIX_TOKENS, ROWS, 2, 1, 1, 7, 0));
    assert_status(KVP_E_FORMAT,
                  GIVE_FULL(&m, KVPI_WIRE_MORE, SIX_TOKENS, ROWS, 2, 0, 2, 7, 0, 8, 2));
    assert_status(KVP_E_FORMAT, /* three nodes have no slots */
                  GIVE_FULL(&m, KVPI_WIRE_MORE, SIX_TOKENS, ROWS, 2, 0, 3, 7, 0, 8, 0, 9, 0));
    assert_ok(GIVE_FULL(&m, KVPI_WIRE_MORE, SIX_TOKENS, ROWS, 2, 0, 2, 7, 0, 8, 1));
    assert_status(KVP_E_TOO_SMALL, GIVE_STEP(&m, KVPI_WIRE_MORE, 0, 0, 1, KVPI_WIRE_CHANGE, 0, 2, 0,
                                             3, 7, 0, 8, 0, 9, 0));
    assert_status(KVP_E_FORMAT,
                  GIVE_STEP(&m, KVPI_WIRE_MORE, 0, 0, 1, KVPI_WIRE_CHANGE, 0, 2, 3, 0));
    assert_ok(GIVE_STEP(&m, KVPI_WIRE_MORE, 0, 0, 1, KVPI_WIRE_CHANGE, 0, 2, 2, 0));
    /* Copies, 1 to 2 and 3 to 4: in phase 1 and in the last one; one more would be phase 0. */
    assert_ok(
        GIVE_STEP(&m, 0, 0, 2, 1, 0, 0, 0, 2, 2, 1, 254, 255, 255, 255, 15, 0, 0, 0, 2, 2, 1, 0));
    assert_status(KVP_E_FORMAT, GIVE_STEP(&m, 0, 0, 2, 1, 0, 0, 0, 2, 2, 1, 255, 255, 255, 255, 15,
                                          0, 0, 0, 2, 2, 1, 0));
    /* Two of no values are void, and four follow. */
    assert_status(KVP_E_FORMAT,
                  GIVE_STEP(&m, 0, 0, 0, 1, KVPI_WIRE_CHANGE, KVPI_WIRE_VALUES, 2, 4, 7, 7, 7, 7));
    assert_ok(GIVE_STEP(&m, 0, 0, 0, 1, KVPI_WIRE_CHANGE, KVPI_WIRE_VALUES, 0, 4, 7, 7, 7, 7));
    /* Moves: from place 1 to place 0, blocks 1 to 2, 3 to 4. */
    assert_ok(GIVE_STEP(&m, KVPI_WIRE_MOVES, 0, 0, 1, 1, 0, 2, 2, 2, 2, 0));
    assert_status(KVP_E_FORMAT, GIVE_STEP(&m, KVPI_WIRE_MOVES, 0, 0, 1, 4, 0, 2, 2, 2, 2, 0));
    assert_status(KVP_E_FORMAT, GIVE_STEP(&m, KVPI_WIRE_MOVES, 0, 0, 1, 0, 4, 2, 2, 2, 2, 0));
    assert_status(KVP_E_FORMAT, GIVE_STEP(&m, KVPI_WIRE_MOVES, 0, 0, 0, 0));
    assert_status(KVP_E_TOO_SMALL, GIVE_STEP(&m, KVPI_WIRE_MOVES, 0, 0, 3, 0));
    assert_status(KVP_E_TOO_SMALL, GIVE_STEP(&m, KVPI_WIRE_MOVES, 0, 0, 1, 1, 0, 2, 2, 2, 20, 0));
    kvp_wire_mirror_destroy(m.mirror);
}

/* A sequence of six tokens with n computed and so many in this step, slots r and w. */
#define SLOTS(n, step, r, w) 0, 0, 1, KVPI_WIRE_NEW, 1, 6, n, 0, step, 0, 0, 0, 2, ROWS, 4, r, w
#define NO_TOKENS(r, w)      0, 0, 1, KVPI_WIRE_NEW, 1, 0, 0, 0, 0, 0, 0, 0, 2, ROWS, 4, r, w
#define WAY(by)              2 * (by)

TEST(test_slots_that_cannot_be_are_refused)
{
    struct by_hand m;
    const uint32_t more = KVPI_WIRE_MORE;
    make_by_hand(&m, 0, 0);
    assert_status(KVP_E_TOO_SMALL, GIVE_FULL(&m, more, SLOTS(4, 0, 0, 0))); /* it has none */
    kvp_wire_mirror_destroy(m.mirror);
    m.config.state_slots = 5;
    m.config.host_state_slots = 3;
    assert_ok(kvp_wire_mirror_create(&m.config, NULL, 0, &m.mirror));
    assert_ok(GIVE_FULL(&m, more, SLOTS(4, 2, 4, 0)));
    assert_ok(GIVE_FULL(&m, more, SLOTS(4, 2, 3, WAY(1))));
    assert_status(KVP_E_TOO_SMALL, GIVE_FULL(&m, more, SLOTS(4, 2, 5, 1)));
    assert_status(KVP_E_TOO_SMALL, GIVE_FULL(&m, more, SLOTS(4, 2, 3, WAY(2))));
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, more, SLOTS(4, 2, 1, 3))); /* below 0 */
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, more, SLOTS(4, 2, 1, 1))); /* none to write */
    assert_ok(GIVE_FULL(&m, more, SLOTS(4, 0, 1, 1)));
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, more, NO_TOKENS(1, 0))); /* of no token */
    assert_ok(GIVE_FULL(&m, more, NO_TOKENS(0, WAY(1))));
    assert_ok(GIVE_FULL(&m, more, SLOTS(0, 2, 0, WAY(1))));
    /* Copies: group 2 is that of states, with three slots on the host; there is no group 3. */
    assert_ok(GIVE_STEP(&m, 0, 0, 1, 0, 2, 0, 1, WAY(4), 3, 1, 0)); /* slot 4 to 2 */
    assert_status(KVP_E_TOO_SMALL, GIVE_STEP(&m, 0, 0, 1, 0, 2, 0, 1, WAY(4), 1, 1, 0));
    assert_status(KVP_E_TOO_SMALL, GIVE_STEP(&m, 0, 0, 1, 0, 2, 0, 0, WAY(4), WAY(1), 1, 0));
    assert_status(KVP_E_FORMAT, GIVE_STEP(&m, 0, 0, 1, 0, 2, 0, 1, WAY(4), 3, 2, 0));
    assert_status(KVP_E_FORMAT, GIVE_STEP(&m, 0, 0, 1, 0, 3, 0, 0, WAY(1), WAY(1), 1, 0));
    kvp_wire_mirror_destroy(m.mirror);
}

/* The same with a ring: the number of its slots, and they. Four of the six tokens are not computed,
 * and none of them is in this step. */
#define RING(r, w, ...)                                                                            \
    0, 0, 1, KVPI_WIRE_NEW, 1, 6, 2, 0, 0, 0, 0, 0, 2, ROWS, 8, r, w, __VA_ARGS__

TEST(test_rings_that_cannot_be_are_refused)
{
    struct by_hand m;
    kvp_wire_seq seq;
    const uint32_t more = KVPI_WIRE_MORE;
    make_by_hand(&m, 0, 0);
    assert_status(KVP_E_TOO_SMALL, GIVE_FULL(&m, more, RING(0, 0, 1, 0)));
    kvp_wire_mirror_destroy(m.mirror);
    m.config.state_slots = 24;
    assert_ok(kvp_wire_mirror_create(&m.config, NULL, 0, &m.mirror));
    assert_ok(GIVE_FULL(&m, more, RING(1, WAY(1), 3, WAY(1), WAY(20), 1)));
    assert_ok(kvp_wire_mirror_seq(m.mirror, 0, &seq));
    assert_int_equal(seq.read_slot, 1);
    assert_int_equal(seq.n_write_slots, 4);
    assert_memory_equal(seq.write_slots, ((int32_t[]){3, 23, 22, 2}), 4 * sizeof(int32_t));
    /* The slot that is read may be the last one that is written. */
    assert_ok(GIVE_FULL(&m, more, RING(2, 0, 1, WAY(1))));
    /* A slot that there is not, slot 0, no slot to write, and no ring. */
    assert_status(KVP_E_TOO_SMALL, GIVE_FULL(&m, more, RING(1, WAY(1), 1, WAY(22))));
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, more, RING(1, WAY(1), 1, 3)));
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, more, RING(1, 1, 1, WAY(2))));
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, more, RING(1, WAY(1), 0)));
    /* The same slot twice: as the one to write, as another of the ring. */
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, more, RING(1, WAY(1), 1, 0)));
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, more, RING(1, WAY(1), 2, WAY(3), 0)));
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, more, RING(1, WAY(1), 3, WAY(3), WAY(1), 1)));
    /* More slots than tokens that are not computed, and than a ring has. */
    assert_status(KVP_E_FORMAT, GIVE_FULL(&m, more, RING(1, WAY(1), 4, 2, 2, 2, 2)));
    assert_status(
        KVP_E_FORMAT,
        GIVE_FULL(&m, more, RING(1, 2, 17, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2)));
    /* Slots with and without a ring at once; a bit that says nothing; cut. */
    assert_ok(GIVE_FULL(&m, more, RING(1, WAY(1), 3, 2, 2, 2)));
    assert_status(KVP_E_FORMAT, GIVE_STEP(&m, more, 0, 0, 1, KVPI_WIRE_CHANGE, 0, 12, 1, 2, 1, 2));
    assert_status(KVP_E_FORMAT, GIVE_STEP(&m, more, 0, 0, 1, KVPI_WIRE_CHANGE, 0, 16));
    assert_status(KVP_E_FORMAT, GIVE_STEP(&m, more, 0, 0, 1, KVPI_WIRE_CHANGE, 0, 8, 1, 2, 2, 2));
    /* One token more is computed, and the ring stays as it is. Then it goes with that message. */
    assert_status(KVP_E_FORMAT,
                  GIVE_STEP(&m, 0, 0, 0, 1, KVPI_WIRE_CHANGE, KVPI_WIRE_COMPUTED, WAY(1)));
    assert_ok(kvp_wire_mirror_seq(m.mirror, 0, &seq));
    assert_int_equal(seq.n_write_slots, 4);
    assert_ok(GIVE_STEP(&m, more, 0, 0, 1, KVPI_WIRE_CHANGE, KVPI_WIRE_COMPUTED, WAY(1), 4, 3, 0));
    assert_ok(kvp_wire_mirror_seq(m.mirror, 0, &seq));
    assert_int_equal(seq.n_write_slots, 1);
    assert_int_equal(seq.write_slots[0], 3);
    kvp_wire_mirror_destroy(m.mirror);
}

TEST(test_a_digest_is_of_rings)
{
    struct by_hand m;
    const uint32_t more = KVPI_WIRE_MORE;
    make_by_hand(&m, 0, 0);
    kvp_wire_mirror_destroy(m.mirror);
    m.config.state_slots = 24;
    assert_ok(kvp_wire_mirror_create(&m.config, NULL, 0, &m.mirror));
    assert_ok(GIVE_FULL(&m, more, RING(1, 2, 2, 2, 2)));
    const uint64_t first = kvp_wire_mirror_digest(m.mirror);
    assert_ok(GIVE_FULL(&m, more, RING(1, 2, 2, 2, 4)));
    assert_true(kvp_wire_mirror_digest(m.mirror) != first);
    assert_ok(GIVE_FULL(&m, more, RING(1, 2, 1, 2)));
    assert_true(kvp_wire_mirror_digest(m.mirror) != first);
    assert_ok(GIVE_FULL(&m, more, RING(1, 2, 2, 2, 2)));
    assert_true(kvp_wire_mirror_digest(m.mirror) == first);
    kvp_wire_mirror_destroy(m.mirror);
}

TEST(test_a_digest_is_of_everything)
{
    struct by_hand m;
    uint64_t digests[7];
    make_by_hand(&m, 0, 0);
    const uint32_t more = KVPI_WIRE_MORE;
    for (int i = 0; i < 7; i++) {
        kvp_status status = KVP_E_ARG;
        switch (i) {
        case 0: status = GIVE_FULL(&m, more, SIX_TOKENS, 2, 2, 2, 2, 2, 0, 2, 7, 0, 8, 1); break;
        case 1: status = GIVE_FULL(&m, more, SIX_TOKENS, 2, 2, 2, 4, 2, 0, 2, 7, 0, 8, 1); break;
        case 2: status = GIVE_FULL(&m, more, SIX_TOKENS, 2, 2, 2, 2, 2, 0, 2, 7, 0, 9, 1); break;
        case 3: status = GIVE_FULL(&m, more, SIX_TOKENS, 2, 2, 2, 2, 2, 0, 2, 7, 0, 8, 0); break;
        case 4: status = GIVE_FULL(&m, more, SIX_TOKENS, 2, 2, 2, 2, 2, 0, 1, 7, 0); break;
        case 5: status = GIVE_FULL(&m, more, SIX_TOKENS, 2, 2, 2, 2, 1, 1, 1, 1, 9); break;
        default: status = GIVE_FULL(&m, more, SIX_TOKENS, 2, 2, 2, 2, 1, 1, 1, 0, 9); break;
        }
        assert_ok(status);
        digests[i] = kvp_wire_mirror_digest(m.mirror);
        for (int j = 0; j < i; j++)
            assert_true(digests[i] != digests[j]);
    }
    kvp_wire_mirror_destroy(m.mirror);
}

TEST(test_moves_must_be_of_the_device_and_alike)
{
    scoped_pair p;
    begin(&p, 2, 8);
    kvp_slot_move moves[2][4] = {{{40, 33}, {41, 34}}, {{80, 45}, {81, 46}}};
    kvp_wire_step step = {.struct_size = sizeof step, .moves = moves[0], .max_moves = 4};
    step.n_moves = 2;
    assert_ok(encode(&p, &step));
    /* The first five are in the right place of a block that the device has not. */
    const kvp_slot_move wrong[] = {
        {0, 33}, {INT64_C(41) * 4, 33}, {-40, 33}, {40, 1}, {40, 41 * 4 + 1}, {41, 33}, {40, 34}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        for (int group = 0; group < 2; group++) {
            kvp_slot_move was = moves[group][0];
            moves[group][0] = wrong[i];
            assert_status(KVP_E_ARG, encode(&p, &step));
            moves[group][0] = was;
        }
    }
    step.moves = NULL;
    assert_status(KVP_E_ARG, encode(&p, &step));
    step.moves = moves[0];
    step.max_moves = 1; /* two moves of each group, one apart: alike, but not theirs */
    moves[0][1] = moves[0][2] = moves[0][0];
    assert_status(KVP_E_ARG, encode(&p, &step));
}

TEST(test_sizes_are_kept)
{
    static const int32_t parents[] = {-1, -1, -1};
    scoped_pair p;
    begin(&p, 2, 8);
    p.item.seq = open_done(&p.w, ints(0), 6);
    grow(&p, ints(0), parents, 3);
    kvp_slot_move moves[2] = {{40, 33}, {80, 45}};
    kvp_wire_step step = step_of(&p);
    step.moves = moves;
    step.n_moves = 1;
    step.max_moves = 1;
    assert_ok(encode(&p, &step));
    for (int i = 0; i < 5; i++) {
        kvp_wire_config small = p.config;
        kvp_wire_mirror *mirror;
        kvp_status expected = KVP_E_TOO_SMALL;
        if (i == 0)
            small.max_tree_tokens = 2;
        if (i == 1)
            small.max_moves = 0;
        if (i == 2)
            small.n_blocks = 20; /* the second group's block of the move is 20 */
        if (i == 3) {
            small.n_groups = 1;
            expected = KVP_E_MISMATCH;
        }
        if (i == 4)
            expected = KVP_OK;
        assert_ok(kvp_wire_mirror_create(&small, NULL, 0, &mirror));
        assert_status(expected, kvp_wire_mirror_apply(mirror, p.bytes, p.n_bytes, NULL));
        kvp_wire_mirror_destroy(mirror);
        /* The sender keeps to its own. */
        kvp_wire_sender *sender;
        size_t n_bytes;
        kvp_status created = kvp_wire_sender_create(&small, p.w.cache, NULL, 0, &sender);
        assert_status(i == 2 || i == 3 ? KVP_E_ARG : KVP_OK, created);
        if (created == KVP_OK) {
            assert_status(expected,
                          kvp_wire_sender_encode(sender, &step, p.bytes + 2048, 2048, &n_bytes));
            kvp_wire_sender_destroy(sender);
        }
    }
}

TEST(test_plain_messages_have_nothing_more)
{
    static const uint8_t body[] = {0, 0, 1, 3 << 2 | 3, 1, 6, 6, 0, 0, 0,
                                   6, 0, 1, 2,          3, 4, 5, 2, 2, 2};
    static const uint8_t decode[] = {0, 0, 1, 3 << 2 | 0, 0, 9};
    scoped_pair p;
    begin(&p, 1, 0);
    p.item.seq = open_done(&p.w, ints(0), 6);
    tell_item(&p);
    assert_int_equal(p.bytes[KVPI_WIRE_AT_VERSION], 1);
    assert_int_equal(p.bytes[KVPI_WIRE_AT_GROUPS], 1);
    assert_int_equal(p.bytes[KVPI_WIRE_AT_PARTS], 0);
    assert_int_equal(p.n_bytes, KVP_WIRE_HEAD_BYTES + sizeof body);
    assert_memory_equal(p.bytes + KVP_WIRE_HEAD_BYTES, body, sizeof body);
    assert_ok(kvp_seq_extend(p.w.cache, p.item.seq, ints(9), 1, 0));
    assert_ok(kvp_seq_commit(p.w.cache, p.item.seq, 7));
    tell_item(&p);
    assert_int_equal(p.n_bytes, KVP_WIRE_HEAD_BYTES + sizeof decode);
    assert_memory_equal(p.bytes + KVP_WIRE_HEAD_BYTES, decode, sizeof decode);
}

TEST_MAIN(NULL, NULL)

/* Which prefix is hit when there are several layer groups: the longest of which each group has what
 * it keeps. First every way in which the blocks of a prompt can be on the device, on the host, or
 * gone, against the rule of windows.h; then single cases in full. */
#include <string.h>

#include "groups.h"

enum { S = 4, ENTRIES = 3, GROUPS = 2, BLOCKS = ENTRIES * GROUPS, WAYS = 729 };

enum place { GONE, ON_HOST, HERE };

/* ---------------------------------------------------------------------------- all ways, by rule */

struct scene {
    kvp_window windows[GROUPS];
    uint32_t unit;
    uint32_t spare; /* blocks of the device beside those of the prompt */
    uint32_t full_hit;
    uint32_t max_copies; /* 0: plenty */
    enum place at[ENTRIES][GROUPS];
    uint32_t n_host;
    uint32_t n_gone;
};

/* What a match of a prompt should say. */
struct answer {
    uint32_t hit; /* tokens */
    uint32_t stop;
    uint32_t stop_group;
    uint32_t n_here; /* kept entries of the prefix that are whole */
    uint32_t n_host;
    uint32_t n_inside;      /* copies of the one that is not */
    uint32_t n_inside_here; /* of them, from the device */
    uint32_t host_tokens;
};

/* Of two groups that lack something, GROUPS: none: the one that a match names. */
static uint32_t first_of(const struct scene *scene, uint32_t a, uint32_t b)
{
    const uint32_t first = a < b ? a : b, second = a < b ? b : a;
    return second < GROUPS && scene->windows[first].recent_tokens > 0 &&
                   scene->windows[second].recent_tokens == 0
               ? second
               : first;
}

/* Count what the groups keep of a prefix of n tokens; the group that a match names for what is
 * lacking, GROUPS when nothing is. */
static uint32_t judge(const struct scene *scene, uint32_t n_tokens, uint32_t n, int device_only,
                      struct answer *out)
{
    const uint32_t q = n < n_tokens ? n : n_tokens - 1;
    uint32_t lacking = GROUPS;
    *out = (struct answer){.hit = n};
    for (uint32_t i = 0; i * S < n; i++) {
        const uint32_t n_units = n - i * S < S ? n - i * S : S;
        const uint32_t whole = n_units == S;
        uint32_t any = 0;
        for (uint32_t g = 0; g < GROUPS; g++) {
            const int kept = keeps(scene->windows[g], S, i, q);
            const int host = scene->at[i][g] == ON_HOST && !device_only;
            if (kept && scene->at[i][g] != HERE && !host)
                lacking = first_of(scene, g, lacking);
            out->n_here += whole && kept && scene->at[i][g] == HERE;
            out->n_host += whole && kept && host;
            out->n_inside += !whole && kept;
            out->n_inside_here += !whole && kept && scene->at[i][g] == HERE;
            any |= (uint32_t)(kept && host);
        }
        out->host_tokens += any * n_units;
    }
    return lacking;
}

/* Nodes live while something has a block of them, or of one after them. */
static uint32_t path_of(const struct scene *scene, uint32_t n_tokens)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < ENTRIES; k++)
        n = scene->at[k][0] != GONE || scene->at[k][1] != GONE ? (k + 1) * S : n;
    return n < n_tokens ? n : n_tokens / scene->unit * scene->unit;
}

/* Is all of the prompt there, and must not be hit? */
static int is_full_hit(const struct scene *scene, uint32_t n_tokens, int device_only)
{
    struct answer unused;
    return scene->full_hit == KVP_FULL_HIT_RECOMPUTE && path_of(scene, n_tokens) == n_tokens &&
           judge(scene, n_tokens, n_tokens, device_only, &unused) == GROUPS;
}

/* The hit is a multiple of `grain`. */
static struct answer answer_of(const struct scene *scene, uint32_t n_tokens, int device_only,
                               uint32_t grain)
{
    const uint32_t n_path = path_of(scene, n_tokens);
    const uint32_t room = scene->max_copies == 0 ? UINT32_MAX : scene->max_copies;
    const uint32_t in_units = n_tokens / scene->unit * scene->unit;
    const int full = is_full_hit(scene, n_tokens, device_only);
    struct answer answer = {0};
    struct answer now;
    uint32_t no_room = 0;
    for (uint32_t n = grain; n <= (full ? (n_tokens - 1) / S * S : n_path); n += grain) {
        if (judge(scene, n_tokens, n, device_only, &now) < GROUPS)
            continue;
        if (now.n_host > room - 1 || now.n_host + now.n_inside > room)
            no_room = n;
        else
            answer = now;
    }
    answer.stop = no_room > answer.hit  ? KVP_STOP_NO_ROOM
                  : full                ? KVP_STOP_FULL_HIT
                  : answer.hit < n_path ? KVP_STOP_NO_KV
                  : n_path < in_units   ? KVP_STOP_MISS
                                        : KVP_STOP_END;
    if (answer.stop == KVP_STOP_NO_KV)
        answer.stop_group = judge(scene, n_tokens, answer.hit + scene->unit, device_only, &now);
    return answer;
}

/* Blocks that opening takes, or takes out of the queue. Nothing is held. */
static uint32_t need_of(const struct answer *answer, uint32_t n_tokens)
{
    return ((n_tokens + S - 1) / S - answer->hit / S) * GROUPS + answer->n_host + answer->n_here +
           answer->n_inside_here;
}

/* The same with so many blocks: if sources of a hit inside a block do not fit, only whole blocks
 * are hit. */
static struct answer answer_within(const struct scene *scene, uint32_t n_tokens, int device_only,
                                   uint32_t usable)
{
    struct answer answer = answer_of(scene, n_tokens, device_only, scene->unit);
    if (answer.n_inside_here > 0 && need_of(&answer, n_tokens) > usable) {
        answer = answer_of(scene, n_tokens, device_only, S);
        answer.stop = KVP_STOP_NO_ROOM;
        answer.stop_group = 0;
    }
    return answer;
}

/* Blocks 1 to 6 hold twelve tokens, in both groups. What is to go is of the lowest class and goes
 * first, to the host too, as long as there is room; what is to be on the host goes after it. */
static world make_scene(const struct scene *scene)
{
    const uint32_t n_evict = scene->n_gone + scene->n_host;
    const uint32_t usable = BLOCKS + n_evict % GROUPS + scene->spare;
    kvp_config config = groups_config(S, usable, scene->windows, GROUPS);
    config.unit_tokens = scene->unit;
    config.host_blocks = scene->n_host == 0 ? 0 : scene->n_host + 1;
    config.full_hit = scene->full_hit;
    config.max_copies = scene->max_copies;
    world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), ENTRIES * S, NULL);
    for (uint32_t g = 0; g < GROUPS; g++)
        for (uint32_t i = 0; i < ENTRIES; i++)
            retain_block(&w, row_of(&w, g, seq)[i], scene->at[i][g]);
    assert_ok(kvp_seq_commit(w.cache, seq, ENTRIES * S));
    close_seq(&w, seq);
    for (uint32_t n = GROUPS; n <= n_evict + n_evict % GROUPS; n += GROUPS) {
        evict_blocks(&w, n + scene->spare); /* those freed before, and two more */
        drop_plan(&w);
    }
    assert_fields(stats_of(&w), cached_blocks, BLOCKS - n_evict, host_cached_blocks, scene->n_host);
    return w;
}

static void expect_info(const kvp_open_info *info, const struct answer *answer, uint32_t n_tokens)
{
    const uint32_t hit = answer->hit;
    const uint32_t n_blocks = (n_tokens + S - 1) / S;
    assert_fields(*info, hit_tokens, hit, cached_tokens, hit < n_tokens ? hit : n_tokens - 1, stop,
                  answer->stop, stop_group, answer->stop_group, host_blocks, answer->n_host);
    assert_fields(*info, host_tokens, answer->host_tokens, shared_blocks, answer->n_here,
                  cached_blocks, answer->n_here, copied_tokens, hit % S, taken_blocks,
                  (n_blocks - hit / S) * GROUPS + answer->n_host);
}

/* The plan has the copies of an open; what it evicts is copied to the host. */
static void expect_copies(world *w, const struct answer *answer)
{
    kvp_copy copies[4 * BLOCKS];
    uint32_t n_whole = 0, n_inside = 0;
    const uint32_t n = take_plan(w, copies, 4 * BLOCKS);
    for (uint32_t i = 0; i < n; i++) {
        const int whole = copies[i].n_tokens == S;
        n_whole += copies[i].dst_tier == KVP_DEVICE && whole;
        n_inside += copies[i].dst_tier == KVP_DEVICE && !whole;
        assert_true(whole || copies[i].n_tokens == answer->hit % S);
    }
    assert_int_equal(n_whole, answer->n_host);
    assert_int_equal(n_inside, answer->n_inside);
}

/* An open does what the match said: rows with what is kept, the rest null. */
static void expect_open(world *w, const struct scene *scene, const kvp_prompt *prompt,
                        const struct answer *answer)
{
    const uint32_t n_tokens = prompt->n_tokens;
    const uint32_t hit = answer->hit;
    const uint32_t q = hit < n_tokens ? hit : n_tokens - 1;
    kvp_open_info info;
    const kvp_seq seq = open_with(w, prompt, &info);
    info.evicted_blocks = 0;
    expect_info(&info, answer, n_tokens);
    expect_copies(w, answer);
    for (uint32_t g = 0; g < GROUPS; g++) {
        for (uint32_t i = 0; i < (n_tokens + S - 1) / S; i++) {
            const int kept = keeps(scene->windows[g], S, i, q);
            assert_int_equal(row_of(w, g, seq)[i] != KVP_NULL_BLOCK, kept);
        }
    }
    assert_ok(kvp_seq_commit(w->cache, seq, n_tokens));
    close_seq(w, seq);
}

static void check_scene(const struct scene *scene)
{
    const uint32_t lengths[] = {8, 11, 12, 13, 17};
    scoped_world w = make_scene(scene);
    for (uint32_t i = 0; i < 5; i++) {
        for (uint32_t only = 0; only <= 1; only++) {
            kvp_prompt prompt = prompt_of(ints(0), lengths[i]);
            prompt.flags = only ? KVP_OPEN_DEVICE_ONLY : 0u;
            const struct answer answer = answer_of(scene, lengths[i], (int)only, scene->unit);
            kvp_open_info info;
            assert_ok(kvp_cache_match(w.cache, w.ns, &prompt, &info));
            expect_info(&info, &answer, lengths[i]);
            const kvp_admission admission = can_open(&w, &prompt);
            const uint32_t usable = (uint32_t)stats_of(&w).usable_blocks;
            const struct answer within = answer_within(scene, lengths[i], (int)only, usable);
            const uint32_t need = need_of(&within, lengths[i]);
            assert_fields(admission, need_blocks, need, verdict,
                          need <= usable ? KVP_ADMIT_OK : KVP_ADMIT_NEVER);
            if (need > usable) {
                kvp_seq seq;
                assert_unchanged(&w, assert_status(KVP_E_NEVER, kvp_seq_open(w.cache, w.ns, &prompt,
                                                                             &seq, NULL)));
            }
        }
    }
    kvp_prompt prompt = prompt_of(ints(0), scene->unit == S ? 12 : 11);
    const struct answer answer =
        answer_within(scene, prompt.n_tokens, 0, (uint32_t)stats_of(&w).usable_blocks);
    expect_open(&w, scene, &prompt, &answer);
}

static void check_every_way(const struct scene *like)
{
    for (uint32_t way = 0; way < WAYS; way++) {
        struct scene scene = *like;
        uint32_t rest = way;
        for (uint32_t k = 0; k < BLOCKS; k++, rest /= 3) {
            const enum place place = (enum place)(rest % 3);
            scene.at[k / GROUPS][k % GROUPS] = place;
            scene.n_host += place == ON_HOST;
            scene.n_gone += place == GONE;
        }
        check_scene(&scene);
    }
}

static void check_windows(const kvp_window windows[GROUPS], uint32_t full_hit, uint32_t max_copies)
{
    struct scene scene = {.unit = S, .full_hit = full_hit, .max_copies = max_copies};
    memcpy(scene.windows, windows, sizeof(scene.windows));
    check_every_way(&scene);
}

TEST(test_every_way_of_full_attention_and_a_window)
{
    const kvp_window windows[] = {{0, 0}, {0, 4}};
    check_windows(windows, KVP_FULL_HIT_SHARE, 0);
}

TEST(test_every_way_of_a_window_and_full_attention)
{
    const kvp_window windows[] = {{0, 4}, {0, 0}};
    check_windows(windows, KVP_FULL_HIT_SHARE, 0);
}

TEST(test_every_way_of_two_windows)
{
    const kvp_window windows[] = {{4, 1}, {0, 6}};
    check_windows(windows, KVP_FULL_HIT_RECOMPUTE, 0);
}

TEST(test_every_way_of_full_attention_and_chunks_of_a_block)
{
    const kvp_window windows[] = {{0, 0}, {KVP_CHUNKED, 4}};
    check_windows(windows, KVP_FULL_HIT_SHARE, 0);
}

/* Of 5 tokens, a chunk begins inside a block; of 8, at every second one. */
TEST(test_every_way_of_two_lengths_of_chunks)
{
    const kvp_window windows[] = {{KVP_CHUNKED, 5}, {KVP_CHUNKED, 8}};
    check_windows(windows, KVP_FULL_HIT_RECOMPUTE, 0);
}

TEST(test_every_way_of_chunks_and_a_window_with_little_room)
{
    const kvp_window windows[] = {{KVP_CHUNKED, 6}, {5, 2}};
    check_windows(windows, KVP_FULL_HIT_SHARE, 3);
}

TEST(test_every_way_with_little_room_in_the_plan)
{
    const kvp_window windows[] = {{0, 3}, {5, 2}};
    check_windows(windows, KVP_FULL_HIT_SHARE, 3);
}

TEST(test_every_way_of_two_full_groups_with_little_room)
{
    const kvp_window windows[] = {{0, 0}, {0, 0}};
    check_windows(windows, KVP_FULL_HIT_RECOMPUTE, 3);
}

/* Hits that end inside a block, with and without room for their sources. */
static void check_inside(const kvp_window windows[GROUPS], uint32_t full_hit, uint32_t max_copies)
{
    struct scene scene = {.unit = 2, .full_hit = full_hit, .max_copies = max_copies};
    memcpy(scene.windows, windows, sizeof(scene.windows));
    check_every_way(&scene);
    scene.spare = 2;
    check_every_way(&scene);
    scene.unit = 1;
    check_every_way(&scene);
}

TEST(test_every_way_inside_of_full_attention_and_a_window)
{
    const kvp_window windows[] = {{0, 0}, {0, 3}};
    check_inside(windows, KVP_FULL_HIT_SHARE, 0);
}

TEST(test_every_way_inside_of_a_window_and_chunks)
{
    const kvp_window windows[] = {{3, 2}, {KVP_CHUNKED, 6}};
    check_inside(windows, KVP_FULL_HIT_RECOMPUTE, 0);
}

TEST(test_every_way_inside_with_little_room_in_the_plan)
{
    const kvp_window windows[] = {{0, 0}, {0, 4}};
    check_inside(windows, KVP_FULL_HIT_RECOMPUTE, 3);
}

/* --------------------------------------------------------------------------------- single cases */

static world two_world(uint32_t usable)
{
    const kvp_window windows[] = {{0, 0}, {0, 4}};
    const kvp_config config = groups_config(S, usable, windows, 2);
    return make_world(&config);
}

TEST(test_a_full_hit_is_shared_and_its_last_token_run_again)
{
    scoped_world w = two_world(9);
    kvp_open_info info;
    int64_t slot;
    leave_cached(&w, ints(0), 8);
    const kvp_seq seq = open_seq(&w, ints(0), 8, &info);
    assert_fields(info, hit_tokens, 8, cached_tokens, 7, stop, KVP_STOP_END);
    assert_row_in(&w, 0, seq, 1, 3);
    assert_row_in(&w, 1, seq, 0, 4); /* the query at 7 sees 4 and after */
    assert_ok(kvp_seq_slots(w.cache, seq, 1, 7, 1, &slot));
    assert_int_equal(slot, KVP_NO_SLOT);
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    decode(&w, seq, 4);
    assert_dropped(&w, 1, seq, 0, 2);
}

/* At 8 the window {0, 1} needs nothing of 8 tokens; the last one, run again, needs entry 1. */
TEST(test_a_full_hit_keeps_what_its_last_token_sees)
{
    scoped_world w = window_world(9, 0, 1);
    leave_cached(&w, ints(0), 8);
    assert_queue(&w, 0, 3, 4, 5, 6, 7, 8, 9, 2, 1);
    const kvp_seq longer = open_seq(&w, ints(0), 9, NULL);
    assert_row(&w, longer, 0, 0, 3);
    close_seq(&w, longer);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    assert_row(&w, seq, 0, 2);
    assert_dropped(&w, 0, seq, 0, 1);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(8), 1, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
    assert_dropped(&w, 0, seq, 0, 2);
}

TEST(test_a_full_hit_is_computed_again_where_it_must_be)
{
    const kvp_window windows[] = {{0, 0}, {0, 4}};
    kvp_config config = groups_config(S, 9, windows, 2);
    config.full_hit = KVP_FULL_HIT_RECOMPUTE;
    scoped_world w = make_world(&config);
    kvp_open_info info;
    leave_cached(&w, ints(0), 8);
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 8);
    const kvp_seq seq = open_seq(&w, ints(0), 8, &info);
    assert_fields(info, hit_tokens, 4, stop, KVP_STOP_FULL_HIT, stop_group, 0);
    assert_row_in(&w, 0, seq, 1, 5);
    assert_row_in(&w, 1, seq, 2, 6);
}

/* The plan has room for two copies at a time: three of the prefix of 12 are too many, two of the
 * prefix of 16 are not, though it is longer. */
TEST(test_a_longer_prefix_may_need_fewer_copies)
{
    const kvp_window windows[] = {{0, 0}, {0, 8}};
    kvp_config config = groups_config(S, 8, windows, 2);
    config.host_blocks = 9;
    config.max_copies = 3;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), 16, NULL);
    const int on_host[] = {2, 4, 6, 7}; /* of the window's entries 0, 1, 2; the last of the other */
    for (uint32_t g = 0; g < 2; g++)
        for (uint32_t i = 0; i < 4; i++)
            retain_block(&w, row_of(&w, g, seq)[i], 1);
    for (uint32_t k = 0; k < 4; k++)
        retain_block(&w, on_host[k], 0);
    assert_ok(kvp_seq_commit(w.cache, seq, 16));
    close_seq(&w, seq);
    evict_blocks(&w, 2);
    drop_plan(&w);
    evict_blocks(&w, 4);
    drop_plan(&w);
    assert_int_equal(stats_of(&w).host_cached_blocks, 4);

    kvp_open_info info = match(&w, ints(0), 12); /* entries 1 and 2 of the window: two copies */
    assert_fields(info, hit_tokens, 12, host_blocks, 2);
    info = match(&w, ints(0), 17); /* entry 3 of the one, 2 of the other */
    assert_fields(info, hit_tokens, 16, host_blocks, 2);
    info = match(&w, ints(0), 8); /* entries 0 and 1 */
    assert_int_equal(info.hit_tokens, 8);
}

TEST(test_why_the_path_ended)
{
    scoped_world w = two_world(15);
    const kvp_range uncached = {6, 7};
    kvp_open_info info;
    kvp_prompt prompt = prompt_of(ints(0), 13);
    leave_cached(&w, ints(0), 12);
    prompt.flags = KVP_OPEN_NO_MATCH;
    assert_ok(kvp_cache_match(w.cache, w.ns, &prompt, &info));
    assert_fields(info, stop, KVP_STOP_OFF, hit_tokens, 0);
    prompt.flags = 0;
    prompt.uncached = &uncached;
    prompt.n_uncached = 1;
    assert_ok(kvp_cache_match(w.cache, w.ns, &prompt, &info));
    assert_fields(info, stop, KVP_STOP_UNCACHED, hit_tokens, 4);
    assert_int_equal(match(&w, ints(0), 17).stop, KVP_STOP_MISS);
    assert_int_equal(match(&w, ints(0), 13).stop, KVP_STOP_END);
    (void)open_seq(&w, ints(100), 8, NULL); /* nothing of it is computed */
    info = match(&w, ints(100), 9);
    assert_fields(info, stop, KVP_STOP_NO_KV, stop_group, 0);
}

/* Units of one entry may be in different blocks: the deepest one's block has them all. */
TEST(test_an_entry_with_a_gap_inside_is_hit_up_to_it)
{
    const kvp_window windows[] = {{0, 0}, {0, 8}};
    kvp_config config = groups_config(S, 9, windows, 2);
    config.unit_tokens = 2;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), 4, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 2));
    assert_int_equal(match(&w, ints(0), 5).stop, KVP_STOP_NO_KV);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_int_equal(match(&w, ints(0), 5).hit_tokens, 4);
    assert_ok(kvp_seq_truncate(w.cache, seq, 3, NULL));
    assert_int_equal(match(&w, ints(0), 5).hit_tokens, 4);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(50), 1, 0)); /* written over, in both groups */
    const kvp_open_info info = match(&w, ints(0), 5);
    assert_fields(info, hit_tokens, 2, stop, KVP_STOP_MISS);
}

TEST(test_parked_blocks_are_hit_for_nothing)
{
    const kvp_window windows[] = {{0, 0}, {0, 4}};
    kvp_config config = groups_config(S, 9, windows, 2);
    config.steps = KVP_STEPS_OVERLAPPED;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    const uint64_t step = begin_step(&w);
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_int_equal(block_of(&w, 2).state, KVP_BLOCK_PARKED);
    kvp_prompt prompt = prompt_of(ints(0), 5); /* entry 0 of both groups */
    assert_int_equal(can_open(&w, &prompt).need_blocks, 2);
    const kvp_seq other = open_with(&w, &prompt, NULL);
    assert_row_in(&w, 1, other, 2, 6);
    (void)done_step(&w, step);
    assert_int_equal(block_of(&w, 2).ref_count, 1);
}

/* What a refused open held goes back to where it stood, in every queue. */
TEST(test_a_refused_open_puts_its_hits_back)
{
    const kvp_window windows[] = {{4, 4}, {0, 0}};
    kvp_config config = groups_config(S, 8, windows, 2);
    config.host_blocks = 9;
    config.watermark = 0.25;
    scoped_world w = make_world(&config);
    kvp_seq seq = {77};
    leave_cached(&w, ints(0), 12);
    evict_blocks(&w, 4); /* two free ones, and two that go to the host */
    drop_plan(&w);
    const kvp_seq other = open_seq(&w, ints(100), 3, NULL);
    const kvp_prompt prompt = prompt_of(ints(0), 13);
    const kvp_open_info info = match(&w, ints(0), 13);
    assert_int_equal(info.hit_tokens, 12);
    assert_int_equal(info.host_blocks, 1); /* and the window's entry 1, which it does not need */
    assert_unchanged(&w,
                     assert_status(KVP_E_NEVER, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL)));
    assert_shortage(&w, KVP_E_NEVER, 0, 1);
    close_seq(&w, other);
    assert_int_equal(can_open(&w, &prompt).verdict, KVP_ADMIT_OK); /* nothing is held now */
    assert_int_equal(seq.bits, 77);
}

/* The watermark is for when something is held: what the open itself holds does not count. */
TEST(test_hits_hold_nothing_for_the_watermark)
{
    const kvp_window windows[] = {{0, 0}, {0, 4}};
    kvp_config config = groups_config(S, 9, windows, 2);
    config.watermark = 0.25; /* two blocks */
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 12);
    const kvp_prompt prompt = prompt_of(ints(0), 20);
    assert_int_equal(can_open(&w, &prompt).need_blocks, 8);
    assert_int_equal(can_open(&w, &prompt).verdict, KVP_ADMIT_OK);
    (void)open_with(&w, &prompt, NULL);
}

TEST(test_hits_on_the_host_come_back_entry_by_entry)
{
    const kvp_window windows[] = {{0, 0}, {0, 8}};
    kvp_config config = groups_config(S, 8, windows, 2);
    config.host_blocks = 9;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 8);
    wipe_device(&w); /* 4 3 2 1 become 1 2 3 4 */
    drop_plan(&w);
    const kvp_seq seq = open_seq(&w, ints(0), 9, NULL);
    assert_row_in(&w, 0, seq, 5, 7, 4);
    assert_row_in(&w, 1, seq, 6, 8, 3);
    assert_plan(&w, TO_DEVICE(0, 4, 5, 4), {0, 1, KVP_HOST, KVP_DEVICE, 3, 6, 4},
                TO_DEVICE(0, 2, 7, 4), {0, 1, KVP_HOST, KVP_DEVICE, 1, 8, 4});
    assert_fields(stats_of(&w), cached_blocks, 0, host_cached_blocks, 4);
}

TEST(test_hits_are_retained_and_released_like_any_blocks)
{
    scoped_world w = two_world(9);
    leave_cached(&w, ints(0), 12); /* 4 2 | 6 5 3 1 */
    kvp_prompt prompt = prompt_of(ints(0), 13);
    const kvp_seq seq = open_with(&w, &prompt, NULL);
    assert_row_in(&w, 0, seq, 1, 3, 5, 7);
    assert_row_in(&w, 1, seq, 0, 0, 6, 8);
    assert_queue(&w, 0, 9, 4, 2);
    assert_released(close_seq(&w, seq), 2, 4);
    assert_queue(&w, 0, 7, 8, 9, 4, 2, 6, 5, 3, 1);
}

/* Full attention beside K = 2, R = 9: of 23 tokens, q = 22 keeps entries 0 and from 3 on. */
TEST(test_a_received_prompt_has_no_blocks_for_what_windows_drop)
{
    kvp_config config = config_of(4, 4, 11);
    config.n_groups = 2;
    config.groups[1] = (kvp_group){2, 9, 0};
    scoped_world w = make_world(&config);
    kvp_prompt prompt = prompt_of(ints(1), 23);
    kvp_open_info info;
    assert_int_equal(can_open(&w, &prompt).verdict, KVP_ADMIT_NEVER); /* 12 blocks */
    prompt.flags = KVP_OPEN_RECEIVE;
    assert_int_equal(can_open(&w, &prompt).need_blocks, 10);
    const kvp_seq seq = open_with(&w, &prompt, &info);
    assert_int_equal(info.taken_blocks, 10);
    assert_row_in(&w, 0, seq, 1, 3, 4, 5, 7, 9);
    assert_row_in(&w, 1, seq, 2, 0, 0, 6, 8, 10);
    assert_status(KVP_E_DROPPED, kvp_seq_extend(w.cache, seq, NULL, 0, 1));
    assert_status(KVP_E_DROPPED, kvp_seq_commit(w.cache, seq, 19));
    assert_ok(kvp_seq_commit(w.cache, seq, 22));
    assert_int_equal(stats_of(&w).sealed_units, 5 + 3);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 1));
    assert_int_equal(match(&w, ints(1), 23).hit_tokens, 20);
    assert_int_equal(match(&w, ints(1), 20).hit_tokens, 4); /* its last token sees entry 2 */
    close_seq(&w, seq);
}

TEST_MAIN(NULL, NULL)

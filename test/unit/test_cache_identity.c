/* What makes two units the same: extra keys, and hashes made beforehand; and what keeps a unit out
 * of the cache: token ids and ranges that must not be cached. */
#include <string.h>

#include "world.h"

#include <kvpager/hash.h>

enum { IMAGE = 1, ADAPTER = 2, MAX_HASHES = 16 };

static kvp_config keyed_config(uint32_t S, uint32_t U)
{
    kvp_config config = config_of(S, U, 31);
    config.max_unit_keys = 2;
    return config;
}

static kvp_key key_of(uint32_t type, uint32_t begin, uint32_t end, const char *bytes)
{
    return (kvp_key){type, begin, end, (uint32_t)strlen(bytes), bytes};
}

static kvp_prompt keyed_prompt(uint32_t n_tokens, const kvp_key *keys, uint32_t n_keys)
{
    kvp_prompt prompt = prompt_of(ints(0), n_tokens);
    prompt.keys = keys;
    prompt.n_keys = n_keys;
    return prompt;
}

static uint32_t hit_of(world *w, const kvp_prompt *prompt)
{
    kvp_open_info info;
    assert_ok(kvp_cache_match(w->cache, w->ns, prompt, &info));
    return info.hit_tokens;
}

static void cache_prompt(world *w, const kvp_prompt *prompt)
{
    const kvp_seq seq = open_with(w, prompt, NULL);
    assert_ok(kvp_seq_commit(w->cache, seq, prompt->n_tokens));
    close_seq(w, seq);
}

/* ----------------------------------------------------------------------------------------- keys */

/* An image over tokens 6 to 13 touches units 1 to 3, with offsets 2, -2 and -6. */
TEST(test_every_unit_that_an_image_touches_and_all_that_follow_depend_on_it)
{
    const kvp_config config = keyed_config(4, 4);
    scoped_world w = make_world(&config);
    const kvp_key cat = key_of(IMAGE, 6, 14, "cat");
    const kvp_prompt with_cat = keyed_prompt(20, &cat, 1);
    cache_prompt(&w, &with_cat);
    assert_int_equal(hit_of(&w, &with_cat), 20);

    const kvp_prompt plain = prompt_of(ints(0), 20);
    assert_int_equal(hit_of(&w, &plain), 4); /* the unit before the image is shared */
    const kvp_key others[] = {key_of(IMAGE, 6, 14, "dog"), key_of(IMAGE, 6, 14, "ca"),
                              key_of(ADAPTER, 6, 14, "cat"), key_of(IMAGE, 5, 14, "cat"),
                              key_of(IMAGE, 7, 14, "cat")};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        const kvp_prompt prompt = keyed_prompt(20, &others[i], 1);
        assert_int_equal(hit_of(&w, &prompt), 4);
    }
    /* A key's end matters only by the units it reaches. */
    const kvp_key longer = key_of(IMAGE, 6, 16, "cat");
    const kvp_prompt same_units = keyed_prompt(20, &longer, 1);
    assert_int_equal(hit_of(&w, &same_units), 20);
    const kvp_key longest = key_of(IMAGE, 6, 17, "cat");
    const kvp_prompt one_more = keyed_prompt(20, &longest, 1);
    assert_int_equal(hit_of(&w, &one_more), 16);
}

TEST(test_offsets_say_which_part_of_an_image_a_unit_has)
{
    const kvp_config config = keyed_config(4, 4);
    scoped_world w = make_world(&config);
    int32_t zeros[16] = {0}; /* all units have equal tokens */
    kvp_key image = key_of(IMAGE, 0, 8, "cat");
    kvp_prompt prompt = prompt_of(zeros, 16);
    prompt.keys = &image;
    prompt.n_keys = 1;
    cache_prompt(&w, &prompt);
    image = key_of(IMAGE, 1, 8, "cat");
    assert_int_equal(hit_of(&w, &prompt), 0);
    image = key_of(IMAGE, 4, 8, "cat"); /* offset 0 too, but after another prefix */
    assert_int_equal(hit_of(&w, &prompt), 0);
}

TEST(test_tenants_share_the_prompt_before_their_adapters)
{
    const kvp_config config = keyed_config(4, 4);
    scoped_world w = make_world(&config);
    const kvp_key a = key_of(ADAPTER, 8, 16, "a");
    const kvp_key b = key_of(ADAPTER, 8, 16, "b");
    const kvp_prompt of_a = keyed_prompt(16, &a, 1);
    const kvp_prompt of_b = keyed_prompt(16, &b, 1);
    cache_prompt(&w, &of_a);
    assert_int_equal(hit_of(&w, &of_b), 8);
    cache_prompt(&w, &of_b);
    assert_int_equal(hit_of(&w, &of_a), 16);
    assert_int_equal(hit_of(&w, &of_b), 16);
}

TEST(test_types_and_orders_of_two_keys_never_collide)
{
    kvp_config config = keyed_config(4, 4);
    config.test_hash_bits = 1;
    scoped_world w = make_world(&config);
    const kvp_key sets[][2] = {
        {key_of(IMAGE, 0, 4, "x"), key_of(ADAPTER, 0, 4, "x")},
        {key_of(ADAPTER, 0, 4, "x"), key_of(IMAGE, 0, 4, "x")},
        {key_of(IMAGE, 0, 4, "x"), key_of(IMAGE, 0, 4, "x")},
        {key_of(IMAGE, 0, 4, "x"), key_of(ADAPTER, 0, 4, "")},
        {key_of(IMAGE, 0, 4, ""), key_of(ADAPTER, 0, 4, "x")},
        {key_of(IMAGE, 0, 4, "x"), key_of(ADAPTER, 1, 4, "x")},
    };
    for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++) {
        for (uint32_t n = 1; n <= 2; n++) {
            const kvp_prompt prompt = keyed_prompt(4, sets[i], n);
            const int known = n == 1 && (i == 2 || i == 3 || i == 5); /* {IMAGE "x"} of set 0 */
            assert_int_equal(hit_of(&w, &prompt), known ? 4 : 0);
            cache_prompt(&w, &prompt);
            assert_int_equal(hit_of(&w, &prompt), 4);
        }
    }
}

TEST(test_keys_of_extend_and_fill_make_the_same_units)
{
    const kvp_config config = keyed_config(4, 2);
    scoped_world w = make_world(&config);
    const kvp_key image = key_of(IMAGE, 3, 7, "cat");
    const kvp_prompt prompt = keyed_prompt(12, &image, 1);
    cache_prompt(&w, &prompt);
    for (int fill = 0; fill <= 1; fill++) {
        const kvp_seq seq = open_seq(&w, ints(0), 3, NULL);
        const uint32_t n = 9;
        kvp_batch batch = batch_of(&seq, &n, 1);
        batch.tokens = ints(3);
        batch.keys = &image;
        batch.n_keys = 1;
        if (fill) {
            assert_ok(kvp_seq_extend(w.cache, seq, NULL, n, 0));
            assert_ok(kvp_seq_fill_many(w.cache, &batch));
        } else {
            assert_ok(kvp_seq_extend_many(w.cache, &batch));
        }
        assert_ok(kvp_seq_commit(w.cache, seq, 12));
        assert_int_equal(row_entry(&w, seq, 2), 3); /* adopted what the prompt left */
        (void)take_plan(&w, (kvp_copy[4]){{0}}, 4);
        close_seq(&w, seq);
    }
    assert_int_equal(hit_of(&w, &prompt), 12);
}

TEST(test_truncate_inside_a_unit_keeps_the_keys_that_begin_before)
{
    const kvp_config config = keyed_config(4, 4);
    scoped_world w = make_world(&config);
    const kvp_key keys[] = {key_of(IMAGE, 1, 2, "a"), key_of(IMAGE, 3, 4, "b")};
    const kvp_prompt both = keyed_prompt(4, keys, 2);
    const kvp_prompt first = keyed_prompt(4, keys, 1);
    const kvp_seq seq = open_with(&w, &both, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_ok(kvp_seq_truncate(w.cache, seq, 3, NULL)); /* "b" begins at 3 */
    assert_ok(kvp_seq_extend(w.cache, seq, ints(3), 1, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_int_equal(hit_of(&w, &first), 4);
    assert_int_equal(hit_of(&w, &both), 0); /* its block was written over */
    const kvp_seq child = fork_seq(&w, seq, 1);
    assert_ok(kvp_seq_extend(w.cache, child, ints(1), 3, 0));
    assert_ok(kvp_seq_commit(w.cache, child, 4));
    const kvp_prompt plain = prompt_of(ints(0), 4);
    assert_int_equal(hit_of(&w, &plain), 4); /* "a" begins at 1: not among the child's tokens */
}

TEST(test_more_keys_than_a_unit_may_have_are_refused)
{
    const kvp_config config = keyed_config(4, 4); /* two */
    scoped_world w = make_world(&config);
    kvp_seq seq;
    const kvp_key keys[] = {key_of(IMAGE, 0, 9, "a"), key_of(IMAGE, 1, 5, "b"),
                            key_of(IMAGE, 5, 9, "c")};
    const kvp_prompt three = keyed_prompt(12, keys, 3); /* all touch unit 1 */
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_open(w.cache, w.ns, &three, &seq, NULL)));
    const kvp_prompt two = keyed_prompt(12, keys, 2);
    seq = open_with(&w, &two, NULL);

    /* Keys that wait in the unfilled unit count too. */
    const kvp_seq waiting = open_seq(&w, ints(100), 0, NULL);
    const uint32_t n[] = {3, 1};
    kvp_batch batch = batch_of(&waiting, &n[0], 1);
    const kvp_key early[] = {key_of(IMAGE, 0, 2, "a"), key_of(IMAGE, 1, 2, "b")};
    const kvp_key late = key_of(IMAGE, 3, 4, "c");
    batch.tokens = ints(100);
    batch.keys = early;
    batch.n_keys = 2;
    assert_ok(kvp_seq_extend_many(w.cache, &batch));
    batch.n_tokens = &n[1];
    batch.keys = &late;
    batch.n_keys = 1;
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_extend_many(w.cache, &batch)));
}

TEST(test_keys_that_are_not_well_formed_are_refused)
{
    const kvp_config config = keyed_config(4, 4);
    scoped_world w = make_world(&config);
    static const char bytes[KVP_KEY_MAX_BYTES + 1] = "x";
    const kvp_key bad[][2] = {
        {{IMAGE, 4, 4, 1, bytes}, {IMAGE, 5, 6, 1, bytes}},                     /* empty */
        {{IMAGE, 4, 3, 1, bytes}, {IMAGE, 5, 6, 1, bytes}},                     /* backwards */
        {{IMAGE, 4, 9, 1, bytes}, {IMAGE, 3, 6, 1, bytes}},                     /* descending */
        {{IMAGE, 4, 6, 1, bytes}, {IMAGE, 5, 13, 1, bytes}},                    /* outside */
        {{IMAGE, 4, 6, 1, bytes}, {IMAGE, 5, 6, KVP_KEY_MAX_BYTES + 1, bytes}}, /* too long */
        {{IMAGE, 4, 6, 1, NULL}, {IMAGE, 5, 6, 1, bytes}},                      /* no bytes */
    };
    kvp_open_info info;
    kvp_admission admission;
    kvp_seq seq;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        const kvp_prompt prompt = keyed_prompt(12, bad[i], 2);
        assert_unchanged(
            &w, assert_status(KVP_E_ARG, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL)));
        assert_status(KVP_E_ARG, kvp_cache_match(w.cache, w.ns, &prompt, &info));
        assert_status(KVP_E_ARG, kvp_cache_can_open(w.cache, w.ns, &prompt, &admission));
    }
    const kvp_key good[] = {{IMAGE, 4, 12, KVP_KEY_MAX_BYTES, bytes}, {IMAGE, 4, 5, 0, NULL}};
    const kvp_prompt prompt = keyed_prompt(12, good, 2);
    cache_prompt(&w, &prompt);
    assert_int_equal(hit_of(&w, &prompt), 12);
}

TEST(test_keys_of_an_extend_lie_inside_its_tokens_and_belong_to_one_sequence)
{
    const kvp_config config = keyed_config(4, 4);
    scoped_world w = make_world(&config);
    const kvp_seq seqs[] = {open_seq(&w, ints(0), 4, NULL), open_seq(&w, ints(0), 4, NULL)};
    const uint32_t n[] = {4, 4};
    const kvp_key keys[] = {key_of(IMAGE, 3, 5, "x"), key_of(IMAGE, 7, 9, "x"),
                            key_of(IMAGE, 4, 8, "x")};
    kvp_batch batch = batch_of(seqs, n, 1);
    batch.tokens = ints(4);
    batch.n_keys = 1;
    for (size_t i = 0; i < 2; i++) {
        batch.keys = &keys[i];
        assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_extend_many(w.cache, &batch)));
    }
    batch.keys = &keys[2];
    batch.n_seqs = 2;
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_extend_many(w.cache, &batch)));
    batch.n_seqs = 1;
    batch.tokens = NULL; /* keys go with values */
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_extend_many(w.cache, &batch)));
    batch.tokens = ints(4);
    assert_ok(kvp_seq_extend_many(w.cache, &batch));
}

/* ----------------------------------------------------------------------- hashes made beforehand */

static void hash_prompt(const kvp_prompt *prompt, uint32_t U, kvp_hash *out)
{
    kvp_hash root;
    assert_ok(kvp_hash_root(U, 0, NULL, 0, &root));
    const kvp_hash_input input = {.unit_tokens = U,
                                  .n_tokens = prompt->n_tokens,
                                  .tokens = prompt->tokens,
                                  .n_keys = prompt->n_keys,
                                  .keys = prompt->keys};
    assert_ok(kvp_hash_units(&input, &root, out));
}

TEST(test_given_hashes_do_what_our_own_do)
{
    for (uint32_t n_keys = 0; n_keys <= 1; n_keys++) {
        const kvp_config config = keyed_config(4, 4);
        scoped_world w = make_world(&config);
        kvp_hash hashes[MAX_HASHES];
        const kvp_key key = key_of(IMAGE, 2, 11, "cat");
        kvp_prompt prompt = keyed_prompt(18, &key, n_keys);
        prompt.keys = n_keys == 0 ? NULL : &key;
        hash_prompt(&prompt, 4, hashes);
        kvp_prompt given = prompt;
        given.hashes = hashes;
        cache_prompt(&w, &given);
        assert_int_equal(hit_of(&w, &prompt), 16);
        assert_int_equal(hit_of(&w, &given), 16);
        const kvp_hash sealed = block_of(&w, 2).hash;
        assert_memory_equal(&sealed, &hashes[1], sizeof(sealed));
    }
}

TEST(test_a_wrong_first_or_last_hash_is_refused)
{
    scoped_world w = small_world(15);
    kvp_prompt prompt = prompt_of(ints(0), 17);
    kvp_hash hashes[MAX_HASHES];
    kvp_open_info info;
    kvp_seq seq;
    prompt.hashes = hashes;
    for (uint32_t wrong = 0; wrong < 4; wrong += 3) {
        hash_prompt(&prompt, 4, hashes);
        hashes[wrong].bytes[15] ^= 1;
        assert_unchanged(
            &w, assert_status(KVP_E_ARG, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL)));
        assert_shortage(&w, KVP_E_ARG, 0, 0);
        assert_status(KVP_E_ARG, kvp_cache_match(w.cache, w.ns, &prompt, &info));
    }
    hash_prompt(&prompt, 4, hashes);
    hashes[2].bytes[0] ^= 1; /* the one before the last: the last does not follow from it */
    assert_status(KVP_E_ARG, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL));
    prompt.n_tokens = 3; /* no full unit: nothing to verify */
    assert_ok(kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL));
}

TEST(test_a_wrong_hash_between_costs_hits_and_never_correctness)
{
    scoped_world w = small_world(31);
    kvp_prompt prompt = prompt_of(ints(0), 20);
    const kvp_prompt plain = prompt;
    kvp_hash hashes[MAX_HASHES];
    hash_prompt(&prompt, 4, hashes);
    prompt.hashes = hashes;
    cache_prompt(&w, &plain);
    hashes[1].bytes[14] ^= 1;
    assert_int_equal(hit_of(&w, &prompt), 4);
    assert_int_equal(hit_of(&w, &plain), 20);
    cache_prompt(&w, &prompt); /* the same content once more, under another hash */
    assert_int_equal(hit_of(&w, &plain), 20);
    assert_int_equal(hit_of(&w, &prompt), 20);
    int32_t other[20];
    memcpy(other, ints(0), sizeof(other));
    other[5] = 999;
    kvp_prompt liar = prompt; /* the hash of one prompt with tokens of another */
    liar.tokens = other;
    assert_int_equal(hit_of(&w, &liar), 4);
}

/* As many as a configuration may allow, and no more. */
TEST(test_64_keys_of_a_unit_can_be_hashed_and_65_cannot)
{
    kvp_key keys[65];
    kvp_hash hashes[2] = {{{77}}, {{77}}};
    kvp_hash root;
    assert_ok(kvp_hash_root(4, 0, NULL, 0, &root));
    for (uint32_t i = 0; i < 65; i++)
        keys[i] = (kvp_key){i, 4, 5, 0, NULL};
    kvp_hash_input input = {
        .unit_tokens = 4, .n_tokens = 8, .tokens = ints(0), .n_keys = 65, .keys = keys};
    assert_status(KVP_E_ARG, kvp_hash_units(&input, &root, hashes));
    assert_int_equal(hashes[0].bytes[0], 77);
    input.n_keys = 64;
    assert_ok(kvp_hash_units(&input, &root, hashes));
}

TEST(test_hashes_of_another_root_are_refused)
{
    kvp_config config = config_of(4, 4, 15);
    config.hash_seed = 1;
    scoped_world w = make_world(&config);
    kvp_prompt prompt = prompt_of(ints(0), 8);
    kvp_hash hashes[MAX_HASHES];
    kvp_seq seq;
    hash_prompt(&prompt, 4, hashes); /* seed 0 */
    prompt.hashes = hashes;
    assert_status(KVP_E_ARG, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL));
}

/* ---------------------------------------------------------------------- what must not be cached */

TEST(test_an_uncacheable_token_keeps_its_unit_and_all_later_ones_private)
{
    static const int32_t few[] = {9};
    static const int32_t many[] = {9, 900, 3000, 901, 77777, 902, 903, 904, 905, 906};
    for (int large = 0; large <= 1; large++) {
        kvp_config config = config_of(4, 4, 31);
        config.uncached_tokens = large ? many : few;
        config.n_uncached_tokens = large ? 10 : 1;
        scoped_world w = make_world(&config);
        const kvp_seq seq = open_done(&w, ints(0), 16); /* 9 is in unit 2 */
        assert_int_equal(info_of(&w, seq).public_tokens, 8);
        assert_int_equal(stats_of(&w).private_units, 2);
        const kvp_released released = close_seq(&w, seq);
        assert_fields(released, cached_blocks, 2, freed_blocks, 2);
        const kvp_open_info info = match(&w, ints(0), 16);
        assert_fields(info, hit_tokens, 8, stop, KVP_STOP_UNCACHED);
        const kvp_seq grown = open_seq(&w, ints(0), 8, NULL);
        assert_ok(kvp_seq_extend(w.cache, grown, ints(8), 8, 0));
        assert_int_equal(info_of(&w, grown).public_tokens, 8);
        int32_t back[16];
        assert_ok(kvp_seq_tokens(w.cache, grown, 0, 16, back)); /* kept, though private */
        assert_memory_equal(back, ints(0), sizeof(back));
    }
}

TEST(test_every_id_of_a_large_set_is_found)
{
    int32_t set[33];
    for (int32_t i = 0; i < 33; i++)
        set[i] = 7 * ((i * 5) % 33); /* in no order */
    for (uint32_t n = 1; n <= 33; n += 8) {
        kvp_config config = config_of(1, 1, 3);
        config.uncached_tokens = set;
        config.n_uncached_tokens = n;
        scoped_world w = make_world(&config);
        for (int32_t token = 0; token < 240; token++) {
            int in_set = 0;
            for (uint32_t i = 0; i < n; i++)
                in_set |= set[i] == token;
            assert_int_equal(match(&w, &token, 1).stop, in_set ? KVP_STOP_UNCACHED : KVP_STOP_MISS);
        }
    }
}

TEST(test_ranges_of_a_prompt_are_private_from_the_lowest_begin_on)
{
    scoped_world w = small_world(31);
    const kvp_range ranges[] = {{13, 14}, {6, 7}, {40, 41}};
    kvp_prompt prompt = prompt_of(ints(0), 16);
    prompt.uncached = ranges;
    prompt.n_uncached = 3;
    const kvp_seq seq = open_with(&w, &prompt, NULL);
    assert_int_equal(info_of(&w, seq).public_tokens, 4);
    prompt.n_uncached = 0;
    leave_cached(&w, ints(0), 16);
    prompt.n_uncached = 1;
    kvp_open_info info;
    assert_ok(kvp_cache_match(w.cache, w.ns, &prompt, &info)); /* not matched either */
    assert_fields(info, hit_tokens, 12, stop, KVP_STOP_UNCACHED);
    const kvp_range empty = {5, 5};
    prompt.uncached = &empty;
    assert_status(KVP_E_ARG, kvp_cache_match(w.cache, w.ns, &prompt, &info));
}

TEST(test_a_range_ahead_of_the_tokens_holds_when_they_are_reached)
{
    scoped_world w = small_world(31);
    const kvp_range ahead = {9, 10};
    kvp_prompt prompt = prompt_of(ints(0), 6);
    prompt.uncached = &ahead;
    prompt.n_uncached = 1;
    const kvp_seq by_open = open_with(&w, &prompt, NULL);
    const kvp_seq by_call = open_seq(&w, ints(0), 6, NULL);
    assert_ok(kvp_seq_uncache(w.cache, by_call, ahead));
    assert_ok(kvp_seq_uncache(w.cache, by_call, (kvp_range){20, 30})); /* the lowest counts */
    const kvp_seq seqs[] = {by_open, by_call};
    for (int i = 0; i < 2; i++) {
        assert_ok(kvp_seq_extend(w.cache, seqs[i], ints(6), 10, 0));
        assert_ok(kvp_seq_commit(w.cache, seqs[i], 16));
        assert_int_equal(info_of(&w, seqs[i]).public_tokens, 8);
    }
    const kvp_seq at_edge = open_seq(&w, ints(0), 6, NULL);
    assert_ok(kvp_seq_uncache(w.cache, at_edge, (kvp_range){8, 9}));
    assert_ok(kvp_seq_extend(w.cache, at_edge, ints(6), 6, 0));
    assert_int_equal(info_of(&w, at_edge).public_tokens, 8); /* the unit before is not in it */
    const kvp_seq child = fork_seq(&w, by_call, 6);          /* inherits it */
    assert_ok(kvp_seq_extend(w.cache, child, ints(6), 10, 0));
    assert_int_equal(info_of(&w, child).public_tokens, 8);
}

TEST(test_what_is_public_already_cannot_be_uncached)
{
    scoped_world w = small_world(31);
    const kvp_seq seq = open_seq(&w, ints(0), 10, NULL);
    assert_unchanged(&w,
                     assert_status(KVP_E_STATE, kvp_seq_uncache(w.cache, seq, (kvp_range){7, 20})));
    assert_shortage(&w, KVP_E_STATE, 0, 0);
    assert_status(KVP_E_ARG, kvp_seq_uncache(w.cache, seq, (kvp_range){9, 9}));
    assert_status(KVP_E_ARG, kvp_seq_uncache(w.cache, seq, (kvp_range){9, 8}));
    assert_ok(kvp_seq_uncache(w.cache, seq, (kvp_range){8, 9}));
}

TEST_MAIN(NULL, NULL)

/* How many digests a spill makes: each block of a prefix once, however often it is reported. And
 * what it may not remember: a digest of a block that has other content by now. */
#include "scenes.h"

static uint64_t n_digests; /* that were made */

kvp_status __real_kvp_digest_blocks(kvp_digester *digester, const kvp_hash_input *input,
                                    const kvp_digest *parent, kvp_digest *out_digests);
kvp_status __wrap_kvp_digest_blocks(kvp_digester *digester, const kvp_hash_input *input,
                                    const kvp_digest *parent, kvp_digest *out_digests);

kvp_status __wrap_kvp_digest_blocks(kvp_digester *digester, const kvp_hash_input *input,
                                    const kvp_digest *parent, kvp_digest *out_digests)
{
    n_digests += input->n_tokens / input->unit_tokens;
    return __real_kvp_digest_blocks(digester, input, parent, out_digests);
}

static uint64_t n_keys; /* that were made */

kvp_status __real_kvp_record_key(kvp_digester *digester, const kvp_digest *digest, uint32_t group,
                                 const kvp_slice *slice, kvp_digest *out_key);
kvp_status __wrap_kvp_record_key(kvp_digester *digester, const kvp_digest *digest, uint32_t group,
                                 const kvp_slice *slice, kvp_digest *out_key);

kvp_status __wrap_kvp_record_key(kvp_digester *digester, const kvp_digest *digest, uint32_t group,
                                 const kvp_slice *slice, kvp_digest *out_key)
{
    n_keys++;
    return __real_kvp_record_key(digester, digest, group, slice, out_key);
}

/* While they are set, all prompts have the hashes of these tokens and keys, for the spill. */
static const int32_t *collide_with;
static const kvp_key *collide_keys;

kvp_status __real_kvp_hash_units(const kvp_hash_input *input, const kvp_hash *parent,
                                 kvp_hash *out_hashes);
kvp_status __wrap_kvp_hash_units(const kvp_hash_input *input, const kvp_hash *parent,
                                 kvp_hash *out_hashes);

kvp_status __wrap_kvp_hash_units(const kvp_hash_input *input, const kvp_hash *parent,
                                 kvp_hash *out_hashes)
{
    kvp_hash_input other = *input;
    if (collide_with != NULL)
        other.tokens = collide_with;
    if (collide_keys != NULL)
        other.keys = collide_keys;
    return __real_kvp_hash_units(&other, parent, out_hashes);
}

static uint64_t digests_since(uint64_t before)
{
    return n_digests - before;
}

/* Everything that is sealed is written. Blocks of 4 tokens, records of 2 blocks. */
static void open_writer(world *w, world_options *options)
{
    options->policy = KVP_SPILL_THROUGH;
    options->url = "memory:?size=16MiB";
    options->n_blocks = options->host_blocks = 300;
    open_world(w, options);
}

static kvp_seq compute_open(world *w, const world_line *line, uint32_t hit_tokens)
{
    kvp_open_info info = {0};
    kvp_seq seq = {0};
    assert_int_equal(world_compute(w, line, &seq, &info), KVP_OK);
    assert_int_equal(info.hit_tokens, hit_tokens);
    assert_good(w);
    return seq;
}

static void close_seq(world *w, kvp_seq seq)
{
    assert_int_equal(kvp_seq_close(w->cache, seq, NULL), KVP_OK);
}

/* As after a restart: what is loaded then must be the KV of the line's tokens. */
static void comes_back(world *w, const world_line *line, uint32_t n_tokens)
{
    world_stop(w);
    assert_int_equal(kvp_cache_reset(w->cache), KVP_OK);
    assert_int_equal(world_ask(w, line, 1).hit_tokens, n_tokens);
    close_seq(w, compute_open(w, line, n_tokens < line->n_tokens ? n_tokens : line->n_tokens));
}

TEST(each_block_is_digested_once)
{
    scoped_world w;
    world_options options = world_defaults();
    open_writer(&w, &options);
    const world_line line = line_of(&w, 404, 404, 0); /* 101 blocks, 50 records */
    const uint64_t before = n_digests;
    const kvp_seq seq = compute_open(&w, &line, 0); /* reported 34 times */
    assert_int_equal(digests_since(before), 100);
    world_settle(&w);
    const uint64_t n_keys_before = n_keys;
    for (int i = 0; i < 100; i++)
        assert_int_equal(kvp_spill_sealed(w.spill, seq, w.now), KVP_OK);
    assert_int_equal(n_keys, n_keys_before); /* there is nothing to do, which is known at once */
    close_seq(&w, seq);
    close_seq(&w, compute_open(&w, &line, 404)); /* a hit, by another sequence */
    assert_int_equal(n_keys, n_keys_before + 1); /* the last record is known, and so are all */
    const world_line other = line_of(&w, 404, 320, 1000);
    close_seq(&w, compute_open(&w, &other, 320)); /* and one that goes on with other tokens */
    assert_int_equal(digests_since(before), 100 + 20);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 50 + 10);
    comes_back(&w, &line, 400);
    comes_back(&w, &other, 400);
}

/* What finds no place is offered again when there is one, without digests. */
TEST(what_was_left_out_is_written_later)
{
    scoped_world w;
    world_options options = world_defaults();
    options.more.max_puts = 4;
    open_writer(&w, &options);
    const world_line line = line_of(&w, 404, 404, 0);
    const uint64_t before = n_digests;
    const kvp_seq seq = compute_open(&w, &line, 0);
    uint32_t n_reports = 0;
    for (; world_stats(&w).written < 50 && n_reports < 100; n_reports++) {
        world_settle(&w);
        const kvp_spill_stats stats = world_stats(&w);
        assert_int_equal(kvp_spill_sealed(w.spill, seq, w.now), KVP_OK);
        const uint64_t offered = world_stats(&w).offered;
        assert_true(stats.written == 50 || offered > stats.offered);
        assert_int_equal(kvp_spill_sealed(w.spill, seq, w.now), KVP_OK); /* no place: nothing */
        assert_int_equal(world_stats(&w).offered, offered);
    }
    assert_int_equal(world_stats(&w).written, 50);
    assert_true(n_reports <= 14);
    assert_int_equal(digests_since(before), 100);
    close_seq(&w, seq);
    comes_back(&w, &line, 400);
}

/* The same sequence, and partly the same blocks, but other tokens. */
TEST(other_tokens_have_other_digests)
{
    scoped_world w;
    world_options options = world_defaults();
    open_writer(&w, &options);
    const world_line line = line_of(&w, 64, 64, 0);
    world_line other = line_of(&w, 64, 22, 500);
    const kvp_seq seq = compute_open(&w, &line, 0);
    world_settle(&w);
    const uint64_t before = n_digests;
    assert_int_equal(world_again(&w, &other, seq, 22), KVP_OK);
    assert_int_equal(digests_since(before), 12); /* from token 16 on */
    close_seq(&w, seq);
    world_settle(&w);
    comes_back(&w, &other, 64);
    comes_back(&w, &line, 64);
}

/* Blocks that were evicted have other content: their digests are not believed any more. */
TEST(evicted_blocks_are_digested_anew)
{
    scoped_world w;
    world_options options = world_defaults();
    open_writer(&w, &options);
    for (int32_t i = 0; i < 12; i++) {
        const world_line line = line_of(&w, 400, 0, 1000 * i);
        close_seq(&w, compute_open(&w, &line, 0));
        world_settle(&w);
    }
    for (int32_t i = 0; i < 12; i++) {
        const world_line line = line_of(&w, 400, 0, 1000 * i);
        comes_back(&w, &line, 400);
    }
}

/* A digest begins with the epoch. */
TEST(an_epoch_has_its_own_digests)
{
    scoped_world w;
    world_options options = world_defaults();
    open_writer(&w, &options);
    const world_line line = line_of(&w, 64, 64, 0);
    close_seq(&w, compute_open(&w, &line, 0));
    world_settle(&w);
    /* The KV is still right: only what the store knows it by changes. */
    assert_int_equal(kvp_spill_space(w.spill, w.spaces[0], "one", 3, 9), KVP_OK);
    close_seq(&w, compute_open(&w, &line, 64));
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 16);
    comes_back(&w, &line, 64);
}

/* Blocks in a window are seen while they are in the row. */
TEST(windows_are_digested_once)
{
    scoped_world w;
    world_options options = world_defaults();
    options.n_groups = 2;
    options.windows[1] = (kvp_window){3, 30};
    options.more.max_puts = 200;
    open_writer(&w, &options);
    const world_line line = line_of(&w, 400, 400, 0);
    const uint64_t before = n_digests;
    close_seq(&w, compute_open(&w, &line, 0));
    assert_int_equal(digests_since(before), 100);
    world_settle(&w);
    assert_true(world_stats(&w).written >= 90);
    comes_back(&w, &line, 400);
}

/* Two prefixes with one hash: it finds the blocks of either. The index of the cache has few bits,
 * and `collide_with` makes whole hashes equal. A suffix that was computed behind one of them is
 * never served behind the other, nor the prefix for the other. */
TEST(one_hash_is_no_proof)
{
    enum { PREFIX = 8, ALL = 24 };
    for (int through = 0; through < 2; through++) {
        scoped_world w;
        world_options options = world_defaults();
        options.hash_bits = 1;
        options.policy = through ? KVP_SPILL_THROUGH : KVP_SPILL_SECOND;
        world_open(&w, &options);
        const world_line one = line_of(&w, ALL, 0, 0);
        world_line two = line_of(&w, PREFIX, 0, 1000);
        close_seq(&w, compute_open(&w, &one, 0));
        close_seq(&w, compute_open(&w, &two, 0));
        collide_with = one.tokens;
        if (through)
            world_settle(&w);
        else
            flush_all(&w);
        collide_with = NULL;
        world_line both = two;
        memcpy(both.tokens + PREFIX, one.tokens + PREFIX, (ALL - PREFIX) * sizeof *both.tokens);
        both.n_tokens = ALL;
        world_truth(&w, &both);
        world_stop(&w);
        assert_int_equal(kvp_cache_reset(w.cache), KVP_OK);
        assert_true(world_ask(&w, &both, 1).hit_tokens <= PREFIX);
        kvp_seq seq;
        kvp_open_info info;
        assert_int_equal(world_compute(&w, &both, &seq, &info),
                         KVP_OK); /* and reads what was hit */
        assert_good(&w);
        assert_true(!through || info.hit_tokens == PREFIX);
        close_seq(&w, seq);
        comes_back(&w, &one, ALL);
    }
}

/* The same of prompts that differ in a key only: in its bytes, its type, or its place. */
TEST(one_hash_is_no_proof_of_a_key)
{
    static const kvp_key keys[] = {{.type = 1, .begin = 5, .end = 6, .n_bytes = 3, .bytes = "cat"},
                                   {.type = 1, .begin = 5, .end = 6, .n_bytes = 3, .bytes = "dog"},
                                   {.type = 2, .begin = 5, .end = 6, .n_bytes = 3, .bytes = "cat"},
                                   {.type = 1, .begin = 6, .end = 7, .n_bytes = 3, .bytes = "cat"},
                                   {.type = 1, .begin = 5, .end = 6, .n_bytes = 2, .bytes = "ca"}};
    for (size_t i = 1; i < sizeof keys / sizeof *keys; i++) {
        scoped_world w;
        world_options options = world_defaults();
        world_open(&w, &options);
        world_line one = line_of(&w, 8, 8, 0), two = one;
        one.n_keys = two.n_keys = 1;
        one.keys[0] = keys[0];
        two.keys[0] = keys[i];
        world_truth(&w, &one);
        world_truth(&w, &two);
        close_seq(&w, compute_open(&w, &one, 0));
        close_seq(&w, compute_open(&w, &two, 4));
        collide_keys = one.keys;
        flush_all(&w);
        collide_keys = NULL;
        assert_int_equal(world_stats(&w).written, 1);
        comes_back(&w, &one, 8);
        comes_back(&w, &two, 0);
    }
}

/* A prompt with as many keys as there may be is written, by a report or a flush, and loaded. */
TEST(as_many_keys_as_there_may_be)
{
    for (uint32_t max_keys = WORLD_KEYS - 1; max_keys <= WORLD_KEYS; max_keys++) {
        for (int is_flush = 0; is_flush < 2; is_flush++) {
            kvp_spill_answer answer;
            scoped_world w;
            world_options options = world_defaults();
            const kvp_spill_request request = {.struct_size = sizeof request, .tag = 1};
            options.more.max_keys = max_keys;
            options.policy = is_flush ? KVP_SPILL_SECOND : KVP_SPILL_THROUGH;
            open_world(&w, &options);
            world_line line = line_of(&w, 32, 32, 0);
            for (; line.n_keys < WORLD_KEYS; line.n_keys++)
                line.keys[line.n_keys] = (kvp_key){.type = 1,
                                                   .begin = 4 * line.n_keys,
                                                   .end = 4 * line.n_keys + 1,
                                                   .n_bytes = 3,
                                                   .bytes = "cat"};
            world_truth(&w, &line);
            close_seq(&w, compute_open(&w, &line, 0));
            if (is_flush)
                flush_all(&w);
            world_settle(&w);
            const int fits = max_keys == WORLD_KEYS;
            assert_int_equal(world_stats(&w).written, fits ? 4 : 1);
            const kvp_prompt prompt = world_prompt(&line);
            if (fits)
                comes_back(&w, &line, 32);
            else
                assert_int_equal(
                    kvp_spill_ask(w.spill, w.spaces[0], &prompt, &request, w.now, &answer),
                    KVP_E_TOO_LONG);
        }
    }
}

TEST_MAIN(NULL, NULL)

/* What checks say of a field: its name, its value, its range, and a sentence; and that they refuse
 * what the calls themselves refuse. */
#include "base/why.h"
#include "world.h"

#include <kvpager/attention.h>
#include <kvpager/memory.h>
#include <kvpager/sched.h>
#include <kvpager/transfer.h>
#include <kvpager/wire.h>
#include <stdio.h>
#include <string.h>

static void expect(const kvp_why *why, const char *field, double value, double lowest,
                   double highest, const char *text)
{
    assert_string_equal(why->text, text);
    assert_string_equal(why->field, field);
    assert_true(why->value >= value && why->value <= value);
    assert_true(why->lowest >= lowest && why->lowest <= lowest);
    assert_true(why->highest >= highest && why->highest <= highest);
}

TEST(test_numbers)
{
    kvp_why why;
    memset(&why, 0xA5, sizeof(why));
    assert_int_equal(kvpi_why_range(&why, "a", 5, 5, 5), 0);
    assert_int_equal(kvpi_why_range(NULL, "a", 4, 5, 5), 1);
    assert_int_equal(kvpi_why_range(&why, "a", 4, 5, 5), 1);
    expect(&why, "a", 4, 5, 5, "a is 4, expected 5");
    assert_int_equal(kvpi_why_range(&why, "a", 6, 4, 5), 1);
    expect(&why, "a", 6, 4, 5, "a is 6, expected 4 or 5");
    static const struct {
        uint64_t highest;
        const char *text;
    } ends[] = {{1048575, "a is 0, expected 1 to 2^20-1"},
                {1048576, "a is 0, expected 1 to 2^20"},
                {1048577, "a is 0, expected 1 to 1048577"},
                {65536, "a is 0, expected 1 to 65536"},
                {INT32_MAX, "a is 0, expected 1 to 2^31-1"},
                {INT32_MAX - 1, "a is 0, expected 1 to 2^31-2"},
                {INT32_MAX - 2, "a is 0, expected 1 to 2147483645"},
                {(uint64_t)1 << 63, "a is 0, expected 1 to 2^63"}};
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        assert_int_equal(kvpi_why_range(&why, "a", 0, 1, ends[i].highest), 1);
        assert_string_equal(why.text, ends[i].text);
    }
    char name[256];
    memset(name, 'n', sizeof(name));
    name[255] = 0;
    assert_int_equal(kvpi_why_range(&why, name, UINT64_MAX, 0, 1), 1);
    assert_int_equal(strlen(why.field), sizeof(why.field) - 1);
    assert_int_equal(strlen(why.text), sizeof(why.text) - 1);
}

TEST(test_configuration)
{
    kvp_config good = config_of(4, 4, 7), c;
    kvp_why why;
    size_t bytes;
    assert_ok(kvp_config_check(&good, &why));
    expect(&why, "", 0, 0, 0, "");
    assert_ok(kvp_config_check(&good, NULL));
    assert_status(KVP_E_ARG, kvp_config_check(NULL, NULL));
    assert_status(KVP_E_ARG, kvp_config_check(NULL, &why));
    expect(&why, "config", 0, 0, 0, "config: is NULL");
#define REFUSED(change, field_, value_, lowest_, highest_, text_)                                  \
    do {                                                                                           \
        c = good;                                                                                  \
        change;                                                                                    \
        assert_status(KVP_E_ARG, kvp_config_check(&c, &why));                                      \
        assert_status(KVP_E_ARG, kvp_cache_bytes(&c, &bytes));                                     \
        expect(&why, field_, value_, lowest_, highest_, text_);                                    \
    } while (0)
    REFUSED(c.n_blocks = 1, "n_blocks", 1, 2, INT32_MAX, "n_blocks is 1, expected 2 to 2^31-1");
    REFUSED(
        c.struct_size = 9, "struct_size", 9, 0, 0,
        "struct_size is 9: no size that it may have, or not zeros behind this version's fields");
    REFUSED(c.block_tokens = 65537, "block_tokens", 65537, 1, 65536,
            "block_tokens is 65537, expected 1 to 65536");
    REFUSED(c.unit_tokens = 5, "unit_tokens", 5, 0, 4, "unit_tokens is 5, expected 0 to 4");
    REFUSED(c.unit_tokens = 3, "unit_tokens", 3, 0, 0,
            "unit_tokens is 3: no divisor of block_tokens");
    REFUSED(c.max_seqs = 0, "max_seqs", 0, 1, 1048576, "max_seqs is 0, expected 1 to 2^20");
    REFUSED(c.n_nodes = 2, "n_nodes", 2, good.max_namespaces + 1.0, INT32_MAX - 1.0,
            "n_nodes is 2, expected 5 to 2^31-2");
    REFUSED(c.watermark = 1.0, "watermark", 0, 0, 0, "watermark: expected at least 0 and below 1");
    REFUSED(c.host_blocks = 1, "host_blocks", 1, 2, INT32_MAX,
            "host_blocks is 1, expected 2 to 2^31-1");
    REFUSED(c.groups[1].recent_tokens = 8, "groups[1].recent_tokens", 8, 0, 0,
            "groups[1].recent_tokens is 8, expected 0");
    REFUSED(c.groups[0].sink_tokens = 4, "groups[0].sink_tokens", 4, 0, 0,
            "groups[0].sink_tokens is 4, expected 0");
    REFUSED(c.groups[1].block_tokens = 8, "groups[1].block_tokens", 8, 0, 0,
            "groups[1].block_tokens is 8, expected 0");
    REFUSED(c.groups[0].block_tokens = 65537, "groups[0].block_tokens", 65537, 0, 65536,
            "groups[0].block_tokens is 65537, expected 0 to 65536");
    REFUSED(c.groups[0].block_tokens = 2, "groups[0].block_tokens", 2, 0, 0,
            "groups[0].block_tokens is 2: below unit_tokens");
    REFUSED(c.groups[0].block_tokens = 6, "groups[0].block_tokens", 6, 0, 0,
            "groups[0].block_tokens is 6: no multiple of unit_tokens");
    REFUSED(c.n_groups = 9, "n_groups", 9, 1, 8, "n_groups is 9, expected 1 to 8");
    REFUSED(c.quotas = 2, "quotas", 2, 0, 1, "quotas is 2, expected 0 or 1");
    REFUSED(c.n_uncached_tokens = 1, "uncached_tokens", 0, 0, 0,
            "uncached_tokens: is NULL, and n_uncached_tokens is not 0");
    REFUSED(c.unit_tokens = 1;
            c.n_blocks = INT32_MAX, "n_blocks", INT32_MAX, 0, 0,
            "n_blocks is 2147483647: with host_blocks it has 2^32-1 units or more");
#undef REFUSED
}

TEST(test_prompt)
{
    scoped_world w = small_world(7);
    const kvp_key keys[2] = {{1, 2, 3, 0, NULL}, {1, 1, 3, 0, NULL}};
    const kvp_key long_key = {1, 0, 1, 60, "x"}, behind = {1, 0, 9, 0, NULL};
    const int32_t negative[] = {1, 2, -7};
    const kvp_range empty = {3, 3};
    const kvp_range second_empty[] = {{1, 2}, {3, 3}};
    const kvp_hash hashes[1] = {{{0}}};
    const kvp_prompt good = prompt_of(ints(0), 4);
    kvp_config config;
    kvp_prompt p;
    kvp_seq seq;
    kvp_why why;
    assert_ok(kvp_cache_config_get(w.cache, &config));
    assert_ok(kvp_prompt_check(w.cache, w.ns, &good, &why));
    expect(&why, "", 0, 0, 0, "");
    p = prompt_of(NULL, 0);
    assert_ok(kvp_prompt_check(w.cache, w.ns, &p, &why));
    assert_status(KVP_E_ARG, kvp_prompt_check(NULL, w.ns, &good, &why));
    assert_status(KVP_E_HANDLE, kvp_prompt_check(w.cache, (kvp_ns){1}, &good, NULL));
    assert_status(KVP_E_ARG, kvp_prompt_check(w.cache, w.ns, NULL, NULL));
#define REFUSED(status_, change, field_, text_)                                                    \
    do {                                                                                           \
        p = good;                                                                                  \
        change;                                                                                    \
        assert_status(status_, kvp_seq_open(w.cache, w.ns, &p, &seq, NULL));                       \
        assert_status(status_, kvp_prompt_check(w.cache, w.ns, &p, NULL));                         \
        assert_status(status_, kvp_prompt_check(w.cache, w.ns, &p, &why));                         \
        assert_string_equal(why.text, text_);                                                      \
        assert_string_equal(why.field, field_);                                                    \
    } while (0)
    REFUSED(KVP_E_ARG, p.tokens = NULL, "tokens", "tokens: is NULL, and n_tokens is not 0");
    REFUSED(KVP_E_ARG, p.n_keys = 1, "keys", "keys: is NULL, and n_keys is not 0");
    REFUSED(KVP_E_ARG, p.n_uncached = 1, "uncached", "uncached: is NULL, and n_uncached is not 0");
    REFUSED(KVP_E_ARG, p.retention = 8, "retention", "retention is 8, expected 0 to 7");
    REFUSED(KVP_E_ARG, p.flags = 8, "flags", "flags is 8, expected 0 to 7");
    REFUSED(KVP_E_ARG, p.tokens = negative;
            p.n_tokens = 3, "tokens[2]", "tokens[2] is -7, expected 0 to 2^31-1");
    assert_true(why.value <= -7 && why.value >= -7);
    REFUSED(KVP_E_ARG, p.uncached = &empty;
            p.n_uncached = 1, "uncached[0].end", "uncached[0].end is 3, expected 4 to 2^32-1");
    REFUSED(KVP_E_ARG, p.uncached = second_empty;
            p.n_uncached = 2, "uncached[1].end", "uncached[1].end is 3, expected 4 to 2^32-1");
    REFUSED(KVP_E_ARG, p.keys = keys;
            p.n_keys = 2, "keys[1].begin", "keys[1].begin is 1, expected 2 to 2^32-1");
    REFUSED(KVP_E_ARG, p.keys = &behind;
            p.n_keys = 1, "keys[0].end", "keys[0].end is 9, expected 1 to 4");
    REFUSED(KVP_E_ARG, p.keys = &long_key;
            p.n_keys = 1, "keys[0].n_bytes", "keys[0].n_bytes is 60, expected 0 to 52");
    REFUSED(KVP_E_ARG, p.keys = keys;
            p.n_keys = 1, "n_keys", "n_keys is 1: more than max_unit_keys of them in one unit");
    REFUSED(KVP_E_ARG, p.hashes = hashes, "hashes",
            "hashes: the first or the last is not that of its unit");
    char text[64];
    snprintf(text, sizeof(text), "n_tokens is %u, expected 0 to %u", config.max_seq_tokens + 1,
             config.max_seq_tokens);
    int32_t *many = test_calloc(config.max_seq_tokens + 1, sizeof(*many));
    REFUSED(KVP_E_TOO_LONG, p.tokens = many;
            p.n_tokens = config.max_seq_tokens + 1, "n_tokens", text);
    test_free(many);
    snprintf(text, sizeof(text), "reserve_tokens is %u, expected 0 to %u", config.max_seq_tokens,
             config.max_seq_tokens - 4);
    REFUSED(KVP_E_TOO_LONG, p.reserve_tokens = config.max_seq_tokens, "reserve_tokens", text);
#undef REFUSED
}

TEST(test_scheduler_and_wire)
{
    scoped_world w = small_world(7);
    kvp_sched_config s;
    kvp_wire_config c;
    kvp_why why;
    kvp_sched_config_init(&s);
    memset(&why, 0xA5, sizeof(why));
    assert_ok(kvp_sched_config_check(&s, w.cache, &why));
    expect(&why, "", 0, 0, 0, "");
    assert_status(KVP_E_ARG, kvp_sched_config_check(&s, NULL, &why));
    assert_string_equal(why.text, "cache: is NULL");
    s.max_tries = 0;
    assert_status(KVP_E_ARG, kvp_sched_config_check(&s, w.cache, &why));
    expect(&why, "max_tries", 0, 1, 1024, "max_tries is 0, expected 1 to 1024");
    kvp_sched_config_init(&s);
    s.max_loading = s.max_requests + 1;
    assert_status(KVP_E_ARG, kvp_sched_config_check(&s, w.cache, &why));
    expect(&why, "max_loading", 1025, 0, 1024, "max_loading is 1025, expected 0 to 1024");
    kvp_sched_config_init(&s);
    s.step_tokens = 1;
    s.max_running = 2;
    assert_status(KVP_E_ARG, kvp_sched_config_check(&s, w.cache, &why));
    expect(&why, "step_tokens", 1, 2, 1 << 24, "step_tokens is 1, expected 2 to 2^24");
    kvp_wire_config_init(&c);
    assert_ok(kvp_wire_config_check(&c, NULL));
    memset(&why, 0xA5, sizeof(why));
    assert_ok(kvp_wire_config_check(&c, &why));
    expect(&why, "", 0, 0, 0, "");
    c.epoch = 0;
    assert_status(KVP_E_ARG, kvp_wire_config_check(&c, &why));
    assert_string_equal(why.field, "epoch");
}

TEST(test_attention_shapes)
{
    kvp_attention a;
    kvp_append b;
    kvp_layer layer = {.type = 9};
    kvp_why why;
    kvp_attention_init(&a);
    kvp_append_init(&b);
    assert_status(KVP_E_ARG, kvp_attention_check(&a, &why));
    expect(&why, "layer", 0, 0, 0, "layer: is NULL");
    a.causal = 2;
    assert_status(KVP_E_ARG, kvp_attention_check(&a, &why));
    expect(&why, "causal", 2, 0, 1, "causal is 2, expected 0 or 1");
    b.layer = &layer;
    assert_status(KVP_E_ARG, kvp_append_check(&b, &why));
    expect(&why, "layer.type", 9, 1, 6, "layer.type is 9, expected 1 to 6");
    b.impl = 99;
    assert_status(KVP_E_ARG, kvp_append_check(&b, &why));
    assert_string_equal(why.text, "impl is 99: this processor or this build does not have it");
}

static kvp_status check_sched(const kvp_sched_config *config, kvp_why *why)
{
    scoped_world w = small_world(7);
    return kvp_sched_config_check(config, w.cache, why);
}

/* A check names what is NULL, and a size that no version has. */
#define NAMES(type, name, check)                                                                   \
    do {                                                                                           \
        type in_;                                                                                  \
        kvp_why why_;                                                                              \
        type##_init(&in_);                                                                         \
        assert_status(KVP_E_ARG, check(NULL, &why_));                                              \
        expect(&why_, name, 0, 0, 0, name ": is NULL");                                            \
        in_.struct_size = 1;                                                                       \
        assert_status(KVP_E_ARG, check(&in_, &why_));                                              \
        expect(&why_, "struct_size", 1, 0, 0,                                                      \
               "struct_size is 1: no size that it may have, or not zeros behind this version's "   \
               "fields");                                                                          \
    } while (0)

TEST(test_checks_of_nothing)
{
    NAMES(kvp_config, "config", kvp_config_check);
    NAMES(kvp_sched_config, "config", check_sched);
    NAMES(kvp_wire_config, "config", kvp_wire_config_check);
    NAMES(kvp_transfer_config, "config", kvp_transfer_config_check);
    NAMES(kvp_layout, "layout", kvp_layout_check);
    NAMES(kvp_attention, "attention", kvp_attention_check);
    NAMES(kvp_append, "append", kvp_append_check);
}

TEST_MAIN(NULL, NULL)

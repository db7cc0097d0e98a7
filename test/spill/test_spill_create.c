/* What a spill is created with: defaults, the limits of each field, and what is refused. */
#include <stddef.h>
#include <stdio.h>

#include "scenes.h"

enum { HOST_BLOCKS = 64, RECORD_BYTES = 64 };

#define FIELD(name, lowest, highest)                                                               \
    {                                                                                              \
#name, offsetof(kvp_spill_config, name), sizeof(((kvp_spill_config *)0)->name), lowest,    \
            highest                                                                                \
    }

static const struct field {
    const char *name;
    size_t offset, n_bytes;
    uint64_t lowest, highest;
} fields[] = {
    FIELD(policy, KVP_SPILL_SECOND, KVP_SPILL_THROUGH),
    FIELD(max_asks, 1, 4096),
    FIELD(max_keys, 0, 4096),
    FIELD(max_gets, 1, 1024),
    FIELD(max_puts, 1, 4096),
    FIELD(n_scratch, 1, 64),
    FIELD(spare_blocks, 0, HOST_BLOCKS - 2),
    FIELD(put_bytes, RECORD_BYTES, UINT64_MAX / 2),
    FIELD(get_bytes, 1, UINT64_MAX / 2),
    FIELD(load_bytes_s, 1, UINT64_MAX),
    FIELD(compute_tokens_s, 1, UINT64_MAX),
    FIELD(max_wait_ns, 1, UINT64_MAX / 2),
    FIELD(max_states, 0, 64),
};

static void set_field(kvp_spill_config *config, const struct field *field, uint64_t value)
{
    const uint32_t narrow = (uint32_t)value;
    memcpy((char *)config + field->offset,
           field->n_bytes == sizeof value ? (const void *)&value : &narrow, field->n_bytes);
}

/* Of the world's cache and store. */
static kvp_spill_config config_of(const world *w)
{
    kvp_spill_config config;
    kvp_spill_config_init(&config);
    config.cache = w->cache;
    config.store = w->store;
    config.fingerprint.bytes[31] = 7; /* the last byte is one, too */
    config.slice = (kvp_slice){.n_layers = 1, .n_heads = 1};
    config.block_bytes[0] = config.host[0].stride = RECORD_BYTES / 2;
    config.host[0].base = w->host;
    return config;
}

static void assert_created(const kvp_spill_config *config)
{
    kvp_spill *spill = NULL;
    char why[160] = "x";
    if (kvp_spill_create(config, &spill, why, sizeof why) != KVP_OK)
        fail_msg("%s", why);
    assert_string_equal(why, "");
    kvp_spill_destroy(spill);
}

static void assert_refused(const kvp_spill_config *config, kvp_status expected, const char *text)
{
    kvp_spill *spill = NULL;
    char why[160] = "";
    assert_int_equal(kvp_spill_create(config, &spill, why, sizeof why), expected);
    assert_string_equal(why, text);
    assert_null(spill);
}

TEST(each_field_has_its_limits)
{
    scoped_world w;
    world_options options = world_defaults();
    open_world(&w, &options);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct field *f = &fields[i];
        const uint64_t most = f->n_bytes == sizeof most ? UINT64_MAX : UINT32_MAX;
        const uint64_t values[] = {f->lowest, f->highest, f->lowest - 1, f->highest + 1};
        for (uint32_t k = 0; k < 4; k++) {
            char text[160];
            kvp_spill_config config = config_of(&w);
            set_field(&config, f, values[k]);
            snprintf(text, sizeof text, "%s is %llu, expected %llu to %llu", f->name,
                     (unsigned long long)values[k], (unsigned long long)f->lowest,
                     (unsigned long long)f->highest);
            if (k < 2)
                assert_created(&config);
            else if (k == 2 ? f->lowest > 0 : f->highest < most)
                assert_refused(&config, KVP_E_ARG, text);
        }
    }
}

TEST(defaults_are_those_of_the_header)
{
    kvp_spill_config config;
    memset(&config, 0xFF, sizeof config);
    kvp_spill_config_init(NULL);
    kvp_spill_config_init(&config);
    assert_fields(config, struct_size, sizeof config, policy, KVP_SPILL_SECOND, max_asks, 64,
                  max_keys, 16, max_gets, 32);
    assert_fields(config, max_puts, 64, n_scratch, 4, spare_blocks, 0, min_tokens, 256, put_bytes,
                  256u << 20);
    assert_fields(config, put_bytes_s, 0, put_bytes_day, 0, get_bytes, 256u << 20, load_bytes_s,
                  1000000000, compute_tokens_s, 10000);
    assert_fields(config, max_wait_ns, UINT64_C(10000000000), max_tokens, 0, max_states, 0,
                  record_blocks, 0);
    assert_true(config.give == NULL && config.take == NULL && config.note == NULL);
}

TEST(what_is_missing_is_named)
{
    scoped_world w;
    world_options options = world_defaults();
    open_world(&w, &options);
    kvp_spill *spill;
    kvp_spill_config config = config_of(&w);
    config.struct_size--;
    assert_int_equal(kvp_spill_create(&config, &spill, NULL, 0), KVP_E_ARG);
    config = config_of(&w);
    config.cache = NULL;
    assert_refused(&config, KVP_E_ARG, "cache is NULL");
    config = config_of(&w);
    config.store = NULL;
    assert_refused(&config, KVP_E_ARG, "store is NULL");
    config = config_of(&w);
    config.fingerprint.bytes[31] = 0;
    assert_refused(&config, KVP_E_ARG, "fingerprint is zero: make it with kvp_fingerprint_make");
    config = config_of(&w);
    config.slice.n_layers = 0;
    assert_refused(&config, KVP_E_ARG, "slice.n_layers is 0: a record is of layers and heads");
    for (int i = 0; i < 3; i++) {
        config = config_of(&w);
        if (i == 0)
            config.host[0].base = NULL;
        else if (i == 1)
            config.host[0].stride--;
        else
            config.block_bytes[0] = 0;
        assert_refused(&config, KVP_E_ARG,
                       "host[0] or block_bytes[0]: expected an address, and at most a stride of "
                       "bytes");
    }
}

/* Without a host tier, or loads. */
TEST(a_cache_that_lends_nothing_is_refused)
{
    scoped_world w;
    world_options options = world_defaults();
    open_world(&w, &options);
    for (int i = 0; i < 2; i++) {
        kvp_config cache_config = w.config;
        kvp_spill_config config = config_of(&w);
        cache_config.max_loads = 0;
        cache_config.lent_blocks = 0;
        cache_config.host_blocks = i == 0 ? 0 : HOST_BLOCKS;
        assert_int_equal(kvp_cache_create(&cache_config, NULL, 0, &config.cache), KVP_OK);
        assert_refused(&config, KVP_E_STATE,
                       i == 0 ? "the cache has no host_blocks" : "the cache has no max_loads");
        kvp_cache_destroy(config.cache);
    }
}

/* The sentence is cut to the room that it has. */
TEST(the_reason_is_cut)
{
    kvp_spill *spill;
    scoped_world w;
    world_options options = world_defaults();
    open_world(&w, &options);
    kvp_spill_config config = config_of(&w);
    config.max_asks = 0;
    for (uint32_t n = 0; n <= 9; n++) {
        char why[16] = "###############";
        assert_int_equal(kvp_spill_create(&config, &spill, why, n), KVP_E_ARG);
        assert_memory_equal(why, "max_asks", n > 0 ? n - 1 : 0);
        assert_int_equal(why[n > 0 ? n - 1 : 0], n > 0 ? '\0' : '#');
        assert_int_equal(why[n], '#');
    }
    assert_int_equal(kvp_spill_create(&config, &spill, NULL, 9), KVP_E_ARG);
}

TEST_MAIN(NULL, NULL)

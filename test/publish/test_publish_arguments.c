/* What a publisher refuses, and what it says. */
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "wire.h"
#include "world.h"

static kvp_publisher *const unset = (kvp_publisher *)&unset; /* what a refused call must leave */

static void expect_refused(const kvp_publisher_config *config, kvp_status status, const char *words)
{
    kvp_publisher *publisher = unset;
    char why[512] = "?";
    assert_int_equal(kvp_publisher_open(config, &publisher, why, sizeof(why)), status);
    assert_ptr_equal(publisher, unset);
    if (strstr(why, words) == NULL)
        fail_msg("%s: not in \"%s\"", words, why);
}

#define REFUSED(field, value, status, words)                                                       \
    do {                                                                                           \
        kvp_publisher_config config_ = wire_config();                                              \
        config_.field = value;                                                                     \
        expect_refused(&config_, status, words);                                                   \
    } while (0)

TEST(test_fields_are_named)
{
    REFUSED(struct_size, 3, KVP_E_ARG, "struct_size");
    REFUSED(endpoint, NULL, KVP_E_ARG, "endpoint is missing");
    REFUSED(endpoint, "", KVP_E_ARG, "endpoint is missing");
    REFUSED(topic, NULL, KVP_E_ARG, "topic is NULL");
    REFUSED(unit_tokens, 0, KVP_E_ARG, "unit_tokens is 0, expected 1 to 65536");
    REFUSED(max_units, 0, KVP_E_ARG, "max_units is 0");
    REFUSED(max_units, UINT32_MAX, KVP_E_ARG, "max_units is 4294967295, expected 1 to 268435456");
    REFUSED(group, KVP_GROUPS_MAX, KVP_E_ARG, "group is 8, expected 0 to 7");
    REFUSED(rank, -1, KVP_E_ARG, "rank is -1");
    REFUSED(form, 2, KVP_E_ARG, "form is 2");
    REFUSED(hashes, 2, KVP_E_ARG, "hashes is 2");
    REFUSED(media, 2, KVP_E_ARG, "media is 2");
    REFUSED(replay_form, 2, KVP_E_ARG, "replay_form is 2");
    REFUSED(foreign, 2, KVP_E_ARG, "foreign is 2");
    REFUSED(queue_batches, 0, KVP_E_ARG, "queue_batches is 0");
    REFUSED(kept_batches, 0, KVP_E_ARG, "kept_batches is 0");
    REFUSED(kept_bytes, 1000, KVP_E_ARG, "kept_bytes is 1000, expected 65536 to");
    REFUSED(first_number, 0, KVP_E_ARG, "first_number is 0");
    REFUSED(first_number, UINT64_MAX, KVP_E_ARG, "first_number is");
    REFUSED(endpoint, "tcp://nowhere", KVP_E_IO, "endpoint: cannot bind tcp://nowhere: ");
    REFUSED(replay_endpoint, "ftp://x", KVP_E_IO, "replay_endpoint: cannot bind ftp://x: ");
    expect_refused(NULL, KVP_E_ARG, "struct_size");
}

TEST(test_fields_that_do_not_go_together)
{
    kvp_publisher_config config = wire_config();
    char name[KVP_NAME_MAX_BYTES + 2];
    config.foreign = 1;
    config.hashes = KVP_PUBLISH_VLLM;
    expect_refused(&config, KVP_E_ARG, "one of them");
    config = wire_config();
    config.unit_tokens = KVP_BLOCK_TOKENS_MAX;
    config.kept_bytes = 1 << 20;
    config.max_units = 1;
    expect_refused(&config, KVP_E_ARG, "a batch with unit_tokens 65536");
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    REFUSED(topic, name, KVP_E_ARG, "topic has 256 bytes, expected 0 to 255");
    REFUSED(store_medium, name, KVP_E_ARG, "store_medium has 256 bytes");
}

/* What is kept has room for a batch at least. */
TEST(test_room_for_one_batch)
{
    kvp_publisher_config config = wire_config();
    kvp_publisher *publisher;
    char why[256];
    config.kept_bytes = 65536;
    assert_int_equal(kvp_publisher_open(&config, &publisher, why, sizeof(why)), KVP_E_ARG);
    const char *least = strstr(why, "expected at least ");
    assert_non_null(least);
    config.kept_bytes = strtoull(least + strlen("expected at least "), NULL, 10);
    assert_int_equal(kvp_publisher_open(&config, &publisher, why, sizeof(why)), KVP_OK);
    kvp_publisher_close(publisher);
    config.kept_bytes--;
    expect_refused(&config, KVP_E_ARG, "a batch with unit_tokens 4");
}

TEST(test_a_place_that_is_taken)
{
    kvp_publisher_config config = wire_config();
    kvp_publisher *first;
    char endpoint[256];
    assert_int_equal(kvp_publisher_open(&config, &first, NULL, 0), KVP_OK);
    assert_int_equal(kvp_publisher_endpoint(first, 0, endpoint, sizeof(endpoint)), KVP_OK);
    config.endpoint = endpoint;
    expect_refused(&config, KVP_E_IO, "in use");
    kvp_publisher_close(first);
}

TEST(test_open_without_what_it_needs)
{
    const kvp_publisher_config config = wire_config();
    char why[8];
    assert_int_equal(kvp_publisher_open(&config, NULL, why, sizeof(why)), KVP_E_ARG);
    assert_string_equal(why, "out_pub");
    kvp_publisher_config_init(NULL);
    kvp_publisher_config init;
    kvp_publisher_config_init(&init);
    assert_fields(init, unit_tokens, 16, max_units, 65536, group, 0, rank, 0, form, 0);
    assert_fields(init, hashes, 0, media, 0, replay_form, 0, foreign, 0, first_number, 0);
    assert_fields(init, queue_batches, 10000, kept_batches, 10000, kept_bytes, 8 << 20,
                  heartbeat_ns, 1000000000);
    assert_string_equal(init.topic, "");
    kvp_publisher_close(NULL);
}

TEST(test_calls_without_a_publisher)
{
    kvp_publisher_stats stats;
    kvp_hash root = {{1}};
    char text[4];
    assert_int_equal(kvp_publisher_read(NULL, NULL, 0), KVP_E_ARG);
    assert_int_equal(kvp_publisher_resync(NULL, NULL, 0), KVP_E_ARG);
    assert_int_equal(kvp_publisher_put(NULL, NULL, 0, NULL, 0), KVP_E_ARG);
    assert_int_equal(kvp_publisher_work(NULL, 0, NULL), KVP_E_ARG);
    assert_int_equal(kvp_publisher_stats_get(NULL, &stats), KVP_E_ARG);
    assert_int_equal(kvp_publisher_space(NULL, &root, NULL), KVP_E_ARG);
    assert_int_equal(kvp_publisher_endpoint(NULL, 0, text, sizeof(text)), KVP_E_ARG);
}

TEST(test_calls_of_a_publisher)
{
    kvp_publisher_config config = wire_config();
    kvp_publisher *publisher;
    kvp_hash root = {{1}};
    char text[64];
    config.replay_endpoint = NULL;
    config.hashes = KVP_PUBLISH_VLLM;
    assert_int_equal(kvp_publisher_open(&config, &publisher, NULL, 0), KVP_OK);
    assert_int_equal(kvp_publisher_stats_get(publisher, NULL), KVP_E_ARG);
    assert_int_equal(kvp_publisher_endpoint(publisher, 0, NULL, 9), KVP_E_ARG);
    assert_int_equal(kvp_publisher_endpoint(publisher, 0, text, 0), KVP_E_ARG);
    assert_int_equal(kvp_publisher_endpoint(publisher, 0, text, 3), KVP_E_TOO_SMALL);
    assert_int_equal(kvp_publisher_endpoint(publisher, 1, text, 64), KVP_E_STATE);
    assert_int_equal(kvp_publisher_space(publisher, NULL, NULL), KVP_E_ARG);
    assert_int_equal(kvp_publisher_space(publisher, &root, ""), KVP_E_ARG);
    assert_int_equal(kvp_publisher_space(publisher, &root, "lora"), KVP_E_ARG);
    for (uint32_t i = 0; i < KVP_PUBLISH_SPACES_MAX; i++) {
        root.bytes[1] = (uint8_t)i;
        assert_int_equal(kvp_publisher_space(publisher, &root, NULL), KVP_OK);
    }
    root.bytes[0] = 2;
    assert_int_equal(kvp_publisher_space(publisher, &root, NULL), KVP_E_NO_NAMESPACES);
    kvp_publisher_close(publisher);
}

TEST(test_names_of_adapters)
{
    const kvp_publisher_config config = wire_config();
    kvp_publisher *publisher;
    char name[KVP_NAME_MAX_BYTES + 2];
    kvp_hash root = {{0}};
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(kvp_publisher_open(&config, &publisher, NULL, 0), KVP_OK);
    assert_int_equal(kvp_publisher_space(publisher, &root, name), KVP_E_ARG);
    assert_int_equal(kvp_publisher_space(publisher, &root, ""), KVP_E_ARG);
    assert_int_equal(kvp_publisher_space(publisher, &root, name + 1), KVP_OK);
    assert_int_equal(kvp_publisher_space(publisher, &root, name + 1), KVP_E_ARG); /* once */
    kvp_publisher_close(publisher);
}

TEST(test_a_cache_that_does_not_fit)
{
    const kvp_publisher_config config = wire_config();
    kvp_config made = config_of(8, 8, 4);
    kvp_publisher *publisher;
    made.max_events = 16;
    world w = make_world(&made);
    assert_int_equal(kvp_publisher_open(&config, &publisher, NULL, 0), KVP_OK);
    assert_int_equal(kvp_publisher_read(publisher, w.cache, 0), KVP_E_ARG);
    assert_int_equal(kvp_publisher_resync(publisher, w.cache, 0), KVP_E_ARG);
    assert_int_equal(kvp_publisher_read(publisher, NULL, 0), KVP_E_ARG);
    assert_int_equal(kvp_publisher_resync(publisher, NULL, 0), KVP_E_ARG);
    end_world(&w);
    made = config_of(WIRE_U, WIRE_U, 4);
    w = make_world(&made);
    assert_int_equal(kvp_publisher_read(publisher, w.cache, 0), KVP_E_STATE);
    assert_int_equal(kvp_publisher_resync(publisher, w.cache, 0), KVP_E_STATE);
    end_world(&w);
    kvp_publisher_close(publisher);
}

TEST(test_events_that_are_none_change_nothing)
{
    const kvp_publisher_config config = wire_config();
    static struct wire wire;
    wire_open(&wire, &config);
    wire_unit(&wire, 'a', '\0', "m", NULL);
    wire_unit(&wire, 'b', 'a', "m", NULL);
    kvp_publisher *publisher = wire.publisher;
    kvp_event right[2] = {wire.units[0], wire.units[1]};
    for (int wrong = 0; wrong < 6; wrong++) {
        kvp_event events[2] = {right[0], right[1]};
        kvp_event *event = &events[1];
        event->kind = wrong == 0 ? 0 : event->kind;
        event->tier = wrong == 1 ? 3 : event->tier;
        event->n_tokens = wrong == 2 ? 3 : event->n_tokens;
        event->position = wrong == 3 ? 3 : event->position;
        event->parent = wrong == 4 ? event->hash : event->parent;
        event->root = wrong == 5 ? event->hash : event->root;
        assert_int_equal(kvp_publisher_put(publisher, events, 2, wire.tokens[0], 0), KVP_E_ARG);
    }
    assert_int_equal(kvp_publisher_put(publisher, right, 2, NULL, 0), KVP_E_ARG);
    assert_int_equal(kvp_publisher_put(publisher, NULL, 1, wire.tokens[0], 0), KVP_E_ARG);
    assert_int_equal(kvp_publisher_put(publisher, NULL, 0, NULL, 0), KVP_OK);
    assert_string_equal(wire_read(&wire), "");
    assert_int_equal(kvp_publisher_put(publisher, right, 2, wire.tokens[0], wire.now), KVP_OK);
    assert_string_equal(wire_read(&wire), "+G:ab");
    wire_close(&wire);
}

struct field_row {
    struct bound bound;
    size_t at, n_bytes; /* of the configuration's field */
};

static int open_bounded(const struct bound *bound, void *context, uint64_t value)
{
    const struct field_row *row = context;
    kvp_publisher_config config = wire_config();
    kvp_publisher *publisher;
    (void)bound;
    config.replay_endpoint = NULL;
    config.kept_bytes = row->at == offsetof(kvp_publisher_config, unit_tokens) ? 2 << 20 : 80000;
    config.max_units = 2;
    const uint32_t number = (uint32_t)value;
    memcpy((char *)&config + row->at,
           row->n_bytes == sizeof(value) ? (const void *)&value : (const void *)&number,
           row->n_bytes);
    const kvp_status status = kvp_publisher_open(&config, &publisher, NULL, 0);
    if (status == KVP_OK)
        kvp_publisher_close(publisher);
    return (int)status;
}

#define FIELD(name, least, most)                                                                   \
    {                                                                                              \
        {#name, least, most, KVP_E_ARG, KVP_E_ARG}, offsetof(kvp_publisher_config, name),          \
            sizeof(((kvp_publisher_config *)0)->name)                                              \
    }

TEST(test_fields_at_their_bounds)
{
    static const struct field_row rows[] = {
        FIELD(unit_tokens, 1, KVP_BLOCK_TOKENS_MAX),
        FIELD(group, 0, KVP_GROUPS_MAX - 1),
        FIELD(rank, 0, INT32_MAX),
        FIELD(form, 0, 1),
        FIELD(hashes, 0, 1),
        FIELD(media, 0, 1),
        FIELD(replay_form, 0, 1),
        FIELD(foreign, 0, 1),
        FIELD(queue_batches, 1, 1000000),
        FIELD(kept_batches, 1, 1000000),
        FIELD(first_number, 1, UINT64_C(1) << 62),
    };
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct field_row row = rows[i];
        n_wrong += bounds_wrong(&row.bound, open_bounded, &row);
    }
    assert_int_equal(n_wrong, 0);
}

static struct wire bounded;

struct event_row {
    struct bound bound;
    size_t at; /* 4 bytes of the event */
};

static int put_event(const struct bound *bound, void *context, uint64_t value)
{
    const struct event_row *row = context;
    const uint32_t number = (uint32_t)value;
    kvp_event event = bounded.units[0];
    (void)bound;
    memcpy((char *)&event + row->at, &number, sizeof(number));
    return (int)kvp_publisher_put(bounded.publisher, &event, 1, bounded.tokens[0], 0);
}

TEST(test_events_at_their_bounds)
{
    static const struct event_row rows[] = {
        {{"kind", KVP_EVENT_STORED, KVP_EVENT_CLEARED, KVP_E_ARG, KVP_E_ARG},
         offsetof(kvp_event, kind)},
        {{"tier", KVP_DEVICE, 2, NO_BOUND, KVP_E_ARG}, offsetof(kvp_event, tier)},
        {{"n_tokens", WIRE_U, WIRE_U, KVP_E_ARG, KVP_E_ARG}, offsetof(kvp_event, n_tokens)},
        {{"position", WIRE_U, WIRE_U, KVP_E_ARG, KVP_E_ARG}, offsetof(kvp_event, position)},
    };
    const kvp_publisher_config config = wire_config();
    int n_wrong = 0;
    wire_open(&bounded, &config);
    wire_unit(&bounded, 'a', '\0', "m", NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct event_row row = rows[i];
        n_wrong += bounds_wrong(&row.bound, put_event, &row);
    }
    assert_int_equal(n_wrong, 0);
    wire_close(&bounded);
}

TEST_MAIN(NULL, NULL)

/* The bytes of batches, against those of golden/make_publish_vectors.py, which tells the scene. */
#include <string.h>

#include "wire.h"

#include <golden/publish_vectors.h>

enum { A_UNITS = 6, B_UNITS = 20, EVENTS_MAX = 64 };

struct scene {
    kvp_event events[EVENTS_MAX];
    int32_t tokens[EVENTS_MAX][WIRE_U];
    uint32_t n;
};

static void store_chain(struct scene *scene, const int32_t *tokens, uint32_t n_units, uint32_t tier)
{
    kvp_hash hashes[B_UNITS + 1];
    const kvp_hash_input input = {
        .unit_tokens = WIRE_U, .n_tokens = n_units * WIRE_U, .tokens = tokens};
    assert_int_equal(kvp_hash_root(WIRE_U, 0, "m", 1, &hashes[0]), KVP_OK);
    assert_int_equal(kvp_hash_units(&input, &hashes[0], hashes + 1), KVP_OK);
    for (uint32_t i = 0; i < n_units; i++) {
        scene->events[scene->n] = (kvp_event){.kind = KVP_EVENT_STORED,
                                              .tier = tier,
                                              .hash = hashes[i + 1],
                                              .parent = hashes[i],
                                              .root = hashes[0],
                                              .position = i * WIRE_U,
                                              .n_tokens = WIRE_U};
        memcpy(scene->tokens[scene->n++], tokens + (size_t)i * WIRE_U, sizeof(scene->tokens[0]));
    }
}

static kvp_event removal(const kvp_event *stored, uint32_t tier)
{
    return (kvp_event){.kind = KVP_EVENT_REMOVED, .tier = tier, .hash = stored->hash};
}

static void expect(struct wire *wire, const struct scene *scene, const unsigned char *bytes,
                   size_t n_bytes)
{
    wire->now = UINT64_C(1700000000500000000);
    assert_int_equal(
        kvp_publisher_put(wire->publisher, scene->events, scene->n, scene->tokens[0], wire->now),
        KVP_OK);
    wire_skip(wire);
    assert_int_equal(wire->payload_bytes, n_bytes);
    assert_memory_equal(wire->payload, bytes, n_bytes);
}

/* The scene of three batches against their bytes. */
static void play(const kvp_publisher_config *config, const unsigned char *const bytes[3],
                 const size_t sizes[3])
{
    static struct wire wire;
    static struct scene scene;
    static const struct scene clear = {.events = {{.kind = KVP_EVENT_CLEARED}}, .n = 1};
    struct scene removals = {.n = 3};
    int32_t a[A_UNITS * WIRE_U];
    int32_t b[B_UNITS * WIRE_U];
    for (int32_t i = 0; i < B_UNITS * WIRE_U; i++) {
        b[i] = i;
        a[i % (A_UNITS * WIRE_U)] = i % (A_UNITS * WIRE_U) * 7919 % 50000;
    }
    a[A_UNITS * WIRE_U - 1] = INT32_MAX;
    scene.n = 0;
    store_chain(&scene, a, A_UNITS, KVP_DEVICE);
    store_chain(&scene, b, B_UNITS, KVP_DEVICE);
    store_chain(&scene, a, 2, KVP_HOST);
    store_chain(&scene, a, 2, KVP_PUBLISH_STORE);
    removals.events[0] = removal(&scene.events[A_UNITS - 1], KVP_DEVICE);
    removals.events[1] = removal(&scene.events[1], KVP_HOST);
    removals.events[2] = removal(&scene.events[0], KVP_HOST);
    wire_open(&wire, config);
    expect(&wire, &scene, bytes[0], sizes[0]);
    expect(&wire, &removals, bytes[1], sizes[1]);
    expect(&wire, &clear, bytes[2], sizes[2]);
    wire_close(&wire);
}

#define PLAY(config, name)                                                                         \
    do {                                                                                           \
        const unsigned char *const bytes[3] = {name##_0, name##_1, name##_2};                      \
        const size_t sizes[3] = {sizeof(name##_0), sizeof(name##_1), sizeof(name##_2)};            \
        play(config, bytes, sizes);                                                                \
    } while (0)

static kvp_publisher_config golden_config(void)
{
    kvp_publisher_config config = wire_config();
    config.rank = 3;
    return config;
}

TEST(test_maps)
{
    const kvp_publisher_config config = golden_config();
    PLAY(&config, MAPS);
}

TEST(test_arrays)
{
    kvp_publisher_config config = golden_config();
    config.form = KVP_PUBLISH_ARRAYS;
    PLAY(&config, ARRAYS);
}

TEST(test_hashes_of_vllm)
{
    kvp_publisher_config config = golden_config();
    config.hashes = KVP_PUBLISH_VLLM;
    PLAY(&config, FORMULA);
}

TEST(test_media_of_sglang)
{
    kvp_publisher_config config = golden_config();
    config.media = KVP_PUBLISH_MEDIA_SGLANG;
    PLAY(&config, SGLANG);
}

TEST(test_a_store_may_have_another_name)
{
    kvp_publisher_config config = golden_config();
    struct wire wire;
    config.store_medium = "EXTERNAL";
    wire_open(&wire, &config);
    wire_unit(&wire, 'a', '\0', "m", NULL);
    assert_string_equal(wire_put(&wire, "+Sa"), "+E:a");
    wire_close(&wire);
}

TEST_MAIN(NULL, NULL)

/* wire: see wire.h. */
#include "wire.h"

#include <msgpack/unpack.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

enum { WAIT_MS = 20000, SECOND = 1000000000 };

kvp_publisher_config wire_config(void)
{
    kvp_publisher_config config;
    kvp_publisher_config_init(&config);
    config.endpoint = "tcp://127.0.0.1:*";
    config.replay_endpoint = "tcp://127.0.0.1:*";
    config.unit_tokens = WIRE_U;
    config.max_units = 64;
    config.first_number = 1000;
    config.heartbeat_ns = 0;
    return config;
}

static void *reader(struct wire *wire, int kind, int is_replay)
{
    char endpoint[256];
    void *socket = zmq_socket(wire->zmq, kind);
    assert_int_equal(kvp_publisher_endpoint(wire->publisher, is_replay, endpoint, 256), KVP_OK);
    assert_int_equal(zmq_connect(socket, endpoint), 0);
    return socket;
}

static int is_there(void *socket, int wait_ms)
{
    zmq_pollitem_t item = {.socket = socket, .events = ZMQ_POLLIN};
    assert_true(zmq_poll(&item, 1, wait_ms) >= 0);
    return (item.revents & ZMQ_POLLIN) != 0;
}

void wire_open(struct wire *wire, const kvp_publisher_config *config)
{
    char why[512] = "?";
    memset(wire, 0, sizeof(*wire));
    wire->now = SECOND;
    if (kvp_publisher_open(config, &wire->publisher, why, sizeof(why)) != KVP_OK)
        fail_msg("%s", why);
    assert_string_equal(why, "");
    wire->zmq = zmq_ctx_new();
    wire->sub = reader(wire, ZMQ_SUB, 0);
    assert_int_equal(zmq_setsockopt(wire->sub, ZMQ_SUBSCRIBE, "", 0), 0);
    if (config->replay_endpoint != NULL)
        wire->dealer = reader(wire, ZMQ_DEALER, 1);
    const kvp_event clear = {.kind = KVP_EVENT_CLEARED};
    wire->is_plain = config->replay_form == KVP_PUBLISH_REPLAY_PLAIN;
    do { /* until it has subscribed */
        wire->cleared++;
        assert_int_equal(kvp_publisher_put(wire->publisher, &clear, 1, NULL, wire->now), KVP_OK);
    } while (!is_there(wire->sub, 10));
    wire_skip(wire);
}

void wire_close(struct wire *wire)
{
    kvp_publisher_close(wire->publisher);
    (void)zmq_close(wire->sub);
    if (wire->dealer != NULL)
        (void)zmq_close(wire->dealer);
    (void)zmq_ctx_term(wire->zmq);
}

/* ---------------------------------------------------------------------------------------- units */

void wire_unit(struct wire *wire, char name, char before, const char *space, const kvp_key *key)
{
    kvp_event *event = &wire->units[name - 'a'];
    int32_t *tokens = wire->tokens[name - 'a'];
    memset(event, 0, sizeof(*event));
    event->kind = KVP_EVENT_STORED;
    event->n_tokens = WIRE_U;
    assert_int_equal(kvp_hash_root(WIRE_U, 0, space, strlen(space), &event->root), KVP_OK);
    event->parent = event->root;
    if (before != '\0') {
        event->parent = wire->units[before - 'a'].hash;
        event->position = wire->units[before - 'a'].position + WIRE_U;
    }
    for (int i = 0; i < WIRE_U; i++)
        tokens[i] = name + i;
    const kvp_hash_input input = {.unit_tokens = WIRE_U,
                                  .n_tokens = WIRE_U,
                                  .tokens = tokens,
                                  .first_position = event->position,
                                  .keys = key,
                                  .n_keys = key != NULL};
    assert_int_equal(kvp_hash_units(&input, &event->parent, &event->hash), KVP_OK);
}

uint64_t wire_number(const struct wire *wire, char name)
{
    uint64_t number = 0;
    for (int i = 8; i < 16; i++)
        number = number << 8 | wire->units[name - 'a'].hash.bytes[i];
    return number;
}

static uint32_t tier_of(char letter)
{
    return letter == 'G' ? KVP_DEVICE : letter == 'C' ? KVP_HOST : KVP_PUBLISH_STORE;
}

void wire_put_only(struct wire *wire, const char *events)
{
    kvp_event made[64];
    int32_t tokens[64][WIRE_U];
    uint32_t n = 0;
    for (const char *at = events; *at != '\0'; at++) {
        if (*at == '+' || *at == '-') {
            const char sign = *at++;
            for (const char tier = *at++; *at >= 'a' && *at <= 'z'; at++) {
                made[n] = wire->units[*at - 'a'];
                made[n].kind = sign == '+' ? KVP_EVENT_STORED : KVP_EVENT_REMOVED;
                made[n].tier = tier_of(tier);
                memcpy(tokens[n++], wire->tokens[*at - 'a'], sizeof(tokens[0]));
            }
        } else if (*at == '!') {
            memset(&made[n], 0, sizeof(made[n]));
            made[n].kind = KVP_EVENT_CLEARED;
            if (at[1] != '*')
                assert_int_equal(kvp_hash_root(WIRE_U, 0, at + 1, 1, &made[n].hash), KVP_OK);
            n++;
            at++;
        }
        if (*at == '\0')
            break;
    }
    assert_int_equal(kvp_publisher_put(wire->publisher, made, n, tokens[0], wire->now), KVP_OK);
}

const char *wire_put(struct wire *wire, const char *events)
{
    wire_put_only(wire, events);
    return wire_read(wire);
}

/* ------------------------------------------------------------------------------------ as a text */

static void add(struct wire *wire, const char *format, uint64_t number, const char *text)
{
    const size_t n = strlen(wire->text);
    const int more =
        text != NULL ? snprintf(wire->text + n, WIRE_TEXT - n, format, text)
                     : snprintf(wire->text + n, WIRE_TEXT - n, format, (unsigned long long)number);
    assert_true(more >= 0 && (size_t)more < WIRE_TEXT - n);
}

static void add_letter(struct wire *wire, uint64_t number)
{
    for (char name = 'a'; name < 'a' + WIRE_UNITS; name++) {
        const char text[2] = {name, '\0'};
        if (wire_number(wire, name) == number) {
            add(wire, "%s", 0, text);
            return;
        }
    }
    add(wire, "<%llu>", number, NULL);
}

static const msgpack_object *field(const msgpack_object *event, const char *name)
{
    assert_int_equal(event->type, MSGPACK_OBJECT_MAP);
    for (uint32_t i = 0; i < event->via.map.size; i++) {
        const msgpack_object *key = &event->via.map.ptr[i].key;
        if (key->via.str.size == strlen(name) && memcmp(key->via.str.ptr, name, strlen(name)) == 0)
            return &event->via.map.ptr[i].val;
    }
    fail_msg("no field %s", name);
    return NULL;
}

static int is_text(const msgpack_object *value, const char *text)
{
    return value->type == MSGPACK_OBJECT_STR && value->via.str.size == strlen(text) &&
           memcmp(value->via.str.ptr, text, strlen(text)) == 0;
}

static void check_tokens(const struct wire *wire, const msgpack_object *event)
{
    const msgpack_object *hashes = field(event, "block_hashes");
    const msgpack_object *tokens = field(event, "token_ids");
    assert_int_equal(field(event, "block_size")->via.u64, WIRE_U);
    assert_int_equal(tokens->via.array.size, WIRE_U * hashes->via.array.size);
    for (uint32_t i = 0; i < hashes->via.array.size; i++) {
        for (char name = 'a'; name < 'a' + WIRE_UNITS; name++) {
            if (wire_number(wire, name) == hashes->via.array.ptr[i].via.u64) {
                for (uint32_t t = 0; t < WIRE_U; t++) {
                    assert_int_equal(tokens->via.array.ptr[i * WIRE_U + t].via.u64,
                                     wire->tokens[name - 'a'][t]);
                }
            }
        }
    }
}

static void add_event(struct wire *wire, const msgpack_object *event)
{
    const msgpack_object *type = field(event, "type");
    if (is_text(type, "AllBlocksCleared")) {
        add(wire, "%s", 0, "clear");
        return;
    }
    const int is_stored = is_text(type, "BlockStored");
    assert_true(is_stored || is_text(type, "BlockRemoved"));
    const char medium[3] = {is_stored ? '+' : '-', field(event, "medium")->via.str.ptr[0], '\0'};
    add(wire, "%s", 0, medium);
    if (is_stored && field(event, "parent_block_hash")->type != MSGPACK_OBJECT_NIL) {
        add(wire, "%s", 0, " ");
        add_letter(wire, field(event, "parent_block_hash")->via.u64);
    }
    if (is_stored) {
        const msgpack_object *lora = field(event, "lora_name");
        check_tokens(wire, event);
        if (lora->type == MSGPACK_OBJECT_STR) {
            char name[64] = "";
            memcpy(name, lora->via.str.ptr, lora->via.str.size);
            add(wire, "(%s)", 0, name);
        }
    }
    add(wire, "%s", 0, ":");
    const msgpack_object *hashes = field(event, "block_hashes");
    for (uint32_t i = 0; i < hashes->via.array.size; i++)
        add_letter(wire, hashes->via.array.ptr[i].via.u64);
}

static void add_batch(struct wire *wire)
{
    msgpack_unpacked batch;
    size_t at = 0;
    msgpack_unpacked_init(&batch);
    assert_int_equal(
        msgpack_unpack_next(&batch, (const char *)wire->payload, wire->payload_bytes, &at),
        MSGPACK_UNPACK_SUCCESS);
    assert_int_equal(at, wire->payload_bytes);
    const msgpack_object_array *parts = &batch.data.via.array;
    assert_int_equal(parts->size, 3);
    assert_int_equal(parts->ptr[0].type, MSGPACK_OBJECT_FLOAT64);
    assert_true(parts->ptr[0].via.f64 * 1e9 == (double)wire->now);
    for (uint32_t i = 0; i < parts->ptr[1].via.array.size; i++) {
        add(wire, "%s", 0, i > 0 ? " " : "");
        add_event(wire, &parts->ptr[1].via.array.ptr[i]);
    }
    msgpack_unpacked_destroy(&batch);
}

/* ------------------------------------------------------------------------------------ reading */

/* One frame of a message: its bytes; is it the last one? */
static int take(void *socket, uint8_t *bytes, size_t *n_bytes)
{
    int more = 0;
    size_t size = sizeof(more);
    assert_true(is_there(socket, WAIT_MS));
    const int n = zmq_recv(socket, bytes, WIRE_MESSAGE, 0);
    assert_true(n >= 0 && n <= WIRE_MESSAGE);
    assert_int_equal(zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size), 0);
    *n_bytes = (size_t)n;
    return !more;
}

static uint64_t take_number(void *socket)
{
    uint8_t bytes[WIRE_MESSAGE];
    size_t n;
    uint64_t number = 0;
    assert_false(take(socket, bytes, &n));
    assert_int_equal(n, 8);
    for (int i = 0; i < 8; i++)
        number = number << 8 | bytes[i];
    return number;
}

/* What has gone out, as a text or not. */
static void read_all(struct wire *wire, int has_text)
{
    kvp_publisher_stats stats;
    uint8_t topic[WIRE_MESSAGE];
    size_t n;
    wire->text[0] = '\0';
    assert_int_equal(kvp_publisher_stats_get(wire->publisher, &stats), KVP_OK);
    while (wire->newest < stats.newest) {
        assert_false(take(wire->sub, topic, &n));
        const uint64_t number = take_number(wire->sub);
        assert_true(wire->newest == 0 || number == wire->newest + 1);
        wire->newest = number;
        assert_true(take(wire->sub, wire->payload, &wire->payload_bytes));
        if (has_text) {
            add(wire, "%s", 0, wire->text[0] != '\0' ? " | " : "");
            add_batch(wire);
        }
    }
}

const char *wire_read(struct wire *wire)
{
    read_all(wire, 1);
    return wire->text;
}

void wire_skip(struct wire *wire)
{
    read_all(wire, 0);
}

int wire_take_answer(struct wire *wire, uint64_t *out_number)
{
    uint8_t frame[WIRE_MESSAGE];
    size_t n;
    for (int waits = 0; !is_there(wire->dealer, 1); waits++) {
        assert_true(waits < WAIT_MS);
        assert_int_equal(kvp_publisher_work(wire->publisher, wire->now, NULL), KVP_OK);
    }
    assert_false(take(wire->dealer, frame, &n));
    assert_int_equal(n, 0);
    if (!wire->is_plain)
        assert_false(take(wire->dealer, frame, &n));
    *out_number = take_number(wire->dealer);
    assert_true(take(wire->dealer, wire->payload, &wire->payload_bytes));
    assert_true(*out_number != UINT64_MAX || wire->payload_bytes == 0);
    return *out_number != UINT64_MAX;
}

void wire_request(struct wire *wire, uint64_t number)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> 8 * (7 - i));
    assert_int_equal(zmq_send(wire->dealer, "", 0, ZMQ_SNDMORE), 0);
    assert_int_equal(zmq_send(wire->dealer, bytes, 8, 0), 8);
}

const char *wire_ask(struct wire *wire, uint64_t number)
{
    uint64_t given;
    wire_request(wire, number);
    wire->text[0] = '\0';
    while (wire_take_answer(wire, &given)) {
        add(wire, "%s", 0, wire->text[0] != '\0' ? " | " : "");
        add(wire, "%llu ", given, NULL);
        add_batch(wire);
    }
    return wire->text;
}

/* publisher: the public calls. publisher_state.h draws what they work on. */
#include "publish/publisher_state.h"

#include "base/sized.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum {
    READ_TOKENS = 65536, /* of one reading */
    READ_MAX = 256,
    ANSWER_QUEUE = 64, /* messages that libzmq queues for a reader that is answered */
    LINGER_MS = 1000,
    UNITS_MAX = 1 << 28,
    BATCHES_MAX = 1000000
};

static const uint64_t KEPT_BYTES_MIN = 65536;
static const uint64_t KEPT_BYTES_MAX = UINT64_C(1) << 40;
static const uint64_t NUMBER_MAX = UINT64_C(1) << 62;

/* -------------------------------------------------------------------------------- configuration */

void kvp_publisher_config_init(kvp_publisher_config *config)
{
    if (config == NULL) {
        return;
    }
    *config = (kvp_publisher_config){
        .struct_size = sizeof(*config),
        .topic = "",
        .unit_tokens = 16,
        .max_units = 65536,
        .queue_batches = 10000,
        .kept_batches = 10000,
        .kept_bytes = UINT64_C(8) << 20,
        .heartbeat_ns = UINT64_C(1000000000),
    };
}

/* Where a caller wants to read what is wrong. */
struct why {
    char *text;
    size_t bytes;
};

static kvp_status __attribute__((format(printf, 3, 4)))
refuse(const struct why *why, kvp_status status, const char *format, ...)
{
    va_list values;
    if (why->text == NULL || why->bytes == 0) {
        return status;
    }
    va_start(values, format);
    (void)vsnprintf(why->text, why->bytes, format, values);
    va_end(values);
    return status;
}

struct range {
    const char *field;
    uint64_t value;
    uint64_t lowest;
    uint64_t highest;
};

static kvp_status check_numbers(const kvp_publisher_config *c, const struct why *why)
{
    const struct range ranges[] = {
        {"unit_tokens", c->unit_tokens, 1, KVP_BLOCK_TOKENS_MAX},
        {"max_units", c->max_units, 1, UNITS_MAX},
        {"group", c->group, 0, KVP_GROUPS_MAX - 1},
        {"rank", (uint64_t)(int64_t)c->rank, 0, INT32_MAX},
        {"form", c->form, KVP_PUBLISH_MAPS, KVP_PUBLISH_ARRAYS},
        {"hashes", c->hashes, KVP_PUBLISH_OWN, KVP_PUBLISH_VLLM},
        {"media", c->media, KVP_PUBLISH_MEDIA_VLLM, KVP_PUBLISH_MEDIA_SGLANG},
        {"replay_form", c->replay_form, KVP_PUBLISH_REPLAY_TOPIC, KVP_PUBLISH_REPLAY_PLAIN},
        {"foreign", c->foreign, 0, 1},
        {"queue_batches", c->queue_batches, 1, BATCHES_MAX},
        {"kept_batches", c->kept_batches, 1, BATCHES_MAX},
        {"kept_bytes", c->kept_bytes, KEPT_BYTES_MIN, KEPT_BYTES_MAX},
        {"first_number", c->first_number, 1, NUMBER_MAX},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        const struct range *r = &ranges[i];
        if (r->value < r->lowest || r->value > r->highest) {
            return refuse(why, KVP_E_ARG, "%s is %lld, expected %llu to %llu", r->field,
                          (long long)r->value, (unsigned long long)r->lowest,
                          (unsigned long long)r->highest);
        }
    }
    return KVP_OK;
}

static kvp_status check_config(const kvp_publisher_config *c, const struct why *why)
{
    if (c == NULL) {
        return refuse(why, KVP_E_ARG,
                      "struct_size is not that of this version: use "
                      "kvp_publisher_config_init");
    }
    if (c->endpoint == NULL || c->endpoint[0] == '\0') {
        return refuse(why, KVP_E_ARG, "endpoint is missing: as \"tcp://127.0.0.1:5557\"");
    }
    const char *const names[][2] = {{"topic", c->topic}, {"store_medium", c->store_medium}};
    for (size_t i = 0; i < 2; i++) {
        if (names[i][1] != NULL && strlen(names[i][1]) > KVP_NAME_MAX_BYTES) {
            return refuse(why, KVP_E_ARG, "%s has %zu bytes, expected 0 to %u", names[i][0],
                          strlen(names[i][1]), KVP_NAME_MAX_BYTES);
        }
    }
    if (c->topic == NULL) {
        return refuse(why, KVP_E_ARG, "topic is NULL, expected \"\" or a text");
    }
    if (c->foreign && c->hashes == KVP_PUBLISH_VLLM) {
        return refuse(why, KVP_E_ARG,
                      "hashes is KVP_PUBLISH_VLLM, and foreign says that hashes are "
                      "given: one of them");
    }
    return check_numbers(c, why);
}

static void name_media(struct kvpi_out_form *form, const kvp_publisher_config *c)
{
    static const char *const media[2][KVPI_PUBLISH_TIERS] = {{"GPU", "CPU", "STORAGE"},
                                                             {"GPU", "CPU_PINNED", "DISK"}};
    for (uint32_t tier = 0; tier < KVPI_PUBLISH_TIERS; tier++) {
        const int is_named = tier == KVP_PUBLISH_STORE && c->store_medium != NULL;
        (void)snprintf(form->media[tier], sizeof(form->media[tier]), "%s",
                       is_named ? c->store_medium : media[c->media][tier]);
    }
}

/* ---------------------------------------------------------------------------------- open, close */

static kvp_status make_memory(kvp_publisher *p, const kvp_publisher_config *c, size_t batch_bytes)
{
    p->n_read = READ_TOKENS / c->unit_tokens;
    p->n_read = p->n_read == 0 ? 1 : p->n_read > READ_MAX ? READ_MAX : p->n_read;
    p->spaces = calloc(KVP_PUBLISH_SPACES_MAX, sizeof(*p->spaces));
    p->read = calloc(p->n_read, sizeof(*p->read));
    p->read_tokens = calloc((size_t)p->n_read * c->unit_tokens, sizeof(int32_t));
    p->answer.listed = calloc(c->max_units, sizeof(uint32_t));
    if (p->spaces == NULL || p->read == NULL || p->read_tokens == NULL ||
        p->answer.listed == NULL ||
        kvpi_units_open(&p->set, c->max_units, c->unit_tokens, c->hashes == KVP_PUBLISH_VLLM) !=
            KVP_OK ||
        kvpi_kept_open(&p->kept, (size_t)c->kept_bytes, c->kept_batches, c->first_number) !=
            KVP_OK ||
        kvpi_out_open(&p->live, &p->form, batch_bytes) != KVP_OK ||
        kvpi_out_open(&p->answer.out, &p->form, batch_bytes) != KVP_OK) {
        return KVP_E_NO_MEMORY;
    }
    p->stats.memory_bytes =
        sizeof(*p) + p->set.bytes + (size_t)c->kept_bytes + 2 * batch_bytes +
        (size_t)c->max_units * sizeof(uint32_t) + KVP_PUBLISH_SPACES_MAX * sizeof(*p->spaces) +
        c->kept_batches * sizeof(struct kvpi_kept_batch) +
        p->n_read * (sizeof(*p->read) + c->unit_tokens * sizeof(int32_t)) +
        2 * (size_t)p->form.run_units * (sizeof(uint64_t) + c->unit_tokens * sizeof(int32_t));
    return KVP_OK;
}

static kvp_status bind_socket(kvp_publisher *p, void **out_socket, int kind, int queue,
                              const char *endpoint)
{
    const int linger = LINGER_MS;
    const int mandatory = 1; /* a reader that is gone or slow is noticed */
    void *socket = zmq_socket(p->zmq, kind);
    if (socket == NULL) {
        return KVP_E_IO;
    }
    *out_socket = socket;
    if (zmq_setsockopt(socket, ZMQ_SNDHWM, &queue, sizeof(queue)) != 0 ||
        zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger)) != 0 ||
        (kind == ZMQ_ROUTER &&
         zmq_setsockopt(socket, ZMQ_ROUTER_MANDATORY, &mandatory, sizeof(mandatory)) != 0) ||
        zmq_bind(socket, endpoint) != 0) {
        return KVP_E_IO;
    }
    return KVP_OK;
}

static kvp_status open_sockets(kvp_publisher *p, const kvp_publisher_config *c,
                               const struct why *why)
{
    p->zmq = zmq_ctx_new();
    if (p->zmq == NULL) {
        return refuse(why, KVP_E_IO, "libzmq gives no context: %s", zmq_strerror(errno));
    }
    if (bind_socket(p, &p->pub, ZMQ_PUB, (int)c->queue_batches, c->endpoint) != KVP_OK) {
        return refuse(why, KVP_E_IO, "endpoint: cannot bind %s: %s", c->endpoint,
                      zmq_strerror(errno));
    }
    if (c->replay_endpoint != NULL &&
        bind_socket(p, &p->router, ZMQ_ROUTER, ANSWER_QUEUE, c->replay_endpoint) != KVP_OK) {
        return refuse(why, KVP_E_IO, "replay_endpoint: cannot bind %s: %s", c->replay_endpoint,
                      zmq_strerror(errno));
    }
    return KVP_OK;
}

static kvp_status open_publisher(kvp_publisher *p, const kvp_publisher_config *c,
                                 const struct why *why)
{
    p->unit_tokens = c->unit_tokens;
    p->group = c->group;
    p->hashes = c->hashes;
    p->replay_form = c->replay_form;
    p->foreign = c->foreign;
    p->heartbeat_ns = c->heartbeat_ns;
    p->next_event = 1;
    (void)snprintf(p->topic, sizeof(p->topic), "%s", c->topic);
    p->form =
        (struct kvpi_out_form){.form = c->form, .rank = c->rank, .unit_tokens = c->unit_tokens};
    name_media(&p->form, c);
    const size_t batch_bytes = kvpi_out_measure(&p->form);
    if (batch_bytes > c->kept_bytes) {
        return refuse(why, KVP_E_ARG,
                      "kept_bytes is %llu, expected at least %zu: a batch with "
                      "unit_tokens %u",
                      (unsigned long long)c->kept_bytes, batch_bytes, c->unit_tokens);
    }
    if (make_memory(p, c, batch_bytes) != KVP_OK) {
        return refuse(why, KVP_E_NO_MEMORY,
                      "no memory for max_units %u of unit_tokens %u, and "
                      "kept_bytes %llu",
                      c->max_units, c->unit_tokens, (unsigned long long)c->kept_bytes);
    }
    if (c->hashes == KVP_PUBLISH_VLLM) {
        const kvp_status status = kvpi_formula_open(&p->formula, c->unit_tokens);
        if (status != KVP_OK) {
            return refuse(why, status, "libcrypto gives no SHA-256");
        }
        p->stats.memory_bytes += p->formula.n_bytes;
    }
    return open_sockets(p, c, why);
}

kvp_status kvp_publisher_open(const kvp_publisher_config *config, kvp_publisher **out_publisher,
                              char *out_why, size_t why_bytes)
{
    const struct why why = {out_why, why_bytes};
    const kvp_publisher_config *c = kvpi_sized(config, sizeof(*config));
    (void)refuse(&why, KVP_OK, "%s", "");
    if (out_publisher == NULL) {
        return refuse(&why, KVP_E_ARG, "out_publisher is NULL");
    }
    kvp_status status = check_config(c, &why);
    if (status != KVP_OK) {
        return status;
    }
    kvp_publisher *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return refuse(&why, KVP_E_NO_MEMORY, "no memory");
    }
    status = open_publisher(p, c, &why);
    if (status != KVP_OK) {
        kvp_publisher_close(p);
        return status;
    }
    *out_publisher = p;
    return KVP_OK;
}

void kvp_publisher_close(kvp_publisher *p)
{
    if (p == NULL) {
        return;
    }
    if (p->pub != NULL) {
        (void)zmq_close(p->pub);
    }
    if (p->router != NULL) {
        (void)zmq_close(p->router);
    }
    if (p->zmq != NULL) {
        (void)zmq_ctx_term(p->zmq);
    }
    kvpi_units_close(&p->set);
    kvpi_kept_close(&p->kept);
    kvpi_out_close(&p->live);
    kvpi_out_close(&p->answer.out);
    kvpi_formula_close(&p->formula);
    free(p->answer.listed);
    free(p->spaces);
    free(p->read);
    free(p->read_tokens);
    free(p);
}

/* ---------------------------------------------------------------------------------------- calls */

static void end_call(kvp_publisher *p)
{
    if (!kvpi_out_is_empty(&p->live)) {
        kvpi_publish_batch(p);
    }
}

kvp_status kvp_publisher_space(kvp_publisher *p, const kvp_hash *root, const char *lora_name)
{
    if (p == NULL || root == NULL ||
        (lora_name != NULL && (p->hashes == KVP_PUBLISH_VLLM || lora_name[0] == '\0' ||
                               strlen(lora_name) > KVP_NAME_MAX_BYTES))) {
        return KVP_E_ARG;
    }
    for (uint32_t i = 0; i < p->n_spaces; i++) {
        if (memcmp(&p->spaces[i].root, root, sizeof(*root)) == 0) {
            return KVP_E_ARG;
        }
    }
    if (p->n_spaces == KVP_PUBLISH_SPACES_MAX) {
        return KVP_E_NO_NAMESPACES;
    }
    struct kvpi_publish_space *space = &p->spaces[p->n_spaces++];
    space->root = *root;
    (void)snprintf(space->lora, sizeof(space->lora), "%s", lora_name != NULL ? lora_name : "");
    return KVP_OK;
}

static int has_other_units(const kvp_publisher *p, const kvp_cache *cache)
{
    kvp_config config;
    return kvp_cache_config_peek(cache, &config) != KVP_OK || config.unit_tokens != p->unit_tokens;
}

kvp_status kvp_publisher_read(kvp_publisher *p, const kvp_cache *cache, uint64_t now_ns)
{
    if (p == NULL || cache == NULL || has_other_units(p, cache)) {
        return KVP_E_ARG;
    }
    kvp_status status;
    uint32_t n = 0;
    p->now_ns = now_ns;
    do {
        status = kvp_events_read(cache, p->next_event, p->read, p->n_read, p->read_tokens, &n);
        for (uint32_t i = 0; status == KVP_OK && i < n; i++) {
            kvpi_tell(p, &p->read[i], p->read_tokens + (size_t)i * p->unit_tokens);
        }
        p->next_event += status == KVP_OK ? n : 0;
    } while (status == KVP_OK && n == p->n_read);
    end_call(p);
    return status;
}

kvp_status kvp_publisher_put(kvp_publisher *p, const kvp_event *events, uint32_t n_events,
                             const int32_t *tokens, uint64_t now_ns)
{
    if (p == NULL || (events == NULL && n_events > 0)) {
        return KVP_E_ARG;
    }
    for (uint32_t i = 0; i < n_events; i++) {
        if (kvpi_event_is_wrong(p, &events[i]) ||
            (tokens == NULL && events[i].kind == KVP_EVENT_STORED)) {
            return KVP_E_ARG;
        }
    }
    p->now_ns = now_ns;
    for (uint32_t i = 0; i < n_events; i++) {
        kvpi_tell(p, &events[i], tokens != NULL ? tokens + (size_t)i * p->unit_tokens : NULL);
    }
    end_call(p);
    return KVP_OK;
}

kvp_status kvp_publisher_work(kvp_publisher *p, uint64_t now_ns, int *out_busy)
{
    int busy = 0;
    if (p == NULL) {
        return KVP_E_ARG;
    }
    p->now_ns = now_ns;
    if (p->router != NULL) {
        busy = kvpi_answer_work(p);
    }
    if (p->heartbeat_ns > 0 && now_ns - p->sent_ns >= p->heartbeat_ns) {
        p->stats.heartbeats++;
        kvpi_publish_batch(p);
    }
    if (out_busy != NULL) {
        *out_busy = busy;
    }
    return KVP_OK;
}

kvp_status kvp_publisher_stats_get(const kvp_publisher *p, kvp_publisher_stats *out_stats)
{
    if (p == NULL || out_stats == NULL) {
        return KVP_E_ARG;
    }
    *out_stats = p->stats;
    out_stats->next_event = p->next_event;
    out_stats->newest = p->kept.newest;
    out_stats->oldest = kvpi_kept_oldest(&p->kept);
    out_stats->units = p->set.n;
    return KVP_OK;
}

kvp_status kvp_publisher_endpoint(const kvp_publisher *p, int is_replay, char *out_text,
                                  size_t text_bytes)
{
    if (p == NULL || out_text == NULL || text_bytes == 0) {
        return KVP_E_ARG;
    }
    void *socket = is_replay ? p->router : p->pub;
    if (socket == NULL) {
        return KVP_E_STATE;
    }
    size_t n_bytes = text_bytes;
    return zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, out_text, &n_bytes) == 0 ? KVP_OK
                                                                              : KVP_E_TOO_SMALL;
}

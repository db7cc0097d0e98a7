/* redis: the back end that keeps records on a Redis or Valkey server.
 *
 *   put    SET key record NX PX ttl     the second one of a key is KVP_STORE_KNOWN
 *          EXISTS key, then HSET, PEXPIRE in a MULTI     of a large record (form.h)
 *   get    GET key, HMGET key 0 1 2; then, for the ancestors that we know and itself: PEXPIRE key
 *          ttl GT
 *   have   EXISTS key ...               in one batch
 *   drop   UNLINK key ...               in one batch; what needs them expires by itself
 *   sync   nothing: how durable a server is, is its own affair
 *
 * In a cluster, a batch is one for each server. The store's thread does everything, by connections
 * that never block. A parent is not looked for:
 * that would cost a round trip, and the server may evict it a moment later. */
#define _POSIX_C_SOURCE 200809L
#include "store/redis/redis.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/identity/identity_bytes.h"
#include "store/redis/cluster.h"
#include "store/redis/form.h"

enum {
    DEFAULT_TAGS = 512,
    DEFAULT_CONNS = 8,
    TAGS_MAX = 16384,
    DEFAULT_TTL_S = 7 * 86400,
    LEAST_TTL_S = 3600,
    DEFAULT_TIMEOUT_S = 5,
    LEAST_LIMIT = 256 * 1024,
    TEXT = 300
};

struct redis {
    struct kvpi_ages ages;
    struct kvpi_node_config node_config;
    struct kvpi_tls tls; /* of rediss: */
    struct kvpi_cluster cluster;
    struct kvpi_op_list at_once; /* ended when they began */
    struct pollfd *fds;          /* [n_fds] */
    uint32_t n_fds;
    uint64_t (*now)(void *context);
    void *now_context;
    uint64_t dropped;
    uint64_t max_age; /* seconds; UINT64_MAX: any */
    uint64_t expired;
    int is_open_to_all;   /* neither loopback, nor TLS, nor a secret */
    pthread_mutex_t lock; /* of text */
    char text[TEXT];
};

static uint64_t wall_ms(const struct redis *redis)
{
    return redis->now(redis->now_context) / 1000000;
}

static uint64_t clock_now(const struct redis *redis)
{
    return kvpi_node_clock(&redis->node_config);
}

/* The one deadline of an operation, whatever happens to it: from its acceptance on. */
static void set_deadline(const struct redis *redis, struct kvpi_store_op *op)
{
    const uint64_t wall = redis->now(redis->now_context);
    const uint64_t waited = wall > op->accepted_ns ? wall - op->accepted_ns : 0;
    const uint64_t timeout = redis->node_config.timeout_ns;
    op->deadline_ns = clock_now(redis) + (waited < timeout ? timeout - waited : 0);
}

/* ------------------------------------------------------------------------------------- commands */

static void begin_keys(struct redis *redis, struct kvpi_conn *conn, struct kvpi_part *part,
                       const char *command, uint64_t now)
{
    const struct kvpi_job job = {.kind = KVPI_JOB_COUNT, .part = part, .n_replies = part->n_keys};
    kvpi_conn_begin(conn, &job, now);
    for (uint32_t i = 0; i < part->n_keys; i++) {
        char name[KVPI_AGES_NAME];
        kvpi_ages_name(&redis->ages, &part->op->keys[part->keys[i]], name);
        const char *const argv[] = {command, name};
        kvpi_conn_command(conn, 2, argv);
    }
}

/* A connection to the server of this key, or NULL. */
static struct kvpi_conn *spare_for(struct redis *redis, const kvp_digest *key)
{
    struct kvpi_node *node = kvpi_cluster_node(&redis->cluster, key);
    return node ? kvpi_node_spare(node) : NULL;
}

/* Those of the ages whose server is this one; they are NULL then. */
static void renew_on(struct redis *redis, struct kvpi_node *node, const struct kvpi_age **ages,
                     uint32_t n, uint64_t now_ms)
{
    struct kvpi_job job = {.kind = KVPI_JOB_QUIET, .right = "+pexpire"};
    struct kvpi_conn *conn = kvpi_node_spare(node);
    for (uint32_t i = 0; i < n; i++)
        job.n_replies += ages[i] && kvpi_cluster_node(&redis->cluster, &ages[i]->key) == node;
    if (!conn || job.n_replies == 0)
        return;
    kvpi_conn_begin(conn, &job, clock_now(redis));
    for (uint32_t i = 0; i < n; i++) {
        if (!ages[i] || kvpi_cluster_node(&redis->cluster, &ages[i]->key) != node)
            continue;
        char name[KVPI_AGES_NAME];
        char ttl[24];
        kvpi_ages_name(&redis->ages, &ages[i]->key, name);
        snprintf(ttl, sizeof ttl, "%" PRIu64, kvpi_ages_ttl(&redis->ages, ages[i]->depth, now_ms));
        const char *const argv[] = {"PEXPIRE", name, ttl, "GT"};
        kvpi_conn_command(conn, 4, argv);
        ages[i] = NULL;
    }
}

/* The record and its ancestors live longer. What no connection can take now is done by the next
 * one that is hit or written. */
static void renew(struct redis *redis, const kvp_digest *key)
{
    const struct kvpi_age *ages[KVPI_AGES_CHAIN];
    const uint64_t now_ms = wall_ms(redis);
    if (!spare_for(redis, key))
        return;
    const uint32_t n = kvpi_ages_renew(&redis->ages, key, now_ms, ages);
    for (uint32_t i = 0; n > 0 && i < redis->cluster.n_nodes; i++)
        renew_on(redis, redis->cluster.nodes[i], ages, n, now_ms);
    for (uint32_t i = 0; i < n; i++)
        redis->ages.n_lost += ages[i] != NULL;
}

static void compose(void *context, struct kvpi_conn *conn, struct kvpi_part *part, uint64_t now)
{
    struct redis *redis = context;
    struct kvpi_store_op *op = part->op;
    if (op->kind == KVP_STORE_HAVE || op->kind == KVP_STORE_DROP) {
        begin_keys(redis, conn, part, op->kind == KVP_STORE_HAVE ? "EXISTS" : "UNLINK", now);
        return;
    }
    char name[KVPI_AGES_NAME];
    kvpi_ages_name(&redis->ages, &op->key, name);
    const int is_large = redis->ages.is_large;
    if (op->kind == KVP_STORE_GET) {
        const struct kvpi_job job = {
            .kind = KVPI_JOB_READ, .part = part, .n_replies = 1, .is_large = is_large};
        const char *const argv[] = {is_large ? "HMGET" : "GET", name, "0", "1", "2"};
        kvpi_conn_begin(conn, &job, now);
        kvpi_conn_command(conn, is_large ? 5 : 2, argv);
        return;
    }
    renew(redis, &op->identity->parent); /* it expires after what is written now */
    const uint64_t ttl = kvpi_ages_ttl(&redis->ages, kvpi_ages_depth(op->identity), wall_ms(redis));
    kvpi_conn_write(conn, part, name, is_large, ttl, now);
}

static void unlink_record(struct redis *redis, const struct kvpi_store_op *op)
{
    struct kvpi_conn *conn = spare_for(redis, &op->key);
    if (!conn)
        return;
    const struct kvpi_job job = {.kind = KVPI_JOB_QUIET, .n_replies = 1, .right = "+unlink"};
    char name[KVPI_AGES_NAME];
    kvpi_ages_name(&redis->ages, &op->key, name);
    const char *const argv[] = {"UNLINK", name};
    kvpi_conn_begin(conn, &job, clock_now(redis));
    kvpi_conn_command(conn, 2, argv);
}

/* ----------------------------------------------------------------------------------- describing */

/* The first server of which this is so, or NULL. */
static const struct kvpi_node *pick(const struct redis *redis,
                                    int (*is_so)(const struct kvpi_node *))
{
    const struct kvpi_cluster *cluster = &redis->cluster;
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        if (kvpi_cluster_serves(cluster, cluster->nodes[i]) && is_so(cluster->nodes[i]))
            return cluster->nodes[i];
    return NULL;
}

/* How many servers have keys, and of how many this is so; NULL: of all. */
static uint32_t count(const struct redis *redis, int (*is_so)(const struct kvpi_node *))
{
    const struct kvpi_cluster *cluster = &redis->cluster;
    uint32_t n = 0;
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        n +=
            kvpi_cluster_serves(cluster, cluster->nodes[i]) && (!is_so || is_so(cluster->nodes[i]));
    return n;
}

static int is_away(const struct kvpi_node *node)
{
    return node->why[0] != 0;
}

static int has_other_policy(const struct kvpi_node *node)
{
    return node->policy[0] && strcmp(node->policy, "volatile-ttl") != 0;
}

static int is_old(const struct kvpi_node *node)
{
    return node->version[0] && strtol(node->version, NULL, 10) < 7;
}

static int has_version(const struct kvpi_node *node)
{
    return node->version[0] != 0;
}

static int is_unlimited(const struct kvpi_node *node)
{
    return node->version[0] && node->max_bytes == 0;
}

static int is_full(const struct kvpi_node *node)
{
    return node->is_full;
}

static int lacks_rights(const struct kvpi_node *node)
{
    return node->denied[0] != 0;
}

struct text {
    char at[TEXT];
    size_t n;
};

static void say(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What no longer fits is cut. */
static void say(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text->at + text->n, TEXT - text->n, format, arguments);
    va_end(arguments);
    text->n += (size_t)n;
    if (text->n > TEXT - 1)
        text->n = TEXT - 1;
}

/* At most TEXT bytes: what matters most comes first, the system's own words last. */
static void write_text(struct redis *redis)
{
    const struct kvpi_node *known = pick(redis, has_version);
    const struct kvpi_node *odd;
    struct text text = {.n = 0};
    say(&text, "server %.16s, %" PRIu32 " connections", known ? known->version : "unknown",
        redis->node_config.n_conns);
    if (redis->cluster.is_cluster && redis->cluster.map.n_servers > 0)
        say(&text, " to each of %" PRIu32 " servers", redis->cluster.map.n_servers);
    if (redis->is_open_to_all)
        say(&text, "; no TLS and no secret: who reaches the server can put any KV into it");
    if (pick(redis, is_full))
        say(&text, "; full: maxmemory is reached, and nothing is evicted for a put");
    if ((odd = pick(redis, lacks_rights)) != NULL)
        say(&text, "; the account lacks%s", odd->denied);
    if ((odd = pick(redis, has_other_policy)) != NULL)
        say(&text, "; maxmemory-policy is %.20s, not volatile-ttl", odd->policy);
    if (pick(redis, is_unlimited))
        say(&text, "; maxmemory is 0: no limit");
    if (pick(redis, is_old))
        say(&text, "; hits renew nothing before 7.0");
    if ((odd = pick(redis, is_away)) != NULL && count(redis, NULL) > 1)
        say(&text, "; %" PRIu32 " of %" PRIu32 " away: %.60s", count(redis, is_away),
            count(redis, NULL), odd->why);
    else if (odd)
        say(&text, "; away: %.60s", odd->why);
    pthread_mutex_lock(&redis->lock);
    memcpy(redis->text, text.at, sizeof redis->text);
    pthread_mutex_unlock(&redis->lock);
}

static void redis_describe(const void *self, char *out_text, size_t text_bytes)
{
    struct redis *redis = (struct redis *)(uintptr_t)self;
    pthread_mutex_lock(&redis->lock);
    snprintf(out_text, text_bytes, "%s", redis->text);
    pthread_mutex_unlock(&redis->lock);
}

/* Until the first server is used again; 0: one is used. */
static uint64_t away_ns(const struct redis *redis)
{
    const struct kvpi_cluster *cluster = &redis->cluster;
    const uint64_t now = clock_now(redis);
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        const struct kvpi_node *node = cluster->nodes[i];
        const uint64_t left = kvpi_node_is_down(node, now) ? node->down_until - now : 0;
        if (kvpi_cluster_serves(cluster, node) && left < least)
            least = left;
    }
    return least == UINT64_MAX ? 0 : least;
}

static void redis_usage(const void *self, struct kvpi_backend_usage *out_usage)
{
    struct redis *redis = (struct redis *)(uintptr_t)self;
    write_text(redis);
    *out_usage = (struct kvpi_backend_usage){.dropped = redis->dropped,
                                             .expired = redis->expired,
                                             .away_ns = away_ns(redis),
                                             .evicted = redis->cluster.evicted_gone};
    for (uint32_t i = 0; i < redis->cluster.n_nodes; i++) {
        const struct kvpi_node *node = redis->cluster.nodes[i];
        out_usage->evicted += node->evicted;
        if (!kvpi_cluster_serves(&redis->cluster, node))
            continue;
        out_usage->records += node->records;
        out_usage->bytes += node->used_bytes;
        out_usage->size += node->max_bytes;
    }
}

/* ---------------------------------------------------------------------------------- open, close */

static void redis_close(void *self)
{
    struct redis *redis = self;
    kvpi_cluster_close(&redis->cluster);
    kvpi_tls_close(&redis->tls);
    free(redis->fds);
    kvpi_ages_close(&redis->ages);
    pthread_mutex_destroy(&redis->lock);
    free(redis);
}

/* A number, or unchanged. */
static kvp_status read_count(struct kvpi_url *url, const char *name, uint32_t most, uint32_t *count,
                             char *out_why, size_t why_bytes)
{
    const char *value = kvpi_url_option(url, name);
    if (!value)
        return KVP_OK;
    char *end = NULL;
    const long number = *value >= '0' && *value <= '9' ? strtol(value, &end, 10) : 0;
    if (number < 1 || number > (long)most || *end != 0)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes, "%s is \"%s\", expected 1 to %" PRIu32, name,
                        value, most);
    *count = (uint32_t)number;
    return KVP_OK;
}

static kvp_status read_options(struct redis *redis, struct kvpi_url *url, char *out_why,
                               size_t why_bytes)
{
    uint64_t ttl = DEFAULT_TTL_S;
    uint64_t timeout = DEFAULT_TIMEOUT_S;
    redis->ages.tags = DEFAULT_TAGS;
    redis->node_config.n_conns = DEFAULT_CONNS;
    kvp_status status = read_count(url, "tags", TAGS_MAX, &redis->ages.tags, out_why, why_bytes);
    if (status == KVP_OK)
        status = read_count(url, "connections", KVPI_NODE_CONNS, &redis->node_config.n_conns,
                            out_why, why_bytes);
    if (status == KVP_OK)
        status = kvpi_url_time(url, "ttl", &ttl, out_why, why_bytes);
    if (status == KVP_OK)
        status = kvpi_url_time(url, "timeout", &timeout, out_why, why_bytes);
    redis->max_age = UINT64_MAX;
    if (status == KVP_OK)
        status = kvpi_url_time(url, "max_age", &redis->max_age, out_why, why_bytes);
    if (status == KVP_OK && ttl < LEAST_TTL_S)
        status = kvpi_why(KVP_E_ARG, out_why, why_bytes, "ttl is less than an hour");
    redis->ages.base_ms = (ttl < redis->max_age ? ttl : redis->max_age) * 1000;
    redis->node_config.timeout_ns = timeout * UINT64_C(1000000000);
    return status;
}

static kvp_status open_server(struct redis *redis, const struct kvpi_backend_config *config,
                              const struct kvpi_net *net, char *out_why, size_t why_bytes)
{
    struct kvpi_place_of_server place;
    const int has_tls = strcmp(config->url->scheme, "rediss") == 0;
    kvp_status status = kvpi_place_read(config->url->path, &place, out_why, why_bytes);
    if (status == KVP_OK)
        status = read_options(redis, config->url, out_why, why_bytes);
    if (status == KVP_OK && has_tls)
        status = kvpi_tls_open(&redis->tls, config->url, out_why, why_bytes);
    if (status != KVP_OK)
        return status;
    const uint64_t record_bytes = config->header_bytes + config->payload_bytes;
    redis->node_config.limit_bytes = record_bytes > LEAST_LIMIT ? record_bytes + 256 : LEAST_LIMIT;
    redis->node_config.record_bytes = record_bytes;
    redis->ages.is_large = kvpi_form_is_large(config->payload_bytes);
    redis->node_config.n_lost = &redis->ages.n_lost;
    redis->node_config.compose = compose;
    redis->node_config.context = redis;
    redis->now = config->store->now;
    redis->now_context = config->store->now_context;
    redis->node_config.clock = config->clock;
    redis->node_config.clock_context = config->store->now_context;
    redis->node_config.net = net;
    redis->node_config.tls = has_tls ? &redis->tls : NULL;
    redis->is_open_to_all =
        !has_tls && !kvpi_place_is_loopback(&place) && config->store->secret_bytes == 0;
    status = kvpi_ages_open(&redis->ages, &config->store->fingerprint);
    if (status == KVP_OK)
        status = kvpi_cluster_open(&redis->cluster, &redis->node_config, &redis->ages, &place);
    if (status == KVP_E_IO)
        return kvpi_why(KVP_E_IO, out_why, why_bytes, "the server at %s:%d answers: %s", place.host,
                        place.port, redis->cluster.nodes[0]->why);
    if (status != KVP_OK)
        return kvpi_why(status, out_why, why_bytes, "the system gave no memory");
    write_text(redis);
    return KVP_OK;
}

kvp_status kvpi_redis_open(const struct kvpi_backend_config *config, const struct kvpi_net *net,
                           void **out_self, char *out_why, size_t why_bytes)
{
    struct redis *redis = calloc(1, sizeof *redis);
    if (!redis)
        return kvpi_why(KVP_E_NO_MEMORY, out_why, why_bytes, "the system gave no memory");
    pthread_mutex_init(&redis->lock, NULL);
    const kvp_status status = open_server(redis, config, net, out_why, why_bytes);
    if (status == KVP_OK)
        *out_self = redis;
    else
        redis_close(redis);
    return status;
}

static kvp_status redis_open(const struct kvpi_backend_config *config, void **out_self,
                             char *out_why, size_t why_bytes)
{
    return kvpi_redis_open(config, &kvpi_net_system, out_self, out_why, why_bytes);
}

static kvp_status redis_walk(struct kvpi_url *url, const struct kvpi_walk *walk, char *out_why,
                             size_t why_bytes)
{
    return kvpi_redis_walk(&kvpi_net_system, url, walk, out_why, why_bytes);
}

/* ----------------------------------------------------------------------------------- operations */

static uint32_t redis_prepare(void *self, struct kvpi_store_op *op)
{
    struct redis *redis = self;
    if (op->kind == KVP_STORE_SYNC)
        return KVP_STORE_OK;
    set_deadline(redis, op);
    kvpi_ages_note(&redis->ages, op);
    return kvpi_cluster_is_away(&redis->cluster, &op->key, clock_now(redis)) ? KVP_STORE_AWAY
                                                                             : KVP_STORE_OK;
}

static void redis_begin(void *self, struct kvpi_store_op *op)
{
    struct redis *redis = self;
    op->is_other_length = 0;
    if (op->kind == KVP_STORE_HAVE || op->kind == KVP_STORE_DROP)
        set_deadline(redis, op);
    if (op->kind != KVP_STORE_SYNC && op->kind != KVP_STORE_EVICT) {
        kvpi_cluster_begin(&redis->cluster, op, clock_now(redis));
        return;
    }
    op->outcome = op->kind == KVP_STORE_EVICT ? KVP_STORE_FAILED : KVP_STORE_OK;
    kvpi_op_list_add(&redis->at_once, op);
}

static uint32_t take(struct kvpi_op_list *list, struct kvpi_store_op **out_ops, uint32_t capacity)
{
    uint32_t n = 0;
    while (n < capacity && list->first)
        out_ops[n++] = kvpi_op_list_take(list);
    return n;
}

static uint32_t redis_reap(void *self, struct kvpi_store_op **out_ops, uint32_t capacity)
{
    struct redis *redis = self;
    kvpi_cluster_pump(&redis->cluster, clock_now(redis));
    const uint32_t n = take(&redis->at_once, out_ops, capacity);
    return n + take(&redis->cluster.done, out_ops + n, capacity - n);
}

/* The header has been checked. */
static int is_too_old(const struct redis *redis, const struct kvpi_store_op *op)
{
    enum { AT_WRITTEN = 168 };
    const uint8_t *header = op->spans[0].bytes;
    const uint64_t written = kvpi_get64(header + AT_WRITTEN);
    const uint64_t now = wall_ms(redis) / 1000;
    return now > written && now - written >= redis->max_age;
}

/* The header is good, and what came is longer or shorter than it says: the blocks are as before. */
static int has_other_length(const struct kvpi_store_op *op, uint32_t result)
{
    return op->kind == KVP_STORE_GET && op->is_other_length &&
           (result == KVP_STORE_OK ||
            (result == KVP_STORE_BAD &&
             (op->fault == KVPI_RECORD_PAYLOAD || op->fault == KVPI_RECORD_CODE)));
}

static uint32_t redis_end(void *self, struct kvpi_store_op *op, uint32_t result)
{
    struct redis *redis = self;
    for (uint32_t i = 0; i < redis->cluster.n_nodes; i++)
        kvpi_node_refresh(redis->cluster.nodes[i], clock_now(redis));
    if (has_other_length(op, result)) {
        op->fault = KVPI_RECORD_LENGTH;
        result = KVP_STORE_BAD;
    }
    if (op->kind == KVP_STORE_GET && result == KVP_STORE_OK && is_too_old(redis, op)) {
        unlink_record(redis, op);
        redis->expired++;
        return KVP_STORE_ABSENT;
    }
    if (op->kind == KVP_STORE_PUT && result == KVP_STORE_OK)
        kvpi_ages_written(&redis->ages, &op->key, wall_ms(redis));
    if (op->kind == KVP_STORE_GET && result == KVP_STORE_OK)
        renew(redis, &op->key);
    if (op->kind == KVP_STORE_GET && result == KVP_STORE_BAD) {
        unlink_record(redis, op);
        redis->dropped++;
    }
    return result;
}

/* For all connections and what wakes. */
static int has_room_to_wait(struct redis *redis)
{
    const uint32_t n = kvpi_cluster_fds(&redis->cluster) + 1;
    if (n <= redis->n_fds)
        return 1;
    struct pollfd *fds = realloc(redis->fds, n * sizeof *fds);
    if (!fds)
        return 0;
    redis->fds = fds;
    redis->n_fds = n;
    return 1;
}

static void redis_wait(void *self, int wake, int timeout_ms)
{
    struct redis *redis = self;
    uint64_t until = UINT64_MAX;
    if (!has_room_to_wait(redis))
        return;
    uint32_t n = kvpi_cluster_watch(&redis->cluster, redis->fds, &until);
    redis->fds[n++] = (struct pollfd){.fd = wake, .events = POLLIN};
    if (until != UINT64_MAX) {
        const uint64_t now = clock_now(redis);
        const uint64_t left = until > now ? (until - now) / 1000000 + 1 : 0;
        if (timeout_ms < 0 || left < (uint64_t)timeout_ms)
            timeout_ms = left < INT32_MAX ? (int)left : INT32_MAX;
    }
    poll(redis->fds, n, timeout_ms);
}

KVP_API const struct kvpi_backend kvpi_redis_backend = {
    .version = KVPI_BACKEND_VERSION,
    .scheme = "redis",
    .open = redis_open,
    .close = redis_close,
    .prepare = redis_prepare,
    .begin = redis_begin,
    .reap = redis_reap,
    .end = redis_end,
    .wait = redis_wait,
    .usage = redis_usage,
    .describe = redis_describe,
    .walk = redis_walk,
};

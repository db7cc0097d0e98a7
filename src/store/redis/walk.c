/* walk: each server is gone through twice, because the number of records is told before them. A
 * record that comes or goes meanwhile may be missed or told: that is what SCAN promises. A large
 * record is put together from its fields. */
#include "store/redis/redis.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/redis/cluster.h"

enum { TIMEOUT_S = 5, CURSOR = 24, BATCH = 64 };

#define LIMIT_BYTES (UINT64_C(1) << 30)
#define OURS        "kvp1:" /* what our names begin with */
#define OURS_ALL    "kvp1:*"

struct name {
    char text[KVPI_AGES_NAME];
    int goes;
};

struct walking {
    const struct kvpi_walk *walk;
    struct kvpi_node_config config;
    struct kvpi_ages ages;
    struct kvpi_tls tls;
    struct kvpi_cluster cluster;
    /* What one SCAN gave. */
    char cursor[CURSOR];
    struct name *names; /* [n_names] of room */
    uint32_t n_names;
    uint32_t room;
    uint32_t first; /* of names: the one that the first reply is for */
    enum { NAMES, RECORDS_, FIELDS, MEMORY } reads;
    /* Of FIELDS: what came of one record. */
    char *whole; /* [n_whole] of whole_room */
    size_t n_whole;
    size_t whole_room;
    uint64_t memory; /* bytes that some records take, of so many */
    uint64_t n_memory;
    int no_memory;
};

/* -------------------------------------------------------------------------------------- replies */

static void add_name(struct walking *walking, const char *text, size_t n_bytes)
{
    if (n_bytes >= KVPI_AGES_NAME || n_bytes < sizeof OURS - 1 ||
        memcmp(text, OURS, sizeof OURS - 1) != 0 || memchr(text, 0, n_bytes))
        return; /* none of ours, whatever the server says */
    if (walking->n_names == walking->room) {
        const uint32_t room = walking->room ? walking->room * 2 : 1024;
        struct name *names = realloc(walking->names, room * sizeof *names);
        walking->no_memory |= names == NULL;
        if (!names)
            return;
        walking->names = names;
        walking->room = room;
    }
    struct name *name = &walking->names[walking->n_names++];
    memcpy(name->text, text, n_bytes);
    name->text[n_bytes] = 0;
    name->goes = 0;
}

static void add_field(struct walking *walking, const char *text, size_t n_bytes)
{
    if (walking->n_whole + n_bytes > walking->whole_room) {
        const size_t room = (walking->n_whole + n_bytes) * 2;
        char *whole = realloc(walking->whole, room);
        walking->no_memory |= whole == NULL;
        if (!whole)
            return;
        walking->whole = whole;
        walking->whole_room = room;
    }
    if (n_bytes > 0)
        memcpy(walking->whole + walking->n_whole, text, n_bytes);
    walking->n_whole += n_bytes;
}

static void tell_record(struct walking *walking, uint32_t number, const char *bytes, size_t n_bytes)
{
    struct name *name = &walking->names[walking->first + number];
    name->goes =
        walking->walk->record(walking->walk->context, name->text, (const uint8_t *)bytes, n_bytes);
}

static void take_piece(void *context, const struct kvpi_map_at *at, uint32_t number,
                       const char *text, size_t n_bytes)
{
    struct walking *walking = context;
    const int is_of_names = walking->reads == NAMES;
    if (walking->reads == RECORDS_ && at->depth == 0) {
        tell_record(walking, number, text, n_bytes);
    } else if (walking->reads == FIELDS && at->depth == 1 && text) {
        add_field(walking, text, n_bytes);
    } else if (is_of_names && at->depth == 1 && at->place == 0 && text && n_bytes < CURSOR) {
        memcpy(walking->cursor, text, n_bytes);
        walking->cursor[n_bytes] = 0;
    } else if (is_of_names && at->depth == 2 && at->outer == 1 && text) {
        add_name(walking, text, n_bytes);
    }
}

static void take_number(void *context, long long number)
{
    struct walking *walking = context;
    if (walking->reads != MEMORY || number <= 0)
        return;
    walking->memory += (uint64_t)number;
    walking->n_memory++;
}

/* Begin a job of n commands, which follow; the type of their answers. */
static void begin(struct kvpi_conn *conn, uint32_t n, int type)
{
    const struct kvpi_job job = {.kind = KVPI_JOB_LIST, .n_replies = n, .type = type};
    kvpi_conn_begin(conn, &job, kvpi_node_now());
}

/* Until all is answered. 0: the connection is closed, or the server has said no: conn->why. */
static int finish(struct walking *walking, struct kvpi_conn *conn)
{
    conn->n_refused = 0;
    kvpi_conn_pump(conn, kvpi_node_now());
    while (conn->state == KVPI_CONN_READY && conn->n_jobs > 0) {
        struct pollfd poll_fd;
        poll(&poll_fd, (nfds_t)kvpi_conn_watch(conn, &poll_fd), 100);
        kvpi_conn_pump(conn, kvpi_node_now());
    }
    if (walking->no_memory)
        snprintf(conn->why, sizeof conn->why, "the system gave no memory");
    return conn->state == KVPI_CONN_READY && conn->n_refused == 0 && !walking->no_memory;
}

/* ----------------------------------------------------------------------------------- one server */

/* 1: the server told where to go on, and it is not where it was asked from. */
static int goes_on(const struct walking *walking, struct kvpi_conn *conn, const char *asked)
{
    if (walking->cursor[0] && (walking->cursor[1] || walking->cursor[0] != '0') &&
        strcmp(walking->cursor, asked) == 0)
        snprintf(conn->why, sizeof conn->why, "SCAN gave the cursor that it was given");
    else if (!walking->cursor[0])
        snprintf(conn->why, sizeof conn->why, "SCAN gave no cursor");
    else
        return 1;
    return 0;
}

/* The next names; at the end the cursor is "0". */
static int scan(struct walking *walking, struct kvpi_conn *conn)
{
    char cursor[CURSOR];
    snprintf(cursor, sizeof cursor, "%s", walking->cursor);
    const char *const argv[] = {"SCAN", cursor, "MATCH", OURS_ALL, "COUNT", "1000"};
    walking->n_names = 0;
    walking->reads = NAMES;
    walking->cursor[0] = 0;
    begin(conn, 1, VALKEY_REPLY_ARRAY);
    kvpi_conn_command(conn, 6, argv);
    return finish(walking, conn) && goes_on(walking, conn, cursor);
}

static int is_large(const struct name *name)
{
    return strncmp(name->text, KVPI_AGES_LARGE, strlen(KVPI_AGES_LARGE)) == 0;
}

/* All of a large record, of which its fields come one by one. */
static int read_fields(struct walking *walking, struct kvpi_conn *conn)
{
    const char *const argv[] = {"HMGET", walking->names[walking->first].text, "0", "1", "2"};
    walking->reads = FIELDS;
    walking->n_whole = 0;
    begin(conn, 1, VALKEY_REPLY_ARRAY);
    kvpi_conn_command(conn, 5, argv);
    if (!finish(walking, conn))
        return 0;
    tell_record(walking, 0, walking->n_whole > 0 ? walking->whole : NULL, walking->n_whole);
    return 1;
}

/* Their beginnings; or one, all of it. */
static int read_strings(struct walking *walking, struct kvpi_conn *conn, uint32_t n)
{
    char last[24];
    snprintf(last, sizeof last, "%zu", walking->walk->n_bytes - 1);
    walking->reads = RECORDS_;
    begin(conn, n, VALKEY_REPLY_STRING);
    for (uint32_t i = 0; i < n; i++) {
        const struct name *name = &walking->names[walking->first + i];
        const char *const large[] = {"HGET", name->text, "0"};
        const char *const head[] = {"GETRANGE", name->text, "0", last};
        const char *const all[] = {"GET", name->text};
        if (is_large(name))
            kvpi_conn_command(conn, 3, large);
        else if (walking->walk->n_bytes == SIZE_MAX)
            kvpi_conn_command(conn, 2, all);
        else
            kvpi_conn_command(conn, 4, head);
    }
    return finish(walking, conn);
}

/* Read these names, and drop those that go. */
static int read_batch(struct walking *walking, struct kvpi_conn *conn, uint32_t n)
{
    const int is_all = walking->walk->n_bytes == SIZE_MAX;
    if (!(is_all && is_large(&walking->names[walking->first]) ? read_fields(walking, conn)
                                                              : read_strings(walking, conn, n)))
        return 0;
    walking->reads = NAMES;
    uint32_t n_goes = 0;
    for (uint32_t i = 0; i < n; i++)
        n_goes += walking->names[walking->first + i].goes != 0;
    if (n_goes == 0)
        return 1;
    begin(conn, n_goes, VALKEY_REPLY_INTEGER);
    for (uint32_t i = 0; i < n; i++) {
        const struct name *name = &walking->names[walking->first + i];
        const char *const unlink[] = {"UNLINK", name->text};
        if (name->goes)
            kvpi_conn_command(conn, 2, unlink);
    }
    return finish(walking, conn);
}

/* What some records take on the server, which need not tell it. 0: the connection is closed. */
static int measure(struct walking *walking, struct kvpi_conn *conn)
{
    const uint32_t n = walking->n_names < BATCH ? walking->n_names : BATCH;
    if (n == 0 || walking->n_memory > 0 || !walking->walk->server)
        return 1;
    walking->reads = MEMORY;
    begin(conn, n, VALKEY_REPLY_INTEGER);
    for (uint32_t i = 0; i < n; i++) {
        const char *const argv[] = {"MEMORY", "USAGE", walking->names[i].text, "SAMPLES", "0"};
        kvpi_conn_command(conn, 5, argv);
    }
    (void)finish(walking, conn);
    return conn->state == KVPI_CONN_READY;
}

/* All names of a server; with_records: and what is under them. */
static int go_through(struct walking *walking, struct kvpi_conn *conn, int with_records,
                      uint64_t *out_n)
{
    const uint32_t batch = walking->walk->n_bytes == SIZE_MAX ? 1 : BATCH;
    uint64_t n = 0;
    snprintf(walking->cursor, sizeof walking->cursor, "0");
    do {
        if (!scan(walking, conn))
            return 0;
        n += walking->n_names;
        if (!with_records && !measure(walking, conn))
            return 0;
        walking->first = 0;
        while (with_records && walking->first < walking->n_names) {
            const uint32_t left = walking->n_names - walking->first;
            if (!read_batch(walking, conn, left < batch ? left : batch))
                return 0;
            walking->first += left < batch ? left : batch;
        }
    } while (strcmp(walking->cursor, "0") != 0);
    *out_n = n;
    return 1;
}

static const char *why_of(const struct kvpi_node *node)
{
    return node->conns[0].why[0] ? node->conns[0].why : node->why;
}

static int walk_server(struct walking *walking, struct kvpi_node *node)
{
    char path[KVPI_PLACE_HOST + 40];
    const int colons = strchr(node->place.host, ':') != NULL;
    snprintf(path, sizeof path, "%s://%s%s%s:%d", walking->config.tls ? "rediss" : "redis",
             colons ? "[" : "", node->place.host, colons ? "]" : "", node->place.port);
    struct kvpi_conn *conn = &node->conns[0];
    kvp_store_directory directory = {.path = path, .status = KVP_E_IO, .why = ""};
    uint64_t unused;
    walking->memory = walking->n_memory = 0;
    if (conn->state != KVPI_CONN_READY)
        (void)kvpi_node_try(node);
    if (conn->state == KVPI_CONN_READY && go_through(walking, conn, 0, &directory.records)) {
        directory.status = KVP_OK;
        directory.bytes = node->used_bytes;
        if (walking->n_memory > 0)
            directory.slot_bytes = walking->memory / walking->n_memory;
    } else {
        directory.why = why_of(node);
    }
    if (walking->walk->server)
        walking->walk->server(walking->walk->context, &directory);
    return directory.status == KVP_OK &&
           (!walking->walk->record || go_through(walking, conn, 1, &unused));
}

/* ---------------------------------------------------------------------------------- open, close */

static kvp_status read_url(struct walking *walking, struct kvpi_url *url,
                           struct kvpi_place_of_server *out_place, char *out_why, size_t why_bytes)
{
    static const char *const others[] = {"tags", "connections", "ttl", "max_age", "secret"};
    uint64_t timeout = TIMEOUT_S;
    kvp_status status = kvpi_place_read(url->path, out_place, out_why, why_bytes);
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++)
        (void)kvpi_url_option(url, others[i]);
    if (status == KVP_OK)
        status = kvpi_url_time(url, "timeout", &timeout, out_why, why_bytes);
    if (status == KVP_OK && strcmp(url->scheme, "rediss") == 0) {
        status = kvpi_tls_open(&walking->tls, url, out_why, why_bytes);
        walking->config.tls = &walking->tls;
    }
    if (status == KVP_OK)
        status = kvpi_url_all_used(url, out_why, why_bytes);
    walking->config.timeout_ns = timeout * UINT64_C(1000000000);
    return status;
}

static kvp_status walk_all(struct walking *walking, const struct kvpi_place_of_server *place,
                           char *out_why, size_t why_bytes)
{
    struct kvpi_cluster *cluster = &walking->cluster;
    const kvp_status status = kvpi_cluster_open(cluster, &walking->config, &walking->ages, place);
    if (status == KVP_E_NO_MEMORY)
        return kvpi_why(status, out_why, why_bytes, "the system gave no memory");
    if (cluster->nodes[0]->conns[0].state != KVPI_CONN_READY)
        return kvpi_why(KVP_E_IO, out_why, why_bytes, "the server at %s:%d: %s", place->host,
                        place->port, cluster->nodes[0]->why);
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        struct kvpi_node *node = cluster->nodes[i];
        if (kvpi_cluster_serves(cluster, node) && !walk_server(walking, node))
            return kvpi_why(KVP_E_IO, out_why, why_bytes, "the server at %s:%d: %s",
                            node->place.host, node->place.port, why_of(node));
    }
    return KVP_OK;
}

kvp_status kvpi_redis_walk(const struct kvpi_net *net, struct kvpi_url *url,
                           const struct kvpi_walk *walk, char *out_why, size_t why_bytes)
{
    struct kvpi_place_of_server place;
    struct walking *walking = calloc(1, sizeof *walking);
    if (!walking)
        return kvpi_why(KVP_E_NO_MEMORY, out_why, why_bytes, "the system gave no memory");
    walking->walk = walk;
    walking->ages.tags = 1; /* no key is looked for */
    walking->config = (struct kvpi_node_config){.n_conns = 1,
                                                .limit_bytes = LIMIT_BYTES,
                                                .net = net,
                                                .piece = take_piece,
                                                .number = take_number,
                                                .context = walking};
    kvp_status status = read_url(walking, url, &place, out_why, why_bytes);
    if (status == KVP_OK)
        status = walk_all(walking, &place, out_why, why_bytes);
    kvpi_cluster_close(&walking->cluster);
    kvpi_tls_close(&walking->tls);
    free(walking->names);
    free(walking->whole);
    free(walking);
    return status;
}

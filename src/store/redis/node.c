/* node: connections are made when operations wait, one after the other, and stay. */
#define _POSIX_C_SOURCE 200809L
#include "store/redis/node.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STEP_FIRST_NS UINT64_C(100000000)
#define STEP_MAX_NS   UINT64_C(60000000000)

uint64_t kvpi_node_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

uint64_t kvpi_node_clock(const struct kvpi_node_config *config)
{
    return config->clock ? config->clock(config->clock_context) : kvpi_node_now();
}

struct kvpi_node_wait kvpi_node_wait_begin(const struct kvpi_node_config *config)
{
    return (struct kvpi_node_wait){kvpi_node_clock(config), kvpi_node_now()};
}

uint64_t kvpi_node_wait_now(const struct kvpi_node_wait *wait)
{
    return wait->began + (kvpi_node_now() - wait->really);
}

/* ----------------------------------------------------------------------------------------- info */

/* The value of a line "name:value" as text, cut to capacity; "" if there is none. */
static void find_text(const char *text, const char *end, const char *name, char *out,
                      size_t capacity)
{
    const size_t n_name = strlen(name);
    out[0] = 0;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            stop = end;
        if ((size_t)(stop - line) > n_name && memcmp(line, name, n_name) == 0 &&
            line[n_name] == ':') {
            size_t n = 0;
            for (const char *c = line + n_name + 1; c<stop && * c> ' ' && *c < 127; c++)
                if (n + 1 < capacity)
                    out[n++] = *c;
            out[n] = 0;
            return;
        }
        line = stop + 1;
    }
}

static uint64_t find_number(const char *text, const char *end, const char *name)
{
    char number[KVPI_NODE_INFO];
    find_text(text, end, name, number, sizeof number);
    return strtoull(number, NULL, 10);
}

/* "db0:keys=12,expires=12,avg_ttl=0"; without keys there is no line. */
static uint64_t find_keys(const char *text, const char *end, int database)
{
    static const char keys[] = "keys=";
    char name[16];
    char value[KVPI_NODE_INFO];
    snprintf(name, sizeof name, "db%d", database);
    find_text(text, end, name, value, sizeof value);
    return strncmp(value, keys, strlen(keys)) == 0 ? strtoull(value + strlen(keys), NULL, 10) : 0;
}

/* Of a server that was restarted, all count. */
static void count_evicted(struct kvpi_node *node, uint64_t told)
{
    if (node->info_due != 0)
        node->evicted += told >= node->evicted_told ? told - node->evicted_told : told;
    node->evicted_told = told;
}

static void take_info(void *context, const char *text, size_t n_bytes)
{
    struct kvpi_node *node = context;
    const char *end = text + n_bytes;
    find_text(text, end, "redis_version", node->version, sizeof node->version);
    find_text(text, end, "maxmemory_policy", node->policy, sizeof node->policy);
    node->used_bytes = find_number(text, end, "used_memory");
    node->max_bytes = find_number(text, end, "maxmemory");
    node->records = find_keys(text, end, node->place.database);
    count_evicted(node, find_number(text, end, "evicted_keys"));
    node->info_due = kvpi_node_clock(node->config) + KVPI_NODE_INFO_NS;
    node->in_cluster = find_number(text, end, "cluster_enabled") == 1;
}

static void take_denied(void *context, const char *right)
{
    struct kvpi_node *node = context;
    const size_t n = strlen(node->denied);
    if (!strstr(node->denied, right) && n + 1 + strlen(right) < sizeof node->denied)
        snprintf(node->denied + n, sizeof node->denied - n, " %s", right);
}

/* ---------------------------------------------------------------------------------- open, close */

kvp_status kvpi_node_open(struct kvpi_node *node, const struct kvpi_node_config *config,
                          const struct kvpi_place_of_server *place, struct kvpi_map *map)
{
    node->config = config;
    node->place = *place;
    node->waiting_until = UINT64_MAX;
    node->conn_config = (struct kvpi_conn_config){.place = &node->place,
                                                  .net = config->net,
                                                  .lookup = &node->lookup,
                                                  .tls = config->tls,
                                                  .limit_bytes = config->limit_bytes,
                                                  .timeout_ns = config->timeout_ns,
                                                  .map = map,
                                                  .info = take_info,
                                                  .denied = take_denied,
                                                  .piece = config->piece,
                                                  .number = config->number,
                                                  .n_lost = config->n_lost,
                                                  .piece_context = config->context,
                                                  .context = node};
    node->conns = calloc(config->n_conns, sizeof *node->conns);
    if (!node->conns)
        return KVP_E_NO_MEMORY;
    for (uint32_t i = 0; i < config->n_conns; i++) {
        node->conns[i].config = &node->conn_config;
        node->conns[i].done = &node->done;
    }
    return KVP_OK;
}

static void fail_waiting(struct kvpi_node *node)
{
    struct kvpi_part *part;
    while ((part = kvpi_part_list_take(&node->waiting)) != NULL) {
        part->end = KVPI_PART_FAILED;
        kvpi_part_list_add(&node->done, part);
    }
    node->n_waiting = 0;
    node->waiting_until = UINT64_MAX;
}

/* What waited until its time was over ends. */
static void end_late(struct kvpi_node *node, uint64_t now)
{
    if (now < node->waiting_until)
        return;
    struct kvpi_part_list waiting = node->waiting;
    struct kvpi_part *part;
    node->waiting = (struct kvpi_part_list){NULL, NULL};
    node->n_waiting = 0;
    node->waiting_until = UINT64_MAX;
    while ((part = kvpi_part_list_take(&waiting)) != NULL) {
        if (now < part->op->deadline_ns) {
            kvpi_node_submit(node, part);
        } else {
            part->end = KVPI_PART_LATE;
            kvpi_part_list_add(&node->done, part);
        }
    }
}

void kvpi_node_close(struct kvpi_node *node)
{
    for (uint32_t i = 0; node->conns && i < node->config->n_conns; i++)
        kvpi_conn_close(&node->conns[i]);
    fail_waiting(node);
    kvpi_lookup_close(&node->lookup);
    free(node->conns);
    node->conns = NULL;
}

/* ----------------------------------------------------------------------------------- operations */

int kvpi_node_is_down(const struct kvpi_node *node, uint64_t now)
{
    return now < node->down_until;
}

void kvpi_node_submit(struct kvpi_node *node, struct kvpi_part *part)
{
    kvpi_part_list_add(&node->waiting, part);
    node->n_waiting++;
    if (part->op->deadline_ns < node->waiting_until)
        node->waiting_until = part->op->deadline_ns;
}

static void go_down(struct kvpi_node *node, uint64_t now)
{
    node->step = node->step == 0 ? STEP_FIRST_NS : node->step * 2;
    if (node->step > STEP_MAX_NS)
        node->step = STEP_MAX_NS;
    node->down_until = now + node->step;
    node->n_errors = 0;
    fail_waiting(node);
}

void kvpi_node_note(struct kvpi_node *node, const struct kvpi_part *part, uint64_t now)
{
    if (part->op->kind == KVP_STORE_PUT && part->end == KVPI_PART_ANSWERED &&
        part->op->outcome != KVP_STORE_KNOWN)
        node->is_full = part->op->outcome == KVP_STORE_NO_ROOM;
    if (part->end == KVPI_PART_LATE)
        return;
    if (part->end != KVPI_PART_FAILED) {
        node->n_errors = 0;
        node->step = 0;
    } else if (!kvpi_node_is_down(node, now) && ++node->n_errors == KVPI_NODE_ERRORS) {
        go_down(node, now);
    }
}

/* A connection that was in use and is closed may be one of many, whose server goes on: only one
 * that cannot be made, or is not answered, says that the server is away. */
static void pump_conn(struct kvpi_node *node, struct kvpi_conn *conn, uint64_t now)
{
    const enum kvpi_conn_state before = conn->state;
    kvpi_conn_pump(conn, now);
    if (conn->state == before)
        return;
    if (conn->state == KVPI_CONN_READY) {
        node->why[0] = 0;
        node->down_until = 0;
        return;
    }
    snprintf(node->why, sizeof node->why, "%s", conn->why);
    if (before == KVPI_CONN_OPENING || conn->timed_out)
        go_down(node, now);
}

void kvpi_node_refresh(struct kvpi_node *node, uint64_t now)
{
    static const char *const argv[] = {"INFO"};
    struct kvpi_conn *conn = now >= node->info_due ? kvpi_node_spare(node) : NULL;
    if (!conn || strstr(node->denied, "+info"))
        return;
    const struct kvpi_job job = {.kind = KVPI_JOB_INFO, .n_replies = 1};
    node->info_due = now + KVPI_NODE_INFO_NS;
    kvpi_conn_begin(conn, &job, now);
    kvpi_conn_command(conn, 1, argv);
}

struct kvpi_conn *kvpi_node_spare(struct kvpi_node *node)
{
    for (uint32_t i = 0; i < node->config->n_conns; i++)
        if (kvpi_conn_has_room(&node->conns[i]))
            return &node->conns[i];
    return NULL;
}

int kvpi_node_try(struct kvpi_node *node)
{
    struct kvpi_conn *conn = &node->conns[0];
    const struct kvpi_node_wait wait = kvpi_node_wait_begin(node->config);
    uint64_t now = wait.began;
    node->denied[0] = 0;
    kvpi_conn_open(conn, now);
    while (conn->state == KVPI_CONN_OPENING) {
        struct pollfd poll_fd;
        poll(&poll_fd, (nfds_t)kvpi_conn_watch(conn, &poll_fd), 10);
        now = kvpi_node_wait_now(&wait);
        pump_conn(node, conn, now);
    }
    if (conn->state == KVPI_CONN_CLOSED)
        snprintf(node->why, sizeof node->why, "%s", conn->why);
    return !conn->refused;
}

static struct kvpi_conn *find_idle(struct kvpi_node *node)
{
    for (uint32_t i = 0; i < node->config->n_conns; i++)
        if (kvpi_conn_is_idle(&node->conns[i]))
            return &node->conns[i];
    return NULL;
}

/* 0: it failed at once. */
static int open_conn(struct kvpi_node *node, struct kvpi_conn *conn, uint64_t now)
{
    node->denied[0] = 0; /* it may have changed */
    kvpi_conn_open(conn, now);
    if (conn->state != KVPI_CONN_CLOSED)
        return 1;
    snprintf(node->why, sizeof node->why, "%s", conn->why);
    go_down(node, now);
    return 0;
}

int kvpi_node_reach(struct kvpi_node *node, uint64_t now)
{
    if (kvpi_node_is_down(node, now))
        return 0;
    for (uint32_t i = 0; i < node->config->n_conns; i++)
        if (node->conns[i].state != KVPI_CONN_CLOSED)
            return 1;
    return open_conn(node, &node->conns[0], now);
}

/* As many connections are on their way as parts wait. */
static void open_conns(struct kvpi_node *node, uint64_t now)
{
    uint32_t n_opening = 0;
    for (uint32_t i = 0; i < node->config->n_conns; i++)
        n_opening += node->conns[i].state == KVPI_CONN_OPENING;
    for (uint32_t i = 0; i < node->config->n_conns && n_opening < node->n_waiting; i++) {
        struct kvpi_conn *conn = &node->conns[i];
        if (conn->state != KVPI_CONN_CLOSED)
            continue;
        n_opening++;
        if (!open_conn(node, conn, now))
            return;
    }
}

static int is_of_record(const struct kvpi_part *part)
{
    return part->op->kind == KVP_STORE_PUT || part->op->kind == KVP_STORE_GET;
}

/* Records that may begin now. */
static uint64_t room_for_records(const struct kvpi_node *node)
{
    uint64_t n_most = UINT64_MAX;
    if (node->max_bytes > 0 && node->config->record_bytes > 0)
        n_most = node->max_bytes / KVPI_NODE_SHARE / node->config->record_bytes;
    uint64_t n = 0;
    for (uint32_t i = 0; i < node->config->n_conns; i++)
        n += kvpi_conn_has_record(&node->conns[i]) ? 1 : 0;
    n_most = n_most > 0 ? n_most : 1;
    return n_most > n ? n_most - n : 0;
}

/* The first that may begin: a question does not wait for records that have no room. */
static struct kvpi_part *take_waiting(struct kvpi_node *node)
{
    const uint64_t room = room_for_records(node);
    struct kvpi_part_list left = {NULL, NULL};
    struct kvpi_part *found = NULL;
    struct kvpi_part *part;
    if (room > 0 || !node->waiting.first || !is_of_record(node->waiting.first))
        return kvpi_part_list_take(&node->waiting);
    while ((part = kvpi_part_list_take(&node->waiting)) != NULL)
        if (!found && !is_of_record(part))
            found = part;
        else
            kvpi_part_list_add(&left, part);
    node->waiting = left;
    return found;
}

static void begin_waiting(struct kvpi_node *node, uint64_t now)
{
    struct kvpi_conn *conn;
    struct kvpi_part *part;
    while (node->n_waiting > 0 && (conn = find_idle(node)) != NULL &&
           (part = take_waiting(node)) != NULL) {
        node->n_waiting--;
        node->config->compose(node->config->context, conn, part, now);
        pump_conn(node, conn, now);
    }
}

void kvpi_node_pump(struct kvpi_node *node, uint64_t now)
{
    for (uint32_t i = 0; i < node->config->n_conns; i++)
        pump_conn(node, &node->conns[i], now);
    end_late(node, now);
    begin_waiting(node, now);
    if (node->n_waiting > 0 && kvpi_node_is_down(node, now))
        fail_waiting(node);
    if (node->n_waiting > 0)
        open_conns(node, now);
}

uint32_t kvpi_node_watch(const struct kvpi_node *node, struct pollfd *out_fds, uint64_t *until)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < node->config->n_conns; i++) {
        const struct kvpi_conn *conn = &node->conns[i];
        if (!kvpi_conn_watch(conn, &out_fds[n]))
            continue;
        if (out_fds[n++].fd < 0) /* another connection was told the address: go on at once */
            *until = 0;
        const uint64_t deadline = kvpi_conn_deadline(conn);
        *until = deadline < *until ? deadline : *until;
    }
    if (node->n_waiting > 0 && node->waiting_until < *until)
        *until = node->waiting_until;
    return n;
}

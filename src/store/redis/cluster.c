/* cluster: the URL's server stays in the list for ever, because it can be asked when all others are
 * gone; the rest come and go with the map. What a server had under way ends before it goes. */
#include "store/redis/cluster.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define SOON_NS   UINT64_C(10000000)
#define DENIED_NS UINT64_C(60000000000) /* until a map that was denied is asked for again */

/* -------------------------------------------------------------------------------- parts, ending */

/* HAVE begins as AWAY, and one server that answers is enough; of DROP the worst counts. */
static uint32_t first_outcome(const struct kvpi_store_op *op)
{
    return op->kind == KVP_STORE_HAVE ? KVP_STORE_AWAY : KVP_STORE_OK;
}

static void merge(struct kvpi_store_op *op, enum kvpi_part_end end)
{
    if (end == KVPI_PART_LATE)
        end = KVPI_PART_FAILED;
    if (op->kind == KVP_STORE_HAVE) {
        if (end == KVPI_PART_ANSWERED || end == KVPI_PART_MISSED)
            op->outcome = KVP_STORE_OK;
        else if (end == KVPI_PART_FAILED && op->outcome == KVP_STORE_AWAY)
            op->outcome = KVP_STORE_FAILED;
    } else if (end == KVPI_PART_FAILED) {
        op->outcome = KVP_STORE_FAILED;
    } else if (end == KVPI_PART_MISSED) {
        op->outcome = op->kind == KVP_STORE_GET ? KVP_STORE_ABSENT : KVP_STORE_FAILED;
    } else if (end == KVPI_PART_AWAY && op->outcome == KVP_STORE_OK) {
        op->outcome = KVP_STORE_AWAY;
    }
}

static void release(struct kvpi_cluster *cluster, struct kvpi_store_op *op)
{
    if (--op->entry == 0)
        kvpi_op_list_add(&cluster->done, op);
}

static void end_part(struct kvpi_cluster *cluster, struct kvpi_part *part)
{
    struct kvpi_store_op *op = part->op;
    merge(op, part->end);
    free(part);
    release(cluster, op);
}

/* ---------------------------------------------------------------------------------- parts, made */

static uint32_t node_of(const struct kvpi_cluster *cluster, const kvp_digest *key)
{
    return cluster->of_slot[kvpi_map_slot(kvpi_ages_tag(cluster->ages, key))];
}

struct kvpi_node *kvpi_cluster_node(const struct kvpi_cluster *cluster, const kvp_digest *key)
{
    const uint32_t node = node_of(cluster, key);
    return node == KVPI_MAP_NONE ? NULL : cluster->nodes[node];
}

static void want_map(struct kvpi_cluster *cluster)
{
    cluster->wants_map = cluster->is_cluster;
}

int kvpi_cluster_is_away(struct kvpi_cluster *cluster, const kvp_digest *key, uint64_t now)
{
    const struct kvpi_node *node = kvpi_cluster_node(cluster, key);
    if (node && !kvpi_node_is_down(node, now))
        return 0;
    want_map(cluster);
    return 1;
}

static struct kvpi_part *make_part(struct kvpi_store_op *op, uint32_t n_keys, uint32_t n_tries)
{
    struct kvpi_part *part = malloc(sizeof *part + n_keys * sizeof part->keys[0]);
    if (!part)
        return NULL;
    *part = (struct kvpi_part){.op = op, .n_tries = n_tries};
    op->entry++;
    return part;
}

static void submit(struct kvpi_cluster *cluster, uint32_t number, struct kvpi_part *part,
                   uint64_t now)
{
    if (number != KVPI_MAP_NONE && !kvpi_node_is_down(cluster->nodes[number], now)) {
        kvpi_node_submit(cluster->nodes[number], part);
        return;
    }
    want_map(cluster);
    part->end = KVPI_PART_AWAY;
    end_part(cluster, part);
}

static const kvp_digest *key_of(const struct kvpi_store_op *op, uint32_t i)
{
    return op->kind == KVP_STORE_PUT || op->kind == KVP_STORE_GET ? &op->key : &op->keys[i];
}

/* keys NULL: 0 to n - 1. The operation has one part more, so that it does not end meanwhile. */
static void cut(struct kvpi_cluster *cluster, struct kvpi_store_op *op, const uint16_t *keys,
                uint32_t n, uint32_t n_tries, uint64_t now)
{
    uint32_t left = n;
    for (uint32_t i = 0; i < n; i++)
        cluster->node_of_key[i] = (uint16_t)node_of(cluster, key_of(op, keys ? keys[i] : i));
    for (uint32_t number = 0; left > 0; number++) {
        /* After the last node: the keys that no node has. */
        const uint32_t node = number < cluster->n_nodes ? number : KVPI_MAP_NONE;
        uint32_t n_here = 0;
        for (uint32_t i = 0; i < n; i++)
            n_here += cluster->node_of_key[i] == node;
        if (n_here == 0)
            continue;
        left -= n_here;
        struct kvpi_part *part = make_part(op, n_here, n_tries);
        if (!part) {
            merge(op, KVPI_PART_FAILED);
            continue;
        }
        for (uint32_t i = 0; i < n; i++)
            if (cluster->node_of_key[i] == node)
                part->keys[part->n_keys++] = keys ? keys[i] : (uint16_t)i;
        submit(cluster, node, part, now);
    }
}

void kvpi_cluster_begin(struct kvpi_cluster *cluster, struct kvpi_store_op *op, uint64_t now)
{
    const int has_keys = op->kind == KVP_STORE_HAVE || op->kind == KVP_STORE_DROP;
    op->entry = 1;
    op->outcome = first_outcome(op);
    cut(cluster, op, NULL, has_keys ? op->n_keys : 1, 0, now);
    release(cluster, op);
}

/* -------------------------------------------------------------------------------------- the map */

static struct kvpi_node *make_node(struct kvpi_cluster *cluster,
                                   const struct kvpi_place_of_server *place)
{
    struct kvpi_node *node = calloc(1, sizeof *node);
    if (!node)
        return NULL;
    if (kvpi_node_open(node, cluster->config, place, &cluster->map) != KVP_OK) {
        free(node);
        return NULL;
    }
    cluster->nodes[cluster->n_nodes++] = node;
    return node;
}

static void add_moved(struct kvpi_cluster *cluster, struct kvpi_part *part)
{
    if (!cluster->moved.first || part->op->deadline_ns < cluster->moved_until)
        cluster->moved_until = part->op->deadline_ns;
    kvpi_part_list_add(&cluster->moved, part);
}

static void collect(struct kvpi_cluster *cluster, struct kvpi_node *node, uint64_t now)
{
    struct kvpi_part *part;
    while ((part = kvpi_part_list_take(&node->done)) != NULL) {
        kvpi_node_note(node, part, now);
        if (part->n_moved > 0) /* INFO may have been denied */
            cluster->is_cluster = 1;
        if (part->n_moved > 0 || part->end == KVPI_PART_MISSED || part->end == KVPI_PART_FAILED)
            want_map(cluster);
        if (part->n_moved > 0 && part->end != KVPI_PART_FAILED && !cluster->is_denied &&
            part->n_tries + 1 < KVPI_CLUSTER_TRIES) {
            add_moved(cluster, part);
            continue;
        }
        if (part->n_moved > 0 && part->end == KVPI_PART_ANSWERED)
            part->end = KVPI_PART_MISSED;
        end_part(cluster, part);
    }
}

static void free_node(struct kvpi_cluster *cluster, struct kvpi_node *node, uint64_t now)
{
    cluster->evicted_gone += node->evicted;
    kvpi_node_close(node);
    collect(cluster, node, now);
    free(node);
}

static int has_address(const struct kvpi_node *node, const struct kvpi_map_server *server)
{
    return node->place.port == server->port && strcmp(node->place.host, server->host) == 0;
}

static int is_in_map(const struct kvpi_cluster *cluster, const struct kvpi_node *node)
{
    for (uint32_t i = 0; i < cluster->map.n_servers; i++)
        if (has_address(node, &cluster->map.servers[i]))
            return 1;
    return 0;
}

int kvpi_cluster_serves(const struct kvpi_cluster *cluster, const struct kvpi_node *node)
{
    return !cluster->is_cluster || cluster->map.n_servers == 0 || is_in_map(cluster, node);
}

/* Number of the node of a server, made if there is none; KVPI_MAP_NONE: no memory. */
static uint16_t number_of(struct kvpi_cluster *cluster, const struct kvpi_map_server *server)
{
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        if (has_address(cluster->nodes[i], server))
            return (uint16_t)i;
    struct kvpi_place_of_server place = cluster->seed;
    memcpy(place.host, server->host, sizeof place.host);
    place.port = server->port;
    return make_node(cluster, &place) ? (uint16_t)(cluster->n_nodes - 1) : KVPI_MAP_NONE;
}

static void apply_map(struct kvpi_cluster *cluster, uint64_t now)
{
    uint16_t numbers[KVPI_MAP_SERVERS] = {0};
    uint32_t n_kept = 1;
    for (uint32_t i = 1; i < cluster->n_nodes; i++) {
        if (is_in_map(cluster, cluster->nodes[i]))
            cluster->nodes[n_kept++] = cluster->nodes[i];
        else
            free_node(cluster, cluster->nodes[i], now);
    }
    cluster->n_nodes = n_kept;
    for (uint32_t i = 0; i < cluster->map.n_servers; i++)
        numbers[i] = number_of(cluster, &cluster->map.servers[i]);
    for (uint32_t i = 0; i < KVPI_MAP_SLOTS; i++) {
        const uint16_t server = cluster->map.of_slot[i];
        cluster->of_slot[i] = KVPI_MAP_NONE;
        if (server < cluster->map.n_servers)
            cluster->of_slot[i] = numbers[server];
    }
}

/* What has moved is asked for where the map says, or is a miss. */
static void send_moved(struct kvpi_cluster *cluster, int again, uint64_t now)
{
    struct kvpi_part_list moved = cluster->moved;
    struct kvpi_part *part;
    cluster->moved = (struct kvpi_part_list){NULL, NULL};
    while ((part = kvpi_part_list_take(&moved)) != NULL) {
        if (again)
            cut(cluster, part->op, part->keys, part->n_moved, part->n_tries + 1, now);
        /* Of a put or get, the new part says how it ends. */
        else if (part->end == KVPI_PART_ANSWERED)
            part->end = KVPI_PART_MISSED;
        end_part(cluster, part);
    }
}

/* What has moved and whose time is over is a miss. */
static void end_late(struct kvpi_cluster *cluster, uint64_t now)
{
    struct kvpi_part_list moved = cluster->moved;
    struct kvpi_part *part;
    cluster->moved = (struct kvpi_part_list){NULL, NULL};
    while ((part = kvpi_part_list_take(&moved)) != NULL) {
        if (now < part->op->deadline_ns) {
            add_moved(cluster, part);
            continue;
        }
        if (part->end == KVPI_PART_ANSWERED)
            part->end = KVPI_PART_MISSED;
        end_part(cluster, part);
    }
}

/* Ask one server after the other. 0: none can be asked, now or soon. */
static int ask_for_map(struct kvpi_cluster *cluster, uint64_t now)
{
    static const char *const argv[] = {"CLUSTER", "SLOTS"};
    int is_hopeful = 0;
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        struct kvpi_node *node = cluster->nodes[(cluster->map_turn + i) % cluster->n_nodes];
        struct kvpi_conn *conn = kvpi_node_is_down(node, now) ? NULL : kvpi_node_spare(node);
        if (!conn) {
            is_hopeful |= kvpi_node_reach(node, now);
            continue;
        }
        const struct kvpi_job job = {.kind = KVPI_JOB_MAP, .n_replies = 1};
        kvpi_map_begin(&cluster->map, node->place.host);
        kvpi_conn_begin(conn, &job, now);
        kvpi_conn_command(conn, 2, argv);
        kvpi_conn_pump(conn, now);
        cluster->map_turn += i + 1;
        cluster->wants_map = 0;
        cluster->map_due = now + KVPI_CLUSTER_PAUSE_NS;
        return 1;
    }
    cluster->map_due = now + SOON_NS;
    return is_hopeful;
}

static void pump_map(struct kvpi_cluster *cluster, uint64_t now)
{
    for (uint32_t i = 0; i < cluster->n_nodes && !cluster->is_cluster; i++)
        if (cluster->nodes[i]->in_cluster)
            cluster->is_cluster = cluster->wants_map = 1;
    const enum kvpi_map_state state = cluster->map.state;
    if (state != KVPI_MAP_READING)
        cluster->map.state = KVPI_MAP_IDLE;
    if (state == KVPI_MAP_WHOLE) {
        cluster->is_denied = 0;
        apply_map(cluster, now);
        send_moved(cluster, 1, now);
    } else if (state == KVPI_MAP_FAILED) {
        cluster->wants_map = 1;
    } else if (state == KVPI_MAP_DENIED) {
        cluster->is_denied = 1;
        cluster->map_due = now + DENIED_NS;
        send_moved(cluster, 0, now);
    }
    if (cluster->wants_map && cluster->map.state == KVPI_MAP_IDLE && now >= cluster->map_due &&
        !ask_for_map(cluster, now))
        send_moved(cluster, 0, now);
    if (cluster->moved.first && now >= cluster->moved_until)
        end_late(cluster, now);
}

/* ------------------------------------------------------------------------------- pump and watch */

void kvpi_cluster_pump(struct kvpi_cluster *cluster, uint64_t now)
{
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        kvpi_node_pump(cluster->nodes[i], now);
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        collect(cluster, cluster->nodes[i], now);
    pump_map(cluster, now);
}

uint32_t kvpi_cluster_fds(const struct kvpi_cluster *cluster)
{
    return cluster->n_nodes * cluster->config->n_conns;
}

uint32_t kvpi_cluster_watch(const struct kvpi_cluster *cluster, struct pollfd *out_fds,
                            uint64_t *until)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        n += kvpi_node_watch(cluster->nodes[i], out_fds + n, until);
    if (cluster->moved.first) {
        uint64_t next = cluster->moved_until;
        if (cluster->map.state != KVPI_MAP_READING && cluster->map_due < next)
            next = cluster->map_due;
        *until = next < *until ? next : *until;
    }
    return n;
}

/* ---------------------------------------------------------------------------------- open, close */

/* The map at the start; without it, what is asked for is told where to go. */
static void wait_for_map(struct kvpi_cluster *cluster)
{
    const struct kvpi_node_wait wait = kvpi_node_wait_begin(cluster->config);
    const uint64_t until = wait.began + cluster->config->timeout_ns;
    uint64_t now = wait.began;
    kvpi_cluster_pump(cluster, now);
    while (cluster->map.state != KVPI_MAP_IDLE && now < until) {
        struct pollfd fds[KVPI_NODE_CONNS];
        uint64_t unused = until;
        poll(fds, kvpi_node_watch(cluster->nodes[0], fds, &unused), 10);
        now = kvpi_node_wait_now(&wait);
        kvpi_cluster_pump(cluster, now);
    }
}

kvp_status kvpi_cluster_open(struct kvpi_cluster *cluster, const struct kvpi_node_config *config,
                             const struct kvpi_ages *ages, const struct kvpi_place_of_server *seed)
{
    cluster->config = config;
    cluster->ages = ages;
    cluster->seed = *seed;
    struct kvpi_node *node = make_node(cluster, seed);
    if (!node)
        return KVP_E_NO_MEMORY;
    if (!kvpi_node_try(node))
        return KVP_E_IO;
    if (node->in_cluster)
        wait_for_map(cluster);
    return KVP_OK;
}

void kvpi_cluster_close(struct kvpi_cluster *cluster)
{
    while (cluster->n_nodes > 0)
        free_node(cluster, cluster->nodes[--cluster->n_nodes], 0);
    send_moved(cluster, 0, 0);
}

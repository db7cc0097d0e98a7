/* cluster: the servers, and which of them has which key. A single server is a cluster of one.
 *
 *     begin   cut an operation into parts, one for each server that has some of its keys
 *     pump    move the parts; a key that has moved waits in `moved` until the map has been read
 *             again, and is asked for once more: KVPI_CLUSTER_TRIES times in all
 *     reap    operations all of whose parts have ended
 *
 * The map is read again when a key has moved, when a server fails, and when an operation needs one
 * that is away: a replica may have taken its place. At most every KVPI_CLUSTER_PAUSE_NS. */
#ifndef KVPI_STORE_REDIS_CLUSTER_H
#define KVPI_STORE_REDIS_CLUSTER_H

#include "store/redis/ages.h"
#include "store/redis/node.h"

enum { KVPI_CLUSTER_TRIES = 3 };

#define KVPI_CLUSTER_PAUSE_NS UINT64_C(100000000)

struct kvpi_cluster {
    const struct kvpi_node_config *config;
    const struct kvpi_ages *ages;
    struct kvpi_place_of_server seed; /* of the URL */
    struct kvpi_node *nodes[1 + KVPI_MAP_SERVERS];
    uint32_t n_nodes; /* the first is the URL's, whether the map has it or not */
    uint16_t of_slot[KVPI_MAP_SLOTS];
    struct kvpi_map map;
    int is_cluster;
    int wants_map;
    uint64_t map_due;  /* no earlier */
    uint32_t map_turn; /* the node that is asked next */
    struct kvpi_part_list moved;
    uint64_t moved_until; /* no deadline of theirs is earlier; then they are misses */
    int is_denied;        /* no server gives a map: what has moved is a miss */
    struct kvpi_op_list done;
    uint64_t evicted_gone;                    /* of servers that are no longer in the map */
    uint16_t node_of_key[KVP_STORE_KEYS_MAX]; /* while an operation is cut */
};

/* Connect to the server of the URL; a server that is away is no failure.
 * Returns: KVP_OK; KVP_E_NO_MEMORY; KVP_E_IO: it answers that it does not want us, as
 *          cluster->nodes[0]->why tells */
kvp_status kvpi_cluster_open(struct kvpi_cluster *cluster, const struct kvpi_node_config *config,
                             const struct kvpi_ages *ages, const struct kvpi_place_of_server *seed);
void kvpi_cluster_close(struct kvpi_cluster *cluster);

/* The server of a key; NULL: no server has it. */
struct kvpi_node *kvpi_cluster_node(const struct kvpi_cluster *cluster, const kvp_digest *key);

/* 1: the server has keys: not 0, but of the URL's, if the map does not have it. */
int kvpi_cluster_serves(const struct kvpi_cluster *cluster, const struct kvpi_node *node);

/* 1: the server of the key is left alone; the map is read again then. */
int kvpi_cluster_is_away(struct kvpi_cluster *cluster, const kvp_digest *key, uint64_t now);

/* Take a PUT, GET, HAVE or DROP. */
void kvpi_cluster_begin(struct kvpi_cluster *cluster, struct kvpi_store_op *op, uint64_t now);

/* Do what is possible without waiting; what has ended is in cluster->done. */
void kvpi_cluster_pump(struct kvpi_cluster *cluster, uint64_t now);

/* As kvpi_node_watch, of all servers; out_fds has room for kvpi_cluster_fds(). */
uint32_t kvpi_cluster_watch(const struct kvpi_cluster *cluster, struct pollfd *out_fds,
                            uint64_t *until);
uint32_t kvpi_cluster_fds(const struct kvpi_cluster *cluster);

#endif

/* node: one server: its connections, what waits for one of them, and whether it is left alone.
 *
 * A part waits in `waiting` until a connection is idle, or the time of its operation is over. A
 * server that cannot be reached, that lets
 * a deadline pass, or that fails KVPI_NODE_ERRORS parts in a row is left alone for `step`
 * nanoseconds, twice as long each time; what waits fails then.
 *
 * A server counts what it receives, and answers that were not read yet, for its maxmemory. So the
 * records that are under way at once have at most 1 / KVPI_NODE_SHARE of it; one may always be. */
#ifndef KVPI_STORE_REDIS_NODE_H
#define KVPI_STORE_REDIS_NODE_H

#include "store/redis/link/conn.h"

enum {
    KVPI_NODE_CONNS = 64,
    KVPI_NODE_INFO = 64,
    KVPI_NODE_RIGHTS = 96,
    KVPI_NODE_ERRORS = 4,
    KVPI_NODE_SHARE = 64
};

#define KVPI_NODE_INFO_NS UINT64_C(10000000000)

struct kvpi_node;

struct kvpi_node_config {
    uint32_t n_conns;
    size_t limit_bytes;
    uint64_t record_bytes; /* 0: no records are read or written */
    uint64_t timeout_ns;
    uint64_t (*clock)(void *context); /* of deadlines; NULL: monotonic time */
    void *clock_context;
    const struct kvpi_net *net;
    const struct kvpi_tls *tls; /* NULL: without */
    /* Begin a part on a connection that is idle: kvpi_conn_begin and commands. */
    void (*compose)(void *context, struct kvpi_conn *conn, struct kvpi_part *part, uint64_t now);
    void (*piece)(void *context, const struct kvpi_map_at *at, uint32_t number, const char *text,
                  size_t n_bytes); /* of kvpi_conn_config; NULL: no lists */
    void (*number)(void *context, long long number);
    uint64_t *n_lost; /* of kvpi_conn_config */
    void *context;
};

struct kvpi_node {
    struct kvpi_place_of_server place;
    struct kvpi_lookup lookup;
    struct kvpi_conn_config conn_config;
    const struct kvpi_node_config *config;
    struct kvpi_conn *conns; /* [n_conns] */
    struct kvpi_part_list waiting;
    uint32_t n_waiting;
    uint64_t waiting_until; /* no deadline of what waits is earlier */
    struct kvpi_part_list done;
    uint32_t n_errors;   /* parts that failed in a row */
    uint64_t down_until; /* 0: it is used */
    uint64_t step;
    int is_full;             /* the last put of a record that it lacked found no room */
    char why[KVPI_CONN_WHY]; /* the last failure; "": none since it was last reached */
    /* What INFO said; "" and 0: nothing. */
    char version[KVPI_NODE_INFO];
    char policy[KVPI_NODE_INFO];
    uint64_t used_bytes;
    uint64_t max_bytes;
    uint64_t records;      /* keys of the database */
    uint64_t evicted;      /* keys since the first INFO */
    uint64_t evicted_told; /* by the last one: since the server began */
    uint64_t info_due;     /* when it is asked for again; 0: never was */
    int in_cluster;
    char denied[KVPI_NODE_RIGHTS]; /* rights that the account lacks, as far as they were needed */
};

kvp_status kvpi_node_open(struct kvpi_node *node, const struct kvpi_node_config *config,
                          const struct kvpi_place_of_server *place, struct kvpi_map *map);

/* What is under way or waits fails, and is in node->done. */
void kvpi_node_close(struct kvpi_node *node);

/* Monotonic nanoseconds. */
uint64_t kvpi_node_now(void);

/* The clock of deadlines. */
uint64_t kvpi_node_clock(const struct kvpi_node_config *config);

/* The same while the caller waits for a server in real time, which an injected clock does not know:
 * its time at the beginning, and what has gone since. */
struct kvpi_node_wait {
    uint64_t began;
    uint64_t really;
};
struct kvpi_node_wait kvpi_node_wait_begin(const struct kvpi_node_config *config);
uint64_t kvpi_node_wait_now(const struct kvpi_node_wait *wait);

int kvpi_node_is_down(const struct kvpi_node *node, uint64_t now);

void kvpi_node_submit(struct kvpi_node *node, struct kvpi_part *part);

/* A part has ended, well or not. */
void kvpi_node_note(struct kvpi_node *node, const struct kvpi_part *part, uint64_t now);

/* Do what is possible without waiting; what has ended is in node->done. */
void kvpi_node_pump(struct kvpi_node *node, uint64_t now);

struct pollfd;

/* Add what to wait for, and bring *until, a time, forward. Gives the number of descriptors. */
uint32_t kvpi_node_watch(const struct kvpi_node *node, struct pollfd *out_fds, uint64_t *until);

/* Ask for INFO again if the last one is KVPI_NODE_INFO_NS old and a connection has room. */
void kvpi_node_refresh(struct kvpi_node *node, uint64_t now);

/* A connection that can take a job without a part at once, or NULL. */
struct kvpi_conn *kvpi_node_spare(struct kvpi_node *node);

/* Ensure that there is a connection, or will be. 0: the server is left alone. */
int kvpi_node_reach(struct kvpi_node *node, uint64_t now);

/* Connect once, and wait for it; node->why tells of a failure. 0: the server answered that it does
 * not want us. */
int kvpi_node_try(struct kvpi_node *node);

#endif

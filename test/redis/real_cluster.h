/* A cluster of three real servers on the loopback interface, and a replica of the first. */
#ifndef KVP_TEST_REDIS_REAL_CLUSTER_H
#define KVP_TEST_REDIS_REAL_CLUSTER_H

#include "real_server.h"

enum {
    CLUSTER_PRIMARIES = 3,
    CLUSTER_SERVERS = 4,
    CLUSTER_MORE = 14,
    CLUSTER_OPTIONS = 12 + 3 + CLUSTER_MORE
};

struct real_cluster {
    struct real_server servers[CLUSTER_SERVERS];
    int bus_ports[CLUSTER_SERVERS];
    int tls_ports[CLUSTER_SERVERS]; /* with "--tls-cluster" among the arguments */
    char ids[CLUSTER_SERVERS][64];
    char folder[32];
};

/* The text of a reply; "" if it is another kind. */
static inline void ask_text(const struct real_server *server, char *out, size_t capacity,
                            const char *format, ...)
{
    valkeyContext *context = valkeyConnect("127.0.0.1", server->port);
    va_list arguments;
    va_start(arguments, format);
    valkeyReply *reply = valkeyvCommand(context, format, arguments);
    va_end(arguments);
    assert_non_null(reply);
    snprintf(out, capacity, "%s", reply->str ? reply->str : "");
    freeReplyObject(reply);
    valkeyFree(context);
}

static inline void start_cluster_server(struct real_cluster *cluster, int i,
                                        const char *const *more)
{
    char bus[16], tls[16], file[32];
    snprintf(file, sizeof file, "nodes-%d.conf", i);
    cluster->bus_ports[i] = free_port();
    snprintf(bus, sizeof bus, "%d", cluster->bus_ports[i]);
    const char *options[CLUSTER_OPTIONS + 1] = {
        "--cluster-enabled",
        "yes",
        "--cluster-config-file",
        file,
        "--cluster-port",
        bus,
        "--dir",
        NULL,
        "--cluster-node-timeout",
        "1000",
    };
    options[7] = cluster->folder;
    int n = 10;
    /* What the dead one had is missed; the rest goes on. */
    options[n++] = "--cluster-require-full-coverage";
    options[n++] = "no";
    for (int k = 0; more && more[k] && k < CLUSTER_MORE; k++) {
        options[n++] = more[k];
        if (strcmp(more[k], "--tls-cluster") != 0)
            continue;
        cluster->tls_ports[i] = free_port();
        snprintf(tls, sizeof tls, "%d", cluster->tls_ports[i]);
        options[n++] = "yes";
        options[n++] = "--tls-port";
        options[n++] = tls;
    }
    start_server(&cluster->servers[i], options);
    ask_text(&cluster->servers[i], cluster->ids[i], sizeof cluster->ids[i], "CLUSTER MYID");
}

/* Until all agree. */
static inline void wait_for_cluster(const struct real_cluster *cluster, int n_servers)
{
    for (int tries = 0; tries < 1500; tries++) {
        int n_good = 0;
        for (int i = 0; i < n_servers; i++) {
            char text[2000], known[40];
            snprintf(known, sizeof known, "cluster_known_nodes:%d\r", n_servers);
            ask_text(&cluster->servers[i], text, sizeof text, "CLUSTER INFO");
            n_good += strstr(text, "cluster_state:ok") && strstr(text, known) &&
                      strstr(text, "cluster_slots_ok:16384");
        }
        if (n_good == n_servers)
            return;
        poll(NULL, 0, 10);
    }
    fail_msg("the cluster does not come up");
}

/* more: up to 14 more arguments of each server, NULL at the end, or NULL; "--tls-cluster" stands
 * alone and gives each a port for TLS.
 * n_servers: 3, or 4 with a replica. */
static inline void start_cluster(struct real_cluster *cluster, int n_servers,
                                 const char *const *more)
{
    memset(cluster, 0, sizeof *cluster);
    snprintf(cluster->folder, sizeof cluster->folder, "/tmp/kvp-cluster-XXXXXX");
    assert_non_null(mkdtemp(cluster->folder));
    for (int i = 0; i < n_servers; i++)
        start_cluster_server(cluster, i, more);
    for (int i = 0; i < CLUSTER_PRIMARIES; i++) {
        const int first = i * 16384 / CLUSTER_PRIMARIES;
        const int last = (i + 1) * 16384 / CLUSTER_PRIMARIES - 1;
        ask(&cluster->servers[i], "CLUSTER ADDSLOTSRANGE %d %d", first, last);
        ask(&cluster->servers[i], "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
    }
    for (int i = 1; i < n_servers; i++)
        ask(&cluster->servers[0], "CLUSTER MEET 127.0.0.1 %d %d",
            cluster->tls_ports[i] ? cluster->tls_ports[i] : cluster->servers[i].port,
            cluster->bus_ports[i]);
    wait_for_cluster(cluster, n_servers);
    if (n_servers <= CLUSTER_PRIMARIES)
        return;
    const struct real_server *replica = &cluster->servers[CLUSTER_PRIMARIES];
    assert_int_equal(ask(replica, "CLUSTER REPLICATE %s", cluster->ids[0]), 1);
    char text[4000] = "";
    for (int tries = 0; tries < 1500 && !strstr(text, "master_link_status:up"); tries++) {
        ask_text(replica, text, sizeof text, "INFO replication");
        poll(NULL, 0, 10);
    }
}

static inline void stop_cluster(struct real_cluster *cluster)
{
    char command[64];
    for (int i = 0; i < CLUSTER_SERVERS; i++)
        if (cluster->servers[i].pid > 0)
            stop_server(&cluster->servers[i]);
    snprintf(command, sizeof command, "rm -rf %s", cluster->folder);
    assert_int_equal(system(command), 0);
}

#endif

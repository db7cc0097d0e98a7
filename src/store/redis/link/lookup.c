/* lookup: `run` belongs to both sides, and the last one to leave frees it. The thread writes the
 * result and then `is_done`; the other side reads it only afterwards. */
#define _POSIX_C_SOURCE 200809L
#include "store/redis/link/lookup.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/wake.h"

struct kvpi_lookup_run {
    _Atomic int n_sides;
    _Atomic int is_done;
    const struct kvpi_net *net;
    char host[KVPI_PLACE_HOST];
    int port;
    struct kvpi_wake wake;
    uint32_t n_addresses;
    struct kvpi_net_address addresses[KVPI_NET_ADDRESSES];
    char why[KVPI_LOOKUP_WHY];
};

/* Of all stores together: threads are the process's. */
static _Atomic int n_threads;

static void leave(struct kvpi_lookup_run *run)
{
    if (atomic_fetch_sub(&run->n_sides, 1) > 1)
        return;
    kvpi_wake_close(&run->wake);
    free(run);
}

static void *look_up(void *argument)
{
    struct kvpi_lookup_run *run = argument;
    run->n_addresses = run->net->look_up(run->net->context, run->host, run->port, run->addresses,
                                         run->why, sizeof run->why);
    atomic_store(&run->is_done, 1);
    kvpi_wake_raise(&run->wake);
    leave(run);
    atomic_fetch_sub(&n_threads, 1);
    return NULL;
}

static void end(struct kvpi_lookup *lookup, uint32_t n_addresses)
{
    lookup->state = n_addresses > 0 ? KVPI_LOOKUP_FOUND : KVPI_LOOKUP_FAILED;
    lookup->n_addresses = n_addresses;
}

static void fail(struct kvpi_lookup *lookup, const char *why)
{
    snprintf(lookup->why, sizeof lookup->why, "%s", why);
    end(lookup, 0);
}

/* NULL: the system gave no memory. */
static struct kvpi_lookup_run *make_run(const struct kvpi_net *net,
                                        const struct kvpi_place_of_server *place)
{
    struct kvpi_lookup_run *run = calloc(1, sizeof *run);
    if (!run || kvpi_wake_open(&run->wake) != 0) {
        free(run);
        return NULL;
    }
    atomic_store(&run->n_sides, 2);
    run->net = net;
    run->port = place->port;
    memcpy(run->host, place->host, sizeof run->host);
    return run;
}

static void start(struct kvpi_lookup *lookup, const struct kvpi_net *net,
                  const struct kvpi_place_of_server *place)
{
    if (atomic_fetch_add(&n_threads, 1) >= KVPI_LOOKUP_THREADS) {
        fail(lookup, "too many names are looked up at once");
    } else if ((lookup->run = make_run(net, place)) == NULL) {
        fail(lookup, "the system gave no memory");
    } else if (net->start(net->context, look_up, lookup->run) != 0) {
        atomic_store(&lookup->run->n_sides, 1); /* there is no thread */
        leave(lookup->run);
        lookup->run = NULL;
        fail(lookup, "the system gave no thread");
    } else {
        lookup->state = KVPI_LOOKUP_RUNNING;
        return;
    }
    atomic_fetch_sub(&n_threads, 1);
}

static int is_address(const char *host)
{
    unsigned char bytes[16];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

void kvpi_lookup_begin(struct kvpi_lookup *lookup, const struct kvpi_net *net,
                       const struct kvpi_place_of_server *place)
{
    if (kvpi_lookup_step(lookup) == KVPI_LOOKUP_RUNNING)
        return;
    if (is_address(place->host)) {
        end(lookup, net->look_up(net->context, place->host, place->port, lookup->addresses,
                                 lookup->why, sizeof lookup->why));
    } else {
        start(lookup, net, place);
    }
}

enum kvpi_lookup_state kvpi_lookup_step(struct kvpi_lookup *lookup)
{
    struct kvpi_lookup_run *run = lookup->run;
    if (run && atomic_load(&run->is_done)) {
        memcpy(lookup->addresses, run->addresses, sizeof lookup->addresses);
        memcpy(lookup->why, run->why, sizeof lookup->why);
        end(lookup, run->n_addresses);
        kvpi_lookup_close(lookup);
    }
    return lookup->state;
}

void kvpi_lookup_close(struct kvpi_lookup *lookup)
{
    if (lookup->run)
        leave(lookup->run);
    lookup->run = NULL;
}

int kvpi_lookup_fd(const struct kvpi_lookup *lookup)
{
    return lookup->run ? lookup->run->wake.read_fd : -1;
}

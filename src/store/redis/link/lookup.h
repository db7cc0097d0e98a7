/* lookup: the addresses of a server's host. A name server may take half a minute, and no call to it
 * can be stopped: so a look-up has its own thread, which no caller waits for. A caller that wants
 * the addresses has a deadline, and goes.
 *
 *     begin   RUNNING; or FOUND at once, because the host is an address
 *     step    RUNNING until the thread has ended, then FOUND or FAILED
 *     close   the thread, if it still runs, frees what it alone has then
 *
 * There is one at a time for a server: a second `begin` joins the first. */
#ifndef KVPI_STORE_REDIS_LOOKUP_H
#define KVPI_STORE_REDIS_LOOKUP_H

#include "store/redis/link/net.h"
#include "store/redis/link/link_place.h"

enum {
    KVPI_LOOKUP_WHY = 160,
    KVPI_LOOKUP_THREADS = 64 /* of the process: a map with ever new names makes no more */
};

enum kvpi_lookup_state {
    KVPI_LOOKUP_NONE = 0,
    KVPI_LOOKUP_RUNNING,
    KVPI_LOOKUP_FOUND,
    KVPI_LOOKUP_FAILED
};

struct kvpi_lookup_run;

struct kvpi_lookup {
    enum kvpi_lookup_state state;
    struct kvpi_lookup_run *run; /* RUNNING: what is shared with the thread */
    uint32_t n_addresses;        /* FOUND */
    struct kvpi_net_address addresses[KVPI_NET_ADDRESSES];
    uint32_t turn; /* connections to the addresses before this one, modulo their number, failed */
    char why[KVPI_LOOKUP_WHY]; /* FAILED */
};

void kvpi_lookup_begin(struct kvpi_lookup *lookup, const struct kvpi_net *net,
                       const struct kvpi_place_of_server *place);
enum kvpi_lookup_state kvpi_lookup_step(struct kvpi_lookup *lookup);
void kvpi_lookup_close(struct kvpi_lookup *lookup);

/* A descriptor that is readable when the thread has ended; -1: there is no thread any longer. */
int kvpi_lookup_fd(const struct kvpi_lookup *lookup);

#endif

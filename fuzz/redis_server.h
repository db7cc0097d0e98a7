/* redis_server: servers in memory for fuzz_redis. They share their records, know the commands that
 * a store sends, and refuse one that is none. What an answer becomes is drawn from the input:
 * right, cut, changed, another's, too long, an error, twice, late, never, or any bytes. */
#ifndef FUZZ_REDIS_SERVER_H
#define FUZZ_REDIS_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include "store/redis/link/net.h"

/* The input; behind its end everything is 0, and answers are right. */
struct redis_input {
    const uint8_t *data;
    size_t size;
    size_t at;
};

uint8_t redis_draw(struct redis_input *input);

/* Forget all records and connections, and draw from this input. */
void redis_server_begin(struct redis_input *input, int is_cluster);

/* From now on answers are right, whatever the input still has. */
void redis_server_recover(void);

/* 0: a server that has nothing to say closes the connection. For what waits in real time. */
void redis_server_is_patient(int is_patient);

/* What it says of its maxmemory, until the next begin. */
void redis_server_memory(uint64_t max_memory);

/* How many names a SCAN gives at most, until the next begin; 0: all. */
void redis_server_page(unsigned n_names);

/* The host of the second server in the map of a cluster, until the next begin. */
void redis_server_host(const char *host);

/* From now on poll(2) waits for a connection until its time is over, not at all before. */
void redis_server_never_ready(void);

/* Close all connections. */
void redis_server_hang_up(void);

/* What is answered to all commands but INFO and CLUSTER, instead; NULL: what is drawn. */
void redis_server_say(const char *answer);

/* What can go wrong with an answer. */
enum redis_trouble {
    REDIS_FAILS,   /* it is an error */
    REDIS_IS_SLOW, /* it comes two seconds later */
    REDIS_REPEATS, /* it comes twice */
    REDIS_IS_LAST  /* the command was obeyed, and the connection ends before its answer */
};

/* It goes wrong with the n-th of this command from now on; 1: the next one. */
void redis_server_trouble(const char *command, unsigned nth, enum redis_trouble kind);

/* 1: that one has not come yet. */
int redis_server_is_waiting_for_trouble(void);

/* The server's time; without it the time is 0. */
void redis_server_clock(uint64_t (*now)(void *context));

/* When this name expires; 0: it is not there, UINT64_MAX: never. */
uint64_t redis_server_expiry(const char *name);

/* How often this command came. */
unsigned redis_server_asked(const char *command);

/* Bytes that were sent to the store. */
uint64_t redis_server_sent(void);

/* Connections that are open. */
unsigned redis_server_open(void);

extern const struct kvpi_net redis_server_net;

#endif

/* redis_map: which server has which slot, as CLUSTER SLOTS tells it, piece by piece:
 *
 *     [[first, last, [host, port, id, [...]], replica ...], ...]
 *
 * A piece is known by its depth and its place in the arrays around it. Slots that no server has are
 * KVPI_MAP_NONE. */
#ifndef KVPI_STORE_REDIS_MAP_H
#define KVPI_STORE_REDIS_MAP_H

#include "store/redis/link/link_place.h"

enum { KVPI_MAP_SLOTS = 16384, KVPI_MAP_SERVERS = 256, KVPI_MAP_NONE = 0xFFFF };

struct kvpi_map_server {
    char host[KVPI_PLACE_HOST];
    int port;
};

enum kvpi_map_state {
    KVPI_MAP_IDLE = 0,
    KVPI_MAP_READING,
    KVPI_MAP_WHOLE,
    KVPI_MAP_FAILED,
    KVPI_MAP_DENIED /* the account may not ask, or the server knows no maps */
};

struct kvpi_map {
    enum kvpi_map_state state;
    uint32_t n_servers;
    struct kvpi_map_server servers[KVPI_MAP_SERVERS];
    uint16_t of_slot[KVPI_MAP_SLOTS]; /* number of a server */
    /* What is being read. */
    char asked[KVPI_PLACE_HOST]; /* the host that tells it */
    long long first;
    long long last;
    char host[KVPI_PLACE_HOST];
    int is_wrong;
};

/* Where a piece stands: its depth, its place in its array, and that array's place in its own. */
struct kvpi_map_at {
    int depth; /* 0: the reply itself */
    int place;
    int outer;
};

/* Slot of a key by the tag between its braces. */
uint32_t kvpi_map_slot(uint64_t tag);

/* Forget what was read, and read from this host. */
void kvpi_map_begin(struct kvpi_map *map, const char *asked);

void kvpi_map_number(struct kvpi_map *map, const struct kvpi_map_at *at, long long number);

/* text NULL: nil. */
void kvpi_map_text(struct kvpi_map *map, const struct kvpi_map_at *at, const char *text,
                   size_t n_bytes);

/* The reply has ended: WHOLE or FAILED. */
void kvpi_map_end(struct kvpi_map *map);

#endif

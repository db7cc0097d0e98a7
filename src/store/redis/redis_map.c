/* redis_map: nothing is believed before the reply is whole; a number out of range spoils all of
 * it. */
#include "store/redis/redis_map.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Bit by bit: tags have few digits. CRC-16/XMODEM, as the specification of clusters has it. */
uint32_t kvpi_map_slot(uint64_t tag)
{
    char text[24];
    const int n = snprintf(text, sizeof text, "%" PRIu64, tag);
    uint32_t crc = 0;
    for (int i = 0; i < n; i++) {
        crc ^= (uint32_t)(unsigned char)text[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x8000 ? (crc << 1 ^ 0x1021) & 0xFFFF : crc << 1;
    }
    return crc % KVPI_MAP_SLOTS;
}

void kvpi_map_begin(struct kvpi_map *map, const char *asked)
{
    map->state = KVPI_MAP_READING;
    map->n_servers = 0;
    map->is_wrong = 0;
    map->first = map->last = -1;
    map->host[0] = 0;
    snprintf(map->asked, sizeof map->asked, "%s", asked);
    memset(map->of_slot, 0xFF, sizeof map->of_slot);
}

/* Number of a server, or KVPI_MAP_NONE: there is no room. */
static uint16_t find_server(struct kvpi_map *map, const char *host, int port)
{
    for (uint32_t i = 0; i < map->n_servers; i++)
        if (map->servers[i].port == port && strcmp(map->servers[i].host, host) == 0)
            return (uint16_t)i;
    if (map->n_servers == KVPI_MAP_SERVERS)
        return KVPI_MAP_NONE;
    struct kvpi_map_server *server = &map->servers[map->n_servers];
    snprintf(server->host, sizeof server->host, "%s", host);
    server->port = port;
    return (uint16_t)map->n_servers++;
}

static void take_port(struct kvpi_map *map, long long port)
{
    if (port < 1 || port > 65535 || map->first < 0 || map->last < map->first ||
        map->last >= KVPI_MAP_SLOTS || !map->host[0]) {
        map->is_wrong = 1;
        return;
    }
    const uint16_t server = find_server(map, map->host, (int)port);
    for (long long slot = map->first; slot <= map->last; slot++)
        map->of_slot[slot] = server;
}

/* The first server of a range is its primary; the others are replicas. */
static int is_primary(const struct kvpi_map_at *at)
{
    return at->depth == 3 && at->outer == 2;
}

void kvpi_map_number(struct kvpi_map *map, const struct kvpi_map_at *at, long long number)
{
    if (at->depth == 2 && at->place == 0)
        map->first = number;
    else if (at->depth == 2 && at->place == 1)
        map->last = number;
    else if (is_primary(at) && at->place == 1)
        take_port(map, number);
}

/* A host is looked up, and shown to operators: ASCII without blanks. */
static int is_name(const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        if (text[i] <= ' ' || text[i] >= 127)
            return 0;
    return 1;
}

void kvpi_map_text(struct kvpi_map *map, const struct kvpi_map_at *at, const char *text,
                   size_t n_bytes)
{
    if (!is_primary(at) || at->place != 0)
        return;
    /* A server that does not know its own name means the one that it was asked by. */
    if (!text || n_bytes == 0 || (n_bytes == 1 && text[0] == '?')) {
        memcpy(map->host, map->asked, sizeof map->host);
    } else if (n_bytes >= sizeof map->host || !is_name(text, n_bytes)) {
        map->host[0] = 0;
        map->is_wrong = 1;
    } else {
        memcpy(map->host, text, n_bytes);
        map->host[n_bytes] = 0;
    }
}

void kvpi_map_end(struct kvpi_map *map)
{
    map->state = map->is_wrong || map->n_servers == 0 ? KVPI_MAP_FAILED : KVPI_MAP_WHOLE;
}

/* peers: records of other writers beside this one, read without a lock.
 *
 * A peer's log is followed: its new entries are read now and then, from the beginning if it was
 * replaced. What it says may be old: a slot that was used again meanwhile holds another record, and
 * the header in it says so. */
#ifndef KVPI_STORE_PEERS_H
#define KVPI_STORE_PEERS_H

#include "store/file/slabs.h"
#include "store/backend.h"
#include "store/index.h"

enum { KVPI_PEERS_MAX = 64 };

struct kvpi_peer {
    char path[KVPI_PATH_BYTES];
    int there; /* its log could be read, and its form is ours */
    uint64_t id;
    uint64_t next; /* entry to read */
    int is_behind; /* there is more to read */
    struct kvpi_index index;
    struct kvpi_slabs slabs;
};

struct kvpi_peers {
    const struct kvpi_disk *disk;
    const char *parent; /* the directory of all of them */
    const char *own;    /* the path that is none */
    struct kvpi_log_form form;
    uint64_t looked_ns; /* at the logs */
    uint64_t listed_ns; /* the directory */
    int is_behind;      /* a log has more to read */
    uint32_t n;
    struct kvpi_peer *peers[KVPI_PEERS_MAX]; /* kept until the close: operations point into them */
};

void kvpi_peers_open(struct kvpi_peers *peers, const struct kvpi_disk *disk, const char *parent,
                     const char *own, const struct kvpi_log_form *form);
void kvpi_peers_close(struct kvpi_peers *peers);

/* Read what is new, if the last look was long enough ago, or did not come to the end: of each log
 * at most KVPI_PEERS_PIECE entries, so that a long log does not keep operations waiting. */
enum { KVPI_PEERS_PIECE = 8192 };
void kvpi_peers_follow(struct kvpi_peers *peers, uint64_t now_ns);

/* Find a record: 1, and op->place and op->place_in say where, out_written when, in minutes. */
int kvpi_peers_find(struct kvpi_peers *peers, struct kvpi_store_op *op, uint32_t *out_written);

/* What is known of a record without reading it. */
struct kvpi_peers_seen {
    uint32_t written; /* minutes since 1970 */
    uint64_t space;   /* number of the namespace */
};

int kvpi_peers_have(const struct kvpi_peers *peers, const kvp_digest *key,
                    struct kvpi_peers_seen *out_seen);

#endif

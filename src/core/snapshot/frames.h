/* frames: the records of a snapshot, one by one. docs/FORMATS.md has the bytes.
 *
 *   file    magic 8 | record | record | ...
 *   record  head 16 | the same head again | payload | checksum 8
 *   head    kind u32 | n_bytes u32 of the payload | number u32 | check u32
 *
 * The head stands there twice, each with a check of its own, so that damage to one does not lose
 * the way to the next record. Nothing is searched for: a search could find what a prompt put there.
 */
#ifndef KVPI_SNAPSHOT_H
#define KVPI_SNAPSHOT_H

#include <kvpager/snapshot.h>

#include <string.h>

#include "base/bytes.h"

#define KVPI_SNAP_MAGIC      "kvpshot1" /* the digit is KVP_SNAPSHOT_VERSION */
#define KVPI_SNAP_HEAD       16u
#define KVPI_SNAP_OVERHEAD   (2 * KVPI_SNAP_HEAD + 8)
#define KVPI_SNAP_FREE_IDS   1024u
#define KVPI_SNAP_CONFIG_MAX 512u

enum {
    KVPI_SNAP_CONFIG = 1,
    KVPI_SNAP_SPACE = 2,
    KVPI_SNAP_NODE = 3,
    KVPI_SNAP_BLOCK = 4,
    KVPI_SNAP_KV = 5,
    KVPI_SNAP_DUPS = 6,
    KVPI_SNAP_FREE = 7,
    KVPI_SNAP_END = 8,
    KVPI_SNAP_CHECKPOINT = 9,
    KVPI_SNAP_STATE = 10,
    KVPI_SNAP_LEARNED = 11
};

/* In records of free blocks: slots of state, where others have a tier; of the host: one more. */
#define KVPI_SNAP_SLOTS 2u

/* A cursor over a payload, for writing or reading; reading past the end sets `bad`. */
struct kvpi_snap_bytes {
    uint8_t *at;
    uint8_t *end;
    int bad;
};

static inline void kvpi_snap_put_u32(struct kvpi_snap_bytes *b, uint32_t value)
{
    kvpi_bytes_store(b->at, value, 4);
    b->at += 4;
}

static inline void kvpi_snap_put_u64(struct kvpi_snap_bytes *b, uint64_t value)
{
    kvpi_bytes_store(b->at, value, 8);
    b->at += 8;
}

static inline void kvpi_snap_put(struct kvpi_snap_bytes *b, const void *bytes, size_t n)
{
    if (n > 0) {
        memcpy(b->at, bytes, n);
        b->at += n;
    }
}

/* n bytes that lie there; NULL when there are not so many. */
static inline const uint8_t *kvpi_snap_get(struct kvpi_snap_bytes *b, size_t n)
{
    if (b->bad || (size_t)(b->end - b->at) < n) {
        b->bad = 1;
        return NULL;
    }
    b->at += n;
    return b->at - n;
}

static inline uint32_t kvpi_snap_get_u32(struct kvpi_snap_bytes *b)
{
    const uint8_t *p = kvpi_snap_get(b, 4);
    return p == NULL ? 0 : kvpi_bytes_load32(p);
}

static inline uint64_t kvpi_snap_get_u64(struct kvpi_snap_bytes *b)
{
    const uint8_t *p = kvpi_snap_get(b, 8);
    return p == NULL ? 0 : kvpi_bytes_load(p, 8);
}

/* Everything was read, and nothing beyond. */
static inline int kvpi_snap_whole(const struct kvpi_snap_bytes *b)
{
    return !b->bad && b->at == b->end;
}

/* One record at a time, in `buffer`. */
struct kvpi_snap_writer {
    const kvp_sink *sink;
    uint8_t *buffer;
    size_t capacity; /* of payload + KVPI_SNAP_OVERHEAD */
    uint32_t number; /* of the next record */
    int failed;
};

/* Where the payload of the next record is to be written. */
struct kvpi_snap_bytes kvpi_snap_begin(const struct kvpi_snap_writer *writer);

/* Frame the payload that was written there, and give it to the sink. */
void kvpi_snap_end(struct kvpi_snap_writer *writer, uint32_t kind,
                   const struct kvpi_snap_bytes *payload);

struct kvpi_snap_reader {
    const kvp_source *source;
    uint8_t *buffer;
    size_t capacity;
    uint64_t next; /* lowest number that the next record may have */
    int is_cut;
};

/* The next record. `damaged`: its head is right and its payload is not, or is longer than any can
 * be; kind is known. Gives 0 at the end, which is a cut one unless an end record came before. */
struct kvpi_snap_record {
    uint32_t kind;
    int damaged;
    struct kvpi_snap_bytes payload;
};

int kvpi_snap_next(struct kvpi_snap_reader *reader, struct kvpi_snap_record *out);

/* Read magic and configuration. KVP_OK; KVP_E_FORMAT; KVP_E_VERSION. */
kvp_status kvpi_snap_open(struct kvpi_snap_reader *reader, kvp_snapshot_info *out_info);

void kvpi_snap_put_config(struct kvpi_snap_bytes *b, const kvp_snapshot_info *info);

/* The largest record that a file of this configuration has, framed. */
size_t kvpi_snap_capacity(const kvp_snapshot_info *info);

int kvpi_snap_options_bad(const kvp_snapshot_options *options);

/* Bytes for blocks and none for states, or the other way round? */
int kvpi_snap_bytes_bad(const kvp_snapshot_options *options, uint32_t state_slots);

#endif

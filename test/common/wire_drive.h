/* wire_drive: a scheduler that does anything at all to a small cache, and tells its workers. */
#ifndef TEST_WIRE_DRIVE_H
#define TEST_WIRE_DRIVE_H

#include "world.h"

#include <kvpager/wire.h>

enum {
    DRIVE_SEQS = 12, /* worker ids, and sequences of the cache */
    DRIVE_TOKENS = 96,
    DRIVE_COPIES = 76,
    DRIVE_PLAIN = 16, /* kinds of changes */
    DRIVE_KINDS = 20, /* and those that only rich ones make */
    DRIVE_ALL = 23,   /* and those of recurrent state */
    DRIVE_GROUPS = 3,
    DRIVE_NODES = 12, /* of one tree */
    DRIVE_MOVES = DRIVE_SEQS * DRIVE_NODES,
    DRIVE_BYTES = 65536
};

/* One worker id, as the scheduler sees it. */
typedef struct driven {
    kvp_seq seq;
    uint32_t status; /* 0: none */
    uint32_t step_tokens;
    uint32_t first_token;
    int told;    /* a worker knows a sequence by this id: maybe one that is closed by now */
    int touched; /* since the last message */
    int swapped;
} driven;

typedef struct driver {
    world w;
    uint64_t random;
    kvp_wire_config config;
    kvp_wire_sender *sender;
    driven seqs[DRIVE_SEQS];
    uint32_t closed[DRIVE_SEQS]; /* ascending when the message is made */
    uint32_t n_closed;
    kvp_copy copies[DRIVE_COPIES]; /* of the last message */
    uint32_t n_copies;
    kvp_slot_move moves[DRIVE_GROUPS * DRIVE_MOVES]; /* since the last message */
    uint32_t n_moves;
    kvp_slot_move told[DRIVE_GROUPS * DRIVE_MOVES]; /* in the last message */
    uint32_t n_told;
    int rich;
    int states;
    uint32_t n_changes[DRIVE_ALL]; /* calls that succeeded, by kind */
    uint8_t bytes[DRIVE_BYTES];    /* the last message */
    size_t n_bytes;
} driver;

void drive_begin(driver *d, uint64_t seed);

/* The same of a cache with three layer groups, two of them with a window, and with token trees. */
void drive_begin_rich(driver *d, uint64_t seed);

/* The same with blocks of 4, 6 and 2 tokens. */
void drive_begin_sizes(driver *d, uint64_t seed);

/* That of three groups with recurrent state and a host tier, instead of trees. */
void drive_begin_states(driver *d, uint64_t seed);
void drive_end(driver *d);

/* Do a few random things to the cache. */
void drive_change(driver *d);

/* Make the message of what was done, with some sequences that nothing was done to. */
void drive_message(driver *d, int full);

/* A sum of everything that a worker has to know, from the cache or from a mirror. */
uint64_t drive_sum_cache(const driver *d);
uint64_t drive_sum_mirror(const kvp_wire_mirror *mirror, const kvp_wire_config *config);

/* Change the cache, tell the mirror by a message of just its bytes, and compare the two. */
void drive_tell(driver *d, kvp_wire_mirror *mirror, kvp_wire_news *out_news);

/* Rows of a mirror lie side by side in one piece of memory, where no tool sees a write past one. So
 * what lies behind each row's entries is a canary: put them before a message, look after it. Rows
 * have room for two of them if the mirror has drive_roomy's configuration. */
typedef struct canaries {
    uint32_t blocks[DRIVE_SEQS][DRIVE_GROUPS];
} canaries;

kvp_wire_config drive_roomy(const driver *d);
canaries drive_put_canaries(const kvp_wire_mirror *mirror, const kvp_wire_config *config);
void drive_assert_canaries(const kvp_wire_mirror *mirror, const kvp_wire_config *config,
                           const canaries *before);

#endif

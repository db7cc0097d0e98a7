/* A back end of stores that lies: it keeps records in memory, but delays, reorders, fails, loses
 * and tears writes, writes and reads the bytes of other records, gives wrong answers about what it
 * has, and does not drop what it is told to. */
#ifndef KVP_TEST_SPILL_LIAR_H
#define KVP_TEST_SPILL_LIAR_H

#include "store/backend.h"

enum liar_fault {
    LIAR_LOST_WRITE,
    LIAR_TORN_WRITE,
    LIAR_OTHER_WRITE,
    LIAR_FAILED_WRITE,
    LIAR_FLIPPED_READ,
    LIAR_FOREIGN_READ,
    LIAR_FAILED_READ,
    LIAR_WRONG_HAVE,
    LIAR_FAILED_HAVE,
    LIAR_FAILED_DROP,
    LIAR_GONE, /* operations fail until the store leaves it alone */
    LIAR_FULL,
    LIAR_SWAPPED, /* two reads get each other's bytes */
    LIAR_TWICE,   /* an operation ends once more, whatever it is by then */
    LIAR_NEVER,   /* until the liar is told to stop that */
    LIAR_FAULTS
};

/* Of the only liar of a process. */
typedef struct liar_control {
    uint64_t random;
    uint32_t rate;   /* of 1000, of each fault */
    uint32_t delay;  /* percent of rounds in which nothing that has ended is told */
    int answers_all; /* nothing is kept back for ever */
    int is_flat;     /* as a server: no parent is looked for, a drop leaves what is behind, and puts
                         take effect some time between their begin and their end */
    int puts_wait;   /* flat: they do not take effect */
    int puts_untold; /* flat: they do, and do not end */
    int puts_fail;   /* all of them */
    int drops_fail;  /* all of them */
    int syncs_fail;
    uint32_t fail_at; /* transfer that fails, counted from 1; 0: none */
    uint32_t n_transfers;
    uint64_t n_faults[LIAR_FAULTS];
} liar_control;

extern liar_control liar;
extern const struct kvpi_backend liar_backend;

#endif

/* stack: several stores behind one front, nearest first.
 *
 *   front - accepted -> begin -> stores[0], stores[1], ... -> polled -> steps -> ended -> front
 *
 * An operation of the stack has at most one operation in each of its stores, with its own number as
 * tag. No store has fewer places than the stack: none is ever full. */
#ifndef KVPI_STORE_STACK_H
#define KVPI_STORE_STACK_H

#include "store/backend.h"

enum { KVPI_STACK_LOOKS = 4 };

#define KVPI_STACK_NONE UINT32_MAX

enum kvpi_stack_phase {
    KVPI_STACK_FREE,
    KVPI_STACK_SPREAD,   /* put, drop, evict, sync: every store has it */
    KVPI_STACK_READING,  /* get: store `at` has it */
    KVPI_STACK_HELD,     /* get: a hit that is written to nearer stores after its parent */
    KVPI_STACK_CARRYING, /* get: it is being written to nearer stores */
    KVPI_STACK_ASKING,   /* have: store `at` has it */
    KVPI_STACK_QUEUED    /* have: store `at` is to be asked, once a look is free */
};

struct kvpi_stacked {
    struct kvpi_store_op *op;
    enum kvpi_stack_phase phase;
    uint32_t at;
    uint32_t n_out;     /* stores that have it now */
    uint32_t lacking;   /* bit i: store i said that it has no such record */
    uint32_t look;      /* KVPI_STACK_NONE: none */
    uint64_t serial;    /* the order in which they began */
    uint64_t n_drops;   /* of the stack, when it began */
    uint32_t followers; /* HELD ones that wait for this: the first */
    uint32_t next;      /* among the followers of another */
    uint32_t results[KVP_STORE_STACK_MAX];
};

/* What a farther store is asked for: the keys that nearer ones lack. */
struct kvpi_stack_look {
    uint32_t used;
    uint32_t n_keys;
    kvp_digest keys[KVP_STORE_KEYS_MAX];
    uint16_t places[KVP_STORE_KEYS_MAX]; /* of each key among all */
    uint64_t bits[KVP_STORE_KEYS_MAX / 64];
};

struct kvpi_stack {
    kvp_store *stores[KVP_STORE_STACK_MAX];
    uint32_t n_stores;
    uint32_t n_ops;
    int works;                     /* the stores have no threads */
    struct kvpi_stacked *ops;      /* [n_ops] */
    uint32_t *free_ops;            /* [n_free] */
    struct kvpi_store_op **ended;  /* [n_ended] not given to the front yet */
    struct kvpi_store_op **barred; /* [n_barred] behind a drop that waits; in order */
    struct kvpi_stack_look *looks; /* [KVPI_STACK_LOOKS] */
    uint32_t n_free;
    uint32_t n_ended;
    uint32_t n_barred;
    uint32_t n_carrying;
    uint32_t n_dropping;
    uint32_t n_queued;
    uint64_t n_begun;
    uint64_t n_drops; /* drops and evicts that came or began */
    /* The budget of what is carried. */
    uint64_t bytes_s;
    uint64_t bytes_day;
    uint64_t allowance;
    uint64_t largest; /* bytes of what was written nearer or might have been */
    uint64_t since_ns;
    uint64_t day;
    uint64_t day_bytes;
    uint64_t (*now)(void *context);
    void *now_context;
};

/* Begin an operation of the front. */
void kvpi_stack_begin(struct kvpi_stack *stack, struct kvpi_store_op *op);

/* Store `from` has ended its part of operation `number`. */
void kvpi_stack_step(struct kvpi_stack *stack, uint32_t number, uint32_t from, uint32_t result);

/* Begin what waited behind a drop, if it can. */
void kvpi_stack_resume(struct kvpi_stack *stack);

/* May so many bytes be carried now? 1: they are taken from the budget. */
int kvpi_stack_may_carry(struct kvpi_stack *stack, uint64_t n_bytes);

#endif

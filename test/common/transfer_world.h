/* transfer_world: a cache with a memory behind it, whose KV is a number that follows from position,
 * layer, head and element; and links that do harm. For the tests of transfers. */
#ifndef TEST_TRANSFER_WORLD_H
#define TEST_TRANSFER_WORLD_H

#include "world.h"

#include <kvpager/memory.h>
#include <kvpager/states.h>
#include <kvpager/transfer.h>

/* --------------------------------------------------------------------------------------- places */

enum { PLACE_GROUPS = 3 };

typedef struct place_shape {
    const char *order;
    uint32_t type;
    uint32_t S;
    uint32_t usable; /* blocks */
    kvp_slice slice;
    uint32_t k_size;
    uint32_t v_size;
    int has_scales;
    uint32_t n_groups;                /* layer groups; 0: one, without a window */
    kvp_window windows[PLACE_GROUPS]; /* [n_groups] */
    uint32_t sizes[PLACE_GROUPS];     /* [n_groups] S of each; 0: S. They divide each other */
    uint32_t more;                    /* elements that K has more in each further group */
    uint32_t state_slots;             /* of recurrent state; 0: none. Layers and heads as KV's */
    uint32_t state_k, state_v;        /* bytes */
    const char *state_order;
    uint32_t steps;                /* KVP_STEPS_... */
    uint32_t n_nodes, host_blocks; /* of the cache's configuration */
    uint32_t tree_tokens;
} place_shape;

/* f32, S = 4, 2 layers, 2 heads of 4. */
place_shape small_place(void);

/* S of a group, and U: the smallest, of those and the default. */
uint32_t place_block_tokens(const place_shape *shape, uint32_t group);
uint32_t place_unit_tokens(const place_shape *shape);

typedef struct place {
    world w;
    uint32_t n_groups;
    kvp_layout layout;                    /* of the first group */
    kvp_layout layouts[PLACE_GROUPS + 1]; /* of states, too, behind the others */
    kvp_memory *memories[PLACE_GROUPS + 1];
    kvp_memory *before[PLACE_GROUPS]; /* what watch_place saw */
    int has_states;
} place;

place make_place(const place_shape *shape);
void end_place(place *p); /* nothing is held, and every invariant holds */
#define scoped_place ENDED_BY(end_place) place

kvp_transfer_config transfer_config_of(place *p);

/* Write K and V of tokens [from, to): of one layer of each group's memory, or KVP_LAYERS_ALL. Here
 * and below, what windows have dropped is passed over. */
void write_kv(place *p, kvp_seq seq, kvp_range range, uint32_t layer);

/* Write the state after n tokens into a slot; or: it is what is there. */
void write_state(place *p, uint32_t slot, uint32_t n_tokens);
int has_state(const place *p, uint32_t slot, uint32_t n_tokens);
kvp_state_info state_in(const place *p, kvp_seq seq);

/* Everything of tokens [from, to) is as write_kv has it; nothing of it is. */
int has_kv(const place *p, kvp_seq seq, kvp_range range);

/* Two places have the same elements, times their scales, of tokens [from, to), all heads. */
int same_kv(const place *a, kvp_seq seq_a, const place *b, kvp_seq seq_b, kvp_range range);

/* Run the copies that the cache has planned, as of a hit that ends inside a block. */
void run_plan(place *p);

/* Remember the memory; then: nothing but the slots of tokens [from, to) has changed. */
void watch_place(place *p);
void assert_nothing_else_changed(const place *p, kvp_seq seq, kvp_range range);

/* ---------------------------------------------------------------------------------------- links */

enum {
    FAULT_NONE = 0,
    FAULT_DROP = 1,      /* the n-th message that is posted is lost */
    FAULT_TWICE = 2,     /* ... comes twice */
    FAULT_SWAP = 3,      /* ... comes after the next one */
    FAULT_CUT = 4,       /* ... lacks its end */
    FAULT_FLIP_HEAD = 5, /* ... has a bit turned over */
    FAULT_FLIP_BODY = 6,
    FAULT_BREAK = 7, /* the link is broken from then on, in both directions */
    FAULT_AGAIN = 8, /* the n-th lend or take says KVP_E_AGAIN */
    FAULT_LEND = 9,  /* the n-th lend says KVP_E_IO, and so does everything from then on */
    FAULT_POST = 10,
    FAULT_TAKE = 11,
    FAULT_CALL = 12, /* before the n-th message is posted, `call` is called */
    FAULTS = 13
};

typedef struct link_faults {
    kvp_link inner;
    uint32_t kind;
    uint32_t n;       /* from 1 */
    uint32_t n_posts; /* so far */
    uint32_t n_lends;
    uint32_t n_takes;
    uint32_t n_progress;
    int happened;
    kvp_status lends; /* set by the test: what each lend says, if not KVP_OK */
    kvp_status broken;
    void (*call)(void *context);
    void *context;
    size_t n_held;
    uint8_t held[8192];
} link_faults;

/* ---------------------------------------------------------------------------------------- pairs */

/* A sender at `a`, a receiver at `b`, and a link between them: a loopback; or shared memory or TCP,
 * with KVP_TEST_LINK=shm or tcp in the environment. */
typedef struct pair {
    place a;
    place b;
    kvp_loopback *loopback;
    kvp_shm *shm[2];  /* instead */
    kvp_tcp *tcp[2];  /* instead */
    int sockets[2];   /* of theirs */
    kvp_link ends[2]; /* of the sender, of the receiver */
    link_faults faults[2];
    kvp_sender *sender;
    kvp_receiver *receiver;
    uint32_t link_a;
    uint32_t link_b;
    kvp_seq seq_a;
    kvp_seq seq_b;
    uint64_t id_a;
    uint64_t id_b;
    uint8_t ticket[1024];
    size_t n_ticket;
} pair;

/* Both sides of one shape, messages of 1024 bytes, `n_messages` of which may wait. */
#ifndef _WIN32
/* Two ends of a connection over 127.0.0.1. */
void make_tcp_pair(int *out_sockets);
#endif

pair make_pair(const place_shape *a, const place_shape *b, uint32_t n_messages);

/* From now on the sender (side 0), or the receiver (1), has its own link but for one fault; p stays
 * where it is. */
void harm_side(pair *p, uint32_t side, uint32_t kind, uint32_t n);
void end_pair(pair *p); /* closes what is open */
#define scoped_pair ENDED_BY(end_pair) pair

/* Cut the link: what has arrived is taken, then both ends say KVP_E_PEER. */
void cut_link(const pair *p);

/* Open `n` tokens on both sides; the first `cached` of them are computed, at the receiver. It is
 * opened with KVP_OPEN_RECEIVE. */
void open_both(pair *p, uint32_t n, uint32_t cached);

kvp_receive receive_of(const pair *p);
kvp_send send_of(const pair *p);

void reserve(pair *p); /* all tokens that are not computed */
void reserve_to(pair *p, uint32_t end);
void mark(pair *p); /* what is computed is ready */

/* The sender of q has the ticket of the receiver of p, too: both senders mark it. */
void mark_both(pair *p, pair *q);

/* The sender's model: write, say so layer by layer, commit. The state goes into its slot. */
void prefill(pair *p, kvp_range range);

void progress_both(pair *p, uint32_t rounds);
kvp_transfer_info info_a(const pair *p);
kvp_transfer_info info_b(const pair *p);

#endif

/* A session: a cache and its oracle, going through the same calls.
 *
 * Owns both, and the recording of the cache if there is one. Every step makes one call on both and
 * compares; an audit reads everything that can be read and compares that.
 */
#ifndef KVP_TEST_MODEL_SESSION_H
#define KVP_TEST_MODEL_SESSION_H

#include <stdio.h>

#include "oracle.h"
#include "view.h"

typedef struct session_options {
    int check_level;      /* kvp_cache_check of this level after every call; 0: none; */
    uint32_t check_every; /* if above 1: level 1 but every so many calls */
    uint32_t audit_every; /* calls between audits; 0: never */
    bool own_arena;       /* give the cache memory of ours */
    uint32_t move_every;  /* calls between moves of the cache to a copy of that memory; 0: never */
    bool record;          /* into memory */
    int record_fd;        /* or to this file, unbuffered; -1: not */
} session_options;

typedef struct session {
    kvp_cache *cache;
    oracle *o;
    view *v;
    void *arena;
    size_t arena_bytes;
    session_options options;
    kvp_outcome seen, foretold;
    kvp_outcome audit_seen, audit_foretold;
    uint64_t n_calls;
    uint64_t n_made; /* calls on the cache, those of audits and checks too, but not the view's */
    uint8_t *log;    /* [log_bytes] what was recorded */
    size_t log_bytes, log_capacity;
    bool recording;
    bool in_audit; /* what differed was found by an audit, in this call: */
    kvp_call audit_call;
    char why[256];      /* of a difference: what differs */
    uint32_t signature; /* 1..120: of the kind of call and of what differs in it */
} session;

/* Make a session; NULL with a message on stderr when the cache refuses the configuration. */
session *session_create(const kvp_config *config, const session_options *options);
void session_destroy(session *s);

/* Make one call on both, and follow the events. False when they differ, or the check finds
 * something: then s->why, s->seen and s->foretold tell. */
bool session_step(session *s, const kvp_call *call);

/* Read and compare every sequence, every block, the evicted list, counters and shortage. */
bool session_audit(session *s);

/* End the recording and replay it with kvp_oplog_replay, which must find everything equal. */
bool session_replay_log(session *s);

/* Tell what differed: the call, both outcomes. */
void session_explain(FILE *file, const session *s, const kvp_call *call);

#endif

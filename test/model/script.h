/* A script: a configuration and calls, kept to be run again, whole or in part.
 *
 * Handles and steps in a script are names for what was opened or begun when it was written. When
 * it runs, they are replaced by what the same call opens or begins now; what nobody opened this
 * time is a stale handle, what nobody began is no step. So any subset of the calls can be run,
 * which is what shrinking does.
 */
#ifndef KVP_TEST_MODEL_SCRIPT_H
#define KVP_TEST_MODEL_SCRIPT_H

#include <stdio.h>

#include "session.h"

typedef struct script {
    kvp_config config;
    int32_t *uncached_tokens;
    kvp_call *calls;  /* [n] with arrays of their own */
    uint64_t *opened; /* [n] the handle, or the step, that this call gave, 0: none */
    bool *keep;       /* [n] run this call */
    uint32_t n, capacity, opened_capacity, keep_capacity;
} script;

script *script_create(const kvp_config *config);
void script_destroy(script *p);
void script_add(script *p, const kvp_call *call, uint64_t opened);

/* What a call has opened or begun: its handle or number; 0: nothing. */
uint64_t script_opened(const kvp_call *call, const kvp_outcome *outcome);

/* Read an operation log; NULL with a message when it cannot be read. */
script *script_load(const char *path);

/* Run the calls that are kept. Gives true when everything was as foretold; else *out_index is the
 * call (n: an audit, or the making of the session), *out_signature the kind of difference; if
 * verbose, all is told. */
bool script_run(const script *p, const session_options *options, bool verbose, uint32_t *out_index,
                uint32_t *out_signature);

/* Remove calls as long as the script still fails (each trial in a process of its own, so that a
 * crash is a failure like others). False when it does not fail to begin with. */
bool script_shrink(script *p, const session_options *options);

/* Print the calls that are kept, one a line. */
void script_print(FILE *file, const script *p);

#endif

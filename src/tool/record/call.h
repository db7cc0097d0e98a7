/* call: an OpenAI call as its body says it, and its answer as it streams by: what a recording needs
 * of them. Nothing here is changed or kept longer than the call.
 */
#ifndef KVPI_RECORD_CALL_H
#define KVPI_RECORD_CALL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero it. */
typedef struct kvpi_call {
    json_t *tokenize; /* what to ask /tokenize; NULL: the tokens are there */
    int32_t *tokens;  /* [n_tokens] */
    size_t n_tokens;
    char *scope; /* [scope_bytes] the model and the salt: what content belongs to besides */
    size_t scope_bytes;
} kvpi_call;

/* Read the body of a chat or a completion.
 *
 * Returns: NULL; else why it cannot be recorded
 */
const char *kvpi_call_read(kvpi_call *call, const char *body, size_t n_bytes, bool is_chat);

/* Read what /tokenize answered. Returns: as above */
const char *kvpi_call_tokenized(kvpi_call *call, const char *body, size_t n_bytes);
void kvpi_call_free(kvpi_call *call);

/* Zero it, and set is_stream. */
typedef struct kvpi_reply {
    bool is_stream; /* server-sent events; else one JSON object */
    bool is_over;   /* longer than what is looked at */
    char *text;     /* [capacity] the line, or the object, up to n */
    size_t n, capacity;
    uint64_t n_chunks;                                  /* of a stream, but the last */
    int64_t input_tokens, output_tokens, cached_tokens; /* -1: not said */
    int32_t *ids;                                       /* [n_ids] of the prompt, and behind them */
    size_t n_ids, ids_capacity, n_prompt;               /* of the first answer; 0: none came */
} kvpi_reply;

void kvpi_reply_begin(kvpi_reply *answer, bool is_stream);
void kvpi_reply_take(kvpi_reply *answer, const char *bytes, size_t n);
void kvpi_reply_end(kvpi_reply *answer);
void kvpi_reply_free(kvpi_reply *answer);

/* Take the tokens of the prompt and of the answer from the reply, which the client has asked for
 * (vLLM's return_token_ids). False: they are not there. */
bool kvpi_call_take_ids(kvpi_call *call, kvpi_reply *answer, size_t *n_prompt);

#endif

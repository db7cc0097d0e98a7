/* api: the OpenAI protocol, between JSON and jobs. HTTP threads call it. */
#ifndef KVPI_SERVE_API_H
#define KVPI_SERVE_API_H

#include "../engine/loop.h"

#include <jansson.h>

typedef struct kvpi_api {
    kvpi_loop *loop;
    const kvpi_options *options;
    const struct llama_vocab *vocab;
    const char *model_name;
    const char *chat_template; /* what llama_chat_apply_template takes; NULL: it knows none */
    const char *no_chat;       /* then: why */
    int64_t created;
} kvpi_api;

/* Why a request is refused. */
typedef struct kvpi_refusal {
    unsigned status;  /* of HTTP */
    const char *type; /* as OpenAI's: "invalid_request_error", ... */
    char field[64];   /* "": none */
    char text[256];
    uint32_t retry_after; /* seconds; 0: not said */
} kvpi_refusal;

/* Fills a refusal; always NULL. */
void *kvpi_refuse(kvpi_refusal *refusal, unsigned status, const char *field, const char *text);

/* {"error": ...}, as text; free it. */
char *kvpi_refusal_json(const kvpi_refusal *refusal);

/* What an answer looks like, beside the job. */
typedef struct kvpi_form {
    int is_chat;
    int is_stream;
    int wants_usage;
} kvpi_form;

/* A body as JSON; NULL: refused. json_decref it. */
json_t *kvpi_api_parse(const char *bytes, size_t n_bytes, kvpi_refusal *out_refusal);

/* Makes a job of a request's JSON; NULL: refused. */
kvpi_job *kvpi_api_read(const kvpi_api *api, json_t *body, int is_chat, kvpi_form *out_form,
                        kvpi_refusal *out_refusal);

/* The tokens of a text that a request's JSON has; NULL: refused. free() them. */
int32_t *kvpi_api_read_text(const kvpi_api *api, json_t *body, uint32_t *out_n,
                            kvpi_refusal *out_refusal);

/* Text to tokens; NULL: no memory. free() it. */
int32_t *kvpi_api_tokenize(const kvpi_api *api, const char *text, size_t n_bytes, int add_special,
                           uint32_t *out_n);

#endif

/* render: pieces of a job's text as the protocol's JSON: events of a stream, or one answer. */
#ifndef KVPI_SERVE_RENDER_H
#define KVPI_SERVE_RENDER_H

#include "api.h"

typedef struct kvpi_choice {
    kvpi_text text;   /* plain answers: all of it */
    json_t *logprobs; /* plain answers */
    uint32_t offset;  /* characters of its tokens until now */
    int has_begun;
    kvpi_finish finish;
} kvpi_choice;

typedef struct kvpi_render {
    const kvpi_api *api;
    kvpi_job *job;
    kvpi_form form;
    int64_t created;
    uint32_t n_over;      /* samples */
    kvpi_choice *choices; /* [n_samples] */
} kvpi_render;

/* -1: no memory. */
int kvpi_render_init(kvpi_render *render, const kvpi_api *api, kvpi_job *job, kvpi_form form);
void kvpi_render_free(kvpi_render *render);

/* The event of a piece: "data: ...", with an empty line; "": there is nothing to say; NULL: no
 * memory. */
char *kvpi_render_event(kvpi_render *render, const kvpi_piece *piece);

/* What ends a stream: usage, if it is wanted, and [DONE]. */
char *kvpi_render_last(kvpi_render *render);

/* Keeps a piece for the plain answer. -1: no memory. */
int kvpi_render_keep(kvpi_render *render, const kvpi_piece *piece);

/* The plain answer; NULL: no memory. */
char *kvpi_render_whole(kvpi_render *render);

/* Why the job failed, under its mutex; NULL: it did not. */
const char *kvpi_render_error(const kvpi_render *render);

#endif

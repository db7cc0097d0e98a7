/* options: the command line, with llama-server's names. */
#ifndef KVPI_SERVE_OPTIONS_H
#define KVPI_SERVE_OPTIONS_H

#include "engine/sampling.h"

#include <stdint.h>
#include <stdio.h>

/* --publish-as, in the order of its words. */
enum {
    KVPI_AS_ARRAYS = 1,
    KVPI_AS_VLLM_HASHES = 2,
    KVPI_AS_SGLANG_MEDIA = 4,
    KVPI_AS_PLAIN_REPLAY = 8
};

typedef struct kvpi_options {
    const char *model;
    const char *host;
    const char *api_key; /* NULL: none */
    const char *alias;   /* NULL: the file's name */
    const char *chat_template;
    uint32_t port;
    uint32_t ctx_size; /* 0: the model's */
    int32_t gpu_layers;
    uint32_t threads; /* 0: llama.cpp's */
    uint32_t batch_size;
    uint32_t ubatch_size;
    uint32_t parallel; /* sequences that run at once */
    uint32_t predict;  /* new tokens when the client does not say; 0: as many as fit */
    enum ggml_type type_k;
    enum ggml_type type_v;
    enum llama_flash_attn_type flash_attn;
    const char *snapshot;       /* NULL: none */
    const char *lora;           /* NULL: none */
    uint64_t host_memory;       /* bytes; 0: no host tier */
    const char *cache_disk;     /* a directory; NULL: none */
    uint64_t cache_disk_size;   /* bytes */
    uint32_t idle_cells;        /* 0: all */
    const char *publish;        /* an endpoint; NULL: none */
    const char *publish_replay; /* NULL: none */
    const char *publish_topic;  /* NULL: "" */
    uint32_t publish_as;        /* KVPI_AS_... together */
    const char *record;         /* a new file; NULL: none */
    kvpi_sampling sampling;     /* what a client does not say */
    uint32_t block_tokens;
    uint32_t max_queue; /* requests that run or wait; more: 429 */
    uint32_t max_connections;
    uint32_t max_body_kib;
    uint32_t max_tenants; /* cache_salt: as many at once */
    int is_verbose;
} kvpi_options;

enum { KVPI_OPTIONS_OK = 0, KVPI_OPTIONS_HELP, KVPI_OPTIONS_WRONG };

/* Reads a command line. WRONG: `out_why` [200] says what is. */
int kvpi_options_read(kvpi_options *options, int argc, char *const *argv, char *out_why);

void kvpi_options_help(FILE *file);

/* Is the address one that only this machine reaches? */
int kvpi_options_is_loopback(const char *host);

#endif

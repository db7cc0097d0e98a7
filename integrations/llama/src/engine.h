/* engine: what an engine consists of. engine.c makes it, run.c makes its steps. */
#ifndef KVPI_LLAMA_ENGINE_H
#define KVPI_LLAMA_ENGINE_H

#include "batch.h"
#include "host.h"
#include "ids.h"

#include <kvpager/llama.h>
#include <llama.h>

/* Of which request the sequence of an id is. */
typedef struct kvpi_group {
    kvp_request request;
    uint32_t n_samples;
} kvpi_group;

/* A sequence that was swapped out, and has no id. */
typedef struct kvpi_swapped {
    kvp_seq seq;
    kvpi_group group;
} kvpi_swapped;

/* What a disk does (disk/disk.c): before a step is made, when the copies of its plan have run, when
 * it was computed, when a namespace gets another adapter, and at the end. */
typedef struct kvpi_disk_calls {
    void (*begin_step)(kvp_llama *engine);
    void (*end_plan)(kvp_llama *engine);
    void (*end_step)(kvp_llama *engine);
    void (*forget)(kvp_llama *engine, kvp_ns ns);
    void (*close)(kvp_llama *engine);
} kvpi_disk_calls;

struct kvp_llama {
    struct llama_context *context;
    const struct llama_model *model;
    enum ggml_type type_k; /* of the context */
    enum ggml_type type_v;
    kvp_cache *cache;
    kvp_sched *sched;
    kvpi_ids ids;
    kvpi_host host;
    kvpi_batch batch;
    uint32_t window;       /* of the model's layers, in tokens; 0: none */
    uint32_t id_width;     /* ids of a sequence: 2 if it may be longer than the window */
    uint32_t idle_blocks;  /* cached ones that may stay; UINT32_MAX: all */
    uint32_t is_out;       /* a step was computed, and is not finished */
    kvpi_group *groups;    /* [ids.n_ids] */
    kvpi_swapped *swapped; /* [max_swapped] */
    uint32_t n_swapped;
    uint32_t max_swapped;
    uint32_t *step_ids; /* [max_running] of the step's sequences */
    kvp_copy *copies;   /* [max_copies] */
    uint32_t max_copies;
    uint32_t max_loading;              /* of the scheduler */
    struct kvpi_disk *disk;            /* NULL: none */
    const kvpi_disk_calls *disk_calls; /* with a disk */
    uint64_t decodes;
    uint64_t failed_decodes;
    uint64_t decoded_tokens;
};

#endif

/* How long a step takes: a model, never a measurement. Two kinds: a roofline of a language model on
 * an accelerator, or plain rates. docs/COMMAND.md has both as formulas. */
#ifndef KVPI_STEP_MODEL_H
#define KVPI_STEP_MODEL_H

#include <kvpager/sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "tool/models/devices.h"
#include "tool/size/size.h"

/* Plain rates, in thousandths of a nanosecond. */
typedef struct kvpi_step_rates {
    uint64_t prompt_token_ps;  /* for each prompt token that is computed */
    uint64_t decode_token_ps;  /* for each sequence that decodes */
    uint64_t context_token_ps; /* for each token that a sequence of the step attends to */
    uint64_t copy_token_ps;    /* for each token that is copied between host and device */
} kvpi_step_rates;

/* Attention of layers that keep the same tokens. */
typedef struct kvpi_step_attention {
    double window_tokens; /* 0: none */
    int chunked;          /* it is the length of chunks */
    double token_bytes;   /* KV of a token, on one accelerator */
    double decode_flops;  /* of one query with one key: of a sequence that computes one token, */
    double prompt_flops;  /* and of others; all accelerators together */
} kvpi_step_attention;

/* Bytes are of one accelerator, FLOPs of all of them. */
typedef struct kvpi_step_roofline {
    double flops_per_second;
    double bytes_per_second;
    double host_bytes_per_second;
    double token_flops;   /* of a token in the matrices of the layers */
    double sampled_flops; /* of a position that is sampled, in the output matrix */
    double weights_bytes; /* read by every step */
    double expert_bytes;  /* of all routed experts */
    double missed_share;  /* of the experts, those that one token does not use */
    double copied_bytes;  /* KV of a token in a block, of one layer group */
    kvpi_step_attention attention[KVPI_MODELS_MAX_KINDS]; /* [n_attention] */
    uint32_t n_attention;
} kvpi_step_roofline;

typedef struct kvpi_step_model {
    bool is_roofline;
    uint64_t step_ns; /* fixed part of every step that computes something */
    kvpi_step_rates rates;
    kvpi_step_roofline roofline;
    double state_tokens; /* a recurrent state has the bytes of so many tokens in a block */
} kvpi_step_model;

/* What of the accelerator's peaks is reached, and what lies beside it. */
typedef struct kvpi_step_shares {
    uint64_t compute_milli;
    uint64_t bandwidth_milli;
    uint64_t host_bytes_per_second;
} kvpi_step_shares;

/* Peaks are not reached. Matrices of large steps and streams of memory come to about these shares.
 * All of it is a choice: measure yours. */
#define KVPI_STEP_SHARES                                                                           \
    {                                                                                              \
        500, 800, UINT64_C(50000000000)                                                            \
    }

/* Make the roofline of a model.
 *
 * Takes:   model    with `unknown` and `unknown_dtype` empty
 *          options  tensor_parallel, the data types
 *          size     counted for them
 */
kvpi_step_roofline kvpi_step_roofline_of(const kvpi_model *model, const kvpi_size_options *options,
                                         const kvpi_size *size, const kvpi_device *device,
                                         const kvpi_step_shares *shares);

/* What the copies of a step's plan move. */
typedef struct kvpi_step_copies {
    uint64_t host_tokens;   /* between host and device */
    uint64_t device_tokens; /* from block to block on the device */
    uint64_t host_states;   /* recurrent states between host and device */
} kvpi_step_copies;

#define KVPI_STEP_MAX_NS UINT64_C(1000000000000000000)

typedef struct kvpi_step_time {
    uint64_t ns;       /* of the whole step: overhead + copies + the longer of the next two */
    double compute_ns; /* 0 with plain rates */
    double memory_ns;
    double copy_ns;
} kvpi_step_time;

/* Tell how long a step takes.
 *
 * Takes:   step     seqs, n_seqs and n_decoding; without sequences only the copies take time
 * Returns: ns is at most KVPI_STEP_MAX_NS
 * Cost:    O(n_seqs)
 */
kvpi_step_time kvpi_step_time_of(const kvpi_step_model *model, const kvp_step *step,
                                 const kvpi_step_copies *copies);

/* Tell what the arithmetic of prompt tokens [begin, end) takes, in nanoseconds, and nothing beside
 * it. Of pieces that follow each other the times add up to that of the whole. */
double kvpi_step_prefill_ns(const kvpi_step_model *model, uint32_t begin, uint32_t end);

#define KVPI_STEP_MAX_PS UINT64_C(1000000000000000000)

/* What preemption costs, in thousandths of a nanosecond, KVPI_STEP_MAX_PS at most. */
typedef struct kvpi_step_prices {
    uint64_t swap_block_ps;      /* a block out and in again */
    uint64_t swap_state_ps;      /* a recurrent state */
    uint64_t recompute_token_ps; /* a token in the layers' matrices, or at the prompt's rate */
} kvpi_step_prices;

kvpi_step_prices kvpi_step_prices_of(const kvpi_step_model *model, uint64_t block_tokens);

#endif

/* limits: what a request may be, from the configuration alone. The HTTP threads ask this before a
 * request waits for anything; kvp_sched_submit refuses by the same rules. */
#ifndef KVPI_SERVE_LIMITS_H
#define KVPI_SERVE_LIMITS_H

#include <stdint.h>

typedef struct kvpi_limits {
    uint32_t block_tokens;
    uint32_t usable_blocks;
    uint32_t watermark_blocks;
    uint32_t max_seq_tokens;
    uint32_t max_running;
    uint64_t arena_tokens;
} kvpi_limits;

/* The longest prompt of a request with so many samples; 0: there is none. */
uint32_t kvpi_limits_prompt(const kvpi_limits *limits, uint32_t n_samples);

/* How many new tokens each sample may have after such a prompt. */
uint32_t kvpi_limits_new(const kvpi_limits *limits, uint32_t n_prompt, uint32_t n_samples);

#endif

/* What another engine makes of a model and a memory (`kvpager size --engine`): its options, its
 * figures, and for people which of them follow from its rules and which from kvpager's. */
#ifndef KVPI_ENGINE_REPORT_H
#define KVPI_ENGINE_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tool/models/devices.h"
#include "tool/size/engine_llama.h"
#include "tool/size/engine_vllm.h"
#include "tool/size/size.h"

typedef enum kvpi_engine { KVPI_ENGINE_VLLM, KVPI_ENGINE_LLAMA, KVPI_ENGINE_NONE } kvpi_engine;

extern const char *const kvpi_engine_names[]; /* NULL after the last */

typedef struct kvpi_engine_options {
    kvpi_engine engine;
    uint64_t batch_tokens; /* 0: the engine's default */
    uint32_t n_sequences;  /* of llama.cpp */
    bool unified;
    bool full_windows;
    bool from_gguf; /* the model */
} kvpi_engine_options;

typedef struct kvpi_engine_report {
    kvpi_engine_options options;
    const kvpi_size_options *size;
    bool has_memory;
    uint64_t memory_bytes;   /* for KV, by kvpager's rules */
    uint64_t sequence_bytes; /* of one that runs, by kvpager's rules */
    kvpi_vllm_options of_vllm;
    kvpi_vllm vllm;
    kvpi_llama_options of_llama;
    kvpi_llama llama;
} kvpi_engine_report;

/* Say which data types of KV an engine has. */
bool kvpi_engine_has_dtype(kvpi_engine engine, kvpi_dtype dtype);

/* Count.
 *
 * Takes:   device   NULL: the memory was given, or none
 *          counted  by kvpi_size_count with these options
 * Gives:   why      [n_why] after a failure: a sentence without the model's name
 * Returns: 0; -1
 */
int kvpi_engine_count(const kvpi_model *model, const kvpi_device *device,
                      const kvpi_size_options *size, const kvpi_size *counted,
                      const kvpi_engine_options *options, kvpi_engine_report *out, char *why,
                      size_t n_why);

/* Print the figures for people, at most 80 columns wide. */
void kvpi_engine_print(const kvpi_engine_report *report, FILE *file);

/* Make the list of the figures. Returns: NULL when memory is short. Owns: the caller drops its
 * reference */
json_t *kvpi_engine_figures(const kvpi_engine_report *report);

#endif

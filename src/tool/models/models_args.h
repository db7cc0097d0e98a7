/* The options that name a model and what it runs on, as `size` and `replay` understand them. */
#ifndef KVPI_MODEL_ARGS_H
#define KVPI_MODEL_ARGS_H

#include <stdbool.h>

#include "tool/args.h"
#include "tool/models/devices.h"
#include "tool/models/models.h"
#include "tool/size/size.h"

/* Activations of a prefill step of a few thousand tokens, captured graphs, buffers of collectives:
 * between one and four GiB in engines of today. Measure yours. */
#define KVPI_MODEL_ARGS_OVERHEAD_BYTES (UINT64_C(2) << 30)

typedef struct kvpi_model_args {
    kvpi_size_options size;
    const char *model_name;
    const char *config_path;
    const kvpi_device *device;
    kvpi_dtype index_dtype; /* if it was asked for */
    const char *list;       /* where the names are listed, for messages: "--list" */
} kvpi_model_args;

/* Set the defaults: one accelerator, 16 tokens a block, 90 % of the memory. */
void kvpi_model_args_init(kvpi_model_args *model_args, const char *list);

/* Rows of options, which go to `m`, a kvpi_model_args in the command's options.
 * NOLINTBEGIN(bugprone-macro-parentheses): types and members */
#define KVPI_MODEL_NAME(type, m, text)                                                             \
    {                                                                                              \
        "--model", "NAME", text, kvpi_args_text, .at = offsetof(type, m.model_name)                \
    }
#define KVPI_MODEL_CONFIG(type, m, text)                                                           \
    {                                                                                              \
        "--model-config", "FILE", text, kvpi_args_text, .at = offsetof(type, m.config_path)        \
    }
#define KVPI_MODEL_DEVICE(type, m, text, known)                                                    \
    {                                                                                              \
        "--device", "NAME", text, kvpi_model_args_device, .at = offsetof(type, m.device),          \
                                                          .choices = known                         \
    }
#define KVPI_MODEL_TP(type, m, text)                                                               \
    {                                                                                              \
        "--tp", "N", text, kvpi_args_number32, .at = offsetof(type, m.size.tensor_parallel), 1,    \
                                               KVPI_MODELS_MAX_HEADS                               \
    }
#define KVPI_MODEL_DTYPE(type, m, more)                                                            \
    {                                                                                              \
        "--dtype", "TYPE",                                                                         \
            "of KV: bf16, f16, f32, fp8, int8, nvfp4, mxfp4, q8_0,\nq4_0, k8v4" more,              \
            kvpi_model_args_dtype, .at = offsetof(type, m.size.kv_dtype),                          \
                                   .choices = kvpi_models_kv_dtypes                                \
    }
#define KVPI_MODEL_INDEX_DTYPE(type, m)                                                            \
    {                                                                                              \
        "--index-dtype", "TYPE",                                                                   \
            "of an indexer's keys: bf16, fp8, mxfp4 (default: what\ngoes with --dtype)",           \
            kvpi_model_args_dtype, .at = offsetof(type, m.index_dtype),                            \
                                   .choices = kvpi_models_index_dtypes                             \
    }
#define KVPI_MODEL_STATE_DTYPE(type, m)                                                            \
    {                                                                                              \
        "--state-dtype", "TYPE",                                                                   \
            "of the matrices of recurrent states: f32, bf16, f16\n"                                \
            "(default: what the file says, or f32)",                                               \
            kvpi_model_args_dtype, .at = offsetof(type, m.size.state_dtype),                       \
                                   .choices = kvpi_models_state_dtypes                             \
    }
#define KVPI_MODEL_WEIGHTS_DTYPE(type, m, text)                                                    \
    {                                                                                              \
        "--weights-dtype", "TYPE", text, kvpi_model_args_dtype,                                    \
            .at = offsetof(type, m.size.weights_dtype), .choices = kvpi_models_weights_dtypes      \
    }
/* What takes memory beside KV: four rows. */
#define KVPI_MODEL_MEMORY(type, m, of_overhead)                                                    \
    KVPI_MODEL_WEIGHTS_DTYPE(type, m,                                                              \
                             "bf16, f16, f32, fp8, int8, int4, mxfp4, nvfp4\n"                     \
                             "(default: the model's)"),                                            \
        {"--weights", "SIZE", "of all weights, instead of counting parameters", kvpi_args_size,    \
         .at = offsetof(type, m.size.weights_bytes)},                                              \
        {"--utilization",                                                                          \
         "F",                                                                                      \
         "share of the memory that is used (default 0.9)",                                         \
         kvpi_args_milli,                                                                          \
         .at = offsetof(type, m.size.utilization_milli),                                           \
         1,                                                                                        \
         1000},                                                                                    \
    {                                                                                              \
        "--overhead", "SIZE", of_overhead, kvpi_model_args_overhead,                               \
            .at = offsetof(type, m.size.overhead_bytes)                                            \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

extern const char *const kvpi_model_args_list[];      /* "--list", where the devices are */
extern const char *const kvpi_model_args_size_list[]; /* "'kvpager size --list'" */
kvpi_args_reader kvpi_model_args_dtype;               /* a kvpi_dtype */
kvpi_args_reader kvpi_model_args_overhead;            /* a size, or 0 */
kvpi_args_reader kvpi_model_args_device; /* choices[0]: where they are listed, for messages */

/* Find the model that --model or --model-config names.
 *
 * Returns: TOOL_OK; TOOL_USAGE, TOOL_FAILED, a message was printed
 */
int kvpi_model_args_find(const kvpi_args *args, const kvpi_model_args *model_args, kvpi_model *out);

/* Refuse options that the model does not go with, and take its data types where none was given.
 *
 * Takes:   needs_weights     the bytes of its weights will be asked for, unless --weights says them
 *          needs_parameters  so will what a token is multiplied with
 * Returns: as kvpi_model_args_find
 */
int kvpi_model_args_check(const kvpi_args *args, bool needs_weights, bool needs_parameters,
                          kvpi_model *model, kvpi_model_args *model_args);

/* Print that the model leaves no room for KV, and the smallest --tp with which it would.
 *
 * Returns: TOOL_FAILED
 */
int kvpi_model_args_fail_full(const kvpi_args *args, const kvpi_model *model,
                              const kvpi_model_args *model_args, const kvpi_size *size);

#endif

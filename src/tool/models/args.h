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
    const char *list; /* where the names are listed, for messages: "--list" */
    bool has_weights; /* the subcommand has --weights */
    bool kv_dtype_given;
    bool weights_dtype_given;
    bool state_dtype_given;
} kvpi_model_args;

/* Set the defaults: one accelerator, 16 tokens a block, 90 % of the memory. */
void kvpi_model_args_init(kvpi_model_args *model_args, const char *list, bool has_weights);

/* Take the value of --dtype (of_kv) or --weights-dtype.
 *
 * Returns: 0; KVPI_ARGS_WRONG, a message was printed; so do the next three
 */
int kvpi_model_args_dtype(const kvpi_args *args, int option, const char *value, bool of_kv,
                          kvpi_model_args *model_args);

/* Take the value of --state-dtype: of the matrices of recurrent states. */
int kvpi_model_args_state_dtype(const kvpi_args *args, int option, const char *value,
                                kvpi_model_args *model_args);

/* Take the value of --tp, of --utilization. */
int kvpi_model_args_tp(const kvpi_args *args, int option, const char *value,
                       kvpi_model_args *model_args);
int kvpi_model_args_utilization(const kvpi_args *args, int option, const char *value,
                                kvpi_model_args *model_args);

/* Take the value of --overhead: a size, or 0. */
int kvpi_model_args_overhead(const kvpi_args *args, int option, const char *value,
                             kvpi_model_args *model_args);

/* Find the model that --model or --model-config names.
 *
 * Returns: TOOL_OK; TOOL_USAGE, TOOL_FAILED, a message was printed
 */
int kvpi_model_args_find(const kvpi_args *args, const kvpi_model_args *model_args, kvpi_model *out);

/* Refuse options that the model does not go with, and take its data types where none was given.
 *
 * Takes:   needs_weights  the bytes of its weights will be counted
 * Returns: as kvpi_model_args_find
 */
int kvpi_model_args_check(const kvpi_args *args, bool needs_weights, kvpi_model *model,
                          kvpi_model_args *model_args);

/* Print that the model leaves no room for KV, and the smallest --tp with which it would.
 *
 * Returns: TOOL_FAILED
 */
int kvpi_model_args_fail_full(const kvpi_args *args, const kvpi_model *model,
                              const kvpi_model_args *model_args, const kvpi_size *size);

#endif

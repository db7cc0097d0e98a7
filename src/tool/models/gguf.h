/* A model's shape from the header of a GGUF file. */
#ifndef KVPI_GGUF_H
#define KVPI_GGUF_H

#include <stdint.h>

#include "tool/models/models.h"

typedef struct kvpi_gguf {
    char architecture[64]; /* as llama.cpp calls it: "gemma3" */
    uint32_t version;
    uint32_t context_tokens; /* that it was trained for; 0: it does not say */
    uint64_t n_tensors;
    uint64_t weights_bytes; /* of its tensors; 0: not known, see model.unknown */
} kvpi_gguf;

/* Read a header. The layers are those for which llama.cpp keeps something: a file's keys are
 * written for it, and mean what it makes of them.
 *
 * Takes:   path     "-" for standard input; kept by reference as the model's name
 * Gives:   model    on success only, with `unknown` set: parameters are known by their sum alone
 *          about    the same
 * Returns: 0; -1 with error->text
 */
int kvpi_gguf_read(const char *path, kvpi_model *model, kvpi_gguf *about, kvpi_models_error *error);

#endif

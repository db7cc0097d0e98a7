/* A model from a Hugging Face config.json. */
#ifndef KVPI_CONFIG_H
#define KVPI_CONFIG_H

#include "tool/models/models.h"

/* Read a config.json as Hugging Face's transformers writes it.
 *
 * Takes:   path     "-" for standard input; kept by reference as the model's name
 * Gives:   out      on success only; `unknown` and `unknown_dtype` say what only weights need and
 *                   is not there
 * Returns: 0; -1 with error->text
 */
int kvpi_models_read(const char *path, kvpi_model *out, kvpi_models_error *error);

/* The same of text in memory.
 *
 * Takes:   name     the model's name, kept by reference
 */
int kvpi_models_parse(const char *name, const char *text, size_t n_bytes, kvpi_model *out,
                      kvpi_models_error *error);

#endif

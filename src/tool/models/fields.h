/* Reads single keys of a config.json, with messages that name the key, the value and the range. */
#ifndef KVPI_FIELDS_H
#define KVPI_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "tool/models/models.h"

typedef struct kvpi_fields {
    const char *name; /* of the file, for people */
    const json_t *root;
    const json_t *object;             /* root, or the language model's part of it */
    const char *part;                 /* "text_config.", "" */
    const struct kvpi_family *family; /* what is meant by a key that is missing; of config.c */
    kvpi_models_error *error;
} kvpi_fields;

/* Record a message about the file. Returns: -1 */
int kvpi_fields_wrong(const kvpi_fields *reader, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Give a value: NULL for a key that is missing or null. To transformers they are the same, except
 * for windows. */
const json_t *kvpi_fields_get(const kvpi_fields *reader, const char *key);

/* The same of a key that multimodal files may have outside the language model's part. */
const json_t *kvpi_fields_get_outer(const kvpi_fields *reader, const char *key);

/* Say whether a value switches something on: one that is empty, false, zero or negative does not.
 */
bool kvpi_fields_is_set(const json_t *value);

/* Read a whole number; *out is left alone when the key is missing. Returns: 0; -1, a message */
int kvpi_fields_read_whole(const kvpi_fields *reader, const char *key, uint32_t min, uint32_t max,
                           uint32_t *out);

/* The same from 1 on. The key must be there, unless *out already has a default above 0. */
int kvpi_fields_need_whole(const kvpi_fields *reader, const char *key, uint32_t max, uint32_t *out);

/* Read true or false; *out is left alone when the key is missing. Returns: 0; -1, a message */
int kvpi_fields_read_bool(const kvpi_fields *reader, const char *key, bool *out);

/* Give the model's type: "" if the file has none. */
const char *kvpi_fields_model_type(const kvpi_fields *reader);

#endif

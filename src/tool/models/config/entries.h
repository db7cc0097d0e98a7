/* Reads single keys of a config.json, with messages that name the key, the value and the range. */
#ifndef KVPI_ENTRIES_H
#define KVPI_ENTRIES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "tool/models/models.h"

typedef struct kvpi_entries {
    const char *name; /* of the file, for people */
    const json_t *root;
    const json_t *object;             /* root, or the language model's part of it */
    const char *part;                 /* "text_config.", "" */
    const struct kvpi_family *family; /* what is meant by a key that is missing; of config.c */
    kvpi_models_error *error;
} kvpi_entries;

/* What stands for Infinity and NaN, which Python writes and JSON does not have. */
#define KVPI_ENTRIES_INFINITE "\x7f"

/* Record a message about the file. Returns: -1 */
int kvpi_entries_wrong(const kvpi_entries *reader, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Give a value: NULL for a key that is missing or null. To transformers they are the same, except
 * for windows. */
const json_t *kvpi_entries_get(const kvpi_entries *reader, const char *key);

/* The same of a key that multimodal files may have outside the language model's part. */
const json_t *kvpi_entries_get_outer(const kvpi_entries *reader, const char *key);

/* Say whether a value switches something on: one that is empty, false, zero or negative does not.
 */
bool kvpi_entries_is_set(const json_t *value);

/* Read a whole number; *out is left alone when the key is missing. Returns: 0; -1, a message */
int kvpi_entries_read_whole(const kvpi_entries *reader, const char *key, uint32_t min, uint32_t max,
                            uint32_t *out);

/* The same from 1 on. The key must be there, unless *out already has a default above 0.
 *
 * Takes:   why      what it is needed for: "how many layers keep KV"
 */
int kvpi_entries_need_whole(const kvpi_entries *reader, const char *key, const char *why,
                            uint32_t max, uint32_t *out);

/* Give the first of some names that the file has; the first of all if it has none.
 *
 * Takes:   names    NULL after the last
 */
const char *kvpi_entries_name(const kvpi_entries *reader, const char *const *names);

/* Give an array, which must have one value for each of n layers, or more. NULL with a message. */
const json_t *kvpi_entries_need_array(const kvpi_entries *reader, const char *key, size_t n,
                                      bool more);

/* Read true or false; *out is left alone when the key is missing. Returns: 0; -1, a message */
int kvpi_entries_read_bool(const kvpi_entries *reader, const char *key, bool *out);

/* Say whether a value is Infinity or NaN. */
bool kvpi_entries_is_infinite(const json_t *value);

/* Give the model's type: "" if the file has none. */
const char *kvpi_entries_model_type(const kvpi_entries *reader);

#endif

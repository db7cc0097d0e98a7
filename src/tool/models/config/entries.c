/* Owns the messages about a config.json, and what is read of a single key of it. */
#include "tool/models/config/entries.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tool/requests/json_kind.h"

int kvpi_entries_wrong(const kvpi_entries *reader, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    kvpi_models_vwrong(reader->error, reader->name, format, arguments);
    va_end(arguments);
    return -1;
}

const json_t *kvpi_entries_get(const kvpi_entries *reader, const char *key)
{
    const json_t *value = json_object_get(reader->object, key);
    return json_is_null(value) ? NULL : value;
}

const json_t *kvpi_entries_get_outer(const kvpi_entries *reader, const char *key)
{
    const json_t *value = kvpi_entries_get(reader, key);
    if (value == NULL)
        value = json_object_get(reader->root, key);
    return json_is_null(value) ? NULL : value;
}

int kvpi_entries_read_whole(const kvpi_entries *reader, const char *key, uint32_t min, uint32_t max,
                            uint32_t *out)
{
    const json_t *value = kvpi_entries_get(reader, key);
    if (value == NULL)
        return 0;
    if (!json_is_integer(value))
        return kvpi_entries_wrong(reader, "%s%s is %s, expected a whole number", reader->part, key,
                                  kvpi_entries_is_infinite(value) ? "not a finite number"
                                                                  : kvpi_json_kind(value));
    json_int_t number = json_integer_value(value);
    if (number < (json_int_t)min || number > (json_int_t)max)
        return kvpi_entries_wrong(reader,
                                  "%s%s is %" JSON_INTEGER_FORMAT
                                  ", expected a whole number from %" PRIu32 " to %" PRIu32,
                                  reader->part, key, number, min, max);
    *out = (uint32_t)number;
    return 0;
}

int kvpi_entries_need_whole(const kvpi_entries *reader, const char *key, const char *why,
                            uint32_t max, uint32_t *out)
{
    if (kvpi_entries_read_whole(reader, key, 1, max, out) != 0)
        return -1;
    if (*out == 0)
        return kvpi_entries_wrong(reader, "no \"%s%s\", which says %s", reader->part, key, why);
    return 0;
}

const char *kvpi_entries_name(const kvpi_entries *reader, const char *const *names)
{
    for (size_t i = 0; names[i] != NULL; i++)
        if (kvpi_entries_get(reader, names[i]) != NULL)
            return names[i];
    return names[0];
}

const json_t *kvpi_entries_need_array(const kvpi_entries *reader, const char *key, size_t n,
                                      bool more)
{
    const json_t *value = kvpi_entries_get(reader, key);
    const size_t n_values = json_array_size(value);
    if (!json_is_array(value))
        kvpi_entries_wrong(reader, "%s%s is %s, expected an array", reader->part, key,
                           value == NULL ? "missing" : kvpi_json_kind(value));
    else if (n_values < n || (n_values > n && !more))
        kvpi_entries_wrong(reader, "%s%s has %zu entries, num_hidden_layers is %zu", reader->part,
                           key, n_values, n);
    else
        return value;
    return NULL;
}

int kvpi_entries_read_bool(const kvpi_entries *reader, const char *key, bool *out)
{
    const json_t *value = kvpi_entries_get_outer(reader, key);
    if (value == NULL)
        return 0;
    if (!json_is_boolean(value))
        return kvpi_entries_wrong(reader, "%s%s is %s, expected true or false", reader->part, key,
                                  kvpi_json_kind(value));
    *out = json_is_true(value);
    return 0;
}

bool kvpi_entries_is_infinite(const json_t *value)
{
    const char *text = json_string_value(value);
    return text != NULL && strcmp(text, KVPI_ENTRIES_INFINITE) == 0;
}

const char *kvpi_entries_model_type(const kvpi_entries *reader)
{
    const char *type = json_string_value(kvpi_entries_get_outer(reader, "model_type"));
    return type != NULL ? type : "";
}

bool kvpi_entries_is_set(const json_t *value)
{
    switch (value == NULL ? JSON_NULL : json_typeof(value)) {
    case JSON_NULL:
    case JSON_FALSE: return false;
    case JSON_INTEGER: return json_integer_value(value) > 0;
    case JSON_ARRAY: return json_array_size(value) > 0;
    case JSON_OBJECT: return json_object_size(value) > 0;
    case JSON_STRING: return json_string_length(value) > 0;
    default: return true;
    }
}

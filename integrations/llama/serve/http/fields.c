/* fields: what a client sent, member by member. The first that is wrong is reported. */
#include "fields.h"

#include <stdio.h>
#include <string.h>

void *kvpi_refuse(kvpi_refusal *refusal, unsigned status, const char *field, const char *text)
{
    if (refusal->status != 0)
        return NULL;
    refusal->status = status;
    refusal->type = status == 429   ? "rate_limit_error"
                    : status == 401 ? "authentication_error"
                    : status >= 500 ? "server_error"
                                    : "invalid_request_error";
    (void)snprintf(refusal->field, sizeof refusal->field, "%s", field);
    (void)snprintf(refusal->text, sizeof refusal->text, "%s", text);
    return NULL;
}

static void refuse_range(const kvpi_fields *fields, const char *name, const char *what,
                         double lowest, double highest)
{
    char text[200];
    (void)snprintf(text, sizeof text, "%s must be %s from %.10g to %.10g", name, what, lowest,
                   highest);
    (void)kvpi_refuse(fields->refusal, 400, name, text);
}

json_t *kvpi_fields_get(const kvpi_fields *fields, const char *name)
{
    json_t *member = json_object_get(fields->object, name);
    return json_is_null(member) ? NULL : member;
}

double kvpi_fields_real(const kvpi_fields *fields, const char *name, double lowest, double highest,
                        double otherwise)
{
    const json_t *member = kvpi_fields_get(fields, name);
    if (member == NULL)
        return otherwise;
    const double x = json_number_value(member);
    if (json_is_number(member) && x >= lowest && x <= highest)
        return x;
    refuse_range(fields, name, "a number", lowest, highest);
    return otherwise;
}

int64_t kvpi_fields_integer(const kvpi_fields *fields, const char *name, int64_t lowest,
                            int64_t highest, int64_t otherwise)
{
    const json_t *member = kvpi_fields_get(fields, name);
    if (member == NULL)
        return otherwise;
    const int64_t x = json_integer_value(member);
    if (json_is_integer(member) && x >= lowest && x <= highest)
        return x;
    refuse_range(fields, name, "an integer", (double)lowest, (double)highest);
    return otherwise;
}

int kvpi_fields_flag(const kvpi_fields *fields, const char *name, int otherwise)
{
    char text[100];
    const json_t *member = kvpi_fields_get(fields, name);
    if (member == NULL)
        return otherwise;
    if (json_is_boolean(member))
        return json_is_true(member);
    (void)snprintf(text, sizeof text, "%s must be true or false", name);
    (void)kvpi_refuse(fields->refusal, 400, name, text);
    return otherwise;
}

const char *kvpi_fields_text(const kvpi_fields *fields, const char *name, size_t *out_n_bytes)
{
    char text[100];
    const json_t *member = kvpi_fields_get(fields, name);
    *out_n_bytes = 0;
    if (member == NULL)
        return NULL;
    if (json_is_string(member)) {
        *out_n_bytes = json_string_length(member);
        return json_string_value(member);
    }
    (void)snprintf(text, sizeof text, "%s must be a string", name);
    return kvpi_refuse(fields->refusal, 400, name, text);
}

void kvpi_fields_refuse(const kvpi_fields *fields, const char *name, const char *text)
{
    char sentence[200];
    const json_t *member = kvpi_fields_get(fields, name);
    if (member == NULL || json_is_false(member) ||
        (json_is_array(member) && json_array_size(member) == 0) ||
        (json_is_string(member) && json_string_length(member) == 0))
        return;
    (void)snprintf(sentence, sizeof sentence, "%s is not supported%s%s", name,
                   text[0] != '\0' ? ": " : "", text);
    (void)kvpi_refuse(fields->refusal, 400, name, sentence);
}

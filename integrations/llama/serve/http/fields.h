/* fields: members of a JSON object, checked. Each refuses a wrong one by its name. */
#ifndef KVPI_SERVE_FIELDS_H
#define KVPI_SERVE_FIELDS_H

#include "api.h"

typedef struct kvpi_fields {
    json_t *object;
    kvpi_refusal *refusal; /* status 0 as long as nothing is wrong */
} kvpi_fields;

/* The member, or NULL: it is not there, or null. */
json_t *kvpi_fields_get(const kvpi_fields *fields, const char *name);

/* A number; `otherwise` if it is not there. Wrong outside lowest..highest. */
double kvpi_fields_real(const kvpi_fields *fields, const char *name, double lowest, double highest,
                        double otherwise);
int64_t kvpi_fields_integer(const kvpi_fields *fields, const char *name, int64_t lowest,
                            int64_t highest, int64_t otherwise);
int kvpi_fields_flag(const kvpi_fields *fields, const char *name, int otherwise);
const char *kvpi_fields_text(const kvpi_fields *fields, const char *name, size_t *out_n_bytes);

/* Refuses a member that is there, unless it is null, false, or empty. */
void kvpi_fields_refuse(const kvpi_fields *fields, const char *name, const char *text);

#endif

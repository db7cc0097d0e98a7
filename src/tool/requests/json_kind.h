/* What kind of JSON value it is, in words for a message: "expected a string, found an array". */
#ifndef KVPI_JSON_KIND_H
#define KVPI_JSON_KIND_H

#include <jansson.h>

/* Static text with its article. Thread: pure. */
const char *kvpi_json_kind(const json_t *value);

#endif

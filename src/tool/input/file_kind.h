/* file_kind: what a file is that is not what was expected. */
#ifndef KVPI_FILE_KIND_H
#define KVPI_FILE_KIND_H

#include <stddef.h>

/* Say what a file that begins with these bytes is, such as "a PNG picture", and what to do; NULL:
 * it is none of the kinds that are known by their first bytes. */
const char *kvpi_file_kind(const char *bytes, size_t n);

#endif

/* escape: makes text from outside (file names, contents of files) safe for a terminal, where
 * control characters would be commands.
 *
 * Printable ASCII and valid UTF-8 stay as they are. Written as \xNN are: bytes below 0x20, 0x7f,
 * invalid UTF-8, and every byte of invisible characters that change how text is shown: U+0080..9F,
 * U+200B..200F, U+2028..202E, U+2060..206F, U+FEFF.
 */
#ifndef KVPI_ESCAPE_H
#define KVPI_ESCAPE_H

#include <stdarg.h>
#include <stdio.h>

/* A short text by value, for one printf; what is longer ends with "...". */
typedef struct kvpi_escaped {
    char of[1024];
} kvpi_escaped;

kvpi_escaped kvpi_escape(const char *text);

/* Print what vfprintf would, escaped. */
void kvpi_escape_print(FILE *file, const char *format, va_list arguments);

#endif

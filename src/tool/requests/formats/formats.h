/* Between the reader's files only: the formats, each of which reads a line. */
#ifndef KVPI_REQUESTS_FORMATS_H
#define KVPI_REQUESTS_FORMATS_H

#include "tool/input/input.h"
#include "tool/requests/parse.h"

/* Read a line of a JSON format: decides the format on the first one.
 *
 * Gives:   is_cut   the object does not end here: it may go on in the next lines
 * Returns: 0; -1 recorded
 */
int kvpi_requests_json_line(kvpi_requests_parser *parser, const char *text, bool *is_cut);

/* The first line of a file told its format, parser->kind: see what the format and the options say.
 *
 * Returns: as above
 */
int kvpi_requests_begin(kvpi_requests_parser *parser);

/* Read an object of a format, whose text was checked before. Returns: as above */
int kvpi_requests_mooncake(kvpi_requests_parser *parser, const char *text);
int kvpi_requests_bailian(kvpi_requests_parser *parser, const char *text);
int kvpi_requests_tokens(kvpi_requests_parser *parser, const char *text);
int kvpi_requests_weka(kvpi_requests_parser *parser, const char *text);
int kvpi_requests_tracelab(kvpi_requests_parser *parser, const char *text);
int kvpi_requests_agentic(kvpi_requests_parser *parser, const char *text);
int kvpi_requests_kvcache(kvpi_requests_parser *parser, const char *text);
int kvpi_requests_dynamo(kvpi_requests_parser *parser, const char *text);
int kvpi_requests_applied(kvpi_requests_parser *parser, const char *text);

/* Does the set of names have all that a format needs? `has` tells of one name. */
bool kvpi_requests_matches(const kvpi_requests_kind *kind,
                           bool (*has)(void *context, const char *name, size_t n_bytes),
                           void *context);

/* Is the file a recording? Read all of it.
 *
 * Returns: 0; -1 recorded
 */
bool kvpi_requests_is_recording(const kvpi_input *input);
int kvpi_requests_recording(kvpi_requests_parser *parser, const kvpi_input *input);

/* Read the header of a CSV trace: decides the format and finds the columns. Read a line of it.
 *
 * Takes:   text     NUL-terminated, without its newline; taken apart in place
 * Returns: 0; -1 recorded
 */
int kvpi_requests_csv_header(kvpi_requests_parser *parser, char *text);
int kvpi_requests_csv_line(kvpi_requests_parser *parser, char *text);

#endif

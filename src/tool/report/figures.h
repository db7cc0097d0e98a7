/* A report's list of figures, made once: --json prints it, the page carries it, and the rows of the
 * text for people read it by key. It is a JSON object, in the order in which figures were added; a
 * figure is an integer, a real, a text, a flag, nothing (null), or a list of its own.
 */
#ifndef KVPI_FIGURES_H
#define KVPI_FIGURES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tool/tool.h"

#define KVPI_FIGURES_DEPTH 6

/* A list in the making. Failures stick: only the end needs to be checked. */
typedef struct kvpi_figures {
    json_t *lists[KVPI_FIGURES_DEPTH]; /* [depth + 1]: the whole, then those that are open in it */
    int depth;
    bool failed;
} kvpi_figures;

/* Begin a list. */
kvpi_figures kvpi_figures_begin(void);

/* End it.
 *
 * Returns: the list; NULL when memory was short for any figure of it
 * Owns:    the caller drops its reference
 */
json_t *kvpi_figures_end(kvpi_figures *to);

/* Add a figure to the list that was opened last.
 *
 * Takes:   key      NULL in an array
 *          known    false: the figure is null
 *          text     NULL or not UTF-8, as a path may be: the figure is null
 *          json     its reference is taken over; NULL: memory was short
 */
void kvpi_figures_integer(kvpi_figures *to, const char *key, uint64_t value);
void kvpi_figures_integer_if(kvpi_figures *to, bool known, const char *key, uint64_t value);
void kvpi_figures_real(kvpi_figures *to, const char *key, double value);
void kvpi_figures_flag(kvpi_figures *to, const char *key, bool value);
void kvpi_figures_text(kvpi_figures *to, const char *key, const char *text);
void kvpi_figures_json(kvpi_figures *to, const char *key, json_t *json);

/* Open a list within the list, until it is closed; of an array the figures have no keys. */
void kvpi_figures_open(kvpi_figures *to, const char *key);
void kvpi_figures_open_array(kvpi_figures *to, const char *key);
void kvpi_figures_close(kvpi_figures *to);

/* Print the list as one JSON object.
 *
 * Takes:   figures  NULL: memory was short
 * Returns: 0; -1 out of memory or writing failed
 */
int kvpi_figures_print(const json_t *figures, FILE *file);

/* Print the list to stdout, and let it go.
 *
 * Takes:   command  for messages
 *          figures  NULL: memory was short. Its reference is taken over
 * Returns: TOOL_OK, also when stdout is at fault, which main notices; TOOL_FAILED, a message was
 *          printed
 */
static inline int kvpi_figures_tell(const char *command, json_t *figures)
{
    int result = kvpi_figures_print(figures, stdout);
    json_decref(figures);
    return result != 0 && !ferror(stdout) ? kvpi_tool_fail(command, "out of memory") : TOOL_OK;
}

/* A row of the text for people: a label, a figure, what it means. In the last two, {key} stands for
 * that figure, in the unit that its name tells, and {part/whole} for a share in percent. */
typedef struct kvpi_figures_row {
    bool shown;
    const char *label;
    const char *value;
    const char *meaning;
} kvpi_figures_row;

/* Print the rows that are shown. */
void kvpi_figures_print_rows(const json_t *figures, const kvpi_figures_row *rows, size_t n,
                             FILE *file);

#endif

/* The report as a page: one HTML file with its data, its drawing and its looks inside. */
#ifndef KVPI_PAGE_H
#define KVPI_PAGE_H

#include <jansson.h>

#include "tool/report/load_report.h"
#include "tool/mrc/mrc_report.h"
#include "tool/report/report.h"
#include "tool/watch/watch.h"

/* Make a page of what a replay found.
 *
 * Takes:   path     of the file to be written
 *          result   the list of the report's figures
 *          watch    ended
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 */
int kvpi_page_load(const char *path, const kvpi_load_report *report, json_t *result,
                   const kvpi_watch *watch);
int kvpi_page_sequential(const char *path, const kvpi_report *report, json_t *result,
                         const kvpi_watch *watch);

/* The same for replays with several policies; path_of_trace as it was given. */
int kvpi_page_policies(const char *path, const char *path_of_trace, json_t *result);

/* The same for a curve. */
int kvpi_page_mrc(const char *path, const kvpi_mrc_report *report, json_t *result);

/* Write a page.
 *
 * Takes:   command  for messages
 *          path     of the file to be written
 *          data     the page's data; NULL: memory was short. Its reference is taken over
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 */
int kvpi_page_write(const char *command, const char *path, json_t *data);

/* A text of the command line as a JSON string: bytes that are not UTF-8 become '?'. */
json_t *kvpi_page_string(const char *text);

#endif

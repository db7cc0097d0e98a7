/* Owns the page's file: what stands around the data, and that nothing in the data can be taken for
 * markup. The data is JSON in a script element of another type, all ASCII, in which <, > and & are
 * written as escapes; the script reads it with JSON.parse and sets texts as texts.
 *
 *   <head>  title, styles        page/page.css
 *   <body>  data                 JSON
 *           script               page/page.js, learned.js, replay.js, policies.js, end.js
 *
 * Nothing is fetched, and the page says so to the browser: its policy allows what is inside only.
 */
#include "tool/report/page.h"

#include <stdlib.h>
#include <string.h>

#include "tool/tool.h"

extern const char kvpi_page_page_css[], kvpi_page_page_js[], kvpi_page_learned_js[],
    kvpi_page_replay_js[], kvpi_page_policies_js[], kvpi_page_end_js[];

json_t *kvpi_page_string(const char *text)
{
    json_t *made = json_string(text);
    char *copy = made == NULL ? malloc(strlen(text) + 1) : NULL;
    if (copy == NULL)
        return made;
    for (size_t i = 0; i <= strlen(text); i++)
        copy[i] = (signed char)text[i] < 0 ? '?' : text[i];
    made = json_string(copy);
    free(copy);
    return made;
}

/* Only inside strings of JSON do these stand, and there an escape means the same. */
static void write_data(const char *json, FILE *file)
{
    for (; *json != '\0'; json++) {
        if (*json == '<' || *json == '>' || *json == '&')
            fprintf(file, "\\u%04x", (unsigned)*json);
        else
            fputc(*json, file);
    }
}

static void write_title(const char *text, FILE *file)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<': fputs("&lt;", file); break;
        case '>': fputs("&gt;", file); break;
        case '&': fputs("&amp;", file); break;
        default: fputc((unsigned char)*text < 0x20 ? ' ' : *text, file);
        }
    }
}

static void write_page(const char *title, const char *json, FILE *file)
{
    fputs("<!DOCTYPE html>\n"
          "<html lang=\"en\">\n"
          "<head>\n"
          "<meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n"
          "<title>kvpager: ",
          file);
    write_title(title, file);
    fprintf(file, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>", kvpi_page_page_css);
    fputs("<noscript>The report is drawn by a script inside this file.</noscript></main>\n"
          "<script type=\"application/json\" id=\"data\">",
          file);
    write_data(json, file);
    fprintf(file, "</script>\n<script>\n%s%s%s%s%s</script>\n</body>\n</html>\n", kvpi_page_page_js,
            kvpi_page_learned_js, kvpi_page_replay_js, kvpi_page_policies_js, kvpi_page_end_js);
}

static int write_file(const char *command, const char *path, const char *title, const char *json)
{
    FILE *file = kvpi_tool_open(command, path);
    if (file == NULL)
        return TOOL_FAILED;
    write_page(title, json, file);
    return kvpi_tool_close(command, path, file, 0);
}

int kvpi_page_write(const char *command, const char *path, json_t *data)
{
    char *json = NULL;
    int status = TOOL_FAILED;
    if (data != NULL)
        json = json_dumps(data, JSON_ENSURE_ASCII | JSON_COMPACT | JSON_REAL_PRECISION(12));
    if (json == NULL)
        kvpi_tool_fail(command, "out of memory for the report");
    else
        status = write_file(command, path, json_string_value(json_object_get(data, "title")), json);
    free(json);
    json_decref(data);
    return status;
}

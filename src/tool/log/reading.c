/* See reading.h. */
#include "tool/log/reading.h"

#include <inttypes.h>
#include <string.h>

#include "tool/text.h"

#define WIDTH 80

void kvpi_reading_add(kvpi_figures *to, const kvpi_requests_about *about)
{
    kvpi_figures_open(to, "reading");
    kvpi_figures_integer(to, "files", about->files);
    kvpi_figures_text(to, "time_unit", about->unit);
    kvpi_figures_integer_if(to, about->trace_block > 0, "trace_block",
                            (uint64_t)about->trace_block);
    kvpi_figures_integer(to, "sessions", about->sessions);
    kvpi_figures_integer(to, "answers_joined", about->joined);
    kvpi_figures_integer(to, "answers_not_joined", about->not_joined);
    kvpi_figures_integer(to, "without_output", about->without_output);
    kvpi_figures_integer(to, "without_ids", about->without_ids);
    kvpi_figures_integer(to, "estimated_times", about->estimated);
    kvpi_figures_integer_if(to, about->cut > 0, "cut_off", about->cut);
    kvpi_figures_integer_if(to, about->lost > 0, "lost_requests", about->lost);
    kvpi_figures_integer_if(to, about->forgotten > 0, "forgotten_contents", about->forgotten);
    kvpi_figures_integer_if(to, about->cached_tokens > 0, "provider_cached_tokens",
                            about->cached_tokens);
    if (about->is_bounded) {
        kvpi_figures_integer(to, "unseen_tokens", about->unseen_tokens);
        kvpi_figures_integer_if(to, about->engine_blocks > 0, "engine_blocks",
                                about->engine_blocks);
    }
    kvpi_figures_text(to, "unused", about->unused);
    kvpi_figures_text(to, "bound", about->bound);
    kvpi_figures_close(to);
}

/* Words in lines, the second and later ones indented. */
static void wrap(const char *text, FILE *file)
{
    size_t column = 0;
    while (*text != '\0') {
        const size_t n = strcspn(text, " ");
        if (column > 0 && column + 1 + n > WIDTH) {
            fputs("\n ", file);
            column = 1;
        }
        column += (size_t)fprintf(file, "%s%.*s", column > 0 ? " " : "", (int)n, text);
        text += n;
        text += *text == ' ';
    }
    fputc('\n', file);
}

static void print_counted(const char *what, uint64_t n, FILE *file)
{
    char line[160];
    if (n == 0)
        return;
    snprintf(line, sizeof line, "%s: %s", what, kvpi_text_count(n).of);
    wrap(line, file);
}

static void print_sessions(const kvpi_requests_about *about, FILE *file)
{
    char line[200];
    if (about->sessions == 0)
        return;
    snprintf(line, sizeof line,
             "Sessions: %s. Answers in the next prompt: %s; not there, or not in their place: %s",
             kvpi_text_count(about->sessions).of, kvpi_text_count(about->joined).of,
             kvpi_text_count(about->not_joined).of);
    wrap(line, file);
}

void kvpi_reading_print(const kvpi_requests_about *about, FILE *file)
{
    char line[400];
    const bool is_plain = about->files == 1 && about->sessions == 0 && about->bound == NULL &&
                          about->unused[0] == '\0' && about->without_ids == 0 && about->cut == 0 &&
                          about->cached_tokens == 0;
    if (is_plain && about->without_output == 0)
        return;
    int n = snprintf(line, sizeof line, "Files: %s, times in %s", kvpi_text_count(about->files).of,
                     about->unit);
    if (about->trace_block > 0)
        n += snprintf(line + n, sizeof line - (size_t)n, ", %" PRId32 " tokens an id",
                      about->trace_block);
    if (about->unused[0] != '\0')
        snprintf(line + n, sizeof line - (size_t)n, "; not used: %s", about->unused);
    wrap(line, file);
    print_sessions(about, file);
    print_counted("Requests without output, which end with their prompts", about->without_output,
                  file);
    print_counted("Requests without ids, which share nothing", about->without_ids, file);
    print_counted("Times that are estimates, after a turn without an end", about->estimated, file);
    print_counted("Recordings that were cut off, of which all whole frames are read", about->cut,
                  file);
    print_counted("Requests or batches that the recordings lack", about->lost, file);
    print_counted("Contents that the recordings forgot, and take for new", about->forgotten, file);
    print_counted("Input tokens of requests that sent no events", about->unseen_tokens, file);
    print_counted("Input tokens from the provider's own cache", about->cached_tokens, file);
    if (about->bound == NULL)
        return;
    snprintf(line, sizeof line, "Hits are %s", about->bound);
    wrap(line, file);
}

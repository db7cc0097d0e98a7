/* See lines.h.
 *
 *     text [ lines that were given | next line .. \n | more      ]
 *                                    ^ begin           ^ n_bytes ^ capacity
 *
 * When no end of a line is there the rest is moved to the front, and a piece is read behind it. It
 * is less than a line, and only a line longer than a piece is moved more than once.
 */
#include "tool/input/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES 65536u

/* Where the next line ends, from `from` on: behind its end, or the first NUL; 0: not yet. */
static size_t find_end(const kvpi_lines *lines, size_t from)
{
    const char *at = lines->text + from;
    const size_t n = lines->n_bytes - from;
    const char *newline = n == 0 || lines->is_wide ? NULL : memchr(at, '\n', n);
    const size_t n_line = newline == NULL ? n : (size_t)(newline - at) + 1;
    const char *nul = n_line == 0 ? NULL : memchr(at, '\0', n_line);
    if (nul != NULL)
        return (size_t)(nul - lines->text) + 1;
    return newline == NULL ? 0 : (size_t)(newline - lines->text) + 1;
}

/* Room for a piece behind what is there, and a NUL. */
static int make_room(kvpi_lines *lines)
{
    if (lines->begin > 0) {
        lines->n_bytes -= lines->begin;
        memmove(lines->text, lines->text + lines->begin, lines->n_bytes);
        lines->begin = 0;
    }
    const size_t wanted = lines->n_bytes + PIECE_BYTES + 1;
    if (wanted <= lines->capacity)
        return KVPI_LINES_OK;
    const size_t capacity = wanted + lines->n_bytes / 2;
    char *text = kvpi_budget_realloc(lines->budget, lines->text, lines->capacity, capacity);
    if (text == NULL)
        return KVPI_LINES_NO_MEMORY;
    lines->text = text;
    lines->capacity = capacity;
    return KVPI_LINES_OK;
}

uint64_t kvpi_lines_max(const kvpi_lines *lines)
{
    const uint64_t most = lines->budget->max / KVPI_BUDGET_TIMES;
    return most > KVPI_LINES_MAX_BYTES ? most : KVPI_LINES_MAX_BYTES;
}

static int read_piece(kvpi_lines *lines)
{
    if (lines->n_bytes - lines->begin >= kvpi_lines_max(lines))
        return KVPI_LINES_TOO_LONG;
    const int result = make_room(lines);
    if (result != KVPI_LINES_OK)
        return result;
    errno = 0;
    const size_t n = kvpi_unpack_read(&lines->from, lines->text + lines->n_bytes, PIECE_BYTES);
    lines->n_bytes += n;
    lines->budget->read += n;
    lines->is_end = n < PIECE_BYTES;
    if (ferror(lines->from.file))
        return KVPI_LINES_UNREADABLE;
    if (lines->from.wrong == NULL)
        return KVPI_LINES_OK;
    return lines->budget->is_over ? KVPI_LINES_NO_MEMORY : KVPI_LINES_DAMAGED;
}

int kvpi_lines_next(kvpi_lines *lines, char **out_text, size_t *out_bytes)
{
    size_t looked_at, end;
    if (lines->has_kept)
        lines->text[lines->begin] = lines->kept;
    lines->has_kept = false;
    for (looked_at = lines->begin; (end = find_end(lines, looked_at)) == 0;) {
        looked_at = lines->n_bytes - lines->begin;
        if (lines->is_end)
            break;
        const int result = read_piece(lines);
        if (result != KVPI_LINES_OK)
            return result;
    }
    if (end == 0 && lines->n_bytes == lines->begin)
        return KVPI_LINES_END;
    end = end == 0 ? lines->n_bytes : end;
    *out_text = lines->text + lines->begin;
    *out_bytes = end - lines->begin;
    lines->kept = lines->text[end];
    lines->has_kept = end < lines->n_bytes;
    lines->text[end] = '\0';
    lines->begin = end;
    return KVPI_LINES_OK;
}

void kvpi_lines_widen(kvpi_lines *lines, size_t n_bytes)
{
    if (lines->has_kept)
        lines->text[lines->begin] = lines->kept;
    lines->has_kept = false;
    lines->begin -= n_bytes;
    lines->is_wide = true;
}

void kvpi_lines_close(kvpi_lines *lines)
{
    kvpi_unpack_close(&lines->from);
    kvpi_budget_give(lines->budget, lines->capacity);
    free(lines->text);
    lines->text = NULL;
}

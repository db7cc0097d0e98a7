/* Owns the list of figures: how it grows, its form as JSON, and how a text names its figures. If
 * memory is short for one of them, the whole list ends as NULL.
 */
#include "tool/report/figures.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tool/text.h"

/* -------------------------------------------------------------------------------------- making */

kvpi_figures kvpi_figures_begin(void)
{
    return (kvpi_figures){.lists = {json_object()}};
}

json_t *kvpi_figures_end(kvpi_figures *to)
{
    assert(to->depth == 0);
    if (!to->failed)
        return to->lists[0];
    json_decref(to->lists[0]);
    return NULL;
}

/* jansson takes over the value, and refuses NULL for it or for the list: so any failure shows. */
void kvpi_figures_json(kvpi_figures *to, const char *key, json_t *json)
{
    json_t *list = to->lists[to->depth];
    if ((key != NULL ? json_object_set_new(list, key, json) : json_array_append_new(list, json)) !=
        0)
        to->failed = true;
}

void kvpi_figures_integer(kvpi_figures *to, const char *key, uint64_t value)
{
    kvpi_figures_json(to, key, json_integer((json_int_t)value));
}

void kvpi_figures_integer_if(kvpi_figures *to, bool known, const char *key, uint64_t value)
{
    kvpi_figures_json(to, key, known ? json_integer((json_int_t)value) : json_null());
}

void kvpi_figures_real(kvpi_figures *to, const char *key, double value)
{
    kvpi_figures_json(to, key, json_real(value));
}

void kvpi_figures_flag(kvpi_figures *to, const char *key, bool value)
{
    kvpi_figures_json(to, key, json_boolean(value));
}

void kvpi_figures_text(kvpi_figures *to, const char *key, const char *text)
{
    errno = 0;
    json_t *string = json_string(text);
    kvpi_figures_json(to, key, string != NULL || errno == ENOMEM ? string : json_null());
}

static void open_list(kvpi_figures *to, const char *key, json_t *list)
{
    assert(to->depth + 1 < KVPI_FIGURES_DEPTH);
    kvpi_figures_json(to, key, list);
    to->lists[++to->depth] = to->failed ? NULL : list;
}

void kvpi_figures_open(kvpi_figures *to, const char *key)
{
    open_list(to, key, json_object());
}

void kvpi_figures_open_array(kvpi_figures *to, const char *key)
{
    open_list(to, key, json_array());
}

void kvpi_figures_close(kvpi_figures *to)
{
    assert(to->depth > 0);
    to->depth--;
}

/* ---------------------------------------------------------------------------------- renderings */

int kvpi_figures_print(const json_t *figures, FILE *file)
{
    int wrong = json_dumpf(figures, file, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    return wrong != 0 || fputc('\n', file) == EOF ? -1 : 0;
}

static const json_t *find(const json_t *figures, const char *name, size_t n)
{
    char key[48];
    assert(n < sizeof key);
    memcpy(key, name, n);
    key[n] = '\0';
    const json_t *figure = json_object_get(figures, key);
    assert(json_is_number(figure));
    return figure;
}

static bool ends_with(const char *name, size_t n, const char *suffix)
{
    const size_t n_suffix = strlen(suffix);
    return n > n_suffix && memcmp(name + n - n_suffix, suffix, n_suffix) == 0;
}

/* What stands between the braces, as a text. A mean time of 0 is that of nothing. */
static kvpi_text text_of(const json_t *figures, const char *name, size_t n)
{
    const char *slash = memchr(name, '/', n);
    size_t n_part = slash != NULL ? (size_t)(slash - name) : n;
    const json_t *figure = find(figures, name, n_part);
    double number = json_number_value(figure);
    if (slash != NULL)
        return kvpi_text_share(number, json_number_value(find(figures, slash + 1, n - n_part - 1)));
    if (ends_with(name, n, "_ns"))
        return kvpi_text_duration(number);
    if (ends_with(name, n, "_bytes"))
        return kvpi_text_bytes(number);
    if (ends_with(name, n, "_seconds"))
        return kvpi_text_duration(number * 1e9);
    if (json_is_integer(figure))
        return kvpi_text_count((uint64_t)json_integer_value(figure));
    if (strncmp(name, "ns_per_", 7) == 0)
        return number > 0 ? kvpi_text_duration(number) : (kvpi_text){"-"};
    return kvpi_text_count((uint64_t)(number + 0.5));
}

static void fill(const json_t *figures, const char *text, char *out, size_t n_bytes)
{
    size_t used = 0;
    while (*text != '\0' && used < n_bytes - 1) {
        const char *end = *text == '{' ? strchr(text, '}') : NULL;
        if (end == NULL) {
            out[used++] = *text++;
            continue;
        }
        kvpi_text figure = text_of(figures, text + 1, (size_t)(end - text - 1));
        used += (size_t)snprintf(out + used, n_bytes - used, "%s", figure.of);
        text = end + 1;
    }
    out[used < n_bytes ? used : n_bytes - 1] = '\0';
}

void kvpi_figures_print_rows(const json_t *figures, const kvpi_figures_row *rows, size_t n,
                             FILE *file)
{
    char meaning[160];
    kvpi_text value = {""};
    for (size_t i = 0; i < n; i++) {
        if (!rows[i].shown)
            continue;
        fill(figures, rows[i].value, value.of, sizeof value.of);
        fill(figures, rows[i].meaning, meaning, sizeof meaning);
        kvpi_text_row(file, rows[i].label, value, meaning);
    }
}

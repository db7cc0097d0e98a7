/* A report's list of figures: its order and forms as JSON, the rows of the text, want of memory. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>

#include "mocka.h"
#include "tool/report/figures.h"

static void expect_json(json_t *figures, const char *expected)
{
    char *found = json_dumps(figures, JSON_COMPACT);
    assert_non_null(found);
    assert_string_equal(found, expected);
    free(found);
    json_decref(figures);
}

TEST(test_order)
{
    kvpi_figures figures = kvpi_figures_begin();
    (void)state;
    kvpi_figures_integer(&figures, "zebra", UINT64_C(1) << 40);
    kvpi_figures_open(&figures, "inside");
    kvpi_figures_flag(&figures, "yes", true);
    kvpi_figures_open_array(&figures, "of");
    kvpi_figures_integer(&figures, NULL, 7);
    kvpi_figures_open(&figures, NULL);
    kvpi_figures_close(&figures);
    kvpi_figures_close(&figures);
    kvpi_figures_flag(&figures, "no", false);
    kvpi_figures_close(&figures);
    kvpi_figures_real(&figures, "ant", 0.5);
    expect_json(kvpi_figures_end(&figures),
                "{\"zebra\":1099511627776,\"inside\":{\"yes\":true,\"of\":[7,{}],\"no\":false},"
                "\"ant\":0.5}");
}

TEST(test_null)
{
    kvpi_figures figures = kvpi_figures_begin();
    (void)state;
    kvpi_figures_text(&figures, "text", "caf\xc3\xa9");
    kvpi_figures_text(&figures, "not_utf8", "caf\xe9");
    kvpi_figures_text(&figures, "none", NULL);
    kvpi_figures_integer_if(&figures, true, "known", 3);
    kvpi_figures_integer_if(&figures, false, "unknown", 3);
    expect_json(kvpi_figures_end(&figures), "{\"text\":\"caf\xc3\xa9\",\"not_utf8\":null,"
                                            "\"none\":null,\"known\":3,\"unknown\":null}");
}

/* A figure that could not be made, at any depth, leaves no list; nor does what comes after it. */
TEST(test_failed)
{
    for (int depth = 0; depth < 3; depth++) {
        kvpi_figures figures = kvpi_figures_begin();
        for (int i = 0; i < depth; i++)
            kvpi_figures_open(&figures, "inside");
        kvpi_figures_json(&figures, "missing", NULL);
        kvpi_figures_open_array(&figures, "after");
        kvpi_figures_integer(&figures, NULL, 1);
        kvpi_figures_close(&figures);
        for (int i = 0; i < depth; i++)
            kvpi_figures_close(&figures);
        assert_null(kvpi_figures_end(&figures));
    }
    assert_int_equal(kvpi_figures_print(NULL, stdout), -1);
}

static void expect_row(const json_t *figures, const char *value, const char *meaning,
                       const char *expected)
{
    const kvpi_figures_row rows[] = {{false, "hidden", "{blocks}", ""},
                                     {true, "label", value, meaning}};
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);
    assert_non_null(file);
    kvpi_figures_print_rows(figures, rows, 2, file);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, expected);
    free(text);
}

TEST(test_rows)
{
    kvpi_figures figures = kvpi_figures_begin();
    (void)state;
    kvpi_figures_integer(&figures, "blocks", 30);
    kvpi_figures_integer(&figures, "hits", 12);
    kvpi_figures_integer(&figures, "tokens", UINT64_MAX / 2); /* no double has all its digits */
    kvpi_figures_integer(&figures, "none", 0);
    kvpi_figures_real(&figures, "per_second", 1999.5);
    kvpi_figures_real(&figures, "wall_seconds", 0.25);
    kvpi_figures_real(&figures, "ns_per_open", 1500);
    kvpi_figures_integer(&figures, "p50_ns", 134217728);
    kvpi_figures_integer(&figures, "read_bytes", 3u << 19);
    kvpi_figures_real(&figures, "ns_per_nothing", 0);
    json_t *list = kvpi_figures_end(&figures);
    expect_row(list, "{hits}", "of {blocks} blocks ({hits/blocks})",
               "  label                       12  of 30 blocks (40.0 %)\n");
    expect_row(list, "{hits/none}", "{tokens}",
               "  label                    0.0 %  9,223,372,036,854,775,807\n");
    expect_row(list, "{wall_seconds}", "{per_second} a second",
               "  label                 250.0 ms  2,000 a second\n");
    expect_row(list, "{ns_per_open}", "{ns_per_nothing}", "  label                  1.50 us  -\n");
    expect_row(list, "{p50_ns}", "{read_bytes}", "  label                 134.2 ms  1.50 MiB\n");
    expect_row(list, "2:00", "as it is", "  label                     2:00  as it is\n");
    json_decref(list);
}

TEST_MAIN(NULL, NULL)

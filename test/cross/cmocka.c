/* cmocka: see cmocka.h. Assertions are made on the thread that runs the tests. */
#include "cmocka.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PASSED = 0, FAILED = 1, SKIPPED = 2 };

static jmp_buf leave;

void print_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
}

void print_message(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vprintf(format, arguments);
    va_end(arguments);
}

/* ------------------------------------------------------------------------------ the assertions */

void cross_leave(const char *why, const char *file, int line)
{
    (void)fprintf(stderr, "%s:%d: %s\n", file, line, why);
    longjmp(leave, FAILED);
}

void cross_skip(void)
{
    longjmp(leave, SKIPPED);
}

void cross_true(int is_true, const char *text, const char *file, int line)
{
    if (!is_true)
        cross_leave(text, file, line);
}

void cross_equal(uint64_t a, uint64_t b, int wanted, const char *text, const char *file, int line)
{
    if ((a == b) != wanted) {
        (void)fprintf(stderr, "%" PRId64 " and %" PRId64 ": ", (int64_t)a, (int64_t)b);
        cross_leave(text, file, line);
    }
}

void cross_in_range(uint64_t value, uint64_t least, uint64_t most, const char *file, int line)
{
    if (value < least || value > most) {
        (void)fprintf(stderr, "%" PRIu64 " is not in %" PRIu64 "..%" PRIu64 ": ", value, least,
                      most);
        cross_leave("out of range", file, line);
    }
}

void cross_memory(const void *a, const void *b, size_t n, int wanted, const char *file, int line)
{
    if ((memcmp(a, b, n) == 0) != wanted)
        cross_leave(wanted ? "bytes differ" : "bytes are equal", file, line);
}

void cross_string(const char *a, const char *b, int wanted, const char *file, int line)
{
    if ((strcmp(a, b) == 0) != wanted) {
        (void)fprintf(stderr, "'%s' and '%s': ", a, b);
        cross_leave(wanted ? "texts differ" : "texts are equal", file, line);
    }
}

/* ----------------------------------------------------------------------------------- the tests */

static int run_fixture(CMFixtureFunction fixture, void **state)
{
    const int outcome = setjmp(leave);
    return outcome == 0 ? fixture != NULL && fixture(state) != 0 : outcome;
}

static int run_body(const struct CMUnitTest *test, void **state)
{
    const int outcome = setjmp(leave);
    if (outcome == 0)
        test->test(state);
    return outcome;
}

static int run_test(const struct CMUnitTest *test, void **state)
{
    if (run_fixture(test->setup, state) != 0)
        return FAILED;
    const int outcome = run_body(test, state);
    return run_fixture(test->teardown, state) != 0 ? FAILED : outcome;
}

int cross_run(const struct CMUnitTest *tests, size_t n, CMFixtureFunction begin,
              CMFixtureFunction end)
{
    static const char *const words[] = {"ok", "FAILED", "skipped"};
    void *group = NULL;
    int n_failed = run_fixture(begin, &group) != 0;
    for (size_t i = 0; i < n && tests[i].name != NULL && n_failed < 100; i++) {
        void *state = group;
        const int outcome = run_test(&tests[i], &state);
        (void)printf("%-8s%s\n", words[outcome], tests[i].name);
        (void)fflush(stdout);
        n_failed += outcome == FAILED;
    }
    return n_failed + (run_fixture(end, &group) != 0);
}

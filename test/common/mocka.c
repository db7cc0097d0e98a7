/* mocka: the tests of the file that is linked with this one. */
#include "mocka.h"

#include <stdlib.h>

enum { TESTS_MAX = 64 };

static struct CMUnitTest tests[TESTS_MAX + 1]; /* [n_tests], then nothing: cmocka skips these */
static size_t n_tests;

void add_test(const struct CMUnitTest *test)
{
    if (n_tests == TESTS_MAX) {
        print_error("more than %d tests in one file\n", TESTS_MAX);
        abort();
    }
    tests[n_tests++] = *test;
}

int run_all_tests(CMFixtureFunction begin, CMFixtureFunction end)
{
    return n_tests == 0 ? 1 : cmocka_run_group_tests(tests, begin, end);
}

/* mocka: cmocka.h with what it needs before it, and tests that list themselves.
 *
 *     TEST(test_name) { ... }                        a test; its parameter is `state`
 *     TEST_WITH(test_name, setup, teardown) { ... }  with what runs before and after it, or NULL
 *     TEST_MAIN(begin, end)                          runs all tests of the file, in the order in
 *                                                    which they stand; before and after all of them
 *                                                    `begin` and `end`, or NULL
 *     ENDED_BY(end) world w = ...;                   end(&w) where the scope of w ends; not after a
 *                                                    failure
 */
#ifndef TEST_MOCKA_H
#define TEST_MOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

void add_test(const struct CMUnitTest *test);

/* Gives how many failed, and 1 where there is no test. */
int run_all_tests(CMFixtureFunction begin, CMFixtureFunction end);

#define ENDED_BY(end) __attribute__((cleanup(end)))

#define TEST(name) TEST_WITH(name, NULL, NULL)

#define TEST_WITH(name, setup, teardown)                                                           \
    static void name(void **state);                                                                \
    __attribute__((constructor)) static void name##_is_there(void)                                 \
    {                                                                                              \
        const struct CMUnitTest test = cmocka_unit_test_setup_teardown(name, setup, teardown);     \
        add_test(&test);                                                                           \
    }                                                                                              \
    static void name(__attribute__((unused)) void **state)

#define TEST_MAIN(begin, end)                                                                      \
    int main(void)                                                                                 \
    {                                                                                              \
        return run_all_tests(begin, end);                                                          \
    }

#endif

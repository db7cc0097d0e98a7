/* mocka: cmocka.h with what it needs before it, and tests that list themselves.
 *
 *     TEST(test_name) { ... }                        a test; its parameter is `state`
 *     TEST_WITH(test_name, setup, teardown) { ... }  with what runs before and after it, or NULL
 *     TEST_MAIN(begin, end)                          runs all tests of the file, in the order in
 *                                                    which they stand; before and after all of them
 *                                                    `begin` and `end`, or NULL
 *     ENDED_BY(end) world w = ...;                   end(&w) where the scope of w ends; not after a
 *                                                    failure
 *     assert_fields(info, a, 1, b, 2)                info.a is 1 and info.b is 2: up to five fields
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

#define assert_fields(of, ...)                                                                     \
    do {                                                                                           \
        const __typeof__(of) of_ = (of);                                                           \
        MOCKA_FIELDS(__VA_ARGS__, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0)(of_, __VA_ARGS__);              \
    } while (0)

#define MOCKA_FIELD(of, field, value)                                                              \
    do {                                                                                           \
        const uintmax_t is_ = (uintmax_t)(of).field, should_ = (uintmax_t)(value);                 \
        if (is_ != should_)                                                                        \
            print_error("%s is not %s\n", #field, #value);                                         \
        assert_int_equal(is_, should_);                                                            \
    } while (0)

/* Which of MOCKA_FIELDS_1 to _5, by how many arguments stand before the numbers. */
#define MOCKA_FIELDS(a, b, c, d, e, f, g, h, i, j, n, ...) MOCKA_FIELDS_##n

#define MOCKA_FIELDS_1(of, field, value) MOCKA_FIELD(of, field, value)
#define MOCKA_FIELDS_2(of, field, value, ...)                                                      \
    MOCKA_FIELD(of, field, value);                                                                 \
    MOCKA_FIELDS_1(of, __VA_ARGS__)
#define MOCKA_FIELDS_3(of, field, value, ...)                                                      \
    MOCKA_FIELD(of, field, value);                                                                 \
    MOCKA_FIELDS_2(of, __VA_ARGS__)
#define MOCKA_FIELDS_4(of, field, value, ...)                                                      \
    MOCKA_FIELD(of, field, value);                                                                 \
    MOCKA_FIELDS_3(of, __VA_ARGS__)
#define MOCKA_FIELDS_5(of, field, value, ...)                                                      \
    MOCKA_FIELD(of, field, value);                                                                 \
    MOCKA_FIELDS_4(of, __VA_ARGS__)

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
